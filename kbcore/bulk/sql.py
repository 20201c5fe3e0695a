"""Goals as conditions of SQL: rules over tables of a database unfolded, other facts written into
the text.

Relations that depend on no table are evaluated here, so that only rules that read a table have to
be expressible in SQL. The constants of the goal are pushed into the rules before (partial
evaluation; Lloyd and Shepherdson, Journal of Logic Programming 11, 1991).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NoReturn, Protocol

from kbcore.bulk.job import read_goal
from kbcore.errors import InvalidInput
from kbcore.plug.sql import Row, SqlBranch, SqlDialect, SqlRows, SqlSource, SqlTable, SqlUnion
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.operators import COMPARISONS, SUBSTRING_TESTS
from kbplanner.ir.program import (
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    by_head,
    dependencies,
    dependents,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Atom, Comparison, Rule, Term, Variable
from kbplanner.ir.values.comparison import test
from kbplanner.ir.values.compute import compute, text_test
from kbplanner.ir.values.instants import instant
from kbplanner.syntax.arity import nearest_name
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_rule

MAX_ROWS = 1_000
"""Facts of one pattern that are written into a condition."""

MAX_CLAUSES = 500
"""Rules that a goal is unfolded to; a rule counts each time it is used."""

MAX_CHARS = 200_000
"""Characters of a condition."""

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_TABLE = re.compile(
    rf"\s*(?P<table>{_NAME}(?:\.{_NAME})?)\s*=\s*(?P<predicate>[^()\s]+)\s*"
    rf"\(\s*(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*"
)


class SqlFacts(Protocol):
    """The facts and conclusions that are valid now, of one knowledge base and scope."""

    def stored(self, atom: Atom) -> Sequence[Mapping[str, Any]]:
        """Return the stored facts with the sign of an atom that match it, as rows of the HTTP
        interface.
        """

    def derived(self, atom: Atom) -> Sequence[Row]:
        """Return the arguments of the answers of an atom."""

    def is_provided(self, schema: RelationSchema) -> bool:
        """Return True if a plugin gives the rows of a predicate."""


@dataclass(frozen=True, slots=True)
class SqlGoal:
    """A goal, and the tables of a database by `NAME=predicate(column, ...)`."""

    goal: str
    tables: Sequence[str]


def sql_condition(
    request: SqlGoal, rules: Sequence[Rule], facts: SqlFacts, dialect: SqlDialect
) -> str:
    """Return the condition that the first column of the first table is an answer of a goal.

    The goal is an atom with one named variable. Raises RuleSyntaxError for its text, InvalidInput
    naming the rule that SQL does not express, or the predicate with too many facts, and ConfigError
    naming what to install.
    """
    goal = read_goal(request.goal)
    names = [arg for arg in goal.args if isinstance(arg, Variable) and not arg.anonymous]
    if len(set(names)) != 1:
        raise InvalidInput.at(
            "goal", "must have one variable, which stands for the first column of the first table"
        )
    if not request.tables:
        raise InvalidInput.at("table", "name a table, such as documents=document(id, owner)")
    tables = dict(map(_read_table, request.tables))
    if len(tables) < len(request.tables):
        raise InvalidInput.at("table", "two tables have the facts of one predicate")
    compiler = _Unfolding(RuleSet(rules), tables, facts)
    compiler.check_tables(goal)
    first = next(iter(tables.values()))
    text = dialect.condition(first.name, first.columns[0], compiler.answers(goal, names[0]))
    if len(text) > MAX_CHARS:
        raise InvalidInput(
            f"the condition would have {len(text):,} characters, more than {MAX_CHARS:,}"
            + compiler.advice()
        )
    return text


def _read_table(text: str) -> tuple[RelationSchema, SqlTable]:
    """Read `NAME=predicate(column, ...)`."""
    match = _TABLE.fullmatch(text)
    if match is None:
        raise InvalidInput.at("table", f"{text!r} is not like documents=document(id, owner)")
    columns = tuple(each.strip() for each in match["columns"].split(","))
    if len(set(columns)) < len(columns):
        raise InvalidInput.at("table", f"{text!r} names a column twice")
    return RelationSchema(match["predicate"], len(columns)), SqlTable(match["table"], columns)


Pattern = tuple[str | None, ...]
"""The arguments of a relation: constants, None where any value matches."""


class _Unfolding:
    """Unfolds a goal."""

    def __init__(
        self, rules: RuleSet, tables: Mapping[RelationSchema, SqlTable], facts: SqlFacts
    ) -> None:
        self._rules = rules
        self._tables = tables
        self._facts = facts
        self._checked: dict[RelationSchema, bool] = {}
        denied = frozenset(each for each in rules.deniable if self._has_facts(each))
        self._denied = denied
        self._clauses = rules.clauses(denied)
        self._heads = by_head(self._clauses)
        self._live = dependents(self._clauses, tables)
        self._resolved: dict[tuple[RelationSchema, Pattern], SqlTable | SqlRows | SqlUnion] = {}
        self._open: list[RelationSchema] = []
        self._used = self._variables = 0
        self._inlined: dict[RelationSchema, int] = {}

    def check_tables(self, goal: Atom) -> None:
        """Refuse a table whose facts nothing reads; a misspelt one would grant what a `not` denies.

        The first table may only have the rows of the list, unless its name is nearly one that is
        read.
        """
        read = {atom.schema for clause in self._clauses for atom in clause.all_atoms()}
        read.add(RelationSchema(goal.predicate, len(goal.args)))
        names = {each.predicate for each in read}
        for at, (schema, table) in enumerate(self._tables.items()):
            nearest = nearest_name(schema.predicate, names)
            if schema not in read and (at or nearest):
                near = sorted(str(each) for each in read if each.predicate == nearest)
                hint = f" (did you mean {near[0]}?)" if near else ""
                raise InvalidInput.at("table", f"{table.name}: no rule reads {schema}{hint}")

    def answers(self, goal: Atom, variable: Variable) -> SqlUnion:
        """Return the values of the variable of a goal."""
        schema = RelationSchema(goal.predicate, goal.arity, goal.positive)
        if parts := self._rules.needed_components(self._denied, [schema]):
            cycle = self._rules.negative_components(self._denied)[parts[0]].cycle
            raise InvalidInput(f"recursion through negation is not SQL: {' and '.join(cycle)}")
        args = tuple(arg for arg in goal.args if isinstance(arg, (str, Variable)))
        relation = self._rules.conclusions(schema) if schema in self._rules.derived else schema
        clause = Clause(
            ClauseAtom(RelationSchema("answer#", 1), (variable,)), (ClauseAtom(relation, args),)
        )
        branch = self.branch(clause, (None,))
        if branch is None:
            return SqlUnion(())
        if len(branch.sources) == 1 and not branch.absent and not branch.tests:
            rows = branch.sources[0].rows
            if isinstance(rows, SqlUnion) and branch.sources[0].args == branch.columns:
                return rows
        return SqlUnion((branch,))

    def advice(self) -> str:
        """Return the end of an error about the length of a text."""
        if not self._inlined:
            return "; ask about rules with fewer alternatives"
        largest = max(self._inlined, key=self._inlined.__getitem__)
        return f", most of them facts of {largest}; {_as_table(largest)}"

    def resolve(
        self, schema: RelationSchema, pattern: Pattern, clause: Clause
    ) -> SqlTable | SqlRows | SqlUnion:
        """Return the rows of a relation that match: of a table all columns, of others those where
        the pattern has no constant.
        """
        if schema in self._tables:
            return self._tables[schema]
        key = schema, pattern
        if key not in self._resolved:
            is_known = schema.role in (Role.STORED, Role.DERIVED, *BEST)
            self._resolved[key] = (
                self._evaluated(schema, pattern, clause)
                if is_known and schema not in self._live
                else self._unfolded(schema, pattern, clause)
            )
        return self._resolved[key]

    def fresh(self) -> Variable:
        """Return a variable that occurs nowhere."""
        self._variables += 1
        return Variable(f"v{self._variables}")

    def refuse(self, clause: Clause, reason: str) -> NoReturn:
        """Raise the error of a clause that SQL does not express."""
        where = "the goal"
        if clause.rule:
            where = f"the rule {print_rule(self._rules.rules[clause.rule - 1])}"
        elif clause.head.schema.predicate != "answer#":
            where = f"the rules of {clause.head.schema.stored}"
        raise InvalidInput(f"{where} {reason}")

    # -- relations that depend on no table -------------------------------------------------------

    def _evaluated(self, schema: RelationSchema, pattern: Pattern, clause: Clause) -> SqlRows:
        """Return the rows of a relation as they are now."""
        for each in dependencies(self._clauses, [schema]):
            if each.role is Role.STORED:
                self._check_facts(each, pattern if each == schema else None)
            for reader in self._heads.get(each, ()):
                if any(isinstance(i, Computation) and i.function == "now" for i in reader.body):
                    self.refuse(reader, "reads now(), so that a condition would not stay true")
        terms = tuple(Variable(f"a{at}") if arg is None else arg for at, arg in enumerate(pattern))
        atom = Atom(schema.predicate, terms, schema.positive)
        if schema.role is Role.STORED:
            rows = [tuple(row["args"]) for row in self._facts.stored(atom)]
        else:
            rows = [tuple(row) for row in self._facts.derived(atom)]
        if len(rows) > MAX_ROWS:
            self.refuse(
                clause,
                f"reads {counted(len(rows), 'row')} of {schema.stored}, more than the {MAX_ROWS:,} that "
                f"a condition holds; {_as_table(schema)}",
            )
        free = [at for at, arg in enumerate(pattern) if arg is None]
        distinct = dict.fromkeys(tuple(row[at] for at in free) for row in rows)
        chars = sum(len(text) for row in distinct for text in row)
        self._inlined[schema.stored] = self._inlined.get(schema.stored, 0) + chars
        return SqlRows(tuple(distinct))

    def _check_facts(self, schema: RelationSchema, pattern: Pattern | None) -> None:
        """Refuse facts that end, and predicates of plugins."""
        if pattern is None:
            self._has_facts(schema)
            return
        terms = tuple(ANONYMOUS if arg is None else arg for arg in pattern)
        rows = self._facts.stored(Atom(schema.predicate, terms, schema.positive))
        self._check_rows(schema, rows)

    def _has_facts(self, schema: RelationSchema) -> bool:
        """Return True if a stored relation has rows; refuse those that `_check_rows` refuses."""
        if schema not in self._checked:
            atom = Atom(schema.predicate, (ANONYMOUS,) * schema.arity, schema.positive)
            rows = self._facts.stored(atom)
            self._check_rows(schema, rows)
            self._checked[schema] = bool(rows)
        return self._checked[schema]

    def _check_rows(self, schema: RelationSchema, rows: Sequence[Mapping[str, Any]]) -> None:
        if any(row["validUntil"] is not None for row in rows):
            raise InvalidInput(
                f"facts of {schema} end at a time, and a condition would go on; {_as_table(schema)}"
            )
        is_leaf = schema.positive and schema not in self._rules.derived
        if not rows and is_leaf and self._facts.is_provided(schema):
            raise InvalidInput(f"a plugin gives the rows of {schema}; {_as_table(schema)}")

    # -- relations that depend on tables ---------------------------------------------------------

    def _unfolded(self, schema: RelationSchema, pattern: Pattern, reader: Clause) -> SqlUnion:
        if schema in self._open:
            self.refuse(
                reader,
                f"is part of a recursion of {schema.stored} over tables, which is not exported",
            )
        self._open.append(schema)
        branches: dict[SqlBranch, None] = {}
        for clause in self._heads[schema]:
            if clause.aggregates:
                self.refuse(clause, "has an aggregate over a table, which is not exported")
            if schema.role in BEST:
                self.refuse(clause, "keeps the best value of a table, which is not exported")
            self._used += 1
            if self._used > MAX_CLAUSES:
                self.refuse(
                    clause, f"is one of more than {MAX_CLAUSES} that the goal is unfolded to"
                )
            branch = self.branch(clause, pattern)
            if branch is not None:
                branches[branch] = None
        self._open.pop()
        return SqlUnion(tuple(branches))

    def branch(self, clause: Clause, pattern: Pattern) -> SqlBranch | None:
        """Return the conjunction of a clause whose head matches a pattern; None if no row does."""
        body = _Conjunction(self, clause)
        head = body.renamed(clause.head.args)
        for term, constant in zip(head, pattern, strict=True):
            if constant is not None:
                body.equate(term, constant)
        for item in _in_order(clause.body):
            body.add(item)
        return body.branch([t for t, c in zip(head, pattern, strict=True) if c is None])


def _in_order(items: Sequence[ClauseItem]) -> list[ClauseItem]:
    """Return atoms, then computations, then tests and absent atoms, each in their order."""

    def rank(item: ClauseItem) -> int:
        if isinstance(item, ClauseAtom):
            return 3 if item.absent else 0
        return 1 if isinstance(item, Computation) else 2

    return sorted(items, key=rank)


class _Conjunction:
    """The body of a clause while it is unfolded."""

    def __init__(self, compiler: _Unfolding, clause: Clause) -> None:
        self._compiler = compiler
        self._clause = clause
        self._names: dict[Variable, Variable] = {}
        self._values: dict[Variable, Term] = {}
        self._sources: list[SqlSource] = []
        self._absent: list[SqlSource] = []
        self._tests: list[Comparison] = []
        self._computations: list[Computation] = []
        self._is_empty = False

    def renamed(self, terms: Sequence[Term]) -> tuple[Term, ...]:
        """Return terms of the clause with variables of this use of it."""
        return tuple(map(self._renamed, terms))

    def _renamed(self, term: Term) -> Term:
        if isinstance(term, str) or term.anonymous:
            return term
        if term not in self._names:
            self._names[term] = self._compiler.fresh()
        return self._names[term]

    def _value(self, term: Term) -> Term:
        while isinstance(term, Variable) and term in self._values:
            term = self._values[term]
        return term

    def equate(self, left: Term, right: Term) -> None:
        """Make two terms the same."""
        left, right = self._value(left), self._value(right)
        if ANONYMOUS in (left, right) or left == right:
            return
        if isinstance(left, Variable):
            self._values[left] = right
        elif isinstance(right, Variable):
            self._values[right] = left
        else:
            self._is_empty = True

    def add(self, item: ClauseItem) -> None:
        """Add an item; atoms come first, absent ones last."""
        if isinstance(item, ClauseAtom):
            args = self.renamed(item.args)
            self._without(item.schema, args) if item.absent else self._read(item.schema, args)
        elif isinstance(item, Computation):
            self._compute(item)
        elif isinstance(item, Comparison):
            left, right = self._operand(item.left), self._operand(item.right)
            self._tests.append(replace(item, left=left, right=right))
        else:
            self._compiler.refuse(self._clause, "has an aggregate, which is not exported")

    def _operand(self, term: object) -> Term:
        if not isinstance(term, (str, Variable)):
            self._compiler.refuse(self._clause, "computes in a comparison")
        return self._renamed(term)

    def _resolve(
        self, schema: RelationSchema, args: Sequence[Term]
    ) -> tuple[SqlTable | SqlRows | SqlUnion, list[Term]]:
        """Return the rows of an atom with the terms of their columns."""
        values = [self._value(arg) for arg in args]
        pattern = tuple(each if isinstance(each, str) else None for each in values)
        rows = self._compiler.resolve(schema, pattern, self._clause)
        if isinstance(rows, SqlTable):
            return rows, values
        terms: list[Term] = [each for each in values if isinstance(each, Variable)]
        if isinstance(rows, SqlUnion):
            return rows, terms
        return _chosen(rows, terms)

    def _read(self, schema: RelationSchema, args: Sequence[Term]) -> None:
        if self._is_empty:
            return
        rows, terms = self._resolve(schema, args)
        if isinstance(rows, SqlTable):
            self._sources.append(SqlSource(rows, tuple(terms)))
        elif isinstance(rows, SqlRows):
            if not rows.rows:
                self._is_empty = True
            elif len(rows.rows) == 1:
                for term, constant in zip(terms, rows.rows[0], strict=True):
                    self.equate(term, constant)
            else:
                self._sources.append(SqlSource(rows, tuple(terms)))
        elif not rows.branches:
            self._is_empty = True
        elif len(rows.branches) == 1:
            self._splice(rows.branches[0], terms)
        elif _has_names(terms) or not any(each.is_unconditional for each in rows.branches):
            self._sources.append(SqlSource(rows, tuple(terms)))

    def _splice(self, branch: SqlBranch, terms: Sequence[Term]) -> None:
        """Read the one branch of a relation as a part of this body."""
        names: dict[Variable, Variable] = {}

        def renamed(term: Term) -> Term:
            if isinstance(term, str) or term.anonymous:
                return term
            return names.setdefault(term, self._compiler.fresh())

        branch = _mapped(branch, renamed)
        self._sources += branch.sources
        self._absent += branch.absent
        self._tests += branch.tests
        for term, column in zip(terms, branch.columns, strict=True):
            self.equate(term, column)

    def _without(self, schema: RelationSchema, args: Sequence[Term]) -> None:
        if self._is_empty:
            return
        rows, terms = self._resolve(schema, args)
        if isinstance(rows, SqlTable):
            self._absent.append(SqlSource(rows, tuple(terms)))
        elif isinstance(rows, SqlRows):
            if rows.rows and not terms:
                self._is_empty = True
            elif rows.rows:
                self._absent.append(SqlSource(rows, tuple(terms)))
        elif any(each.is_unconditional for each in rows.branches) and not _has_names(terms):
            self._is_empty = True
        elif rows.branches:
            self._absent.append(SqlSource(rows, tuple(terms)))

    def _compute(self, item: Computation) -> None:
        """Compute a value of constants; refuse others."""
        if self._is_empty:
            return
        args = [self._value(arg) for arg in self.renamed(item.args)]
        target = self._renamed(item.target)
        if item.function == "=":
            self.equate(target, args[0])
            return
        constants = [arg for arg in args if isinstance(arg, str)]
        if item.function == "now":
            self._compiler.refuse(
                self._clause, "reads now(), so that a condition would not stay true"
            )
        if len(constants) < len(args):
            self._compiler.refuse(
                self._clause,
                f"computes {item.function} of a column, which has no counterpart in SQL here",
            )
        if item.function == "member":
            rows, terms = _chosen(
                SqlRows(tuple((text,) for text in dict.fromkeys(constants))), [self._value(target)]
            )
            self._sources.append(SqlSource(rows, tuple(terms)))
            return
        if item.generates:
            self._compiler.refuse(self._clause, f"generates values by {item.function}")
        value = compute(item.function, constants)
        if value is None:
            self._is_empty = True
        else:
            self.equate(target, value)

    def branch(self, columns: Sequence[Term]) -> SqlBranch | None:
        """Return the conjunction with these columns; None if it has no rows."""
        if self._is_empty:
            return None
        branch = _mapped(
            SqlBranch(
                tuple(columns), tuple(self._sources), tuple(self._absent), tuple(self._tests)
            ),
            self._value,
        )
        bound = {arg for source in branch.sources for arg in source.args}
        tests: dict[Comparison, None] = {}
        for each in branch.tests:
            if not all(term in bound for term in each.variables()):
                self._compiler.refuse(
                    self._clause, f"gives a variable its value by {each.op}, which is not exported"
                )
            outcome = self._outcome(each)
            if outcome is False:
                return None
            if outcome is None:
                tests[each] = None
        if any(isinstance(each, Variable) and each not in bound for each in branch.columns):
            self._compiler.refuse(self._clause, "has a variable in its head that no column gives")
        return replace(branch, tests=tuple(tests))

    def _outcome(self, item: Comparison) -> bool | None:
        """Return the outcome of a test of constants, None if a column is tested."""
        left, right = item.left, item.right
        is_test = item.op in SUBSTRING_TESTS
        if item.op not in COMPARISONS and not is_test:
            self._compiler.refuse(self._clause, f"tests {item.op}, which has no counterpart in SQL")
        if isinstance(left, str) and isinstance(right, str):
            number = SUBSTRING_TESTS.index(item.op) if is_test else COMPARISONS.index(item.op)
            return (text_test if is_test else test)(number + 8 * item.negated, left, right)
        by_value = not is_test and item.op not in ("==", "!==")
        if by_value and any(isinstance(side, str) and instant(side) for side in (left, right)):
            self._compiler.refuse(
                self._clause, "compares a column with an instant, which is not exported"
            )
        return None


def _chosen(rows: SqlRows, terms: Sequence[Term]) -> tuple[SqlRows, list[Term]]:
    """Return the rows in which equal terms have equal values, without repeated and anonymous
    columns, and the terms of the columns that are left.
    """
    constants = [at for at, term in enumerate(terms) if isinstance(term, str)]
    first: dict[Term, int] = {}
    for at, term in enumerate(terms):
        if isinstance(term, Variable) and not term.anonymous:
            first.setdefault(term, at)
    distinct = dict.fromkeys(
        tuple(row[at] for at in first.values())
        for row in rows.rows
        if all(row[at] == terms[at] for at in constants)
        and all(row[at] == row[first[term]] for at, term in enumerate(terms) if term in first)
    )
    return SqlRows(tuple(distinct)), list(first)


def _has_names(terms: Sequence[Term]) -> bool:
    return any(isinstance(term, str) or not term.anonymous for term in terms)


def _mapped(branch: SqlBranch, term: Callable[[Term], Term]) -> SqlBranch:
    """Return a branch with other terms; unions inside have variables of their own."""

    def source(each: SqlSource) -> SqlSource:
        return SqlSource(each.rows, tuple(map(term, each.args)))

    def operand(each: object) -> Term:
        return term(each) if isinstance(each, (str, Variable)) else ANONYMOUS

    return SqlBranch(
        tuple(map(term, branch.columns)),
        tuple(map(source, branch.sources)),
        tuple(map(source, branch.absent)),
        tuple(replace(t, left=operand(t.left), right=operand(t.right)) for t in branch.tests),
    )


def _as_table(schema: RelationSchema) -> str:
    """Return the advice to give facts as a table."""
    columns = ", ".join(f"column{at}" for at in range(1, schema.arity + 1))
    return f"give them as a table, --table 'TABLE={schema.predicate}({columns})'"
