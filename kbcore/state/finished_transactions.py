"""Which transactions were committed lately: a client whose answer was lost can ask, also after a restart."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

KEPT_MS = 600_000
KEPT_IDS = 10_000


class CommittedTransactions:
    """Ids of the transactions a tenant committed in the last ten minutes of logged time, at most 10,000."""

    def __init__(self) -> None:
        self._at: OrderedDict[str, int] = OrderedDict()

    def known(self, transaction: str, now: int) -> bool:
        """Whether a transaction was committed, and not too long ago."""
        return self._at.get(transaction, now - KEPT_MS) > now - KEPT_MS

    def note(self, transaction: str, at: int) -> None:
        """A transaction was committed at this logged time (epoch milliseconds), which never goes back."""
        self._at[transaction] = at
        self.prune(at)

    def prune(self, now: int) -> None:
        """Forget what is too old, or too much."""
        while self._at:
            oldest = next(iter(self._at))
            if len(self._at) <= KEPT_IDS and self._at[oldest] > now - KEPT_MS:
                return
            del self._at[oldest]

    def all(self) -> dict[str, int]:
        """Ids with the times of their commits, oldest first."""
        return dict(self._at)

    def restore(self, known: Iterable[tuple[str, int]]) -> None:
        """Take over what a snapshot kept."""
        self._at = OrderedDict(known)
