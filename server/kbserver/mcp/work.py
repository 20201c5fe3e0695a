"""Implementations of the MCP tools: read the arguments like the route of the same name, call the core, shape the result.

Results are read by language models, so lists are limited: longer ones are marked as truncated.
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
"""A tool function: knowledge base, arguments, strict mode (unknown arguments are refused), now in epoch milliseconds."""

DEFAULT_ANSWERS = 100
"""Default limit on the answers of a tool."""

MAX_ANSWERS = 10_000
MAX_LISTED = 100
"""Limit on listed rows that were removed or differ."""

DEFAULT_PREDICATES = 200

_ALIASES = ("facts", "rules", "totalAvailable", "windowSize")
"""Aliases of members of a window; left out so that a model does not read the same rows twice."""

_schema = Envelope(
    "PredicatesTool", {"scope": scope_to_read, "prefix": text, "limit": whole(1, MAX_ANSWERS)}
)
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
    """Store rules, and the facts among them."""
    taught = rules.lesson(data, strict=strict)
    outcome = kb.assert_rules(taught.rules, taught.facts)
    texts = [rule.text for rule in outcome.rules]
    return {"rules": texts, "asserted": outcome.asserted, "warnings": list(outcome.warnings)}


def ask(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Answer a goal; proofs are graphs, because trees can be nested deeper than JSON parsers allow."""
    return _answered(kb, {**data, "proofFormat": "dag"}, strict, reason.question)


def query(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Match stored facts."""
    return _answered(kb, data, strict, reason.pattern)


def forget(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Retract one fact."""
    return _cut(facts.shown_retraction(facts.fact_to_retract(data, strict=strict).retracted(kb)))


def retract_pattern(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Retract the facts that match a pattern."""
    return _cut(facts.shown_removal(facts.pattern_to_retract(data, strict=strict).removed(kb)))


def aggregate(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Compute an aggregate over stored facts."""
    asked = reason.aggregation(data, strict=strict)
    result = asked.answer(kb, now)
    return result if result["matchedFacts"] else {**result, **shown_unknown(asked.unknown(kb))}


def explain(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Explain why answers hold, or how a goal is evaluated."""
    asked = reason.explanation(data, strict=strict)
    explanation, unknown = asked.answer(kb), shown_unknown(asked.unknown(kb))
    return (
        {"text": explanation, **unknown}
        if isinstance(explanation, str)
        else {"text": "", **explanation, **unknown}
    )


def predicates(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """List the predicates."""
    asked = schema_asked(data, strict=strict)
    schema = kb.predicates(asked.get("scope"))
    rows = [
        row for row in schema["predicates"] if row["predicate"].startswith(asked.get("prefix", ""))
    ]
    max_rows = asked.get("limit", DEFAULT_PREDICATES)
    return {**schema, "predicates": rows[:max_rows], "truncated": len(rows) > max_rows}


def context(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Choose the facts for a prompt."""
    asked = windows.context(data, strict=strict)
    return _without_aliases(
        windows.shown_window(kb.context(asked.request, wanted=asked.wanted), asked.request)
    )


def context_diff(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Return the changes since a session's last window."""
    asked = windows.diff(data, strict=strict)
    return windows.shown_diff(kb.context_diff(asked.session, asked.changes, wanted=asked.wanted))


def context_summary(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Summarise a knowledge base."""
    asked = ingest.summary(data, strict=strict)
    return ingest.shown_summary(kb.context_summary(asked.scope, wanted=asked.wanted))


def ingested(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Store the facts and rules of a text, and return a context window."""
    asked = ingest.ingest(data, strict=strict)
    outcome = kb.ingest(asked.text, asked.request, hint=asked.hint, wanted=asked.wanted)
    answer = ingest.shown_ingested(outcome, asked.request)
    return {**answer, "context": _without_aliases(answer["context"])}


def extract(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Extract facts from a text with the language model."""
    asked = language.extraction(data, strict=strict)
    extraction = kb.extract(
        asked.text,
        store=asked.store,
        rules=asked.rules,
        scope=asked.scope,
        context=asked.context,
        wanted=asked.wanted,
    )
    return language.shown_extracted(extraction)


def synthesize(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Answer a question in words."""
    asked = language.question(data, strict=strict)
    return language.shown_synthesis(
        kb.synthesize(asked.question, scope=asked.scope, wanted=asked.wanted)
    )


def recall(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Return the facts that were valid at a point in time."""
    max_rows = _limit(data)
    asked = memory.recall({**data, "limit": max_rows + 1}, strict=strict)
    rows = kb.recall(
        asked.predicate,
        asked.args,
        asked.at,
        positive=asked.positive,
        scope=asked.scope,
        limit=asked.limit,
    )
    return _listed(recalled(rows), max_rows)


def compress(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Consolidate repeated facts."""
    asked = memory.consolidation(data, strict=strict)
    groups = kb.consolidate(
        min_group_size=asked.min_group_size,
        predicates=asked.predicates,
        scope=asked.scope,
        dry_run=asked.dry_run,
    )
    return _cut(consolidated(groups))


def cleanup(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Evict expired facts and facts of low salience."""
    asked = memory.decay(data, strict=strict)
    return _cut(decayed(kb.decay(asked.threshold, scope=asked.scope, dry_run=asked.dry_run)))


def fork_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Copy a scope."""
    asked = scopes.fork_of(data, strict=strict)
    return scopes.shown_fork(
        asked, kb.fork_scope(asked.source, asked.target, overwrite=asked.overwrite)
    )


def merge_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Merge one scope into another."""
    asked = scopes.merge_of(data, strict=strict)
    return scopes.shown_merge(kb.merge_scope(asked.source, asked.target, strategy=asked.strategy))


def diff_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Compare two scopes."""
    asked = scopes.two_scopes(data, strict=strict)
    difference = kb.diff_scopes(asked.source, asked.target)
    pairs = [{"before": pair.before, "after": pair.after} for pair in difference.modified]
    rows = {"added": difference.added, "removed": difference.removed, "modified": pairs}
    return _cut({**rows, **scopes.diff_counts(difference)})


def list_scopes(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """List the scopes."""
    nothing(data, strict=strict)
    names = kb.scopes()
    return {"scopes": names, "count": len(names)}


def delete_scope(kb: KnowledgeBase, data: Json, strict: bool, now: int) -> Json:
    """Delete a scope."""
    scope = scope_named(data, strict=strict)
    return {"deleted": kb.drop_scope(scope), "scope": scope}


def _answered(
    kb: KnowledgeBase,
    data: Json,
    strict: bool,
    read: Callable[..., reason.Question | reason.Pattern],
) -> Json:
    """Return the answers of a goal or pattern; one row beyond the limit is read to detect truncation."""
    max_rows = _limit(data)
    notes = Notes()
    asked = read({**data, "limit": max_rows + 1}, strict=strict)
    answer = _listed(orjson.loads(b"".join(asked.written(kb, rows_written, notes))), max_rows)
    answer |= shown_unknown(notes.unknown)
    return {**answer, "warnings": notes.warnings} if notes.warnings else answer


def _limit(data: Json) -> int:
    """Return the limit on answers; raises InvalidInput."""
    limit_field = data.get("limit")
    if limit_field is None:
        return DEFAULT_ANSWERS
    try:
        limit: int = _limits(limit_field)
        return limit
    except ValueError as error:
        raise InvalidInput.at("limit", str(error)) from error


_limits = whole(1, MAX_ANSWERS)


def _listed(rows: list[Json], max_rows: int) -> Json:
    return {
        "results": rows[:max_rows],
        "count": min(len(rows), max_rows),
        "truncated": len(rows) > max_rows,
    }


def _counts(shape: Json) -> Json:
    """Remove the members that only report failures."""
    return {key: value for key, value in shape.items() if key not in ("failed", "errors")}


def _cut(shape: Json) -> Json:
    """Shorten long lists and mark the result as truncated."""
    shortened = {
        key: value[:MAX_LISTED] if isinstance(value, list) else value
        for key, value in shape.items()
    }
    cut = any(isinstance(value, list) and len(value) > MAX_LISTED for value in shape.values())
    return {**shortened, "truncated": True} if cut else shortened


def _without_aliases(window: Json) -> Json:
    return {key: value for key, value in window.items() if key not in _ALIASES}
