"""The cell VALID_FROM of a stored fact: 0 means valid since creation, which needs no cell."""

from __future__ import annotations

EPOCH = -(1 << 63)
"""The cell of a fact that is valid from the epoch (`KB_EPOCH` of the engine)."""


def beginning(cell: int, created: int) -> int:
    """Return when a fact becomes valid, by its cell VALID_FROM."""
    return created if cell == 0 else 0 if cell == EPOCH else cell


def beginning_cell(start: int | None) -> int:
    """Return the cell VALID_FROM of a fact that is valid from `start`; None: from its creation."""
    return 0 if start is None else start or EPOCH
