"""First instances: of each conclusion of a recursion only the rule instance that proves it first.

Where a clause has several atoms of its own recursion, it has more instances than conclusions: a
text of n words has n² phrases, and n³ ways to divide a phrase in two. A row of a FIRST relation is
a conclusion with the number of a clause and the values of its variables in one instance; the engine
adds no second row with the same conclusion. The premises of an instance were rows before it, so
that the instances of a run prove each conclusion, and no conclusion by itself. They become rows of
instance relations, as in `instances.py`. Asserted facts keep theirs there.

Before:

    s(?x) :- a(?x).
    s(?x) :- b(?x, ?y, ?z), s(?y), s(?z).
    ?- s(?x).

After:

    first s/1[f](?x, 1, 1, 1) :- demand s/1[f](), a/1(?x).  % rule 1
    first s/1[f](?x, 2, ?y, ?z) :- demand s/1[f](), b/3(?x, ?y, ?z), first s/1[f](?y, _, _, _), first s/1[f](?z, _, _, _).  % rule 2
    first s/1[f](?a0, 0, 0, 0) :- demand s/1[f](), s/1(?a0).
    s/1[f](?a0) :- first s/1[f](?a0, _, _, _).
    instance 1/1(?x) :- first s/1[f](?x, 1, _, _).  % rule 1
    instance 2/3(?x, ?y, ?z) :- first s/1[f](?x, 2, ?y, ?z).  % rule 2
    instance 0/1(?a0) :- demand s/1[f](), s/1(?a0).
"""  # noqa: E501, W505  a clause of the example

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbplanner.ir.program import Clause, ClauseAtom, ClauseItem, Program, by_head, components
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import ANONYMOUS, Term, Variable


@dataclass(frozen=True, slots=True)
class FirstInstances:
    """A clause whose instances are kept where they are the first of their conclusions, with the
    relation of these.

    `whole` is the clause with names for the variables that distinguish premises, `columns` has the
    variables of its instances. Without `relation` its instances are kept elsewhere.
    """

    clause: Clause
    whole: Clause
    columns: tuple[Variable, ...]
    relation: RelationSchema | None

    @property
    def values(self) -> tuple[Variable, ...]:
        """Return the columns that the conclusion does not have."""
        return tuple(v for v in self.columns if v not in self.whole.head.args)


def recursions(
    clauses: Iterable[Clause], is_premise: Callable[[ClauseAtom], bool] = lambda atom: True
) -> set[RelationSchema]:
    """Return the relations of recursions in which a clause has several recursive premises.

    Those that keep best values are not listed: their rows are replaced.
    """
    reduced = [
        replace(clause, body=tuple(atom for atom in clause.atoms() if is_premise(atom)))
        for clause in clauses
    ]
    heads, relations = by_head(reduced), set[RelationSchema]()
    for part in components(reduced):
        own = [clause for schema in part.relations for clause in heads[schema]]
        if all(schema.role in (Role.DERIVED, Role.STEP) for schema in part.relations) and any(
            sum(atom.schema in part.relations for atom in clause.atoms()) > 1 for clause in own
        ):
            relations.update(part.relations)
    return relations


def keep_first(program: Program, firsts: Sequence[FirstInstances]) -> Program:
    """Return the program with FIRST relations for the conclusions of clauses, and with their
    instances.

    `firsts` has all clauses of these relations.
    """
    relations: dict[RelationSchema, RelationSchema] = {}
    for schema, width in _widths(firsts).items():
        arity = schema.arity + 1 + width
        relations[schema] = replace(schema, role=Role.FIRST, arity=arity, source=schema.role)
    own = {id(first.clause): (str(number), first) for number, first in enumerate(firsts)}
    parts = (part.relations for part in components(program.clauses))
    inside = frozenset[RelationSchema]().union(*(p for p in parts if not p.isdisjoint(relations)))
    clauses: list[Clause] = []
    for clause in program.clauses:
        if id(clause) in own:
            number, first = own[id(clause)]
            head = _row(relations, first, number, number)
            clauses.append(Clause(head, _reading(relations, first.whole.body), clause.rule))
        elif clause.head.schema in inside:
            clauses.append(replace(clause, body=_reading(relations, clause.body)))
        else:
            clauses.append(clause)
    for schema in relations:
        conclusion = ClauseAtom(schema, tuple(Variable(f"a{i}") for i in range(schema.arity)))
        clauses.append(Clause(conclusion, _reading(relations, (conclusion,))))
    for number, first in own.values():
        if first.relation is not None:
            instance = ClauseAtom(first.relation, first.columns)
            row = _row(relations, first, number, ANONYMOUS)
            clauses.append(Clause(instance, (row,), first.clause.rule))
    return replace(program, clauses=tuple(clauses))


def _widths(firsts: Iterable[FirstInstances]) -> dict[RelationSchema, int]:
    """Return for each concluded relation the most further values that an instance has."""
    widths: dict[RelationSchema, int] = {}
    for first in firsts:
        schema = first.whole.head.schema
        widths[schema] = max(widths.get(schema, 0), len(first.values))
    return widths


def _row(
    relations: Mapping[RelationSchema, RelationSchema],
    first: FirstInstances,
    number: str,
    filler: Term,
) -> ClauseAtom:
    """Return the row of an instance; `filler` stands in the columns that it does not need."""
    head = first.whole.head
    relation, args = relations[head.schema], (*head.args, number, *first.values)
    return ClauseAtom(relation, (*args, *[filler] * (relation.arity - len(args))))


def _reading(
    relations: Mapping[RelationSchema, RelationSchema], body: Collection[ClauseItem]
) -> tuple[ClauseItem, ...]:
    """Return a body that reads conclusions from FIRST relations."""
    items: list[ClauseItem] = []
    for item in body:
        if isinstance(item, ClauseAtom) and item.schema in relations and not item.absent:
            relation = relations[item.schema]
            fillers = [ANONYMOUS] * (relation.arity - len(item.args))
            item = ClauseAtom(relation, (*item.args, *fillers))
        items.append(item)
    return tuple(items)
