"""Computed values and aggregates in process: goal tables, scopes, moments, with engines of either
kind.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.runtimes import engine_of_nodes

import kbcore
from kbcore.reason.options import AnswerOptions
from kbplanner.ir.terms import Literal
from kbplanner.syntax.parser import parse_atom


@pytest.fixture(params=["c", "python"])
def kb(request):
    with (
        engine_of_nodes(request.param),
        kbcore.open_kb(config=replace(kbcore.Config(), engine_verify=True)) as found,
    ):
        yield found


def test_numbers_as_in_the_examples(kb):
    kb.tell_many("age", [("ann", "30"), ("bob", "30.0"), ("cy", "old")])
    kb.teach("adult(?x) :- age(?x, ?n), ?n >= 18.")
    assert list(kb.ask("age", ["?x", "30"])) == [("ann", "30")]
    assert list(kb.ask("adult(?x)")) == [("ann",), ("bob",)]


def test_an_aggregate_as_in_the_examples(kb):
    kb.teach("total(?c, sum(?v)) :- order(?c, ?o, ?v).")
    kb.tell_many("order", [("c", "o1", 5), ("c", "o2", 5)])
    assert list(kb.ask("total(?c, ?s)")) == [("c", "10")]


def test_a_cached_table_of_groups_is_never_stale(kb):
    kb.teach("total(?c, sum(?v)) :- order(?c, ?o, ?v).")
    kb.teach("rich(?c) :- total(?c, ?s), ?s > 9. poor(?c) :- order(?c, _, _), not rich(?c).")
    kb.tell_many("order", [("c", "o1", 5), ("c", "o2", 5)])
    assert list(kb.ask("total(c, ?s)")) == [("c", "10")]
    kb.tell_many("order", [("c", "o3", 0.5), ("d", "o4", 1)])
    assert list(kb.ask("total(c, ?s)")) == [("c", "10.5")]
    assert list(kb.ask("total(d, ?s)")) == [("d", "1")]
    assert list(kb.ask("rich(?c)")) == [("c",)]
    assert list(kb.ask("poor(?c)")) == [("d",)]
    kb.retract("order", ["c", "o1", 5])
    assert list(kb.ask("total(?c, ?s)")) == [("c", "5.5"), ("d", "1")]
    assert list(kb.ask("poor(?c)")) == [("c",), ("d",)]


def test_groups_are_separate_by_scope_and_time(kb):
    kb.teach("n(?c, count(?i)) :- item(?c, ?i).")
    kb.tell("item", ["a", 1])
    kb.tell("item", ["a", 2])
    kb.tell("item", ["a", 3], scope="s")
    kb.tell("item", ["a", 4], valid_from=1000, valid_until=2000)
    goal = Literal(parse_atom("n(a, ?n)"))
    assert [row["args"] for row in kb.kb.infer(goal)] == [["a", "2"]]
    assert [row["args"] for row in kb.kb.infer(goal, AnswerOptions(scope="s"))] == [["a", "1"]]
    assert [row["args"] for row in kb.kb.infer(goal, AnswerOptions(as_of=1500))] == [["a", "1"]]


def test_a_computed_value_joins_with_every_way_to_write_it(kb):
    kb.tell_many("at", [("a", "1"), ("b", "2"), ("c", "2.0"), ("d", "2e0"), ("e", "3")])
    kb.teach("next(?x, ?y) :- ?m = ?n + 1, at(?x, ?n), at(?y, ?m).")
    kb.teach("same(?x, ?y) :- at(?x, ?n), at(?y, ?m), ?n = ?m, ?x !== ?y.")
    # An exponent form is a text for `=`, and a number for `+`.
    assert list(kb.ask("next(a, ?y)")) == [("a", "b"), ("a", "c")]
    assert list(kb.ask("next(?x, e)")) == [("b", "e"), ("c", "e"), ("d", "e")]
    assert list(kb.ask("same(b, ?y)")) == [("b", "c")]
    kb.tell("at", ["f", "2.00"])
    assert list(kb.ask("next(a, ?y)")) == [("a", "b"), ("a", "c"), ("a", "f")]
