"""Totals of a column: the engine against the reference, and aggregates of stored facts against
Python.
"""

from __future__ import annotations

from array import array
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.reference.engine import ReferenceEngine

import kbcore
from kbcore.errors import InvalidInput
from kbcore.reason.aggregate import AggregateQuery
from kbplanner.engine import relation
from kbplanner.engine.backend import SAME
from kbplanner.engine.engine import Engine
from kbplanner.ir.values.numbers import answer_key, number, python_number

finite = st.one_of(
    st.integers(-10, 10).map(str),
    st.integers(-(1 << 63), (1 << 63) - 1).map(str),
    st.integers(-(10**20), 10**20).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "0.0", "0.1", "2.50", "1E5", "1e308", "-1e308", "5", "5.0", "5e0"]),
)
texts = st.one_of(
    finite,
    finite,
    finite,
    st.sampled_from(["1e400", "-1e999", "1e-400", "9" * 400, "007", "x", "", "NaN"]),
)


@examples(200)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), texts, texts), max_size=30),
    st.sets(st.integers(0, 29)),
    st.sets(st.integers(0, 29)),
    st.sampled_from([[0, 0, 0], ["a", 0, 0], [0, 0, SAME | 1], ["a", 0, SAME | 1]]),
    st.sampled_from([None, 1, 2]),
    st.integers(1, 7),
)
def test_both_engines_have_the_same_totals(rows, dead, hidden, pattern, column, piece):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relation, "ROWS_PER_TOTAL_CALL", piece)
        found = []
        for engine in (Engine(), ReferenceEngine()):
            stored = engine.relation(3)
            for row in rows:
                stored.insert(engine.intern_many(row), 1)
            for place, row in enumerate(rows):
                one = array("I", engine.intern_many(row))
                if place in hidden:
                    stored.hide(one, 1, True)
                if place in dead:
                    stored.delete(one, 1)
            wanted = [engine.intern(part) if isinstance(part, str) else part for part in pattern]
            pauses = []
            total = stored.total(wanted, column, lambda seen=pauses: seen.append(1))
            symbols = total.least, total.greatest, total.other
            named = [engine.text(symbol) if symbol else "" for symbol in symbols]
            found.append(
                (total.matched, total.numbers, total.whole, total.reals, total.infinite, named)
            )
        assert found[0] == found[1]


@examples(60)
@given(st.lists(finite, min_size=1, max_size=12), st.integers(0, 12))
def test_stored_facts_are_aggregated_exactly(values, split):
    """In one partition or in two, the sum is that of exact arithmetic, rounded once."""
    exact = {value: number(value) for value in values}
    rows = [(f"f{i}", value) for i, value in enumerate(values)]
    has_sum = None not in exact.values()
    whole = sum(Fraction(exact[value] or 0) for value in values)
    integers = all(isinstance(exact[value], int) for value in values)
    with kbcore.open_kb() as kb:
        kb.tell_many("v", rows[:split])
        kb.tell_many("v", rows[split:], scope="s")

        def result(op):
            return kb.kb.aggregate(AggregateQuery("v", op, arg_index=1), scope="*").result

        try:
            sum_wanted = int(whole) if integers else float(whole)
        except OverflowError:
            has_sum = False
        if not has_sum:
            with pytest.raises(InvalidInput, match="SUM has no value"):
                result("SUM")
        else:
            assert result("SUM") == sum_wanted
            assert type(result("SUM")) is type(sum_wanted)
            assert result("AVG") == sum_wanted / len(values)
        assert result("MIN") == python_number(min(values, key=answer_key))
        assert result("MAX") == python_number(max(values, key=answer_key))
        assert kb.kb.aggregate(AggregateQuery("v", "COUNT"), scope="*").result == len(values)


def test_an_infinite_sum_is_refused():
    with kbcore.open_kb() as kb:
        kb.tell_many("v", [("9" * 400,), ("1",)])
        assert kb.kb.aggregate(AggregateQuery("v", "MIN", arg_index=0)).result == 1
        assert kb.kb.aggregate(AggregateQuery("v", "MAX", arg_index=0)).result == 10**400 - 1
        for op in ("SUM", "AVG"):
            with pytest.raises(InvalidInput, match=f"{op} has no value"):
                kb.kb.aggregate(AggregateQuery("v", op, arg_index=0))
        kb.tell("v", ["9" * 400 + ".5"])
        with pytest.raises(InvalidInput, match="larger than any number"):
            kb.kb.aggregate(AggregateQuery("v", "MAX", arg_index=0))


def test_as_of_totals_are_those_of_the_facts_that_held():
    with kbcore.open_kb() as kb:
        kb.tell("v", ["2"], valid_from=1_000, valid_until=2_000)
        kb.tell("v", ["3.5"], valid_from=1_000)
        assert kb.kb.aggregate(AggregateQuery("v", "SUM", arg_index=0), as_of=1_500).result == 5.5
        assert kb.kb.aggregate(AggregateQuery("v", "SUM", arg_index=0)).result == 3.5
        assert kb.kb.aggregate(AggregateQuery("v", "COUNT"), as_of=1_500).result == 2
