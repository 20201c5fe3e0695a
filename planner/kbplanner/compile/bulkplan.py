"""Plans of bulk runs: strata and semi-naive versions of clauses as plain data, for engines outside
this process.

Relations have names that fit as SQL identifiers, and constants have numbers from 1. Nothing else of
the compiler's data structures is needed to execute a plan.

Before:

    reach(?x, ?y) :- edge(?x, ?y).
    reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
    ?- reach(?x, ?y).

After:

    stratum 1, recursive: r1_reach
      start: r1_reach(?x, ?y) :- r0_edge(?x, ?y).
      round: r1_reach(?x, ?z) :- delta r1_reach(?x, ?y), r0_edge(?y, ?z).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbplanner.compile.plan import NOW, RelationView
from kbplanner.compile.rules import RuleSet
from kbplanner.errors import EngineFault, InvalidInput
from kbplanner.ir.operators import MEMBERSHIP, TRUE
from kbplanner.ir.program import (
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Component,
    Computation,
    Program,
    dependencies,
    equated,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import Atom, Comparison, Term, Variable
from kbplanner.passes import rewrite
from kbplanner.passes.magic import demand_can_cost_more
from kbplanner.passes.order import NoStatistics, order_items
from kbplanner.passes.stratify import strata


class UnfitForBulk(InvalidInput):
    """Rules that a bulk run cannot evaluate; `predicates` are the ones concerned, with signs and
    arities.
    """

    def __init__(self, message: str, predicates: Sequence[str]) -> None:
        super().__init__(message, {"predicates": list(predicates)})
        self.predicates = list(predicates)


@dataclass(frozen=True, slots=True)
class BulkAtom:
    """A relation applied to terms: rows of a view, or with `absent` the test that no row
    matches.
    """

    relation: str
    args: tuple[Term, ...]
    view: RelationView = RelationView.FULL
    absent: bool = False
    growing: bool = False
    """True if the relation belongs to the component that is evaluated, so that its view matters."""


BulkItem = BulkAtom | Comparison | Computation | AggregateClause


@dataclass(frozen=True, slots=True)
class ClauseVersion:
    """A clause with the view of each of its reads. Items come in an order in which each test and
    computation finds its variables bound.
    """

    rule: int
    head: str
    args: tuple[Term, ...]
    items: tuple[BulkItem, ...]

    def __str__(self) -> str:
        body = ", ".join(map(_item_text, self.items))
        head = f"{self.head}({', '.join(map(str, self.args))})"
        return f"{head} :- {body}." if body else f"{head}."


@dataclass(frozen=True, slots=True)
class BulkStratum:
    """Relations that are evaluated together.

    `start` runs once. `rounds` runs until a round adds no row; it is empty without recursion.
    """

    relations: tuple[str, ...]
    start: tuple[ClauseVersion, ...]
    rounds: tuple[ClauseVersion, ...]


@dataclass(frozen=True, slots=True)
class BulkPlan:
    """A goal and the rules it depends on, compiled for a bulk run.

    `arities` has all relations. `stored` maps those of asserted facts to predicate, arity and sign.
    `seed_row` is the row of `seed`: those constants of the goal that restrict the evaluation.
    `answer_columns` says for each argument of the goal which column of `answer` holds it, or None
    where the goal's own constant does.
    """

    goal: Atom
    arities: Mapping[str, int]
    stored: Mapping[str, RelationSchema]
    titles: Mapping[str, str]
    constants: tuple[str, ...]
    strata: tuple[BulkStratum, ...]
    seed: str | None
    seed_row: tuple[str, ...]
    answer: str
    answer_columns: tuple[int | None, ...]
    may_not_end: bool
    """True if rules compute values in a recursion."""

    def constant(self, text: str) -> int:
        """Return the number of a constant of the plan."""
        return self.constants.index(text) + 1

    @property
    def dated(self) -> bool:
        """True if the plan reads `now()`: it is executed as `at` returns it."""
        return NOW in self.constants

    def at(self, now: str) -> BulkPlan:
        """Return the plan with an instant as the value of `now()`."""
        if not self.dated:
            return self
        strata = (
            replace(
                stratum,
                start=tuple(_dated(version, now) for version in stratum.start),
                rounds=tuple(_dated(version, now) for version in stratum.rounds),
            )
            for stratum in self.strata
        )
        constants = dict.fromkeys(now if text == NOW else text for text in self.constants)
        return replace(self, constants=tuple(constants), strata=tuple(strata))

    def versions(self) -> Iterator[ClauseVersion]:
        """Yield all clause versions in the order of evaluation."""
        for stratum in self.strata:
            yield from stratum.start
            yield from stratum.rounds


def bulk_plan(rules: RuleSet, goal: Atom, denied: Collection[RelationSchema] = ()) -> BulkPlan:
    """Compile rules for a goal; `denied` are the stored relations of explicit negatives with rows.

    Raises UnfitForBulk where the goal depends on recursion through negation, or on a predicate that
    keeps the best value of each group.
    """
    schema = RelationSchema(goal.predicate, goal.arity, goal.positive)
    known = frozenset(denied) & rules.deniable
    parts = rules.negative_components(known)
    if needed := rules.needed_components(known, [schema]):
        cycle = parts[needed[0]].cycle
        raise UnfitForBulk(
            f"recursion through negation: {' and '.join(cycle)} would depend on the absence of "
            "conclusions of the same recursion; bulk runs need rules without it",
            cycle,
        )
    needed_relations = dependencies(rules.clauses(known), [rules.conclusions(schema)])
    best = sorted({str(each.stored) for each in needed_relations if each.role in BEST})
    if best:
        raise UnfitForBulk(
            f"the best value of a group: {' and '.join(best)}; a bulk run adds rows and replaces none, "
            "so that it needs rules without min or max before the last argument of a head",
            best,
        )
    if schema not in rules.derived:
        program = Program((), schema, None, schema, tuple(range(schema.arity)))
    else:
        program = _program(rules, schema, goal, known)
    return _Naming(program, goal).plan(_computes_recursively(program, rules))


def _program(
    rules: RuleSet, schema: RelationSchema, goal: Atom, known: frozenset[RelationSchema]
) -> Program:
    adornment = "".join("b" if isinstance(arg, str) else "f" for arg in goal.args)
    clauses = rules.clauses(known)
    program = rewrite(clauses, schema.derived, adornment, skip={"equivalence", "project"})
    if demand_can_cost_more(program) and not _computes_recursively(program, rules):
        return rewrite(
            clauses, schema.derived, "f" * schema.arity, full=True, skip={"equivalence", "project"}
        )
    return program


def _computes_recursively(program: Program, rules: RuleSet) -> bool:
    return not rules.computed_recursion.isdisjoint(
        rules.rules[clause.rule - 1] for clause in program.clauses if clause.rule
    )


class _Naming:
    """Names for the relations and numbers for the constants of a program."""

    def __init__(self, program: Program, goal: Atom) -> None:
        if program.answer is None:
            raise EngineFault("a program without an answer relation cannot be planned")
        self._program = program
        self._goal = goal
        self._answer = program.answer
        self._names: dict[RelationSchema, str] = {}
        self._constants: dict[str, None] = {}
        for extra in (program.seed, program.answer):
            if extra is not None:
                self._name(extra)
        for text in goal.args:
            self._note(text)

    def plan(self, may_not_end: bool) -> BulkPlan:
        stages = tuple(self._stratum(part) for part in strata(self._program))
        names = self._names
        seed = self._program.seed
        return BulkPlan(
            goal=self._goal,
            arities={name: schema.arity for schema, name in names.items()},
            stored={name: schema for schema, name in names.items() if schema.role is Role.STORED},
            titles={name: str(schema) for schema, name in names.items()},
            constants=tuple(self._constants),
            strata=stages,
            seed=None if seed is None else names[seed],
            seed_row=() if seed is None else self._seed_row(seed),
            answer=names[self._answer],
            answer_columns=self._program.answer_columns,
            may_not_end=may_not_end,
        )

    def _seed_row(self, seed: RelationSchema) -> tuple[str, ...]:
        """Return the constants of the goal where the seed is bound; passes may bind fewer."""
        marked = zip(self._goal.args, seed.adornment, strict=True)
        return tuple(arg for arg, mark in marked if mark == "b" and isinstance(arg, str))

    def _name(self, schema: RelationSchema) -> str:
        if schema not in self._names:
            word = re.sub(r"[^a-z0-9]+", "_", schema.predicate.lower())[:24].strip("_")
            prefix = "" if schema.role in (Role.STORED, Role.DERIVED) else f"{schema.role.value}_"
            self._names[schema] = f"r{len(self._names)}_{prefix}{word}".rstrip("_")
        return self._names[schema]

    def _note(self, term: object) -> None:
        if isinstance(term, str):
            self._constants[term] = None

    def _stratum(self, part: Component) -> BulkStratum:
        start: list[ClauseVersion] = []
        rounds: list[ClauseVersion] = []
        for clause in self._program.clauses:
            if clause.head.schema not in part.relations:
                continue
            own = [atom for atom in clause.atoms() if atom.schema in part.relations]
            if not own:
                start.append(self._version(clause, None, []))
            rounds.extend(self._version(clause, driver, own) for driver in own)
        relations = tuple(sorted(map(self._name, part.relations)))
        return BulkStratum(relations, tuple(start), tuple(rounds))

    def _version(
        self, clause: Clause, driver: ClauseAtom | None, own: Sequence[ClauseAtom]
    ) -> ClauseVersion:
        """Return a clause in which `driver` reads the new rows, own reads before it the rows from
        before the round, and those after it all rows.
        """
        views: dict[int, RelationView] = {}
        if driver is not None:
            at = next(i for i, atom in enumerate(own) if atom is driver)
            for i, atom in enumerate(own):
                views[id(atom)] = (
                    RelationView.DELTA
                    if i == at
                    else RelationView.OLD
                    if i < at
                    else RelationView.FULL
                )
        items: Sequence[ClauseItem] = clause.body
        if not clause.aggregates:
            items = order_items(clause.body, (), NoStatistics(), first=driver)
        for arg in clause.head.args:
            self._note(arg)
        return ClauseVersion(
            clause.rule,
            self._name(clause.head.schema),
            clause.head.args,
            tuple(self._item(item, views) for item in _with_tests(items)),
        )

    def _item(self, item: ClauseItem, views: Mapping[int, RelationView]) -> BulkItem:
        if isinstance(item, ClauseAtom):
            for arg in item.args:
                self._note(arg)
            view = views.get(id(item), RelationView.FULL)
            name = self._name(item.schema)
            return BulkAtom(name, item.args, view, item.absent, id(item) in views)
        if isinstance(item, Comparison):
            self._note(item.left)
            self._note(item.right)
        elif isinstance(item, Computation):
            if item.function == "now":
                item = Computation(item.target, "=", (NOW,))
            for arg in item.args:
                self._note(arg)
        return item


def _with_tests(items: Sequence[ClauseItem]) -> Iterator[ClauseItem]:
    """Yield the items of a body in which a generator whose target has a value is a test: that takes
    one call, where the generator could give any number of values.
    """
    bound: set[Variable] = set()
    for index, item in enumerate(items):
        if isinstance(item, Computation) and item.generates and item.target in bound:
            is_value = Variable(f"is_value#{index}")
            yield Computation(is_value, MEMBERSHIP[item.function], (item.target, *item.args))
            yield Comparison("==", is_value, TRUE)
            continue
        yield item
        if isinstance(item, Comparison):
            if binding := equated(item, bound):
                bound.add(binding[0])
        elif not (isinstance(item, ClauseAtom) and item.absent):
            bound.update(item.variables())


def _dated(version: ClauseVersion, now: str) -> ClauseVersion:
    """Return a clause version with an instant in place of NOW, which only computations have."""
    items = (
        replace(item, args=tuple(now if arg == NOW else arg for arg in item.args))
        if isinstance(item, Computation)
        else item
        for item in version.items
    )
    return replace(version, items=tuple(items))


def _item_text(item: BulkItem) -> str:
    if isinstance(item, BulkAtom):
        view = (
            "absent "
            if item.absent
            else ""
            if item.view is RelationView.FULL
            else f"{item.view.name} "
        )
        return f"{view.lower()}{item.relation}({', '.join(map(str, item.args))})"
    if isinstance(item, Comparison):
        return f"{'not ' if item.negated else ''}{item.left} {item.op} {item.right}"
    if isinstance(item, Computation):
        return f"{item.target} := {item.function}({', '.join(map(str, item.args))})"
    return f"{item.target} := {item.function}({item.variable or '*'})"
