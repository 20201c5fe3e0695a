"""Values of constants in SQL: which texts are numbers, comparisons, tests of strings, aggregates.

The rules of the language are `kbplanner.ir.values.numbers` and `comparison`. A cast by the database
accepts other texts too ('1_0', ' 1'), so that a pattern decides and the cast only converts. Numbers
compare exactly, and instants by time, by their *rank*: a text whose order is that of the values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from sqlglot import exp, parse_one

from kbplanner.ir.values.numbers import number_text

NUMBER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?"
POWER = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?[eE][+-]?[0-9]+"
INTEGER = r"-?(0|[1-9][0-9]*)"
INSTANT = (
    "[0-9]{4}-(0[1-9]|1[0-2])-[0-3][0-9]([Tt ]([01][0-9]|2[0-3]):[0-5][0-9]"
    "(:[0-5][0-9]([.,][0-9]{1,9})?)?([Zz]|[+-]([01][0-9]|2[0-3])(:?[0-5][0-9])?)?)?"
)
MAX_REAL = "1.7976931348623157e308"


_MANTISSA = "regexp_replace(regexp_replace({t}, '[eE].*$', ''), '^-', '')"
_DIGITS = f"replace({_MANTISSA}, '.', '')"
_SIGNIFICANT = f"regexp_replace({_DIGITS}, '^0+', '')"
_POWER = "COALESCE(TRY_CAST(regexp_extract({t}, '[eE]([+-]?[0-9]+)$', 1) AS BIGINT), 0)"
_POINT = (
    f"(length(regexp_replace({_MANTISSA}, '[.].*$', '')) - length({_DIGITS})"
    f" + length({_SIGNIFICANT}) + {_POWER})"
)
"""The place of the decimal point: a number is 0.digits times ten to this power."""
_TRIMMED = f"regexp_replace({_SIGNIFICANT}, '0+$', '')"
_NUMBER_RANK = (
    f"CASE WHEN {_SIGNIFICANT} = '' THEN 'n1'"
    f" WHEN starts_with({{t}}, '-') THEN 'n0' || lpad(CAST(500000 - {_POINT} AS TEXT), 6, '0')"
    f" || translate({_TRIMMED}, '0123456789', '9876543210') || '~'"
    f" ELSE 'n2' || lpad(CAST(500000 + {_POINT} AS TEXT), 6, '0') || {_TRIMMED} END"
)

_WHOLE_DIGITS = "replace({t}, '-', '')"
_WHOLE_TRIMMED = f"regexp_replace({_WHOLE_DIGITS}, '0+$', '')"
_WHOLE_RANK = (
    "CASE WHEN {t} = '0' OR {t} = '-0' THEN 'n1'"
    f" WHEN starts_with({{t}}, '-') THEN 'n0' || CAST(500000 - length({_WHOLE_DIGITS}) AS TEXT)"
    f" || translate({_WHOLE_TRIMMED}, '0123456789', '9876543210') || '~'"
    f" ELSE 'n2' || CAST(500000 + length({_WHOLE_DIGITS}) AS TEXT) || {_WHOLE_TRIMMED} END"
)
"""The same for integers, with fewer patterns."""

_OFFSET = "regexp_extract({t}, '^.{{16}}[^+-]*([+-][0-9:]+)$', 1)"
_DAY = "date_diff('day', DATE '0001-01-01', TRY_CAST(substr({t}, 1, 10) AS DATE))"
_SECONDS = (
    f"{_DAY} * 86400"
    " + COALESCE(TRY_CAST(substr({t}, 12, 2) AS BIGINT), 0) * 3600"
    " + COALESCE(TRY_CAST(substr({t}, 15, 2) AS BIGINT), 0) * 60"
    " + COALESCE(TRY_CAST(regexp_extract({t}, '^.{{16}}:([0-9][0-9])', 1) AS BIGINT), 0)"
    f" + CASE WHEN starts_with({_OFFSET}, '-') THEN 1 ELSE -1 END"
    f" * (COALESCE(TRY_CAST(substr({_OFFSET}, 2, 2) AS BIGINT), 0) * 3600"
    f" + COALESCE(TRY_CAST(substr(replace({_OFFSET}, ':', ''), 4, 2) AS BIGINT), 0) * 60)"
)
_INSTANT_RANK = (
    # A day before the first one in UTC is added, so that no number of seconds is negative.
    f"CASE WHEN length({{t}}) = 10 THEN 'i' || lpad(CAST(86400 + {_DAY} * 86400 AS TEXT), 12, '0')"
    f" || '000000000' ELSE 'i' || lpad(CAST(86400 + {_SECONDS} AS TEXT), 12, '0')"
    " || rpad(regexp_extract({t}, '[.,]([0-9]+)', 1), 9, '0') END"
)
"""Seconds and nanoseconds; null for a day that the calendar does not have."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """The SQL of a database: its name in sqlglot, and its names of functions.

    `functions` has the tests of strings by their names in the language; `min` and `max`, which take
    a value and what to order by; `total`, the sum of doubles; `row`, which makes a value of
    several; `match`, the test of a pattern.
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
    """Return the expressions of `whole`, `real` and `rank` of a text; NULL where it has none.

    `whole` is an integer of 64 bits, `real` the nearest double, which is infinite for numbers
    without a value in arithmetic, `rank` the rank of a number or an instant.
    """
    is_integer = _full_match(text, INTEGER, dialect)
    whole = exp.Case().when(
        is_integer, exp.TryCast(this=text.copy(), to=exp.DataType.build("bigint"))
    )
    double = exp.TryCast(this=text.copy(), to=exp.DataType.build("double"))
    finite = exp.LTE(
        this=exp.Abs(this=double.copy()), expression=_sql(f"CAST({MAX_REAL} AS DOUBLE)")
    )
    is_zero = exp.EQ(this=_of(_SIGNIFICANT, text), expression=_text(""))
    in_range = exp.and_(
        finite.copy(), exp.or_(is_zero, exp.NEQ(this=double.copy(), expression=_sql("0")))
    )
    is_power = _full_match(text, POWER, dialect)
    is_number = exp.and_(
        _full_match(text, NUMBER, dialect),
        exp.or_(
            exp.Not(this=is_power.copy()), exp.Coalesce(this=in_range, expressions=[exp.false()])
        ),
    )
    infinite = _sql("CAST('Infinity' AS DOUBLE)")
    has_value = exp.and_(
        finite.copy(), exp.or_(exp.Not(this=is_integer.copy()), _has(whole.copy()))
    )
    real = exp.Case().when(
        is_number.copy(), exp.Case().when(has_value, double.copy()).else_(infinite)
    )
    is_instant = exp.and_(
        _full_match(text, INSTANT, dialect), exp.Not(this=_of("starts_with({t}, '0000')", text))
    )
    rank = (
        exp.Case()
        .when(is_integer.copy(), _of(_WHOLE_RANK, text))
        .when(is_number, _of(_NUMBER_RANK, text))
        .when(is_instant, _of(_INSTANT_RANK, text))
    )
    return [exp.alias_(whole, "whole"), exp.alias_(real, "real"), exp.alias_(rank, "rank")]


def _sql(text: str) -> exp.Expr:
    return parse_one(text, dialect="duckdb")


def _of(template: str, text: exp.Expr) -> exp.Expr:
    """Return the expression of a template for a text."""
    return _sql(template.format(t=text.sql("duckdb")))


def _full_match(text: exp.Expr, pattern: str, dialect: Dialect) -> exp.Expr:
    whole = exp.Literal.string(dialect.whole_text.format(pattern))
    return dialect.call("match", text.copy(), whole)


def value_key(alias: str) -> exp.Expr:
    """Return an expression that is equal for texts that `=` holds for, and for those only."""
    quoted = exp.DPipe(this=_text('"'), expression=_field("text", alias))
    has_exponent = exp.and_(_is_a("n", alias), _of("lower({t}) LIKE '%e%'", _field("text", alias)))
    by_rank = exp.and_(_has(_field("rank", alias)), exp.Not(this=exp.paren(has_exponent)))
    return exp.Case().when(by_rank, _field("rank", alias)).else_(quoted)


def _is_a(kind: str, alias: str) -> exp.Expr:
    """Return the test of the kind of a value: `n` for a number, `i` for an instant."""
    first = exp.Substring(
        this=exp.Coalesce(this=_field("rank", alias), expressions=[_text("t")]),
        start=exp.Literal.number(1),
        length=exp.Literal.number(1),
    )
    return exp.EQ(this=first, expression=_text(kind))


def value_order(op: str, left: str, right: str) -> exp.Expr:
    """Return `left op right` for one of < <= > >=: two numbers by value, two instants by time, two
    other texts by code point.
    """
    if op in (">", ">="):
        return value_order("<" if op == ">" else "<=", right, left)
    last = exp.LT if op == "<" else exp.LTE
    ranks = last(this=_field("rank", left), expression=_field("rank", right))
    texts = last(this=_field("text", left), expression=_field("text", right))
    number, other = _is_a("n", left), _is_a("n", right)
    both_instants = exp.and_(_is_a("i", left), _is_a("i", right))
    case = exp.Case().when(exp.or_(exp.and_(number, other), both_instants), ranks)
    return case.when(exp.or_(number.copy(), other.copy()), exp.false()).else_(texts)


def text_tests(op: str, text: str, part: str, dialect: Dialect) -> exp.Expr:
    """Return `op(text, part)` for one of SUBSTRING_TESTS."""
    return dialect.call(op, _field("text", text), _field("text", part))


def aggregate_text(function: str, alias: str | None, dialect: Dialect) -> exp.Expr:
    """Return an aggregate over a group as text, NULL without a value.

    For `sum` and `avg` the text is the input of `finished`; for the others it is the value itself.
    """
    if function == "count" or alias is None:
        return exp.cast(exp.Count(this=exp.Star()), "text")
    is_number = _is_a("n", alias)
    text = _field("text", alias)
    order = dialect.call("row", _field("rank", alias), text.copy())
    if function in ("min", "max"):
        best = dialect.call(function, text, order)
        return exp.Coalesce(
            this=_filtered(best, is_number), expressions=[_filtered(best, _is_a("i", alias))]
        )
    if function == "representative":
        rank = exp.Case().when(is_number.copy(), _field("rank", alias)).else_(_text("t"))
        return dialect.call("min", text, dialect.call("row", rank, text.copy()))
    whole = _field("whole", alias)
    reals = _filtered(
        dialect.call("total", _field("real", alias)), exp.and_(_is_null(whole.copy()), is_number)
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


def _filtered(value: exp.Expr, condition: exp.Expr) -> exp.Expr:
    return exp.Filter(this=value.copy(), expression=exp.Where(this=condition.copy()))


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
