"""Equalities and comparisons restrict the rules that are called, so only requested rows are
derived.
"""

from __future__ import annotations

import pytest

import kbcore

ROWS = 300

RULES = """
pair(?x, ?y) :- nat(?x), nat(?y).
query(?x) :- pair(?x, ?x), ?x < 2.
below(?x, ?y) :- pair(?x, ?y), ?x < 2, ?y < 2.
through(?x) :- middle(?x, ?x).
middle(?x, ?y) :- pair(?y, ?x), nat(?x).
computed(?x, ?y) :- nat(?x), ?y = ?x * ?x.
fixed(?x) :- computed(?x, ?x).
"""


@pytest.fixture
def kb():
    """A request may derive a few rows for each fact, and far fewer than the square of the facts."""
    with kbcore.open_kb(config=kbcore.Config(query_max_rows=5 * ROWS, engine_verify=True)) as found:
        found.tell_many("nat", [(n,) for n in range(ROWS)])
        found.teach(RULES)
        yield found


@pytest.mark.parametrize(
    ("goal", "answers"),
    [
        ("query(?x)", [("0",), ("1",)]),
        ("query(1)", [("1",)]),
        ("below(?x, ?y)", [("0", "0"), ("0", "1"), ("1", "0"), ("1", "1")]),
        ("through(?x)", [(str(n),) for n in range(ROWS)]),
        ("pair(?x, ?x)", [(str(n), str(n)) for n in range(ROWS)]),
        ("pair(?x, ?x), ?x < 3", [("0",), ("1",), ("2",)]),
        ("fixed(?x)", [("0",), ("1",)]),
        ("computed(?x, ?x)", [("0", "0"), ("1", "1")]),
    ],
)
def test_the_square_is_not_derived(kb, goal, answers):
    assert list(kb.ask(goal)) == answers
