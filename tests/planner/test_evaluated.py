"""Builtin literals with their values, as proofs show them."""

from __future__ import annotations

import pytest

from kbplanner.evaluated import evaluate_builtin
from kbplanner.parser import parse_rule
from kbplanner.terms import Comparison


@pytest.mark.parametrize(
    ("literal", "values", "text", "holds", "made"),
    [
        ("?n >= 18", {"n": "30"}, "30 >= 18", True, {}),
        ("?n >= 18", {"n": "7"}, "7 >= 18", False, {}),
        ("?z = ?x + 1", {"x": "2"}, "3 = 2 + 1", True, {"z": "3"}),
        ("?x * (?y + 1) = ?z", {"x": "2", "y": "0.5"}, "2 * (0.5 + 1) = 3", True, {"z": "3"}),
        ("?z = ?x + 1", {"x": "2", "z": "3.0"}, "3.0 = 2 + 1", True, {}),
        ("?z = 8 / ?x", {"x": "0"}, "?z = 8 / 0", False, {}),
        ("?x = ?y", {"x": "a b"}, '"a b" = "a b"', True, {"y": "a b"}),
        ("not contains(lower(?x), ab)", {"x": "CAB"}, "not contains(lower(CAB), ab)", False, {}),
        ('matches(?x, "^a+$")', {"x": "aa"}, 'matches(aa, "^a+$")', True, {}),
        ("length(?x, ?n)", {"x": "öß"}, "2 = length(öß)", True, {"n": "2"}),
        ("?x + 1 < ?y", {"x": "word", "y": "3"}, "word + 1 < 3", False, {}),
    ],
)
def test_a_literal_with_its_values(literal, values, text, holds, made) -> None:
    (item,) = parse_rule(f"p :- {literal}.").body
    assert isinstance(item, Comparison)
    found = evaluate_builtin(item, values)
    assert (found.text, found.holds, found.values) == (text, holds, {**values, **made})


def test_a_variable_that_nothing_gives_a_value() -> None:
    (item,) = parse_rule("p :- ?x < ?y.").body
    assert isinstance(item, Comparison)
    with pytest.raises(KeyError):
        evaluate_builtin(item, {"x": "1"})
