"""Translation of rules to clauses: signs, roles and `not` become plain relations and plain absence.

- A predicate with rules becomes a DERIVED relation that also takes over the asserted facts of its
  STORED one: the last clauses of the example. Both have the same name in listings.
- `not p(t)` holds if `p(t)` is not derivable or `~p(t)` is. Where no `~p` can exist, `not p(t)` is
  plain absence. Otherwise the rule is written twice, once with the absence of `p(t)` and once with
  `~p(t)`. With anonymous arguments that would not be the same; then it is the absence of a `p(t)`
  that is not denied (an UNDENIED relation).
- `not ~p(t)` holds if `~p(t)` is not derivable. It is always plain absence: whether `p(t)` is
  derivable plays no part.
- A predicate whose rules keep the best value of each group, as `dist(?x, min ?d)`, becomes a
  relation with one row for each group, `least dist/2`, in place of a DERIVED one (`ir/extrema.py`).
- Aggregates become clauses that count and sum (`aggregate.py`).
- Expressions become computations (`ir/expressions.py`).

Before:

    grounded(?x) :- bird(?x), not flies(?x).
    ~flies(?x) :- age(?x, ?days), ?days * 24 < 100.
    ?- grounded(?x).

After:

    grounded/1(?x) :- bird/1(?x), absent flies/1(?x).  % rule 1
    grounded/1(?x) :- bird/1(?x), ~flies/1(?x).  % rule 1
    ~flies/1(?x) :- age/2(?x, ?days), ?value#1 := ?days * 24, ?value#1 < 100.  % rule 2
    grounded/1(?a0) :- grounded/1(?a0).
    ~flies/1(?a0) :- ~flies/1(?a0).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set

from kbplanner.ir.expressions import flatten
from kbplanner.ir.program import CLAUSES_PER_YIELD, Clause, ClauseAtom, ClauseItem, Computation
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import (
    ANONYMOUS,
    Aggregate,
    Atom,
    Comparison,
    Extremum,
    Literal,
    Rule,
    Variable,
    extremum_of,
    numbered_variables,
)
from kbplanner.pacing import YieldNow, go_on, paced, sorted_in_parts
from kbplanner.passes.aggregate import aggregate

RULES_PER_YIELD = 1
"""Rules lowered between two calls of `yield_now`: one can have 64 KiB of expressions."""

MAX_VARIANTS = 64
"""A rule with more combinations of denied literals than this uses UNDENIED relations instead."""


def lower(
    rules: Sequence[Rule],
    denied: frozenset[RelationSchema] = frozenset(),
    yield_now: YieldNow = go_on,
) -> tuple[Clause, ...]:
    """Lower rules, numbered from 1 in the order given; `denied` names the stored negative relations
    that have rows. `yield_now` is called after some rules.

    Raises InvalidInput for what the engine does not evaluate.
    """
    derived = conclusions(rules, yield_now)
    lowering = _Lowering(derived, derived.keys() | denied)
    clauses: list[Clause] = []
    for number, rule in enumerate(paced(rules, yield_now, RULES_PER_YIELD), 1):
        clauses.extend(lowering.rule(rule, number))
    yield_now()
    for schema in paced(sorted_in_parts(derived, yield_now, str), yield_now, RULES_PER_YIELD):
        args = numbered_variables(schema.arity)
        clauses.append(Clause(ClauseAtom(derived[schema], args), (ClauseAtom(schema, args),)))
    clauses.extend(lowering.undenied_clauses())
    return tuple(clauses)


def conclusions(
    rules: Sequence[Rule], yield_now: YieldNow = go_on
) -> dict[RelationSchema, RelationSchema]:
    """Return the relation of the conclusions of each predicate with rules, by its stored schema."""
    relations: dict[RelationSchema, RelationSchema] = {}
    for rule in paced(rules, yield_now, CLAUSES_PER_YIELD):
        extremum = extremum_of(rule.head)
        schema = _schema(rule.head)
        relations[schema] = schema.best(extremum.function) if extremum else schema.derived
    return relations


class _Lowering:
    def __init__(
        self, derived: Mapping[RelationSchema, RelationSchema], known: Set[RelationSchema]
    ) -> None:
        self._derived = derived
        self._known = known
        self._undenied: dict[RelationSchema, None] = {}
        self._rule_counts: Counter[str] = Counter()

    def rule(self, rule: Rule, number: int) -> list[Clause]:
        items, head_terms = flatten(rule.body, rule.head.args)
        head = self._readable(_schema(rule.head))
        self._rule_counts[head.predicate] += 1
        variants: list[list[ClauseItem]] = [[]]
        for item in items:
            choices = self._item(item, room=MAX_VARIANTS // len(variants) >= 2)
            variants = [[*variant, choice] for variant in variants for choice in choices]
        bodies = [tuple(variant) for variant in variants]
        args = tuple(
            term.variable if isinstance(term, Extremum) else term
            for term in head_terms
            if not isinstance(term, Aggregate)
        )
        if len(args) < len(head_terms):
            # Named after their predicate, so that other rules leave its clauses as they are.
            name = f"{head.predicate}#{self._rule_counts[head.predicate]}"
            return list(aggregate(head, head_terms, bodies, number, name))
        return [Clause(ClauseAtom(head, args), body, number) for body in bodies]

    def _item(self, item: Literal | Comparison | Computation, room: bool) -> list[ClauseItem]:
        if not isinstance(item, Literal):
            return [item]
        atom = item.atom
        schema = _schema(atom)
        args = tuple(arg for arg in atom.args if isinstance(arg, (str, Variable)))
        if not item.negated:
            return [ClauseAtom(self._readable(schema), args)]
        absent = ClauseAtom(self._readable(schema), args, absent=True)
        if not schema.positive or schema.opposite not in self._known:
            return [absent]
        if room and ANONYMOUS not in args:
            return [absent, ClauseAtom(self._readable(schema.opposite), args)]
        undenied = RelationSchema(schema.predicate, schema.arity, schema.positive, Role.UNDENIED)
        self._undenied[undenied] = None
        return [ClauseAtom(undenied, args, absent=True)]

    def undenied_clauses(self) -> list[Clause]:
        clauses = []
        for undenied in self._undenied:
            args = numbered_variables(undenied.arity)
            schema = undenied.stored
            body = (
                ClauseAtom(self._readable(schema), args),
                ClauseAtom(self._readable(schema.opposite), args, absent=True),
            )
            clauses.append(Clause(ClauseAtom(undenied, args), body))
        return clauses

    def _readable(self, schema: RelationSchema) -> RelationSchema:
        return self._derived.get(schema, schema)


def _schema(atom: Atom) -> RelationSchema:
    return RelationSchema(atom.predicate, atom.arity, atom.positive)
