"""Bulk runs on DuckDB against the naive evaluator, on random programs, and its numbers against
ours.
"""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlglot import exp
from support import bulk, naive, programs, values
from support.examples import examples

from kbplanner.errors import BudgetExceeded
from kbplanner.ir.operators import COMPARISONS
from kbplanner.ir.values.numbers import is_number, number, number_text
from kbplugins.bulk_sql.values import DUCKDB, number_columns, value_key, value_order


@examples(200)
@given(bulk.random_rules, st.lists(programs.facts(), max_size=14), programs.goals())
def test_a_bulk_run_has_the_answers_of_the_model(rules, facts, goal):
    compiled = bulk.rule_set(rules)
    try:
        model = naive.model(rules, facts, most=2000)
        answers = bulk.answers(compiled, facts, goal, max_rows=20_000)
    except (naive.TooLarge, BudgetExceeded):
        assume(False)
    assert answers == naive.answers(model, goal)


texts = st.one_of(
    values.constants,
    st.integers(-5, 5).map(lambda shift: str((1 << 53) + shift)),
    st.floats(allow_nan=False, allow_infinity=False).map(number_text),
    st.sampled_from(["1_0", "1f", "inf", "nan", "0x1", "\u0661", " 1", "1 ", "1\n", "1" * 400]),
    st.text(alphabet="0123456789.eE+-_T:Z", max_size=12),
)


@pytest.fixture(scope="module")
def numbers():
    with duckdb.connect() as db:
        columns = [
            each.sql("duckdb") for each in number_columns(exp.column("text", table="v"), DUCKDB)
        ]
        values = f"(SELECT text, {', '.join(columns)} FROM (SELECT $1 AS text) AS v) AS a,"
        values += values.replace("$1", "$2").replace("AS a,", "AS b")
        orders = ", ".join(value_order(op, "a", "b").sql("duckdb") for op in COMPARISONS[4:])
        same = exp.EQ(this=value_key("a"), expression=value_key("b")).sql("duckdb")
        query = f"SELECT a.whole, a.real, {same}, {orders} FROM {values}"
        yield lambda left, right: db.execute(query, [left, right]).fetchone()


@examples(2000)
@given(left=texts, right=texts)
def test_values_in_sql_are_the_values_of_the_language(numbers, left, right):
    whole, real, same, *orders = numbers(left, right)
    value = number(left)
    assert whole == (value if isinstance(value, int) else None)
    assert real == (
        float(value) if value is not None else float("inf") if is_number(left) else None
    )
    assert same == values.is_equal(left, right)
    assert orders == [values.holds(op, left, right) for op in COMPARISONS[4:]]
