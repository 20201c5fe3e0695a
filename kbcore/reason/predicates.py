"""Predicates of a knowledge base: the schema, and the unknown ones of a goal with a similar
name.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.inputs import Input
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, paced

MAX_CANDIDATES = 2000
"""Existing predicates that are compared with an unknown one."""

MAX_CANDIDATE_CHARS = 64
SIMILARITY = 0.65
"""Least similarity of a suggested name, as `difflib` measures it."""

PREDICATES_PER_YIELD = 500
"""Predicates listed between two calls of `yield_now`: about a millisecond."""

Signature = tuple[str, int | None]
"""A predicate by name and arity; None stands for any arity."""


def predicates(
    tenant: Tenant,
    partitions: Iterable[Partition],
    scope: str | None,
    yield_now: YieldNow = go_on,
) -> dict[str, Any]:
    """Return the predicates with currently valid facts, with rules of the scope, or declared as
    inputs, by name and arity. `yield_now` is called about once a millisecond.
    """
    facts: dict[tuple[str, int], int] = {}
    for partition in partitions:
        for stored in paced(partition.relations(), yield_now, PREDICATES_PER_YIELD):
            visible = stored.relation.counts().visible
            if visible:
                key = (stored.schema.predicate, stored.schema.arity)
                facts[key] = facts.get(key, 0) + visible
    rules: dict[tuple[str, int], int] = {}
    for stored_rule in paced(tenant.rules.all(), yield_now, PREDICATES_PER_YIELD):
        if scope == ALL_SCOPES or stored_rule.scope in (None, scope):
            key = (stored_rule.rule.head.predicate, stored_rule.rule.head.arity)
            rules[key] = rules.get(key, 0) + 1
    inputs = tenant.rules.inputs(scope, all_scopes=scope == ALL_SCOPES)
    rows = [
        {
            "predicate": name,
            "arity": arity,
            "factCount": facts.get((name, arity), 0),
            "ruleCount": rules.get((name, arity), 0),
            "hasRules": (name, arity) in rules,
            **_declared(inputs.get((name, arity))),
        }
        for name, arity in paced(
            sorted(facts.keys() | rules.keys() | inputs.keys()), yield_now, PREDICATES_PER_YIELD
        )
    ]
    return {
        "predicates": rows,
        "totalPredicates": len(rows),
        "totalFacts": sum(facts.values()),
        "totalRules": sum(rules.values()),
    }


def _declared(declared: Input | None) -> dict[str, Any]:
    """Return the members of a predicate that is a declared input."""
    if declared is None:
        return {}
    gloss = {} if declared.gloss is None else {"gloss": declared.gloss}
    types = {"types": list(declared.types)} if declared.types else {}
    return {"args": list(declared.args), **types, **gloss}


def typed_args(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the arguments of a predicate as `predicates` lists it, each with its type
    if it has one; none if it is no declared input.
    """
    return Input("", tuple(row.get("args", ())), types=tuple(row.get("types", ()))).typed_args


@dataclass(frozen=True, slots=True)
class MissingPredicate:
    """A predicate without facts and rules.

    `did_you_mean` is an existing predicate with a similar name or another arity.
    """

    name: str
    arity: int | None
    did_you_mean: tuple[str, int] | None

    @property
    def signature(self) -> str:
        """The predicate as `name/arity`, or as its name if any arity was asked for."""
        return self.name if self.arity is None else f"{self.name}/{self.arity}"

    @property
    def suggestion(self) -> str | None:
        """The suggested predicate as `name/arity`."""
        return (
            None if self.did_you_mean is None else f"{self.did_you_mean[0]}/{self.did_you_mean[1]}"
        )

    def __str__(self) -> str:
        return (
            self.signature
            if self.suggestion is None
            else f"{self.signature} (did you mean {self.suggestion}?)"
        )


def unknown_predicates(
    tenant: Tenant,
    signatures: Iterable[Signature],
    scope: str | None,
    provided: Collection[tuple[str, int]] = (),
) -> list[MissingPredicate]:
    """Return the predicates of `signatures` without a fact, a rule or a declared input in any scope
    of the tenant.

    Those that plugins have `provided` are known, too.

    `scope` is searched first. The caller holds the tenant's read lock. Reads are not recorded
    in the read set of a transaction, because a suggestion is not an answer.
    """
    with tenant.unnoted():
        missing = [
            signature
            for signature in dict.fromkeys(signatures)
            if signature not in provided and not _exists(tenant, signature, scope)
        ]
        if not missing:
            return []
        candidates = sorted({*provided, *islice(_signatures(tenant), MAX_CANDIDATES)})
        return [
            MissingPredicate(name, arity, _similar(name, arity, candidates))
            for name, arity in missing
        ]


def _exists(tenant: Tenant, signature: Signature, scope: str | None) -> bool:
    name, arity = signature
    if arity is not None:
        schemas = RelationSchema(name, arity, True), RelationSchema(name, arity, False)
        for partition in tenant.partitions(scope):
            if any(_has_facts(partition, schema) for schema in schemas):
                return True
        if not tenant.rules.visible(scope).derived.isdisjoint(schemas):
            return True
    return any(
        existing == name and arity in (None, width) for existing, width in _signatures(tenant)
    )


def _has_facts(partition: Partition, schema: RelationSchema) -> bool:
    stored = partition.get(schema)
    return stored is not None and stored.relation.counts().live > 0


def _signatures(tenant: Tenant) -> Iterator[tuple[str, int]]:
    """Yield the predicates of the tenant that have facts or rules, or are declared inputs."""
    seen: set[tuple[str, int]] = set(tenant.rules.inputs(None, all_scopes=True))
    yield from seen
    for rule in tenant.rules.all():
        signature = rule.rule.head.predicate, rule.rule.head.arity
        if signature not in seen:
            seen.add(signature)
            yield signature
    for partition in tenant.partitions():
        for stored in partition.relations():
            signature = stored.schema.predicate, stored.schema.arity
            if signature not in seen and stored.relation.counts().live:
                seen.add(signature)
                yield signature


def _similar(
    name: str, arity: int | None, candidates: list[tuple[str, int]]
) -> tuple[str, int] | None:
    """Return the candidate of the same name with the nearest arity, else the one whose name is most
    similar.
    """
    names = [existing for existing, _ in candidates if len(existing) <= MAX_CANDIDATE_CHARS]
    if any(existing == name for existing, _ in candidates):
        best = [name]
    elif len(name) <= MAX_CANDIDATE_CHARS:
        best = difflib.get_close_matches(name, dict.fromkeys(names), 1, SIMILARITY)
    else:
        best = []
    if not best:
        return None
    arities = [width for existing, width in candidates if existing == best[0]]
    return best[0], arities[0] if arity is None else min(
        arities, key=lambda width: abs(width - arity)
    )
