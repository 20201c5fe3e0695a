"""The programs that change the derived rows of a rewritten program after stored rows were added and
removed.

For each component, in the order of evaluation, there are two programs. The first finds the rows
that may *fall*: those with an instance that has lost a premise (of those of a recursive component
it may be tested first whether they hold nevertheless). The second, on the state without
them, finds the rows that are *new*: those with an instance that has got a premise, and those among
the fallen ones with another instance; in a recursive component, also all that follow from these.
What fell and is not new has gone, what is new and did not fall has come. (Deletion and
rederivation: Gupta, Mumick and Subrahmanian, "Maintaining views incrementally", 1993.)

Before:

    ok(?x) :- n(?x), not off(?x).
    ?- ok(?x).

After:

    component 1, fallen:
    fallen ok/1(?x) :- removed n/1(?x), absent off/1(?x), kept ok/1(?x).  % rule 1
    fallen ok/1(?x) :- added off/1(?x), n/1(?x), kept ok/1(?x).  % rule 1
    fallen ok/1(?x) :- removed n/1(?x), added off/1(?x), kept ok/1(?x).  % rule 1
    fallen ok/1(?a0) :- removed ok/1(?a0), kept ok/1(?a0).
    component 1, new:
    new ok/1(?x) :- fell ok/1(?x), n/1(?x), absent off/1(?x).  % rule 1
    new ok/1(?x) :- added n/1(?x), absent off/1(?x), absent kept ok/1(?x).  % rule 1
    new ok/1(?x) :- removed off/1(?x), absent off/1(?x), n/1(?x), absent kept ok/1(?x).  % rule 1
    new ok/1(?a0) :- fell ok/1(?a0), ok/1(?a0).
    new ok/1(?a0) :- added ok/1(?a0), absent kept ok/1(?a0).

In the first program the kept rows of components below are those before the change, in the second
those after it. Stored relations have changed already: where the first program needs their rows
before, a clause has a version that reads them and one that reads those removed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

from kbplanner.ir.program import (
    AggregateClause,
    Clause,
    ClauseAtom,
    ClauseItem,
    Computation,
    Program,
    by_head,
    components,
)
from kbplanner.ir.schema import BEST, RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Comparison, Term, Variable
from kbplanner.ir.terms import numbered_variables as variables

MAX_VERSIONS = 64
"""A program with a clause that would have more versions than this is not maintained."""

_KNOWN, _VALUE, _BETTER = Variable("known#"), Variable("value#"), Variable("better#")
"""The value that is kept of a group, another one, and the better of both."""

_UNMAINTAINED = frozenset({Role.CLASSES, Role.FIRST})


@dataclass(frozen=True, slots=True, eq=False)
class ChangedComponent:
    """A component of a program, and the clauses that find its changes.

    `reads` are the relations below it, and the seed of the goal if it is one of its own. Rows of
    the component can fall when a relation in `falls_by_removed` loses rows, or a relation in
    `falls_by_added` gets some; `grows_by_added` and `grows_by_removed` are the same for new rows.
    `fallen` finds the rows that lost a premise below the component, `onward`, if it is recursive,
    those that lost one of the rows that `fell`, and `closure` these and all that follow. `new` is
    the second program. `again` derives all rows of the component, `tests` those that hold where
    demand that only grows is as it was.
    """

    relations: tuple[RelationSchema, ...]
    reads: frozenset[RelationSchema]
    falls_by_removed: frozenset[RelationSchema]
    falls_by_added: frozenset[RelationSchema]
    grows_by_added: frozenset[RelationSchema]
    grows_by_removed: frozenset[RelationSchema]
    fallen: tuple[Clause, ...]
    onward: tuple[Clause, ...]
    closure: tuple[Clause, ...]
    new: tuple[Clause, ...]
    again: tuple[Clause, ...]
    tests: tuple[Clause, ...]

    @property
    def is_recursive(self) -> bool:
        """True if its rows can follow from each other."""
        return bool(self.onward)


def kept(schema: RelationSchema) -> RelationSchema:
    """Return the relation that holds the rows of a relation of the program: a stored one itself."""
    return schema if schema.role is Role.STORED else _named("kept", schema)


def added(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the rows that hold only after the change."""
    return _named("added", schema)


def removed(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the rows that held only before the change."""
    return _named("removed", schema)


def fell(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the fallen rows, as an input of the second program."""
    return _named("fell", schema)


def asked(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the bindings of goals, which are demand without a clause."""
    return _named("asked", schema)


def fallen(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the fallen rows, as a result of the first program."""
    return _named("fallen", schema, Role.DERIVED)


def new(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the new rows, as a result of the second program; of best values, of
    those that are better than the kept ones.
    """
    return _named("new", schema, schema.role if schema.role in BEST else Role.DERIVED)


def replaced(schema: RelationSchema) -> RelationSchema:
    """Return the relation of the kept best values that new ones replace, as another result."""
    return _named("replaced", schema, Role.DERIVED)


def _named(name: str, schema: RelationSchema, role: Role = Role.STORED) -> RelationSchema:
    # No predicate of a user can hold a NUL character; what is behind it is not shown.
    more = (schema.role.value, schema.truth, schema.adornment, repr(schema.restrictions))
    return RelationSchema("\0".join((f"{name} {schema}", *more)), schema.arity, role=role)


def differentiate(program: Program) -> list[ChangedComponent] | None:
    """Return the components of a program with the clauses for their changes, in the order of
    evaluation.

    None if it cannot be maintained: it reads rows of plugins or of another evaluation, depends on
    `now()`, keeps classes or first rows, or has a clause with too many versions.
    """
    if program.external or not all(map(_is_plain, program.clauses)):
        return None
    heads = by_head(program.clauses)
    growing = _growing(program)
    result = []
    for part in components(program.clauses):
        relations = tuple(sorted(part.relations, key=str))
        own = [clause for schema in relations for clause in heads[schema]]
        if any(_ClauseVersions(clause, part.relations, ()).count > MAX_VERSIONS for clause in own):
            return None
        result.append(_changed(own, relations, growing, program.seed))
    return result


def _growing(program: Program) -> frozenset[RelationSchema]:
    """Return the demand that never falls: more of it than needed does no harm.

    The goal's own demand does fall where its linear recursion was rewritten: its answers are what
    is reached from that demand, and do not say from which.
    """
    schemas = {atom.schema for clause in program.clauses for atom in (clause.head, *clause.atoms())}
    demand = frozenset(schema for schema in schemas if schema.role is Role.DEMAND)
    if any(schema.role is Role.ANSWER for schema in schemas):
        return demand - {program.seed}
    return demand


def _is_plain(clause: Clause) -> bool:
    return not any(
        item.function == "now"
        if isinstance(item, Computation)
        else isinstance(item, ClauseAtom)
        and (
            item.schema.role in _UNMAINTAINED
            or (item.schema.role is Role.STORED and item.schema.source is not None)
        )
        for item in (clause.head, *clause.body)
    )


def _changed(
    clauses: Sequence[Clause],
    relations: tuple[RelationSchema, ...],
    growing: Collection[RelationSchema],
    seed: RelationSchema | None,
) -> ChangedComponent:
    lost: list[Clause] = []
    onward: list[Clause] = []
    closure: list[Clause] = []
    got: list[Clause] = []
    again: list[Clause] = []
    tests: list[Clause] = []
    falls: dict[bool, set[RelationSchema]] = {False: set(), True: set()}
    grows: dict[bool, set[RelationSchema]] = {False: set(), True: set()}
    keeps_best = any(schema.role in BEST for schema in relations)
    for clause in clauses:
        if clause.aggregates:
            lost += _groups_lost(clause)
            got += _groups(clause, _touched(clause))
            again += _groups(clause, ())
            for kinds in (*falls.values(), *grows.values()):
                kinds.update(atom.schema for atom in clause.atoms())
            continue
        versions = _ClauseVersions(clause, relations, growing)
        got += versions.new()
        again.append(versions.again())
        for atom in clause.all_atoms():
            grows[atom.absent].add(atom.schema)
        if clause.head.schema not in growing:
            lost += versions.fallen()
            onward += versions.onward(fell)
            closure += versions.onward(fallen)
            if not keeps_best:
                tests.append(versions.test())
            for atom in clause.all_atoms():
                falls[atom.absent].add(atom.schema)
    for schema in relations:
        args = variables(schema.arity)
        if schema == seed:  # demand of new goals, which the component itself goes on from
            asks = ClauseAtom(added(schema), args), ClauseAtom(kept(schema), args, absent=True)
            got.append(Clause(ClauseAtom(new(schema), args), asks))
            again.append(Clause(ClauseAtom(new(schema), args), asks[:1]))
        if closure and schema not in growing:
            body = (ClauseAtom(fell(schema), args),)
            closure.append(Clause(ClauseAtom(fallen(schema), args), body))
        if schema in growing:
            again.append(Clause(ClauseAtom(new(schema), args), (ClauseAtom(kept(schema), args),)))
        elif schema == seed:
            goals = ClauseAtom(asked(schema), args)
            got.append(
                Clause(ClauseAtom(new(schema), args), (ClauseAtom(fell(schema), args), goals))
            )
            again.append(Clause(ClauseAtom(new(schema), args), (goals,)))
            if not keeps_best:
                tests.append(again[-1])
        if schema.role in BEST:
            better = ClauseAtom(new(schema), (*args[:-1], ANONYMOUS))
            worse = ClauseAtom(replaced(schema), args)
            got.append(Clause(worse, (better, ClauseAtom(kept(schema), args))))
    reads = {atom.schema for clause in clauses for atom in clause.all_atoms()}
    own_seed = frozenset(relations) & {seed}
    return ChangedComponent(
        relations,
        frozenset(reads.difference(relations)) | own_seed,
        frozenset(falls[False].difference(relations)),
        frozenset(falls[True].difference(relations)),
        frozenset(grows[False].difference(relations)) | own_seed,
        frozenset(grows[True].difference(relations)),
        *map(tuple, (lost, onward, closure, got, again, tests)),
    )


Change = Callable[[ClauseAtom], list[ClauseItem]]
"""The way in which a version of a clause reads a premise that has changed."""


class _ClauseVersions:
    """The versions of one clause in the programs of its component."""

    def __init__(
        self,
        clause: Clause,
        relations: Collection[RelationSchema],
        growing: Collection[RelationSchema],
    ) -> None:
        self._clause = clause
        self._growing = growing
        self._head = clause.head
        self._own: list[int] = []
        self._stored: list[int] = []
        self._derived: list[int] = []
        self._demand: list[int] = []
        for index, item in enumerate(clause.body):
            if isinstance(item, ClauseAtom):
                if item.schema in growing:
                    self._demand.append(index)
                if item.schema in relations:
                    self._own.append(index)
                elif item.schema.role is Role.STORED:
                    self._stored.append(index)
                else:
                    self._derived.append(index)

    @property
    def count(self) -> int:
        """The number of its versions in the program that has most of them."""
        derived, stored, own = len(self._derived), len(self._stored), len(self._own)
        return derived + max((1 << stored) + own, (1 << own) + stored)

    def fallen(self) -> Iterator[Clause]:
        """Yield the versions that find rows with an instance that has lost a premise below the
        component.

        Those of stored relations, which have changed already, are read from the changes in every
        combination.
        """
        for places in _subsets(self._stored):
            yield self._falling(dict.fromkeys(places, _lost))
        for index in self._derived:
            if index not in self._demand:
                yield self._falling({index: _lost})

    def onward(self, rows: Callable[[RelationSchema], RelationSchema]) -> Iterator[Clause]:
        """Yield the versions that find rows with an instance that has lost one of the `rows` of the
        component.
        """
        for index in self._own:
            if index not in self._demand:
                yield self._falling({index: _reading(rows)})

    def _falling(self, changed: Mapping[int, Change]) -> Clause:
        head = self._head
        if head.schema.role not in BEST:
            check = ClauseAtom(kept(head.schema), head.args)
            return self._version(fallen(head.schema), changed, check)
        args = (*head.args[:-1], _VALUE)
        check = ClauseAtom(kept(head.schema), args)
        return self._version(fallen(head.schema), changed, self._value(), check, args=args)

    def _value(self) -> Computation:
        """Return the value of a best value's head in the text in which it is kept: 2.5 of 2.50."""
        return Computation(_VALUE, "min", self._head.args[-1:])

    def new(self) -> Iterator[Clause]:
        """Yield the versions that find rows with an instance that is whole after the change."""
        schema = self._head.schema
        if schema not in self._growing:
            group = self._head.args
            if schema.role in BEST:  # the next best value of a group
                group = (*group[:-1], ANONYMOUS)
            yield self._version(new(schema), {}, first=ClauseAtom(fell(schema), group))
        for check in self._unknown():
            for index in (*self._stored, *self._derived):
                yield self._version(new(schema), {index: _got}, *check)
            for places in _subsets(self._own):
                yield self._version(new(schema), dict.fromkeys(places, _reading(new)), *check)
        if schema.role in BEST:
            yield from self._ties()

    def _unknown(self) -> Iterator[tuple[ClauseItem, ...]]:
        """Yield the tests that a row is not kept; for a best value, that its group has no row or a
        worse one.
        """
        schema, args = self._head.schema, self._head.args
        if schema.role not in BEST:
            yield (ClauseAtom(kept(schema), args, absent=True),)
            return
        yield (ClauseAtom(kept(schema), (*args[:-1], ANONYMOUS), absent=True),)
        yield self._better()

    def _better(self) -> tuple[ClauseItem, ...]:
        """Return the tests that a value is better than the kept one of its group.

        The function fails, and is counted, where one of them is an instant and the other a number:
        then the better one is not what clauses can compare.
        """
        schema = self._head.schema
        function = "min" if schema.role is Role.LEAST_VALUE else "max"
        return (
            ClauseAtom(kept(schema), (*self._head.args[:-1], _KNOWN)),
            self._value(),
            Computation(_BETTER, function, (_KNOWN, _VALUE)),
            Comparison("!==", _BETTER, _KNOWN),
        )

    def _ties(self) -> Iterator[Clause]:
        """Yield the versions that add the kept value to an equal one in another text: what derives
        the new rows decides which of them is better.
        """
        args = (*self._head.args[:-1], _KNOWN)
        equal = Comparison("<=", _VALUE, _KNOWN), Comparison(">=", _VALUE, _KNOWN)
        changes: list[dict[int, Change]] = [{i: _got} for i in (*self._stored, *self._derived)]
        changes += [dict.fromkeys(places, _reading(new)) for places in _subsets(self._own)]
        for changed in changes:
            yield self._version(new(self._head.schema), changed, *self._better(), *equal, args=args)

    def again(self) -> Clause:
        """Return the version that derives all rows."""
        return self._version(new(self._head.schema), dict.fromkeys(self._own, _reading(new)))

    def test(self) -> Clause:
        """Return the version that derives all rows for the demand that is kept."""
        own = [index for index in self._own if index not in self._demand]
        return self._version(new(self._head.schema), dict.fromkeys(own, _reading(new)))

    def _version(
        self,
        head: RelationSchema,
        changed: Mapping[int, Change],
        *last: ClauseItem,
        first: ClauseAtom | None = None,
        args: tuple[Term, ...] | None = None,
    ) -> Clause:
        """Return a version that reads the places in `changed` in another way, and first: they have
        few rows. `args` are the arguments of the head, if it has others.
        """
        before: list[ClauseItem] = [] if first is None else [first]
        after: list[ClauseItem] = []
        for index, item in enumerate(self._clause.body):
            if not isinstance(item, ClauseAtom):
                after.append(item)
            elif index in changed:
                before += changed[index](item)
            else:
                after.append(ClauseAtom(kept(item.schema), item.args, item.absent))
        head_atom = ClauseAtom(head, self._head.args if args is None else args)
        return Clause(head_atom, (*before, *after, *last), self._clause.rule)


def _lost(atom: ClauseAtom) -> list[ClauseItem]:
    """Read the rows that took away a premise."""
    return [ClauseAtom((added if atom.absent else removed)(atom.schema), atom.args)]


def _got(atom: ClauseAtom) -> list[ClauseItem]:
    """Read the rows that gave a premise: of an absence, those after which no row is left."""
    if not atom.absent:
        return [ClauseAtom(added(atom.schema), atom.args)]
    still = ClauseAtom(kept(atom.schema), atom.args, absent=True)
    return [ClauseAtom(removed(atom.schema), atom.args), still]


def _reading(rows: Callable[[RelationSchema], RelationSchema]) -> Change:
    """Read other rows of the same relation."""
    return lambda atom: [ClauseAtom(rows(atom.schema), atom.args)]


def _subsets(places: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the subsets that are not empty."""
    for size in range(1, len(places) + 1):
        yield from combinations(places, size)


def _touched(clause: Clause) -> tuple[Clause, ...]:
    """Return the clauses that find the groups with a row that has come or gone."""
    head = _group_head(clause)
    source = next(clause.atoms())
    args = tuple(arg if arg in head.args else ANONYMOUS for arg in source.args)
    return tuple(
        Clause(head, (ClauseAtom(change(source.schema), args),), clause.rule)
        for change in (removed, added)
    )


def _group_head(clause: Clause) -> ClauseAtom:
    """Return the groups that have changed, as an atom with the variables of the group."""
    targets = {item.target for item in clause.body if isinstance(item, AggregateClause)}
    group = tuple(
        arg
        for arg in dict.fromkeys(clause.head.args)
        if isinstance(arg, Variable) and arg not in targets
    )
    schema = _named("touched", clause.head.schema, Role.DERIVED)
    return ClauseAtom(RelationSchema(schema.predicate, len(group), role=Role.DERIVED), group)


def _groups_lost(clause: Clause) -> Iterator[Clause]:
    """Yield the clauses that let the rows of changed groups fall."""
    yield from _touched(clause)
    args = variables(len(clause.head.args))
    names = dict(zip(clause.head.args, args, strict=True))
    head = _group_head(clause)
    group = ClauseAtom(head.schema, tuple(names[arg] for arg in head.args))
    schema = clause.head.schema
    body = (group, ClauseAtom(kept(schema), args))
    yield Clause(ClauseAtom(fallen(schema), args), body, clause.rule)


def _groups(clause: Clause, touched: tuple[Clause, ...]) -> Iterator[Clause]:
    """Yield the clauses that derive the rows of changed groups, or of all if no clause in `touched`
    finds those.
    """
    yield from touched
    source = next(clause.atoms())
    args = tuple(
        Variable(f"any#{column}") if arg == ANONYMOUS else arg
        for column, arg in enumerate(source.args)
    )
    rows = ClauseAtom(_named("grouped", clause.head.schema, Role.DERIVED), ())
    rows = ClauseAtom(RelationSchema(rows.schema.predicate, len(args), role=Role.DERIVED), args)
    group = (_group_head(clause),) if touched else ()
    yield Clause(rows, (*group, ClauseAtom(kept(source.schema), args)), clause.rule)
    folds = tuple(item for item in clause.body if isinstance(item, AggregateClause))
    yield Clause(ClauseAtom(new(clause.head.schema), clause.head.args), (rows, *folds), clause.rule)
