"""Conditions of goals over the tables of a database, in PostgreSQL, SQLite or DuckDB.

Columns are text. Numbers are those of `values.NUMBER`, with exponents of one or two digits.
PostgreSQL compares them exactly; SQLite (beyond 64 bits) and DuckDB by the nearest double.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp, parse_one
from sqlglot.generator import Generator

from kbcore.errors import InvalidInput
from kbcore.plug.sql import SqlBranch, SqlRows, SqlSource, SqlTable, SqlUnion
from kbplanner.ir.terms import Comparison, Expr, Term, Variable
from kbplanner.ir.values.numbers import exact, has_exponent
from kbplugins.bulk_sql.clauses import number as integer

POSTGRES, SQLITE, DUCKDB = "postgres", "sqlite", "duckdb"

_MARK = Generator.SENTINEL_LINE_BREAK

_PLAIN = r"-?(0|[1-9][0-9]*)([.][0-9]+)?"
_POWER = r"([eE][+-]?[0-9]{1,2})?"

_SQLITE_PLAIN = (
    "({t} GLOB '[0-9]*' AND NOT {t} GLOB '*[^0-9.]*' AND NOT {t} GLOB '*.*.*'"
    " AND NOT {t} GLOB '*.' AND NOT {t} GLOB '0[0-9]*')"
)
_SQLITE_POWER = (
    "({t} GLOB '*[0-9][eE]*' AND NOT {t} GLOB '*[eE]*[eE]*' AND ({t} GLOB '*[eE][0-9]'"
    " OR {t} GLOB '*[eE][0-9][0-9]' OR {t} GLOB '*[eE][+-][0-9]'"
    " OR {t} GLOB '*[eE][+-][0-9][0-9]'))"
)
_UNSIGNED = "SUBSTR({t}, 1 + ({t} GLOB '-*'))"
_MANTISSA = "RTRIM(RTRIM({t}, '0123456789'), 'eE+-')"


def condition(dialect: str, table: str, column: str, answers: SqlUnion) -> str:
    """Return the condition that a column of a table is among answers with one column."""
    tree = _Conditions(dialect).condition(_table(table), column, answers)
    # On several lines the generator writes its mark as a line break, also within a constant.
    has_mark = any(_MARK in str(each.this) for each in tree.find_all(exp.Literal))
    return tree.sql(dialect=dialect, pretty=not has_mark)


@dataclass(frozen=True, slots=True)
class _TextValues:
    """Values as a dialect compares them."""

    dialect: str

    def is_number(self, value: exp.Expr, powers: bool) -> exp.Expr:
        """Return the test that a text is a number, with an exponent or without."""
        if self.dialect != SQLITE:
            pattern = f"^{_PLAIN}{_POWER if powers else ''}$"
            return exp.RegexpLike(this=value.copy(), expression=_text(pattern))
        unsigned = _sqlite(_UNSIGNED, value)
        plain = _sqlite(_SQLITE_PLAIN, unsigned)
        if not powers:
            return plain
        mantissa = _sqlite(_SQLITE_PLAIN, _sqlite(_MANTISSA, unsigned))
        return exp.paren(exp.or_(plain, exp.and_(_sqlite(_SQLITE_POWER, unsigned), mantissa)))

    def number(self, value: exp.Expr) -> exp.Expr:
        """Return the number that a text is."""
        if self.dialect == SQLITE:  # an integer stays exact, which a cast to REAL would not leave
            return exp.paren(exp.Add(this=value.copy(), expression=integer(0)))
        return exp.cast(value.copy(), "decimal" if self.dialect == POSTGRES else "double")

    def compared(self, kind: type[exp.Binary], a: exp.Expr, b: exp.Expr) -> exp.Expr:
        """Return a comparison of two texts by code point."""
        if self.dialect == POSTGRES:
            a = exp.Collate(this=a.copy(), expression=exp.to_identifier("C", quoted=True))
        return kind(this=a.copy(), expression=b.copy())

    def test(self, op: str, sides: Sequence[tuple[exp.Expr, Expr]]) -> exp.Expr:
        """Return a comparison or a test of texts; a side is its expression and its term."""
        (left, _), (right, _) = sides
        if op in ("==", "!=="):
            return exp.EQ(this=left, expression=right)
        if op in _TEXT_TESTS:
            return _TEXT_TESTS[op](left, right)
        kind = _KINDS[op]
        is_equality = kind is exp.EQ
        numbers: list[exp.Expr] = []
        guards: list[exp.Expr] = []
        is_text = False
        for value, term in sides:
            if isinstance(term, str):
                constant = exact(term)
                if constant is None or (is_equality and has_exponent(term)):
                    is_text = True
                else:
                    digits = str(constant) if isinstance(constant, int) else format(constant, "f")
                    numbers.append(exp.Literal.number(digits))
            else:
                guards.append(self.is_number(value, powers=not is_equality))
                numbers.append(self.number(value))
        texts = (
            exp.EQ(this=left, expression=right) if is_equality else self.compared(kind, left, right)
        )
        if is_text:
            if is_equality:
                return texts
            return exp.Case().when(exp.or_(*guards), exp.false()).else_(texts)
        by_value = kind(this=numbers[0], expression=numbers[1])
        case = exp.Case().when(exp.and_(*guards), by_value)
        if len(guards) == 1:
            return case.else_(exp.false())
        if is_equality:
            return case.else_(texts)
        return case.when(exp.or_(*guards), exp.false()).else_(texts)


def _starts(text: exp.Expr, part: exp.Expr) -> exp.Expr:
    length = exp.Length(this=part.copy())
    return exp.EQ(this=_part(text, integer(1), length), expression=part.copy())


def _ends(text: exp.Expr, part: exp.Expr) -> exp.Expr:
    length, rest = exp.Length(this=text.copy()), exp.Length(this=part.copy())
    start = exp.Add(this=exp.Sub(this=length.copy(), expression=rest.copy()), expression=integer(1))
    same = exp.EQ(this=_part(text, start, rest), expression=part.copy())
    return exp.and_(exp.GTE(this=length, expression=rest.copy()), same)


def _contains(text: exp.Expr, part: exp.Expr) -> exp.Expr:
    position = exp.StrPosition(this=text.copy(), substr=part.copy())
    return exp.GT(this=position, expression=integer(0))


def _part(text: exp.Expr, start: exp.Expr, length: exp.Expr) -> exp.Expr:
    return exp.Substring(this=text.copy(), start=start, length=length.copy())


_TEXT_TESTS: dict[str, Callable[[exp.Expr, exp.Expr], exp.Expr]] = {
    "starts_with": _starts,
    "ends_with": _ends,
    "contains": _contains,
}
_KINDS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ,
    "!=": exp.EQ,
    "<": exp.LT,
    "<=": exp.LTE,
    ">": exp.GT,
    ">=": exp.GTE,
}


class _Conditions:
    """The tree of one condition; aliases are numbered through it."""

    def __init__(self, dialect: str) -> None:
        self._dialect = dialect
        self._values = _TextValues(dialect)
        self._aliases = 0

    def condition(self, table: exp.Table, column: str, answers: SqlUnion) -> exp.Expr:
        """Return the condition of a column."""
        value = exp.Column(this=_name(column), table=table.this.copy(), db=table.args.get("db"))
        fixed = {each.columns[0] for each in answers.branches if each.is_unconditional}
        conditions: list[exp.Expr] = []
        queries: list[exp.Select] = []
        for branch in answers.branches:
            constant = branch.columns[0]
            if isinstance(constant, Variable):
                queries.append(self._select(branch))
            elif constant not in fixed:
                same = exp.EQ(this=value.copy(), expression=_text(constant))
                exists = exp.Exists(this=self._select(branch))
                conditions.append(exp.and_(same, exists))
        if fixed:
            constants = [_text(each) for each in sorted(map(str, fixed))]
            conditions.append(exp.In(this=value.copy(), expressions=constants))
        if queries:
            conditions.append(exp.In(this=value.copy(), query=exp.Subquery(this=_union(queries))))
        return exp.paren(exp.or_(*conditions)) if conditions else exp.false()

    def _select(self, branch: SqlBranch) -> exp.Select:
        """Return the SELECT of a branch, its columns as `c0`, `c1`, ...."""
        return _Query(self, self._values, branch).select()

    def alias(self) -> str:
        """Return an alias that is not used yet."""
        self._aliases += 1
        return f"t{self._aliases}"

    def source(self, rows: SqlTable | SqlRows | SqlUnion, alias: str) -> exp.Expr:
        """Return what stands in FROM for rows."""
        if isinstance(rows, SqlTable):
            return _table(rows.name).as_(alias)
        if isinstance(rows, SqlUnion):
            query = _union([self._select(each) for each in rows.branches])
            return exp.Subquery(this=query, alias=exp.TableAlias(this=exp.to_identifier(alias)))
        tuples = [exp.Tuple(expressions=list(map(_text, row))) for row in rows.rows]
        names = exp.TableAlias(this=exp.to_identifier(alias))
        if self._dialect != SQLITE:
            columns = [exp.to_identifier(f"c{at}") for at in range(len(rows.rows[0]))]
            names.set("columns", columns)
        return exp.Values(expressions=tuples, alias=names)

    def column(self, rows: SqlTable | SqlRows | SqlUnion, at: int, alias: str) -> exp.Expr:
        """Return a column of rows in FROM."""
        if isinstance(rows, SqlTable):
            return exp.Column(this=_name(rows.columns[at]), table=exp.to_identifier(alias))
        # SQLite gives no names to the columns of VALUES but these.
        is_values = isinstance(rows, SqlRows) and self._dialect == SQLITE
        return exp.column(f"column{at + 1}" if is_values else f"c{at}", table=alias)


class _Query:
    """FROM and WHERE of one SELECT."""

    def __init__(self, conditions: _Conditions, values: _TextValues, branch: SqlBranch) -> None:
        self._conditions = conditions
        self._values = values
        self._branch = branch
        self._columns: dict[Variable, exp.Expr] = {}
        self._nullable: set[Variable] = set()
        self._from: list[exp.Expr] = []
        self._where: list[exp.Expr] = []

    def select(self) -> exp.Select:
        """Return the SELECT."""
        # Lists of constants for one variable come last: they need no place in FROM if other rows
        # give the variable its value.
        for source in sorted(self._branch.sources, key=lambda each: _is_list(each)):
            self._add(source)
        tested: dict[Variable, None] = {}
        for test in self._branch.tests:
            if test.negated or test.op in ("!=", "!=="):
                tested.update(dict.fromkeys(test.variables()))
            self._where.append(self._test(test))
        for source in self._branch.absent:
            tested.update(
                (arg, None)
                for arg in source.args
                if isinstance(arg, Variable) and not arg.anonymous
            )
            self._where.append(exp.Not(this=self._exists(source)))
        for variable in tested:
            if variable in self._nullable:
                missing = exp.Is(this=self._value(variable), expression=exp.Null())
                self._where.append(exp.Not(this=missing))
        columns = [
            exp.alias_(self._value(term), f"c{at}") for at, term in enumerate(self._branch.columns)
        ]
        query = exp.select(*(columns or [integer(1)]))
        for at, table in enumerate(self._from):
            query = query.join(table, join_type="cross") if at else query.from_(table)
        return query.where(*self._where) if self._where else query

    def _value(self, term: Term) -> exp.Expr:
        return _text(term) if isinstance(term, str) else self._columns[term].copy()

    def _add(self, source: SqlSource) -> None:
        if _is_list(source) and source.args[0] in self._columns:
            self._where.append(self._listed(source))
            return
        alias = self._conditions.alias()
        self._from.append(self._conditions.source(source.rows, alias))
        for at, arg in enumerate(source.args):
            column = self._conditions.column(source.rows, at, alias)
            if isinstance(arg, str) or arg in self._columns:
                self._where.append(exp.EQ(this=column, expression=self._value(arg)))
            elif not arg.anonymous:
                self._columns[arg] = column
                if not isinstance(source.rows, SqlRows):
                    self._nullable.add(arg)

    def _listed(self, source: SqlSource) -> exp.Expr:
        """Return the test that a value is one of a list of constants."""
        if not isinstance(source.rows, SqlRows):
            raise TypeError("only constants are a list")
        constants = [_text(row[0]) for row in source.rows.rows]
        return exp.In(this=self._value(source.args[0]), expressions=constants)

    def _exists(self, source: SqlSource) -> exp.Expr:
        if _is_list(source):
            return exp.paren(self._listed(source))
        alias = self._conditions.alias()
        query = exp.select(integer(1)).from_(self._conditions.source(source.rows, alias))
        for at, arg in enumerate(source.args):
            if isinstance(arg, str) or not arg.anonymous:
                column = self._conditions.column(source.rows, at, alias)
                query = query.where(exp.EQ(this=column, expression=self._value(arg)))
        return exp.Exists(this=query)

    def _test(self, item: Comparison) -> exp.Expr:
        sides = [
            (_text(side) if isinstance(side, str) else self._as_text(side), side)
            for side in (item.left, item.right)
        ]
        outcome = self._values.test(item.op, sides)
        is_negative = item.negated != (item.op in ("!=", "!=="))
        return exp.Not(this=exp.paren(outcome)) if is_negative else outcome

    def _as_text(self, term: Expr) -> exp.Expr:
        if not isinstance(term, Variable):
            raise TypeError("an operand of a test is a constant or a variable")
        return exp.cast(self._columns[term].copy(), "text")


def _is_list(source: SqlSource) -> bool:
    return isinstance(source.rows, SqlRows) and len(source.args) == 1


def _union(queries: Sequence[exp.Select]) -> exp.Query:
    return exp.union(*queries) if len(queries) > 1 else queries[0]


def _name(text: str) -> exp.Identifier:
    return exp.to_identifier(text, quoted=True)


def _table(name: str) -> exp.Table:
    schema, _, table = name.rpartition(".")
    return exp.Table(this=_name(table), db=_name(schema) if schema else None)


def _text(value: str) -> exp.Expr:
    """Return a literal; refuse what a text of a database does not have."""
    if "\0" in value:
        raise InvalidInput(f"{value!r} has a NUL character, which a text in SQL cannot have")
    return exp.Literal.string(value)


def _sqlite(template: str, value: exp.Expr) -> exp.Expr:
    return parse_one(template.format(t=value.sql(SQLITE)), dialect=SQLITE)
