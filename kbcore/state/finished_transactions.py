"""Ids of recently committed transactions.

A client that lost the answer to its commit can ask, even after a restart.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

KEPT_MS = 600_000
KEPT_IDS = 10_000


class CommittedTransactions:
    """Ids of the transactions that a tenant committed in the last ten minutes of logged time, at
    most 10,000.
    """

    def __init__(self) -> None:
        self._at: OrderedDict[str, int] = OrderedDict()

    def known(self, transaction: str, now: int) -> bool:
        """Return True if a transaction was committed within the retention period."""
        return self._at.get(transaction, now - KEPT_MS) > now - KEPT_MS

    def note(self, transaction: str, at: int) -> None:
        """Record a commit at a logged time (epoch milliseconds); logged times never decrease."""
        self._at[transaction] = at
        self.prune(at)

    def prune(self, now: int) -> None:
        """Remove ids beyond the age limit or the count limit."""
        while self._at:
            oldest = next(iter(self._at))
            if len(self._at) <= KEPT_IDS and self._at[oldest] > now - KEPT_MS:
                return
            del self._at[oldest]

    def all(self) -> dict[str, int]:
        """Return ids with their commit times, oldest first."""
        return dict(self._at)

    def restore(self, known: Iterable[tuple[str, int]]) -> None:
        """Load the ids of a snapshot."""
        self._at = OrderedDict(known)
