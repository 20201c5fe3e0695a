"""Values of constants in SQL: which texts are numbers, comparisons, tests of strings, aggregates.

The rule of the language for numbers is `kbplanner.ir.values.numbers`. A cast by the database accepts other
texts too ('1_0', ' 1'), so that a pattern decides and the cast only converts. Integers and doubles
compare exactly: by the nearest double, then by the rest that the double leaves of an integer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp

from kbplanner.ir.values.numbers import number_text

NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
INTEGER = r"-?(0|[1-9][0-9]*)"
MAX_INTEGER_CHARS = 20
"""Longer texts of digits are doubles: no integer of 64 bits has more characters."""


MAX_WHOLE = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of a database: its name in sqlglot, and its names of functions.

    `functions` has the tests of strings by their names in the language; `min` and `max`, which take
    a value and what to order by; `total`, the sum of doubles; `row`, which makes a value of several;
    `match`, the test of a pattern.
    """

    name: str
    functions: Mapping[str, str]
    whole_text: str
    """The pattern that matches a whole text; `{}` is the pattern in it."""

    def call(self, function: str, *args: exp.Expr) -> exp.Expr:
        """Return the call of a function of the table."""
        return exp.Anonymous(this=self.functions[function], expressions=list(args))

    def text(self, query: exp.Expr, pretty: bool = False) -> str:
        """Return the SQL of a query."""
        return query.sql(dialect=self.name, pretty=pretty)


_SAME = ("contains", "starts_with", "ends_with")

DUCKDB = Dialect(
    "duckdb",
    {name: name for name in _SAME}
    | {"min": "arg_min", "max": "arg_max", "total": "fsum", "row": "row"}
    | {"match": "regexp_full_match"},
    "{}",
)
SPARK = Dialect(
    "spark",
    {"contains": "contains", "starts_with": "startswith", "ends_with": "endswith"}
    | {"min": "min_by", "max": "max_by", "total": "sum", "row": "struct", "match": "rlike"},
    r"\A(?:{})\z",  # `$` would match before a line break at the end
)


def _field(name: str, alias: str) -> exp.Column:
    return exp.column(name, table=alias)


def _is_null(value: exp.Expr) -> exp.Expr:
    return exp.Is(this=value, expression=exp.Null())


def _has(value: exp.Expr) -> exp.Expr:
    return exp.Not(this=_is_null(value))


def number_columns(text: exp.Expr, dialect: Dialect) -> list[exp.Expr]:
    """Return the expressions of `whole`, `real` and `rest` of a text; NULL where it has none."""
    short = exp.LTE(
        this=exp.Length(this=text.copy()), expression=exp.Literal.number(MAX_INTEGER_CHARS)
    )
    digits = _full_match(text, INTEGER, dialect)
    cast = exp.TryCast(this=text.copy(), to=exp.DataType.build("bigint"))
    whole = exp.Case().when(exp.and_(short, digits), cast)
    parsed = exp.Case().when(
        _full_match(text, NUMBER, dialect),
        exp.TryCast(this=text.copy(), to=exp.DataType.build("double")),
    )
    double = exp.cast(whole.copy(), "double")
    # Zero is added so that minus zero and zero are the same value.
    real = exp.Add(
        this=exp.Coalesce(this=double.copy(), expressions=[parsed]),
        expression=exp.cast(exp.Literal.number(0), "double"),
    )
    # The double next to the largest integers is 2 to the power of 63, which is no integer itself.
    largest = exp.Literal.number(MAX_WHOLE)
    below = exp.Sub(
        this=exp.paren(exp.Sub(this=whole.copy(), expression=largest)),
        expression=exp.Literal.number(1),
    )
    nearest = exp.TryCast(this=double.copy(), to=exp.DataType.build("bigint"))
    difference = (
        exp.Case()
        .when(exp.GTE(this=double.copy(), expression=exp.cast(largest.copy(), "double")), below)
        .else_(exp.Sub(this=whole.copy(), expression=nearest))
    )
    rest = exp.Coalesce(this=exp.cast(difference, "integer"), expressions=[exp.Literal.number(0)])
    return [exp.alias_(whole, "whole"), exp.alias_(real, "real"), exp.alias_(rest, "rest")]


def _full_match(text: exp.Expr, pattern: str, dialect: Dialect) -> exp.Expr:
    whole = exp.Literal.string(dialect.whole_text.format(pattern))
    return dialect.call("match", text.copy(), whole)


def value_key(alias: str) -> exp.Expr:
    """Return an expression that is equal for texts of the same number and for equal texts only."""
    real = exp.cast(_field("real", alias), "text")
    rest = exp.cast(_field("rest", alias), "text")
    digits = exp.DPipe(
        this=exp.DPipe(this=real, expression=exp.Literal.string("/")), expression=rest
    )
    quoted = exp.DPipe(this=exp.Literal.string('"'), expression=_field("text", alias))
    return exp.Case().when(_has(_field("real", alias)), digits).else_(quoted)


def number_order(op: str, left: str, right: str) -> exp.Expr:
    """Return `left op right` for one of < <= > >=: two numbers by value, two texts by code point."""
    if op in (">", ">="):
        return number_order("<" if op == ">" else "<=", right, left)
    last = exp.LT if op == "<" else exp.LTE
    a, b = _field("real", left), _field("real", right)
    numbers = exp.or_(
        exp.LT(this=a.copy(), expression=b.copy()),
        exp.and_(
            exp.EQ(this=a.copy(), expression=b.copy()),
            last(this=_field("rest", left), expression=_field("rest", right)),
        ),
    )
    texts = last(this=_field("text", left), expression=_field("text", right))
    case = exp.Case().when(exp.and_(_has(a.copy()), _has(b.copy())), numbers)
    return case.when(exp.and_(_is_null(a.copy()), _is_null(b.copy())), texts).else_(exp.false())


def text_tests(op: str, text: str, part: str, dialect: Dialect) -> exp.Expr:
    """Return `op(text, part)` for one of SUBSTRING_TESTS."""
    return dialect.call(op, _field("text", text), _field("text", part))


def aggregate_text(function: str, alias: str | None, dialect: Dialect) -> exp.Expr:
    """Return an aggregate over a group as text, NULL without a value.

    For `sum` and `avg` the text is the input of `finished`; for the others it is the value itself.
    """
    if function == "count" or alias is None:
        return exp.cast(exp.Count(this=exp.Star()), "text")
    is_number = _has(_field("real", alias))
    if function in ("min", "max"):
        order = dialect.call("row", *(_field(name, alias) for name in ("real", "rest", "text")))
        best = dialect.call(function, _field("text", alias), order)
        return exp.Filter(this=best, expression=exp.Where(this=is_number))
    if function == "representative":
        fields = [_zero_if_null(_field(name, alias)) for name in ("real", "rest")]
        is_text = exp.Case().when(is_number, exp.Literal.number(0)).else_(exp.Literal.number(1))
        order = dialect.call("row", is_text, *fields, _field("text", alias))
        return dialect.call("min", _field("text", alias), order)
    whole = _field("whole", alias)
    reals = exp.Filter(
        this=dialect.call("total", _field("real", alias)),
        expression=exp.Where(this=exp.and_(_is_null(whole.copy()), is_number)),
    )
    parts = [
        exp.Literal.string(function),
        exp.Coalesce(
            this=exp.cast(exp.Sum(this=exp.cast(whole, "decimal(38, 0)")), "text"),
            expressions=[_text("0")],
        ),
        exp.Coalesce(this=exp.cast(reals, "text"), expressions=[_text("-")]),
        exp.cast(exp.Count(this=_field("real", alias)), "text"),
    ]
    return exp.Anonymous(this="concat_ws", expressions=[_text(" "), *parts])


def _zero_if_null(value: exp.Expr) -> exp.Expr:
    return exp.Coalesce(this=value, expressions=[exp.Literal.number(0)])


def _text(value: str) -> exp.Expr:
    return exp.Literal.string(value)


def finished(raw: str) -> str | None:
    """Return the value of a sum or mean from the text of `aggregate_text`; None if it has none.

    Integers are exact as in `kbplanner.compile.aggregates`; a sum of doubles may differ from it in
    the last digits.
    """
    function, whole, real, count = raw.split(" ")
    if real == "-" and function == "sum":
        return number_text(int(whole)) if _fits(int(whole)) else None
    if int(count) == 0:
        return None
    if real == "-":
        total = int(whole)
        if _fits(total) and total % int(count) == 0:
            return number_text(total // int(count))
        return number_text(float(total) / int(count))
    if not _is_finite(real):
        return None
    try:
        nearest = float(Fraction(int(whole)) + Fraction(float(real)))
    except OverflowError:
        return None
    return number_text(nearest if function == "sum" else nearest / int(count))


def _is_finite(real: str) -> bool:
    return abs(float(real)) <= 1.7976931348623157e308


def _fits(whole: int) -> bool:
    return -(1 << 63) <= whole < 1 << 63
