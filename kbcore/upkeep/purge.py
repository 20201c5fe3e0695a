"""Selection of what a purge removes: facts, episodes and standing goals, and the rules that mention
the subject.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from kbcore.context.summaries import is_summary
from kbcore.context.window import SUMMARY_SUFFIX
from kbcore.reason.budget import Budget
from kbcore.state.episodes.evidence import evidence_of
from kbcore.state.facts import FactKey, FactRows, Row
from kbcore.state.intervals import EARLIER_KEY, RESERVED_KEYS, earlier_of
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.rulebook import StoredDefinition
from kbcore.state.tenant import Tenant
from kbcore.upkeep.evict import RECORD_BYTES
from kbcore.upkeep.sources import supported
from kbplanner.engine.backend import NO_ROW, Attribute
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import let_go
from kbtypes.episodes import Episode

FACTS_PER_YIELD = 200
"""Facts looked up or measured between two calls of `yield_now`: about a millisecond."""

RELATIONS_PER_YIELD = 200
TEXTS_PER_YIELD = 100
TEXTS_AT_ONCE = 2000
"""Relations looked at, texts searched, and texts read, between two such calls."""

SUBJECT, EPISODE, SPEAKER, BEFORE, FACTS = "subject", "episode", "speaker", "before", "facts"
"""The ways to select what a purge removes."""

MAX_SUBJECT_CHARS = 1000

MAX_SIMILAR = 1000
"""Maximum number of similar names that a purge remembers."""

MAX_SIMILAR_CHARS = 100
"""Longer words are not listed as similar names: encoded data, for example."""

SourceOf = tuple[str | None, str]
"""Scope and name of a predicate that is summarised."""


@dataclass(frozen=True, slots=True)
class PurgeTarget:
    """Selection of what to purge: exactly one member but `drop_scopes` is given.

    `subject` is a name: facts with an argument or metadata that mention it, and episodes that
    mention it, were said by it, or have it in their id or session. `episode` is an id, `speaker` a
    name: these episodes, and the facts that nothing else supports. `before` is in epoch
    milliseconds: facts and episodes that are older. `facts` are stored facts: these, the episodes
    that are evidence for them, and the facts that nothing else supports. Subjects match whole
    words in any case, and spaces and `_` between the words of a subject are equal. With
    `drop_scopes`, scopes whose names mention the subject are dropped, with everything in them.
    """

    subject: str | None = None
    episode: str | None = None
    speaker: str | None = None
    before: int | None = None
    facts: tuple[FactKey, ...] | None = None
    drop_scopes: bool = False

    @property
    def by(self) -> str:
        """The name of the member that is given."""
        values = {
            SUBJECT: self.subject,
            EPISODE: self.episode,
            SPEAKER: self.speaker,
            BEFORE: self.before,
            FACTS: self.facts,
        }
        return next(name for name, value in values.items() if value is not None)


@dataclass(slots=True)
class Selected:
    """Facts of one stored relation to purge, as flat symbols, with the reason of each."""

    stored: StoredRelation
    rows: array[int]
    reasons: list[str]

    def external(self, tenant: Tenant, count: int) -> list[Row]:
        """Return the first facts in their external form, each with the reason as `why`."""
        arity = self.stored.schema.arity
        symbols = self.rows[: count * arity]
        visible = min(count, len(self.reasons))
        ids = self.stored.relation.locate(symbols, visible)
        rows = self.stored.rows(tenant.engine, symbols, ids)
        return [{**row, "why": why} for row, why in zip(rows, self.reasons, strict=False)]


@dataclass(frozen=True, slots=True)
class PurgedGoal:
    """A standing goal that mentions the subject in its id, its text, or the address of its webhook.

    `webhook` is that address as the caller may see it, `webhook_url` all of it.
    """

    id: str
    goal: str
    webhook: str | None = None
    webhook_url: str = field(default="", repr=False)

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts that may mention the subject, the address also without percent-encoding."""
        return self.id, self.goal, self.webhook_url, unquote(self.webhook_url)


@dataclass(frozen=True, slots=True)
class NamedScope:
    """A scope whose name mentions the subject: its facts, and if the purge drops it."""

    scope: str
    fact_count: int
    dropped: bool


@dataclass(slots=True)
class PurgePlan:
    """Facts, episodes, standing goals and scopes that a purge would remove, as of one state.

    `rules`, among them phrases, mention the subject and stay. `similar` are names that contain the
    subject only as a part of a word: nothing that mentions only these is removed.
    """

    facts: list[Selected] = field(default_factory=list)
    episodes: list[Episode] = field(default_factory=list)
    rules: list[StoredDefinition] = field(default_factory=list)
    goals: list[PurgedGoal] = field(default_factory=list)
    scopes: list[NamedScope] = field(default_factory=list)
    similar: list[str] = field(default_factory=list)
    former: list[FactRows] = field(default_factory=list)
    """Facts of versions of rule sets that mention the subject, stored or not."""

    @property
    def fact_count(self) -> int:
        """The number of selected facts."""
        return sum(len(selected.reasons) for selected in self.facts)

    def rows(self, tenant: Tenant, limit: int) -> list[Row]:
        """Return at most `limit` of the facts in their external form."""
        rows: list[Row] = []
        for selected in self.facts:
            if len(rows) < limit:
                rows += selected.external(tenant, limit - len(rows))
        return rows


def plan_purge(
    tenant: Tenant, target: PurgeTarget, budget: Budget, goals: Iterable[PurgedGoal] = ()
) -> PurgePlan:
    """Select what to purge; the caller holds the tenant's read lock. Raises BudgetExceeded.

    `goals` are the standing goals of the tenant, those in memory included.
    """
    plan = PurgePlan()
    mentions = None if target.subject is None else _Mentions(target.subject)
    chosen = _located(tenant, target.facts or (), budget)
    if target.facts is None:
        plan.episodes = [
            episode
            for episode in budget.paced(tenant.episodes, TEXTS_PER_YIELD)
            if _selects(target, episode, mentions)
        ]
    else:
        plan.episodes = _evidence_for(tenant, chosen, budget)
    reasons: dict[int, dict[RowKey, str]] = {}
    if target.by in (EPISODE, SPEAKER, FACTS):
        ids = {episode.id for episode in budget.paced(plan.episodes)}
        for fact in supported(tenant, ids, budget):
            if all(span["episode"] in ids for span in fact.spans):
                reasons.setdefault(id(fact.stored), {})[fact.row] = "evidence"
        for stored, row in budget.paced(chosen):
            reasons.setdefault(id(stored), {})[row] = "asked"
    for _, stored in budget.paced(tenant.stored(), RELATIONS_PER_YIELD):
        if not stored.relation.counts().live:
            continue
        selected = Selected(stored, array("I"), [])
        own = reasons.get(id(stored), {})
        for row, why in _facts(tenant, stored, target, mentions, own, budget):
            selected.rows.extend(row)
            selected.reasons.append(why)
        if selected.reasons:
            plan.facts.append(selected)
    for why_of in reasons.values():
        let_go(why_of, budget.yield_now)
    let_go(chosen, budget.yield_now)
    if mentions is None:
        _add_summaries(tenant, plan, budget)
        return plan
    definitions: tuple[StoredDefinition, ...] = (*tenant.rules.all(), *tenant.rules.declarations())
    plan.rules = [
        known
        for known in budget.paced(definitions, TEXTS_PER_YIELD)
        if mentions.in_text(known.text)
    ]
    for name in budget.paced(tenant.scopes(), TEXTS_PER_YIELD):
        if mentions.in_text(name):
            partition = tenant.partition(name)
            count = 0 if partition is None else partition.live()
            plan.scopes.append(NamedScope(name, count, target.drop_scopes))
    plan.goals = [
        goal
        for goal in budget.paced(goals, TEXTS_PER_YIELD)
        if any(map(mentions.in_text, goal.texts))
    ]
    plan.former = [
        FactRows(fact.predicate, len(fact.args), fact.args, fact.positive, fact.scope)
        for fact in budget.paced(tenant.rule_sets.facts_ever(), TEXTS_PER_YIELD)
        if mentions.in_json([fact.predicate, fact.args, fact.metadata])
    ]
    plan.similar = mentions.similar()
    return plan


def _located(
    tenant: Tenant, facts: Iterable[FactKey], budget: Budget
) -> list[tuple[StoredRelation, RowKey]]:
    """Return the relations and symbols of those facts that are stored."""
    rows: list[tuple[StoredRelation, RowKey]] = []
    for scope, predicate, args, positive in budget.paced(facts, FACTS_PER_YIELD):
        partition = tenant.partition(scope)
        schema = RelationSchema(predicate, len(args), positive)
        stored = None if partition is None else partition.get(schema)
        symbols = array("I", [tenant.engine.find(arg) for arg in args])
        if stored is None or 0 in symbols or stored.relation.locate(symbols, 1)[0] == NO_ROW:
            continue
        rows.append((stored, tuple(symbols)))
    return rows


def _evidence_for(
    tenant: Tenant, facts: Iterable[tuple[StoredRelation, RowKey]], budget: Budget
) -> list[Episode]:
    """Return the episodes that are evidence for some facts, each once."""
    ids = dict.fromkeys(
        span["episode"]
        for stored, row in budget.paced(facts, FACTS_PER_YIELD)
        for span in evidence_of(stored.metadata.get(row, {}))
    )
    known = map(tenant.episodes.get, budget.paced(ids))
    return [episode for episode in known if episode is not None]


def _add_summaries(tenant: Tenant, plan: PurgePlan, budget: Budget) -> None:
    """Add the summaries, made by consolidation, of facts that the plan removes."""
    summaries = [
        stored
        for _, stored in budget.paced(tenant.stored(), RELATIONS_PER_YIELD)
        if stored.schema.predicate.endswith(SUMMARY_SUFFIX) and stored.schema.arity == 2
    ]
    summarised: dict[SourceOf, set[int]] = {_source_of(stored): set() for stored in summaries}
    chosen: dict[int, Selected] = {}
    for selected in budget.paced(plan.facts, RELATIONS_PER_YIELD):
        stored, arity = selected.stored, selected.stored.schema.arity
        chosen[id(stored)] = selected
        firsts = summarised.get((stored.scope, stored.schema.predicate))
        if firsts is not None and arity > 1:
            firsts.update(budget.paced(selected.rows[0::arity]))
    for stored in summaries:
        if not (firsts := summarised[_source_of(stored)]):
            continue
        known = chosen.get(id(stored))
        rows: set[RowKey] = set()
        if known is not None:
            rows.update(budget.paced(zip(known.rows[0::2], known.rows[1::2], strict=True)))
        added = known or Selected(stored, array("I"), [])
        for row, metadata in budget.paced(stored.metadata.items()):
            if row[0] in firsts and is_summary(metadata) and tuple(row) not in rows:
                added.rows.extend(row)
                added.reasons.append("summary")
        if known is None and added.reasons:
            plan.facts.append(added)


def _source_of(summary: StoredRelation) -> SourceOf:
    return summary.scope, summary.schema.predicate.removesuffix(SUMMARY_SUFFIX)


class _Mentions:
    """Recognises texts that contain a name as whole words, in any case.

    Spaces and `_` between the words of the name are equal. Words that contain the name only as a
    part are collected: `_` is a letter there, so `ann` is a part of `ann_k` and of `joanna`.
    """

    def __init__(self, name: str) -> None:
        words = [re.escape(word) for word in re.split(r"[\s_]+", name) if word]
        if not words:  # the name is `_`
            words = [re.escape(name.strip())]
        exact = r"[\s_]+".join(words)
        part = r"[\W_]?".join(words)
        self._pattern = re.compile(rf"(?<!\w){exact}(?!\w)", re.IGNORECASE)
        self._part = re.compile(part, re.IGNORECASE)
        self._name = name
        self._symbols: dict[int, bool] = {}
        self._similar: set[str] = set()

    def in_text(self, text: str) -> bool:
        """Return True if a text mentions the name; collect the similar names in it."""
        matches = False
        for part in self._part.finditer(text):
            start, end = _word_around(text, *part.span())
            if self._pattern.fullmatch(text, start, end):
                matches = True
            elif end - start <= MAX_SIMILAR_CHARS and len(self._similar) < MAX_SIMILAR:
                self._similar.add(text[start:end])
        return matches or text == self._name or self._pattern.search(text) is not None

    def similar(self) -> list[str]:
        """Return the names that contain the name as a part of a word, sorted."""
        return sorted(self._similar)

    def in_symbols(self, tenant: Tenant, symbols: array[int]) -> None:
        """Judge the texts of symbols that were not seen before."""
        new = array("I", {symbol for symbol in symbols if symbol not in self._symbols})
        for symbol, text in zip(new, tenant.engine.texts(new), strict=True):
            self._symbols[symbol] = self.in_text(text)

    def has(self, symbol: int) -> bool:
        """Return True if the text of a judged symbol mentions the name."""
        return self._symbols[symbol]

    def in_json(self, value: Any) -> bool:
        """Return True if a text or key in a JSON value mentions the name."""
        waiting = [value]
        while waiting:
            each = waiting.pop()
            if isinstance(each, str):
                if self.in_text(each):
                    return True
            elif isinstance(each, Mapping):
                waiting += each.keys()
                waiting += each.values()
            elif isinstance(each, list | tuple):
                waiting += each
        return False


def _word_around(text: str, start: int, end: int) -> tuple[int, int]:
    """Return the range of the words that a range of a text touches, cut if they are too long."""
    first, last = max(0, start - MAX_SIMILAR_CHARS), min(len(text), end + MAX_SIMILAR_CHARS)
    while start > first and (text[start - 1].isalnum() or text[start - 1] == "_"):
        start -= 1
    while end < last and (text[end].isalnum() or text[end] == "_"):
        end += 1
    return start, end


def _selects(target: PurgeTarget, episode: Episode, mentions: _Mentions | None) -> bool:
    if mentions is not None:
        texts = (episode.speaker, episode.text, episode.id, episode.session or "")
        return any(mentions.in_text(text) for text in texts)
    if target.before is not None:
        return episode.at < target.before
    if target.speaker is not None:
        return episode.speaker == target.speaker
    return episode.id == target.episode


def _facts(
    tenant: Tenant,
    stored: StoredRelation,
    target: PurgeTarget,
    mentions: _Mentions | None,
    reasons: Mapping[RowKey, str],
    budget: Budget,
) -> Iterator[tuple[RowKey, str]]:
    """Yield the symbols of the facts of a relation to purge, with the reason; `reasons` has those
    of the facts that are chosen already.
    """
    if target.by in (EPISODE, SPEAKER, FACTS):
        yield from budget.paced(reasons.items())
        return
    arity = stored.schema.arity
    rows, ids = stored.relation.match([0] * arity, hidden=True, yield_now=budget.yield_now)
    created: Sequence[float] = ()
    names_predicate = mentions is not None and mentions.in_text(stored.schema.predicate)
    for part in budget.slices(len(ids)):
        symbols = rows[part.start * arity : part.stop * arity]
        if mentions is None:
            created = stored.relation.attributes(Attribute.CREATED_AT, ids[part.start : part.stop])
        else:
            mentions.in_symbols(tenant, symbols)
        for index in range(len(part)):
            row = tuple(symbols[index * arity : (index + 1) * arity])
            if mentions is None:
                if int(created[index]) < (target.before or 0):
                    yield row, "before"
            elif names_predicate:
                yield row, "predicate"
            elif any(map(mentions.has, row)):
                yield row, "argument"
            elif stored.metadata and mentions.in_json(_own_metadata(stored.metadata.get(row, {}))):
                yield row, "metadata"


def _own_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a client sent as metadata of a fact, now and in its closed intervals."""
    own = {key: value for key, value in metadata.items() if key not in RESERVED_KEYS}
    earlier = [dict(each.metadata) for each in earlier_of(metadata) if each.metadata]
    return {**own, EARLIER_KEY: earlier} if earlier else own


def purge_records(
    tenant: Tenant, plan: PurgePlan, budget: Budget
) -> Iterator[tuple[FactRows, ...]]:
    """Yield the facts of a plan in parts that each fit into a log record; nearly always one
    part.
    """
    part: list[FactRows] = []
    size = 0
    for selected in plan.facts:
        schema = selected.stored.schema
        arity, start = schema.arity, 0
        texts: list[str] = []
        for places in budget.slices(len(selected.rows), TEXTS_AT_ONCE):
            texts += tenant.engine.texts(selected.rows[places.start : places.stop])
        for index in budget.paced(range(len(selected.reasons)), FACTS_PER_YIELD):
            # A character takes at most six bytes (\u0000), an argument two quotes and a comma.
            row = sum(6 * len(text) + 3 for text in texts[index * arity : (index + 1) * arity])
            if size + row > RECORD_BYTES and (part or index > start):
                part += _rows(selected, texts, start, index)
                yield tuple(part)
                part, size, start = [], 0, index
            size += row
        part += _rows(selected, texts, start, len(selected.reasons))
    yield (*part, *plan.former)


def _rows(selected: Selected, texts: list[str], start: int, stop: int) -> list[FactRows]:
    if start == stop:
        return []
    schema = selected.stored.schema
    args = texts[start * schema.arity : stop * schema.arity]
    return [FactRows(schema.predicate, schema.arity, args, schema.positive, selected.stored.scope)]
