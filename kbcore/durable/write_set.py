"""What a growing batch of change sets writes, for the checks that depend on it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from kbcore.state.changes import ChangeSet, Footprint


class Waiting(Protocol):
    """What has a change set."""

    @property
    def changes(self) -> ChangeSet:
        """That change set."""


class Written:
    """What the change sets of a growing batch write, looked at only when something depends on it."""

    def __init__(self) -> None:
        self._tenants: dict[tuple[str, str], Footprint] = {}
        self._seen = 0

    def meets(self, changes: ChangeSet, batch: Sequence[Waiting]) -> bool:
        """Whether a change set has a check that depends on what a batch writes."""
        if not batch or changes.check is None:
            return False
        if changes.of_catalog:
            return True
        for pending in batch[self._seen :]:
            earlier = pending.changes
            self._tenants.setdefault((earlier.database, earlier.tenant), Footprint()).add(earlier.changes)
        self._seen = len(batch)
        footprint = self._tenants.get((changes.database, changes.tenant))
        return footprint is not None and footprint.meets(changes.depends)
