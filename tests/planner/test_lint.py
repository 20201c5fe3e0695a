"""Warnings about valid rules that are probably mistakes, with their positions."""

from __future__ import annotations

import pytest

import kbcore

ONCE = 'warning: the variable ?y is used once (write _ for "any", or ?_y to keep the name)'
PRODUCT = "warning: the body is a cross product: ?x and ?y share no variable (join them by a variable, or split the rule)"

PAIR = PRODUCT.replace("?x and ?y", "?g and ?h")


@pytest.mark.parametrize(
    ("rule", "warnings"),
    [
        ("p(?x) :- q(?x, ?y).", [f"f:1:16: {ONCE}"]),
        ("a(b).\n\n p(?x) :-\n   q(?x, ?y).", [f"f:4:10: {ONCE}"]),
        ("p(X) :- q(X).", ['f:1:1: warning: "X" is a constant here (did you mean ?X?)']),
        ("p(?x) :- q(?x, ?_y), r(?x, _).", []),
        ("p(?x) :- q(?x), 2 < 1.", ["f:1:17: warning: a comparison with < can never hold"]),
        ("p(?x) :- q(?x), ?x != ?x.", ["f:1:17: warning: a comparison with != can never hold"]),
        ("p(?x) :- q(?x), ?x <= ?x, 1 < 2, 1 = 1.0.", []),
        ("p(?x) :- q(?x), r(?y), q(?y).", [f"f:1:1: {PRODUCT}"]),
        ("p(?x, ?y) :- q(?x, ?g), r(?g), r(?y, ?h), q(?h).", [f"f:1:1: {PAIR}"]),
        ("p(?x, count(?y)) :- q(?x), r(?y).", [f"f:1:1: {PRODUCT}"]),
        ("p(?x, ?y) :- q(?x), r(?y).", []),
        ("p(?x, ?y) :- q(?x, ?g), r(?g), q(?y).", []),
        ("~p(?x, write, ?y) :- q(?x), r(?y).", []),
        ("p(?x, ?y) :- q(?x), r(?y), ?x < ?y.", []),
        ("p(?x, ?y) :- q(?x), r(?y), not s(?x, ?y).", []),
        ("p(?x) :- q(?x), flag(on), any(_).", []),
    ],
)
def test_warnings_of_a_rule(rule, warnings):
    with kbcore.open_kb() as kb:
        kb.load("q(a). q(a, b). r(a). r(a, b). s(a, b). flag(on). any(a).")
        assert [warning.display("f") for warning in kb.load(rule).warnings] == warnings
