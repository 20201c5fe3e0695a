"""Write sets of a growing batch, compared with the checks that depend on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kbcore.state.changes import ChangeSet, WriteSet


class Waiting(Protocol):
    """An item with a change set."""

    @property
    def changes(self) -> ChangeSet:
        """The change set."""


class BatchWrites:
    """The write sets of a growing batch by tenant, computed only when a check depends on them."""

    def __init__(self) -> None:
        self._tenants: dict[tuple[str, str], WriteSet] = {}
        self._seen = 0

    def meets(self, changes: ChangeSet, batch: Sequence[Waiting]) -> bool:
        """Return True if a change set has a check that depends on what a batch writes."""
        if not batch or changes.check is None:
            return False
        if changes.of_catalog:
            return True
        for pending in batch[self._seen :]:
            earlier = pending.changes
            self._tenants.setdefault((earlier.database, earlier.tenant), WriteSet()).add(
                earlier.changes
            )
        self._seen = len(batch)
        write_set = self._tenants.get((changes.database, changes.tenant))
        return write_set is not None and write_set.meets(changes.depends)
