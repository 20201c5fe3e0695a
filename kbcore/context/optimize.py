"""How a window is made: contradictions, goals and what they rest on, buckets, then what matters most."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kbcore.context.clashes import stored_clashes
from kbcore.context.evidence import Witness
from kbcore.context.goals import Goals
from kbcore.context.guidance import relevant_rules
from kbcore.context.judge import Judge
from kbcore.context.request import WindowRequest
from kbcore.context.room import Candidate, FactKey, Room
from kbcore.context.salience import Ranked, Scores
from kbcore.context.selection import Selection
from kbcore.context.supply import Lexical, Supply, relevance
from kbcore.context.window import Entry, Window
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.state.partition import Partition, StoredRelation

DIGITS = 6
"""Decimal places of salience in an entry."""

GOAL_RELEVANCE = 0.9
"""What being an answer or a premise of one counts on top of the rank: such facts come before all others."""


@dataclass(frozen=True, slots=True)
class Made:
    """A window, and the stored facts in it, which have been accessed."""

    window: Window
    touched: list[Ranked]


def make_window(
    reasoner: Reasoner,
    scores: Scores,
    partitions: Sequence[Partition],
    request: WindowRequest,
    budget: Budget,
    lexical: Lexical | None = None,
) -> Made:
    """The window for a request; the caller holds the tenant's read lock. Raises BudgetExceeded."""
    tenant = reasoner.tenant
    supply = Supply(scores, partitions, request.min_salience, lexical or {})
    room = Room(request)
    clashes = stored_clashes(tenant, supply, request.predicates, budget)
    witness = Witness(reasoner, supply, request.max_facts, budget)
    judge = Judge(witness, clashes)
    selection = Selection(request, room, supply, judge.loses, budget)
    goals = Goals(request, witness, room, selection, judge)
    goals.take()
    selection.fill()
    chosen = list(room.facts)
    entries = tuple(_entries(chosen, request, supply))
    available = supply.available(request.predicates)
    rules: tuple[str, ...] = ()
    if request.with_rules:
        rules = relevant_rules(
            tenant, partitions, goals.rules.values(), request.goals, {entry.predicate for entry in entries}
        )
    window = Window(
        id=window_id(entries),
        entries=entries,
        rules=rules,
        available=available,
        savings=room.repeats + selection.savings,
        contradictions=tuple(clashes.listed),
        contradictions_found=clashes.found,
        resolved=clashes.found if request.auto_resolve else 0,
        buckets={share.bucket.name: share.stats() for share in selection.shares},
        goal_driven=bool(request.goals),
        generation=tenant.generation,
        generated_at=scores.now,
        cut=_cut(room, selection, goals, available) if request.explain else None,
    )
    return Made(window, [fact.place for fact in chosen if fact.place is not None])


def window_id(entries: Sequence[Entry]) -> str:
    """The name of a window, made from what is in it: `ctx-` and 16 hexadecimal digits."""
    digest = blake2b(digest_size=8)
    for entry in entries:
        mark = "\0contradicted" if entry.contradicted else ""
        digest.update(f"{entry.key}\0{entry.category}\0{entry.valid_from}\0{entry.valid_until}{mark}\n".encode())
    return "ctx-" + digest.hexdigest()


def _cut(room: Room, selection: Selection, goals: Goals, available: int) -> dict[str, Any]:
    """What was left out, and why: facts that were looked at by reason, with examples, and what became of each goal."""
    stored = sum(fact.place is not None for fact in room.facts)
    return {
        "reasons": dict(room.cut),
        "examples": [{"fact": text, "reason": reason} for text, reason in selection.left_out],
        "notIncluded": max(available - stored, 0),
        "goals": goals.said(),
    }


def _entries(chosen: Sequence[Candidate], request: WindowRequest, supply: Supply) -> Iterator[Entry]:
    parts = _salience_parts(chosen, supply) if request.explain else {}
    for fact in chosen:
        row = fact.row
        why: dict[str, Any] | None = None
        if request.explain:
            more = max(relevance(fact.lexical), GOAL_RELEVANCE if fact.goal else 0.0)
            why = {"reason": fact.reason, "relevance": more, "lexical": fact.lexical, **parts.get(fact.key, {})}
        yield Entry(
            predicate=row["predicate"],
            args=tuple(row["args"]),
            negated=row["negated"],
            scope=row["scope"],
            salience=round(fact.salience, DIGITS),
            category=fact.category,
            text=fact.text,
            created_at=fact.created_at,
            provenance=fact.provenance,
            valid_from=row["validFrom"],
            valid_until=row["validUntil"],
            metadata=row["metadata"],
            why=why,
            confidence=row["confidence"],
            contradicted=fact.contradicted,
        )


def _salience_parts(chosen: Sequence[Candidate], supply: Supply) -> dict[FactKey, dict[str, Any]]:
    """What the salience of each stored fact is made of."""
    groups: dict[StoredRelation, list[Candidate]] = {}
    for fact in chosen:
        if fact.place is not None:
            groups.setdefault(fact.place.stored, []).append(fact)
    found: dict[FactKey, dict[str, Any]] = {}
    for stored, facts in groups.items():
        ids = array("I", [fact.place.place for fact in facts if fact.place is not None])
        found.update(zip((fact.key for fact in facts), supply.scores.parts(stored, ids), strict=True))
    return found
