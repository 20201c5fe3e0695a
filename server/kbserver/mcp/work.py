"""What each tool does: read its arguments as the route of the same name does, call the core, show the outcome.

An answer is for a model to read, so lists have an end: what is beyond it is counted or marked as cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import orjson

from kbcore.errors import InvalidInput
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.reason.budget import Notes
from kbserver.answers import rows_written
from kbserver.notices import shown_unknown
from kbserver.schemas import context as windows
from kbserver.schemas import facts, ingest, language, memory, reason, rules, scopes
from kbserver.schemas.answers.memory import consolidated, decayed, recalled
from kbserver.schemas.base import Envelope, nothing
from kbserver.schemas.fields import scope_to_read, scope_to_write, text, whole

Json = dict[str, Any]
Work = Callable[[KnowledgeBase, Json, bool, int], Json]
"""Does a tool's work: the knowledge base, the arguments, whether unknown ones are refused, now in epoch milliseconds."""

ANSWERS = 100
"""Answers that a tool gives where nobody says."""

MOST_ANSWERS = 10_000
LISTED = 100
"""Rows that are listed of what was removed or differs."""

PREDICATES = 200

_ALIASES = ("facts", "rules", "totalAvailable", "windowSize")
"""Second names of members of a window, which would only make a model read everything twice."""

_schema = Envelope("PredicatesTool", {"scope": scope_to_read, "prefix": text, "limit": whole(1, MOST_ANSWERS)})
_drop = Envelope("DeleteScopeTool", {"scope": scope_to_write}, required=("scope",))


@_schema.shapes
def schema_asked(data: Json, *, strict: bool) -> Json:
    """Read the arguments of predicates."""
    return _schema.load(data, strict)


@_drop.shapes
def scope_named(data: Json, *, strict: bool) -> str:
    """Read the arguments of delete_scope: the scope."""
    scope: str = _drop.load(data, strict)["scope"]
    return scope


def tell(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Store one fact."""
    return _counts(facts.shown_asserted(facts.one_fact(data, strict=strict).asserted(kb)))


def bulk_assert(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Store many facts, all or none."""
    return _counts(facts.shown_asserted(facts.many_facts(data, strict=strict).asserted(kb)))


def teach(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Teach rules, and tell the facts among them."""
    taught = rules.lesson(data, strict=strict)
    outcome = kb.assert_rules(taught.rules, taught.facts)
    texts = [rule.text for rule in outcome.rules]
    return {"rules": texts, "asserted": outcome.asserted, "warnings": list(outcome.warnings)}


def ask(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Answer a goal; proofs come as graphs, since trees may be nested deeper than JSON readers go."""
    return _answered(kb, {**data, "proofFormat": "dag"}, strict, reason.question)


def query(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Match stored facts."""
    return _answered(kb, data, strict, reason.pattern)


def forget(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Take one fact back."""
    return _cut(facts.shown_retraction(facts.fact_to_retract(data, strict=strict).retracted(kb)))


def retract_pattern(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Take back what matches."""
    return _cut(facts.shown_removal(facts.pattern_to_retract(data, strict=strict).removed(kb)))


def aggregate(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Work out a number."""
    asked = reason.aggregation(data, strict=strict)
    result = asked.told(kb, now)
    return result if result["matchedFacts"] else {**result, **shown_unknown(asked.unknown(kb))}


def explain(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Tell why answers hold, or how a goal is evaluated."""
    asked = reason.explanation(data, strict=strict)
    told, unknown = asked.told(kb), shown_unknown(asked.unknown(kb))
    return {"text": told, **unknown} if isinstance(told, str) else {"text": "", **told, **unknown}


def predicates(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Describe the predicates there are."""
    asked = schema_asked(data, strict=strict)
    found = kb.predicates(asked.get("scope"))
    rows = [row for row in found["predicates"] if row["predicate"].startswith(asked.get("prefix", ""))]
    most = asked.get("limit", PREDICATES)
    return {**found, "predicates": rows[:most], "truncated": len(rows) > most}


def context(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Choose the facts for a prompt."""
    asked = windows.context(data, strict=strict)
    return _once(windows.shown_window(kb.context(asked.request, wanted=asked.wanted), asked.request))


def context_diff(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Say what has changed since a session's last window."""
    asked = windows.diff(data, strict=strict)
    return windows.shown_diff(kb.context_diff(asked.session, asked.changes, wanted=asked.wanted))


def context_summary(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Look over a knowledge base."""
    asked = ingest.summary(data, strict=strict)
    return ingest.shown_summary(kb.context_summary(asked.scope, wanted=asked.wanted))


def ingested(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Store what a text states, and give a window."""
    asked = ingest.ingest(data, strict=strict)
    done = kb.ingest(asked.text, asked.request, hint=asked.hint, wanted=asked.wanted)
    found = ingest.shown_ingested(done, asked.request)
    return {**found, "context": _once(found["context"])}


def extract(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Read a text into facts by the language model."""
    asked = language.extraction(data, strict=strict)
    found = kb.extract(
        asked.text, store=asked.store, rules=asked.rules, scope=asked.scope, context=asked.context, wanted=asked.wanted
    )
    return language.shown_extracted(found)


def synthesize(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Answer a question in words."""
    asked = language.question(data, strict=strict)
    return language.shown_synthesis(kb.synthesize(asked.question, scope=asked.scope, wanted=asked.wanted))


def recall(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Give the facts that were valid at a moment."""
    most = _limit(data)
    asked = memory.recall({**data, "limit": most + 1}, strict=strict)
    rows = kb.recall(
        asked.predicate, asked.args, asked.at, positive=asked.positive, scope=asked.scope, limit=asked.limit
    )
    return _listed(recalled(rows), most)


def compress(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Sum up facts that repeat themselves."""
    asked = memory.consolidation(data, strict=strict)
    found = kb.consolidate(
        min_group_size=asked.min_group_size, predicates=asked.predicates, scope=asked.scope, dry_run=asked.dry_run
    )
    return _cut(consolidated(found))


def cleanup(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Evict what has expired, and what matters too little."""
    asked = memory.decay(data, strict=strict)
    return _cut(decayed(kb.decay(asked.threshold, scope=asked.scope, dry_run=asked.dry_run)))


def fork_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Copy a scope."""
    asked = scopes.fork_of(data, strict=strict)
    return scopes.shown_fork(asked, kb.fork_scope(asked.source, asked.target, overwrite=asked.overwrite))


def merge_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Add to a scope what another has."""
    asked = scopes.merge_of(data, strict=strict)
    return scopes.shown_merge(kb.merge_scope(asked.source, asked.target, strategy=asked.strategy))


def diff_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Compare two scopes."""
    asked = scopes.two_scopes(data, strict=strict)
    found = kb.diff_scopes(asked.source, asked.target)
    pairs = [{"before": pair.before, "after": pair.after} for pair in found.modified]
    return _cut({"added": found.added, "removed": found.removed, "modified": pairs, **scopes.diff_counts(found)})


def list_scopes(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """List the scopes."""
    nothing(data, strict=strict)
    found = kb.scopes()
    return {"scopes": found, "count": len(found)}


def delete_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Delete a scope."""
    scope = scope_named(data, strict=strict)
    return {"deleted": kb.drop_scope(scope), "scope": scope}


def _answered(kb: KnowledgeBase, data: Json, strict: bool, read: Callable[..., reason.Question | reason.Pattern]) -> Json:
    """The answers of a goal or pattern, one more than is wanted to see whether there are more."""
    most = _limit(data)
    notes = Notes()
    asked = read({**data, "limit": most + 1}, strict=strict)
    found = _listed(orjson.loads(b"".join(asked.written(kb, rows_written, notes))), most)
    found |= shown_unknown(notes.unknown)
    return {**found, "warnings": notes.warnings} if notes.warnings else found


def _limit(data: Json) -> int:
    """How many answers are wanted; raises InvalidInput."""
    wanted = data.get("limit")
    if wanted is None:
        return ANSWERS
    try:
        limit: int = _limits(wanted)
        return limit
    except ValueError as error:
        raise InvalidInput.at("limit", str(error)) from error


_limits = whole(1, MOST_ANSWERS)


def _listed(rows: list[Json], most: int) -> Json:
    return {"results": rows[:most], "count": min(len(rows), most), "truncated": len(rows) > most}


def _counts(shape: Json) -> Json:
    """Without what would have been an error instead."""
    return {key: value for key, value in shape.items() if key not in ("failed", "errors")}


def _cut(shape: Json) -> Json:
    """Cut lists off, and say so."""
    found = {key: value[:LISTED] if isinstance(value, list) else value for key, value in shape.items()}
    cut = any(isinstance(value, list) and len(value) > LISTED for value in shape.values())
    return {**found, "truncated": True} if cut else found


def _once(window: Json) -> Json:
    return {key: value for key, value in window.items() if key not in _ALIASES}
