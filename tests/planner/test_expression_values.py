"""Expressions with their values, as proofs show them."""

from __future__ import annotations

import pytest

from kbplanner.ir.terms import Comparison
from kbplanner.ir.values.compute import value_of
from kbplanner.syntax.parser import parse_rule


@pytest.mark.parametrize(
    ("expression", "known", "value"),
    [
        ("?x", {"x": "a b"}, "a b"),
        ("?x", {}, None),
        ("18", {}, "18"),
        ("?x + 1", {"x": "2"}, "3"),
        ("?x * (?y + 1)", {"x": "2", "y": "0.5"}, "3"),
        ("?x * (?y + 1)", {"x": "2"}, None),
        ("8 / ?x", {"x": "0"}, None),
        ("?x + 1", {"x": "word"}, None),
        ("lower(?x)", {"x": "CAB"}, "cab"),
    ],
)
def test_an_expression_with_its_values(
    expression: str, known: dict[str, str], value: str | None
) -> None:
    (item,) = parse_rule(f"p :- ?z = {expression}.").body
    assert isinstance(item, Comparison)
    assert value_of(item.right, known) == value
