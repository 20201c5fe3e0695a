"""The check of histories finds stale reads and lost writes, and accepts unknown outcomes."""

from __future__ import annotations

import pytest
from support.linearizable import READ, REMOVE, STORE, Operation, is_linearizable

STORED = Operation(STORE, 0, 1)


@pytest.mark.parametrize(
    "history",
    [
        [],
        [STORED, Operation(READ, 2, 3, True)],
        [STORED, Operation(READ, 0, 1, False)],
        [
            STORED,
            Operation(REMOVE, 2, 5),
            Operation(READ, 3, 4, True),
            Operation(READ, 3, 6, False),
        ],
        [Operation(STORE, 0, None), Operation(READ, 5, 6, False), Operation(READ, 7, 8, True)],
        [Operation(STORE, 0, None), Operation(READ, 5, 6, False)],
        [STORED, Operation(REMOVE, 2, None), Operation(STORE, 3, 4), Operation(READ, 5, 6, False)],
        [Operation(READ, 0, None)],
    ],
)
def test_valid_histories(history):
    assert is_linearizable(history)


@pytest.mark.parametrize(
    "history",
    [
        [STORED, Operation(READ, 2, 3, False)],
        [Operation(READ, 2, 3, True)],
        [STORED, Operation(REMOVE, 2, 3), Operation(READ, 4, 5, True)],
        [
            STORED,
            Operation(REMOVE, 2, 9),
            Operation(READ, 3, 4, False),
            Operation(READ, 5, 6, True),
        ],
        [
            Operation(STORE, 0, None),
            Operation(READ, 1, 2, True),
            Operation(READ, 3, 4, False),
        ],
    ],
)
def test_invalid_histories(history):
    assert not is_linearizable(history)
