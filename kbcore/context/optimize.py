"""Construction of a window: contradictions, goals and proofs, buckets, then other facts."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import blake2b
from typing import Any

from kbcore.context.capacity import DIGITS, FactKey, RankedCandidate, Room
from kbcore.context.contradictions import stored_clashes
from kbcore.context.proofs.evidence import Witness
from kbcore.context.proofs.proofs import GoalProofs
from kbcore.context.proofs.rules import relevant_rules, sets_of_rules, visible_rules
from kbcore.context.proofs.violations import MAX_SHOWN, about, violations
from kbcore.context.quotations import Quotations
from kbcore.context.ranking import Supplied, Supply, admitted
from kbcore.context.relevance.chains import MeantGoal, QuestionInWords, readings_of
from kbcore.context.relevance.predicates_asked import AskedPredicates
from kbcore.context.relevance.questions import goals_of_question
from kbcore.context.relevance.suggestions import decided, limit_run, values_of
from kbcore.context.request import CITATIONS_TEXT, NATURAL, ConjunctiveGoal, Goal, WindowRequest
from kbcore.context.resolution import Judge
from kbcore.context.salience import Ranked
from kbcore.context.selection import INSTRUCTION_SHARE, Selection
from kbcore.context.text.draft import Quote
from kbcore.context.text.memories import SAID, SaidText
from kbcore.context.text.notes import INSTRUCTION
from kbcore.context.text.tokens import TokenCounter
from kbcore.context.window import QUERY, VIOLATION
from kbcore.errors import BudgetExceeded, EngineFault, InvalidInput, PredicateFailed
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget, Notes
from kbcore.state.episodes.episodes import StoredEpisodes
from kbcore.state.episodes.quoting import quoted
from kbcore.state.partition import StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.ir.schema import RelationSchema
from kbtypes.windows import Entry, GoalNote, SpanKey, Window

GOAL_RELEVANCE = 0.9
"""Relevance of answers and of facts that answers depend on, which puts them before all others."""


ENTRIES_PER_YIELD = 100
"""Entries of a window made between two calls of `yield_now`: about a millisecond."""

MEANT_ROOM = 0.5
"""Share of the facts and of the text that the goals which a query means get at most."""

MAX_VALUES = 3
"""Answers of a goal up to which they are placed first; more of them are ranked like other facts."""

MEANT_SHARE = 4
"""Equal parts of the remaining time, of which the goals that a query means get one."""


@dataclass(frozen=True, slots=True)
class Made:
    """A window and its stored facts."""

    window: Window
    facts: list[Ranked]


def make_window(
    reasoner: Reasoner,
    supply: Supply,
    request: WindowRequest,
    budget: Budget,
    counter: TokenCounter | None = None,
    *,
    shows_violations: bool = True,
) -> Made:
    """Build the window for a request from the facts of `supply`.

    With `shows_violations` it lists the violations of constraints in which its facts take part.
    Evaluating goals does not count as an access. The caller holds the tenant's read lock. Raises
    BudgetExceeded.
    """
    tenant = reasoner.tenant
    partitions = supply.partitions
    now = (supply.present or supply.scores).now
    counter = counter or TokenCounter()
    quote = _quote(tenant.episodes, request) if request.citations else None
    templates = cache(tenant.rules.templates)
    room = Room(request, counter, templates, quote)
    predicates = admitted(request, partitions)
    clashes = stored_clashes(tenant, supply, predicates, budget)
    witness = Witness(reasoner, supply, request.max_facts, budget)
    judge = Judge(witness, clashes)

    def is_line(scope: str | None) -> bool:
        return request.format == NATURAL and (SAID, 3) not in templates(scope)

    quotations = Quotations(supply, tenant, request.query, is_line, budget)
    selection = Selection(request, room, supply, judge.loses, quotations, budget)
    goals = GoalProofs(request, witness, room, selection, judge)
    if request.with_rules:
        room.reserve_for(visible_rules(tenant, partitions))
    if request.asker is not None:
        standing = (
            fact
            for fact in _instructions(tenant, supply, request.asker)
            if not (judge.loses(fact) and request.auto_resolve)
        )
        selection.take_instructions(standing, max(1, int(request.max_facts * INSTRUCTION_SHARE)))
    goals.take()
    room.take_notes(goals.notes())
    is_answered = (
        request.query is not None
        and not request.goals
        and request.said_in is None
        and _take_meant(request, witness, room, selection, judge)
    )
    is_whole = supply.indexed >= 1  # otherwise a match may not be indexed yet
    is_known = supply.lexical or is_answered
    if request.query is not None and request.min_coverage > 0 and not is_known and is_whole:
        room.take_query_note(GoalNote(QUERY, unanswered=True))
    violated = violations(reasoner, partitions, budget) if shows_violations else []
    room.keep = min(len(violated), MAX_SHOWN, request.max_facts // 10)
    if request.with_rules and request.goals:
        used = relevant_rules(tenant, partitions, goals.rules.values(), request.goals, ())
        room.take_rules((rule.text for rule in used), sets_of_rules(tenant, used))
    selection.fill()
    room.keep = 0
    for violation in about(violated, list(room.facts), now):
        if room.refusal([violation], None, VIOLATION) is None:
            selection.take_violation(violation)
    if request.with_rules and not request.goals:
        predicates_shown = {fact.predicate for fact in room.facts}
        about_facts = relevant_rules(tenant, partitions, (), (), predicates_shown)
        room.take_rules((rule.text for rule in about_facts), sets_of_rules(tenant, about_facts))
    selection.give_back(room.shrink())
    budget.yield_now()
    chosen = list(room.facts)
    _refresh(chosen, supply)
    entries = tuple(budget.paced(_entries(room, request, supply), ENTRIES_PER_YIELD))
    available = supply.available(predicates)
    text = room.draft.text()
    rules_taken = frozenset(room.rules)
    window = Window(
        id=window_id(entries),
        entries=entries,
        rules=tuple(room.rules),
        available=available,
        savings=room.repeats + selection.savings,
        contradictions=tuple(clashes.listed),
        contradictions_found=clashes.found,
        resolved=clashes.found if request.auto_resolve else 0,
        buckets={share.bucket.name: share.stats() for share in selection.shares},
        goal_driven=bool(request.goals),
        generation=tenant.generation,
        generated_at=now,
        cut=_cut(room, selection, goals, available) if request.explain else None,
        text=text,
        tokens=counter.count(text),
        sources=_sources(room, tenant.episodes) if request.citations else None,
        notes=tuple(room.notes),
        index_progress=None if is_whole else supply.indexed,
        rule_sets=tuple(each for each in room.rule_sets if each.rule in rules_taken) or None,
    )
    return Made(window, [fact.ranked for fact in chosen if fact.ranked is not None])


def _take_meant(
    request: WindowRequest, witness: Witness, room: Room, selection: Selection, judge: Judge
) -> bool:
    """Add the answers of goals that the query means, with their proofs, to a part of the window;
    return whether one has an answer.

    The goal that is certain enough comes first. The others are guesses: those that have no answer,
    that cannot be asked so, or that take too long leave no trace.
    """
    budget, supply = witness.budget, witness.supply
    share = budget.part(MEANT_SHARE)
    guessing = Witness(witness.reasoner, supply, witness.most, share)
    meant = list[Goal](
        goals_of_question(
            witness.reasoner.tenant, supply.partitions, str(request.query), request.asker, budget
        )
    )
    believed = _believed(request, guessing)
    if believed is not None:
        meant = [believed, *(goal for goal in meant if goal != believed)]
    is_answered = False
    with room.within(MEANT_ROOM):
        for goal in meant:
            guess = GoalProofs(replace(request, goals=(goal,)), guessing, room, selection, judge)
            try:
                guess.take(is_guess=True)
            except (BudgetExceeded, InvalidInput, PredicateFailed):
                continue
            is_answered |= guess.found.total() > 0
    budget.external = budget.external or share.external
    return is_answered


def _believed(request: WindowRequest, guessing: Witness) -> Goal | None:
    """Return the goal with few answers that a query means, if one is certain enough."""
    tenant, partitions = guessing.reasoner.tenant, guessing.supply.partitions
    budget = guessing.budget

    def run(reading: MeantGoal) -> Sequence[str]:
        own = budget.next_goal(Notes())
        limit_run(own)
        try:
            return values_of(guessing.reasoner, partitions, reading, None, own, is_asked=False)
        finally:
            budget.external = budget.external or own.external

    try:
        known = AskedPredicates(tenant, partitions, budget)
        if not known.has_facts:
            return None
        question = QuestionInWords(str(request.query), request.asker)
        readings = readings_of(tenant, known, question, budget)
        suggestion = decided(readings.goals, readings.constants, run)
    except BudgetExceeded:
        return None
    if suggestion.believed is None or len(suggestion.believed.answers or ()) > MAX_VALUES:
        return None
    body = suggestion.believed.reading.body
    return body[0] if len(body) == 1 else ConjunctiveGoal(body)


def _instructions(tenant: Tenant, supply: Supply, asker: str) -> list[RankedCandidate]:
    """Return the stored facts `instruction(asker, text)`, the most salient first."""
    schema, symbol = RelationSchema(INSTRUCTION, 2, True), tenant.engine.find(asker)
    standing: list[Supplied] = []
    for partition in supply.partitions if symbol else ():
        stored = partition.get(schema)
        if stored is not None:
            _, ids = stored.relation.match([symbol, 0])
            standing += supply.placed(stored, ids)
    return supply.candidates(sorted(standing, key=lambda fact: fact.order))


def window_id(entries: Sequence[Entry]) -> str:
    """Return the id of a window, a hash of its entries in order: `ctx-` and 16 hexadecimal digits.

    Categories are not part of the hash, because a fact stops being `recent` with time alone.
    """
    digest = blake2b(digest_size=8)
    for entry in entries:
        mark = "\0contradicted" if entry.contradicted else ""
        digest.update(f"{entry.key}\0{entry.valid_from}\0{entry.valid_until}{mark}\n".encode())
    return "ctx-" + digest.hexdigest()


def _cut(room: Room, selection: Selection, goals: GoalProofs, available: int) -> dict[str, Any]:
    """Return the omitted facts by reason, with examples, and the outcome of each goal."""
    stored = sum(fact.ranked is not None for fact in room.facts)
    return {
        "reasons": dict(room.cut),
        "examples": [{"fact": text, "reason": reason} for text, reason in selection.left_out],
        "notIncluded": max(available - stored, 0),
        "goals": goals.describe(),
    }


def _entries(room: Room, request: WindowRequest, supply: Supply) -> Iterator[Entry]:
    """Yield the entries of a window with their current salience, and `why` if the request asks for
    it.
    """
    entries = [item for item in room.draft.items if isinstance(item, Entry)]
    parts = _salience_parts(list(room.facts), supply) if request.explain else {}
    cited = room.draft.citations
    for fact, entry, numbers in zip(room.facts, entries, cited, strict=True):
        current = entry._replace(salience=round(fact.salience, DIGITS))
        if numbers:
            current = current._replace(citations=tuple(numbers))
        if request.explain:
            more = max(fact.relevance, GOAL_RELEVANCE if fact.goal else 0.0)
            why = {
                "reason": fact.reason,
                "relevance": more,
                "lexical": fact.lexical,
                **parts.get(fact.key, {}),
            }
            current = current._replace(why=why)
        yield current


def _quote(episodes: StoredEpisodes, request: WindowRequest) -> Quote:
    """Return the function that returns the footnotes of a text."""
    if request.citations != CITATIONS_TEXT:
        return lambda span: None

    def quote(span: SpanKey) -> SaidText | None:
        episode = episodes.get(span[0])
        if episode is None:
            return None
        return SaidText(episode.speaker, episode.text[span[1] : span[2]], episode.at)

    return quote


def _sources(room: Room, episodes: StoredEpisodes) -> tuple[dict[str, Any], ...]:
    """Return the cited spans of a window with their numbers and texts."""
    sources = []
    for number, (id, start, end) in enumerate(room.draft.sources, 1):
        episode = episodes.get(id)
        if episode is None:
            raise EngineFault(f"the evidence of a fact names the unknown episode {id}")
        offsets = {} if start is None else {"start": start, "end": end}
        sources.append({"number": number, **quoted({"episode": id, **offsets}, episode)})
    return tuple(sources)


def _refresh(chosen: Sequence[RankedCandidate], supply: Supply) -> None:
    """Update the salience of facts that were ranked as of an earlier time."""
    if supply.present is None or supply.present.now == supply.scores.now:
        return
    bases = [base for fact in chosen for base in (fact, *fact.bases)]
    now = supply.salience_now(base.ranked for base in bases if base.ranked is not None)
    for fact in chosen:
        if fact.ranked is not None:
            fact.salience = now[fact.ranked.stored, fact.ranked.row_id]
        elif fact.bases:
            places = [base.ranked for base in fact.bases if base.ranked is not None]
            fact.salience = min(now[ranked.stored, ranked.row_id] for ranked in places)


def _salience_parts(
    chosen: Sequence[RankedCandidate], supply: Supply
) -> dict[FactKey, dict[str, Any]]:
    """Return the components of the salience of each stored fact."""
    groups: dict[StoredRelation, list[RankedCandidate]] = {}
    for fact in chosen:
        if fact.ranked is not None:
            groups.setdefault(fact.ranked.stored, []).append(fact)
    parts: dict[FactKey, dict[str, Any]] = {}
    for stored, facts in groups.items():
        ids = array("I", [fact.ranked.row_id for fact in facts if fact.ranked is not None])
        parts.update(
            zip(
                (fact.key for fact in facts),
                (supply.present or supply.scores).parts(stored, ids),
                strict=True,
            )
        )
    return parts
