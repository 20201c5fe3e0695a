"""One SELECT for each version of a clause."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlglot import exp

from kbplanner.compile.bulkplan import BulkAtom, BulkItem, BulkPlan, ClauseVersion
from kbplanner.compile.plan import RelationView
from kbplanner.errors import EngineFault
from kbplanner.ir.operators import SUBSTRING_TESTS
from kbplanner.ir.program import AggregateClause, Computation, equated
from kbplanner.ir.terms import Comparison, Expr, Variable
from kbplugins.bulk_sql.values import Dialect, aggregate_text, text_tests, value_key, value_order

TEXTS = "kb_text"
ROUND = "kb_round"

_WORDS = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}

ConstantId = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class ClauseContext:
    """The round before the one that a statement is for, the ids of constants, and the dialect."""

    round_: exp.Expr
    constant: ConstantId
    dialect: Dialect

    @classmethod
    def of(cls, round_: int, constant: ConstantId, dialect: Dialect) -> ClauseContext:
        """Return the context after a round by its number."""
        return cls(number(round_), constant, dialect)


def function_table(function: str, count: int) -> str:
    """Return the name of the table of a function with this many arguments."""
    return f"fn_{_WORDS.get(function, function)}_{count}"


def column(index: int, table: str | None = None) -> exp.Column:
    """Return a column of a relation."""
    return exp.column(f"c{index}", table=table)


def is_call(item: BulkItem) -> bool:
    """Return True if an item reads a function table, which has to be filled before."""
    if isinstance(item, Computation):
        return item.function != "="
    return isinstance(item, Comparison) and item.op == "matches"


def call_of(item: BulkItem) -> tuple[str, tuple[Expr, ...]]:
    """Return function and arguments of an item for which `is_call` is true."""
    if isinstance(item, Computation):
        return item.function, item.args
    if isinstance(item, Comparison):
        return item.op, (item.left, item.right)
    raise EngineFault("only computations and patterns are calls")


def rows_of(version: ClauseVersion, context: ClauseContext) -> exp.Select:
    """Return the SELECT of the rows that a clause version derives, as ids in `c0`, `c1`, ...."""
    body = _Body(context)
    for item in version.items:
        body.add(item)
    return body.select([body.term(arg) for arg in version.args])


def arguments_of(version: ClauseVersion, at: int, context: ClauseContext) -> exp.Select:
    """Return the SELECT of the distinct arguments of the call that is item number `at`."""
    body = _Body(context)
    for item in version.items[:at]:
        body.add(item)
    _, args = call_of(version.items[at])
    return body.select([body.term(arg) for arg in args]).distinct()


def groups_of(version: ClauseVersion, dialect: Dialect) -> exp.Select:
    """Return the SELECT of the groups of a clause with aggregates.

    A column of a group has ids; a column of an aggregate has the text of `values.aggregate_text`,
    NULL without a value.
    """
    source = next(item for item in version.items if isinstance(item, BulkAtom))
    folds = {item.target: item for item in version.items if isinstance(item, AggregateClause)}
    query = exp.select().from_(exp.to_table(source.relation).as_("b"))
    joined: dict[Variable, str] = {}
    keys: list[exp.Expr] = []
    having: list[exp.Expr] = [exp.GT(this=exp.Count(this=exp.Star()), expression=number(0))]
    for index, arg in enumerate(version.args):
        fold = folds.get(arg) if isinstance(arg, Variable) else None
        if fold is None:
            value: exp.Expr = column(source.args.index(arg), "b")
            keys.append(value.copy())
        else:
            if fold.variable is not None and fold.variable not in joined:
                joined[fold.variable] = alias = f"v{len(joined)}"
                at = source.args.index(fold.variable)
                same = exp.EQ(this=exp.column("id", table=alias), expression=column(at, "b"))
                query = query.join(exp.to_table(TEXTS).as_(alias), on=same)
            value = aggregate_text(
                fold.function, joined.get(fold.variable or Variable("")), dialect
            )
            having.append(exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())))
        query = query.select(exp.alias_(value, f"c{index}"))
    if keys:
        query = query.group_by(*keys)
    return query.having(exp.and_(*having))


def statements(version: ClauseVersion, constant: ConstantId, dialect: Dialect) -> Sequence[str]:
    """Return the queries of a clause version: of the arguments of its functions, then of its rows.

    `round` is a placeholder for the number of the last complete round.
    """
    context = ClauseContext(exp.Placeholder(this="round"), constant, dialect)
    if has_aggregates(version):
        queries = [groups_of(version, dialect)]
    else:
        calls = [at for at, item in enumerate(version.items) if is_call(item)]
        queries = [*(arguments_of(version, at, context) for at in calls), rows_of(version, context)]
    return [dialect.text(query, pretty=True) for query in queries]


def has_aggregates(version: ClauseVersion) -> bool:
    """Return True if a clause has aggregates, which stand alone in it."""
    return any(isinstance(item, AggregateClause) for item in version.items)


def answers_of(plan: BulkPlan, names: Sequence[str], constant: ConstantId) -> exp.Select:
    """Return the SELECT of the answers as texts, in columns of these names; a goal without
    arguments has the column `holds`.
    """
    query = exp.select().from_(exp.to_table(plan.answer).as_("a"))
    conditions: list[exp.Expr] = []
    first: dict[Variable, exp.Expr] = {}
    for index, (arg, at) in enumerate(zip(plan.goal.args, plan.answer_columns, strict=True)):
        fixed = number(constant(arg)) if isinstance(arg, str) else None
        source = fixed if at is None else column(at, "a")
        if source is None:
            raise EngineFault(f"no column of the answers has {arg}")
        if fixed is not None and at is not None:
            conditions.append(exp.EQ(this=source.copy(), expression=fixed))
        if isinstance(arg, Variable) and not arg.anonymous:
            if arg in first:
                conditions.append(exp.EQ(this=first[arg].copy(), expression=source.copy()))
            first.setdefault(arg, source)
        same = exp.EQ(this=exp.column("id", table=f"t{index}"), expression=source.copy())
        query = query.join(exp.to_table(TEXTS).as_(f"t{index}"), on=same)
        text = exp.column("text", table=f"t{index}")
        query = query.select(exp.alias_(text, names[index], quoted=True))
    if not names:
        query = query.select(exp.alias_(exp.true(), "holds"))
    return query.where(*conditions) if conditions else query


def number(value: int) -> exp.Expr:
    """Return an integer literal."""
    return exp.Literal.number(value)


def equal(pairs: Sequence[tuple[exp.Expr, exp.Expr]]) -> exp.Expr:
    """Return the condition that all pairs are equal."""
    return exp.and_(*(exp.EQ(this=a, expression=b) for a, b in pairs)) if pairs else exp.true()


class _Body:
    """FROM and WHERE of a SELECT, item by item."""

    def __init__(self, context: ClauseContext) -> None:
        self._context = context
        self._columns: dict[Variable, exp.Expr] = {}
        self._sources: list[tuple[exp.Expr, list[exp.Expr]]] = []
        self._conditions: list[exp.Expr] = []
        self._texts: dict[Expr, str] = {}

    def term(self, term: Expr) -> exp.Expr:
        """Return the id of a constant or of a bound variable."""
        if isinstance(term, str):
            return number(self._context.constant(term))
        if isinstance(term, Variable) and term in self._columns:
            return self._columns[term].copy()
        raise EngineFault(f"nothing binds {term} where it is used")

    def select(self, terms: Sequence[exp.Expr]) -> exp.Select:
        """Return the SELECT of these expressions as `c0`, `c1`, ...; `c0` is 0 where there are
        none.
        """
        values = list(terms) or [number(0)]
        query = exp.select(*(exp.alias_(value, f"c{i}") for i, value in enumerate(values)))
        conditions = list(self._conditions)
        for index, (table, on) in enumerate(self._sources):
            if index == 0:
                query = query.from_(table)
                conditions = on + conditions
            elif on:
                query = query.join(table, on=exp.and_(*on))
            else:
                query = query.join(table, join_type="cross")
        return query.where(exp.and_(*conditions)) if conditions else query

    def add(self, item: BulkItem) -> None:
        """Add one item; its variables are bound, or the item binds them."""
        if isinstance(item, BulkAtom):
            self._absent(item) if item.absent else self._read(item)
        elif isinstance(item, Computation):
            self._compute(item)
        elif isinstance(item, Comparison):
            binding = equated(item, self._columns)
            if binding is None:
                self._test(item)
            else:
                self._bind_equal(*binding)
        else:
            raise EngineFault("an aggregate stands in a clause of its own")

    def _join(self, table: str) -> tuple[str, list[exp.Expr]]:
        alias, on = f"t{len(self._sources)}", list[exp.Expr]()
        self._sources.append((exp.to_table(table).as_(alias), on))
        return alias, on

    def _read(self, atom: BulkAtom) -> None:
        alias, on = self._join(atom.relation)
        if atom.growing:
            kind = {
                RelationView.FULL: exp.LTE,
                RelationView.DELTA: exp.EQ,
                RelationView.OLD: exp.LT,
            }[atom.view]
            on.append(
                kind(this=exp.column(ROUND, table=alias), expression=self._context.round_.copy())
            )
        for index, arg in enumerate(atom.args):
            value = column(index, alias)
            if isinstance(arg, Variable) and arg not in self._columns:
                if not arg.anonymous:
                    self._columns[arg] = value
            else:
                on.append(exp.EQ(this=value, expression=self.term(arg)))

    def _absent(self, atom: BulkAtom) -> None:
        pairs = [
            (column(index, "n"), self.term(arg))
            for index, arg in enumerate(atom.args)
            if isinstance(arg, str) or not arg.anonymous
        ]
        rows = exp.select(number(1)).from_(exp.to_table(atom.relation).as_("n")).where(equal(pairs))
        self._conditions.append(exp.Not(this=exp.Exists(this=rows)))

    def _compute(self, item: Computation) -> None:
        is_copy = item.function == "="
        value = self.term(item.args[0]) if is_copy else self._call(item.function, item.args)
        if item.target in self._columns:
            self._conditions.append(exp.EQ(this=self.term(item.target), expression=value))
        else:
            self._columns[item.target] = value

    def _call(self, function: str, args: Sequence[Expr]) -> exp.Expr:
        alias, on = self._join(function_table(function, len(args)))
        on.extend(
            exp.EQ(this=column(index, alias), expression=self.term(arg))
            for index, arg in enumerate(args)
        )
        value = exp.column("value", table=alias)
        on.append(exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null())))
        return value

    def _text(self, term: Expr) -> str:
        """Return the alias of the row of `kb_text` of a term."""
        if term not in self._texts:
            alias, on = self._join(TEXTS)
            on.append(exp.EQ(this=exp.column("id", table=alias), expression=self.term(term)))
            self._texts[term] = alias
        return self._texts[term]

    def _bind_equal(self, target: Variable, source: Expr) -> None:
        """Bind a variable to every constant that is the same number, or the same text."""
        known = value_key(self._text(source))
        alias, on = self._join(TEXTS)
        on.append(exp.EQ(this=value_key(alias), expression=known))
        self._columns[target] = exp.column("id", table=alias)

    def _test(self, item: Comparison) -> None:
        if item.op in ("==", "!=="):
            same = exp.EQ(this=self.term(item.left), expression=self.term(item.right))
            test: exp.Expr = same if item.op == "==" else exp.Not(this=same)
        elif item.op in ("=", "!="):
            left, right = self._text(item.left), self._text(item.right)
            same = exp.EQ(this=value_key(left), expression=value_key(right))
            test = same if item.op == "=" else exp.Not(this=same)
        elif item.op == "matches":
            value = self._call("matches", (item.left, item.right))
            test = exp.EQ(this=value, expression=number(1))
        elif item.op in SUBSTRING_TESTS:
            test = text_tests(
                item.op, self._text(item.left), self._text(item.right), self._context.dialect
            )
        else:
            test = value_order(item.op, self._text(item.left), self._text(item.right))
        self._conditions.append(exp.Not(this=exp.paren(test)) if item.negated else test)
