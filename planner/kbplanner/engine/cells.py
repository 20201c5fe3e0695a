"""The cell VALID_FROM of a stored fact: 0 there is for one that holds since it was created, which needs no cell at all."""

from __future__ import annotations

EPOCH = -(1 << 63)
"""The cell of a fact that begins to hold with the epoch (`KB_EPOCH` of the engine)."""


def beginning(cell: int, created: int) -> int:
    """When a fact begins to hold, by its cell VALID_FROM."""
    return created if cell == 0 else 0 if cell == EPOCH else cell


def beginning_cell(start: int | None) -> int:
    """The cell VALID_FROM of a fact that begins to hold at `start`; None: when it is created."""
    return 0 if start is None else start or EPOCH
