"""Findings about predicates that plugins provide: what is stored for them, and what calls them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from kbplanner.compile.rules import RuleSet
from kbplanner.errors import ExternalRecursion, InvalidInput, UnboundArgument
from kbplanner.ir.modes import Modes
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule
from kbplanner.pacing import YieldNow, go_on, paced

QUERY = "?query"
"""Head predicate of a rule for a query; no rule text can use this name."""

BODIES_PER_YIELD = 500
"""Bodies searched between two calls of `yield_now`: about a millisecond."""

SEARCH_PREDICATES: Modes = {
    RelationSchema("matches_text", 3): ("bff",),
    RelationSchema("near", 3): ("bff",),
}
"""Predicates that search the facts, unless a program defines them itself."""


@dataclass(frozen=True, slots=True)
class ExternalCall:
    """A rule or query that cannot be evaluated: its index, the name of the code, the error."""

    index: int
    is_query: bool
    name: str
    error: InvalidInput


def external_findings(
    rules: Sequence[Rule],
    queries: Sequence[Sequence[BodyItem]],
    external: Modes,
    yield_now: YieldNow = go_on,
) -> Iterator[ExternalCall]:
    """Yield the safe rules and the queries that no order of calls can evaluate.

    The rules are those that are visible together; they recurse through no aggregate.
    """
    names = {(schema.predicate, schema.arity) for schema in external}
    if not any(
        isinstance(item, Literal) and (item.atom.predicate, item.atom.arity) in names
        for body in paced(
            chain((rule.body for rule in rules), queries), yield_now, BODIES_PER_YIELD
        )
        for item in body
    ):
        return  # without lowering all rules
    asked = [Rule(Atom(f"{QUERY}{index}"), tuple(body)) for index, body in enumerate(queries)]
    form = RuleSet([*rules, *asked], yield_now=yield_now).with_external(external)
    if form.reads.isdisjoint(external):
        return
    for number, error in paced(form.problems(), yield_now, 1):
        index = number - 1 - len(rules)
        is_query = index >= 0
        name = "external-recursion" if isinstance(error, ExternalRecursion) else "unbound-argument"
        yield ExternalCall(index if is_query else number - 1, is_query, name, error)


def hint_for(error: InvalidInput) -> str:
    """Return a hint how to repair a call."""
    if not isinstance(error, UnboundArgument):
        return "leave the predicate out of the rules that recurse through negation"
    names = ", ".join(error.variables)
    return f"use {names} in an atom that gives values" if names else "give it a value"
