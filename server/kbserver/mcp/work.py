"""MCP tools whose result differs from the answer of their route.

Results are read by language models, so lists are limited: longer ones are marked as truncated.
"""

from __future__ import annotations

from typing import Any

import orjson

from kbcore.errors import InvalidInput
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.budget import Notes
from kbserver.answers import Objects, rows_written
from kbserver.notices import shown_unknown
from kbserver.schemas.base import Answer, Body, JsonObject, instance
from kbserver.schemas.conjunctions import Conjunction
from kbserver.schemas.context import TEXT, AnyWindow, ContextBody, select
from kbserver.schemas.fields import (
    EVERY_SCOPE,
    Count,
    Flag,
    Json,
    Many,
    Object,
    ReadScope,
    Text,
    Time,
    Value,
    Whole,
    WriteScope,
)
from kbserver.schemas.ingest import IngestBody, IngestedAnswer, stored
from kbserver.schemas.memory import RecallBody, with_truth_values
from kbserver.schemas.reason import (
    AggregateBody,
    ExplainBody,
    InferBody,
    Pattern,
    QueryBody,
    Question,
    Questions,
)
from kbserver.schemas.requests import OfAnyInstant, seen
from kbserver.schemas.rule_sets import (
    DeployBody,
    Deployed,
    RollbackBody,
    RolledBack,
    RuleSetShown,
    RuleSetVersionShown,
    notes_of,
)
from kbserver.schemas.scopes import ScopeDiffBody, ScopeForkBody, diff_counts
from kbserver.security import audit
from kbtypes.results import ForkOutcome

DEFAULT_ANSWERS = 100
"""Default limit on the answers of a tool."""

MAX_ANSWERS = 10_000
MAX_LISTED = 100
"""Limit on listed rows that were removed or differ."""

DEFAULT_PREDICATES = 200


class PredicatesToolBody(OfAnyInstant):
    """Arguments of the tool predicates."""

    scope = ReadScope()
    prefix = Text()
    limit = Whole(1, MAX_ANSWERS)


class ScopesToolBody(OfAnyInstant):
    """Arguments of the tool list_scopes."""


class DeleteScopeToolBody(Body):
    """Arguments of the tool delete_scope."""

    scope = WriteScope(required=True)


class DeployToolBody(DeployBody):
    """Arguments of the tool deploy."""

    name = Text(required=True)


class RollbackToolBody(RollbackBody):
    """Arguments of the tool rollback."""

    name = Text(required=True)


class RuleSetsToolBody(Body):
    """Arguments of the tool rule_sets."""

    name = Text()
    scope = ReadScope()


class RuleSetsListed(JsonObject):
    """Rule sets, or versions of one."""

    rule_sets = Many(RuleSetShown)
    versions = Many(RuleSetVersionShown)
    count = Count()


class ToolRows(JsonObject):
    """Rows, cut off at a limit."""

    results = Many(Object())
    count = Value(schema={"type": "integer"})
    truncated = Flag()


class ToolText(JsonObject):
    """A text."""

    text = Text()


class ToolPredicates(JsonObject):
    """Predicates, cut off at a limit."""

    predicates = Many(Object())
    total_predicates = Count()
    truncated = Flag()


class ToolStored(Answer):
    """The number of stored facts."""

    asserted = Count()
    updated = Count()
    discarded = Count(of=lambda outcome: outcome.discarded or None, optional=True)
    timestamp = Time()


class ToolUpdated(ToolStored):
    """The number of stored facts, and what was not changed."""

    warnings = Many(Text(), of=lambda outcome: outcome.warnings or None, optional=True)


class TaughtTexts(Answer):
    """The stored rules."""

    rules = Many(Text(), of=lambda outcome: [rule.text for rule in outcome.rules])
    asserted = Count()
    warnings = Many(Text())


def ask(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Answer a goal; proofs are graphs, because trees can be nested deeper than JSON parsers
    allow.
    """
    return _answered(kb, {**data, "proofFormat": "dag"}, strict, InferBody)


def query(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Match stored facts."""
    return _answered(kb, data, strict, QueryBody)


def aggregate(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Compute an aggregate over stored facts."""
    arguments = instance(AggregateBody).read(data, strict=strict)
    kb, aggregation = seen(kb, arguments), arguments["aggregation"]
    result: Json = aggregation.answer(kb, now)
    return (
        result if result["matchedFacts"] else {**result, **shown_unknown(aggregation.unknown(kb))}
    )


def explain(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Explain why answers hold, why there are none, what would change that, or how a goal is
    evaluated.
    """
    if data.get("whyNot") or data.get("howTo"):
        data = {"format": "text", **data}
    arguments = instance(ExplainBody).read(data, strict=strict)
    kb, goal = seen(kb, arguments), arguments["explanation"]
    explanation, unknown = goal.answer(kb), shown_unknown(goal.unknown(kb))
    if isinstance(explanation, str):
        return {"text": explanation, **unknown}
    return {"text": "", **explanation, **unknown}


def why_not(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Explain why a goal has no answer."""
    arguments = instance(ExplainBody).read({**data, "whyNot": True}, strict=strict)
    kb = seen(kb, arguments)
    explanation: Json = arguments["explanation"].answer(kb)
    return explanation


def how_to(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Find the changes of facts that would make a goal true, or false."""
    arguments = instance(ExplainBody).read({**data, "howTo": True}, strict=strict)
    kb = seen(kb, arguments)
    proposals: Json = arguments["explanation"].answer(kb)
    return proposals


def predicates(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """List the predicates."""
    arguments = instance(PredicatesToolBody).read(data, strict=strict)
    schema = seen(kb, arguments).predicates(arguments.get("scope"))
    prefix = arguments.get("prefix", "")
    rows = [row for row in schema["predicates"] if row["predicate"].startswith(prefix)]
    max_rows = arguments.get("limit", DEFAULT_PREDICATES)
    return {**schema, "predicates": rows[:max_rows], "truncated": len(rows) > max_rows}


def context(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Select the facts for a prompt; each is sent once: in the text, which is the default format,
    or as an entry.
    """
    if data.get("format") is None:
        data = {**data, "format": TEXT}
    arguments = instance(ContextBody).read(data, strict=strict)
    selected = select(seen(kb, arguments), **{**arguments, "compat": False})
    if not selected.as_text:
        return AnyWindow.write_minimal(selected)
    window = selected.window
    missing = {"indexProgress": window.index_progress, "vectorsMissing": window.vectors_missing}
    return {
        "windowId": window.id,
        "formattedText": window.text,
        **{name: value for name, value in missing.items() if value is not None},
    }


def ingest(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Store the facts and rules of a text, and return a context window."""
    arguments = instance(IngestBody).read(data, strict=strict)
    return cut(IngestedAnswer.write_minimal(stored(kb, **{**arguments, "compat": False})))


def recall(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Return the facts that were valid at a point in time."""
    max_rows = _limit(data)
    arguments = instance(RecallBody).read({**data, "limit": max_rows + 1}, strict=strict)
    return _listed(with_truth_values(seen(kb, arguments).recall(**arguments)), max_rows)


def forked(outcome: ForkOutcome, arguments: Json) -> Json:
    """Return the answer to a fork."""
    scopes = {"sourceScope": arguments["source"], "targetScope": arguments["target"]}
    return {"copied": outcome.copied, **scopes}


def fork_scope(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Copy a scope."""
    arguments = instance(ScopeForkBody).read(data, strict=strict)
    return forked(kb.fork_scope(**arguments), arguments)


def diff_scope(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Compare two scopes."""
    arguments = instance(ScopeDiffBody).read(data, strict=strict)
    difference = seen(kb, arguments).diff_scopes(**arguments)
    pairs = [{"before": pair.before, "after": pair.after} for pair in difference.modified]
    rows = {"added": difference.added, "removed": difference.removed, "modified": pairs}
    return cut({**rows, **diff_counts(difference)})


def list_scopes(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """List the scopes."""
    names = seen(kb, instance(ScopesToolBody).read(data, strict=strict)).scopes()
    return {"scopes": names, "count": len(names)}


def delete_scope(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Delete a scope."""
    scope: str = instance(DeleteScopeToolBody).read(data, strict=strict)["scope"]
    return {"deleted": kb.drop_scope(scope), "scope": scope}


def deploy(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Replace a rule set."""
    arguments = instance(DeployToolBody).read(data, strict=strict)
    if arguments["dry_run"] is not None:
        audit.planned()
    outcome = kb.deploy(**arguments)
    audit.deployed(outcome, **notes_of(arguments))
    return cut(Deployed.write(outcome))


def rollback(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """Deploy an earlier version of a rule set."""
    arguments = instance(RollbackToolBody).read(data, strict=strict)
    outcome = kb.rollback(**arguments)
    audit.deployed(outcome, message=arguments.get("message"))
    return cut(RolledBack.write(outcome))


def rule_sets(kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
    """List the rule sets, or the versions of one."""
    arguments = instance(RuleSetsToolBody).read(data, strict=strict)
    name, scope = arguments.get("name"), arguments.get("scope", EVERY_SCOPE)
    if name is None:
        known = kb.rule_sets(scope)
        return cut({"ruleSets": RuleSetShown.write_all(known), "count": len(known)})
    scope = None if scope == EVERY_SCOPE else scope
    versions = kb.rule_set_versions(name, scope=scope)
    return cut({"versions": RuleSetVersionShown.write_all(versions), "count": len(versions)})


def cut(shape: Json) -> Json:
    """Shorten long lists and mark the result as truncated."""
    shortened = {
        key: value[:MAX_LISTED] if isinstance(value, list | Objects) else value
        for key, value in shape.items()
    }
    is_cut = any(
        isinstance(value, list | Objects) and len(value) > MAX_LISTED for value in shape.values()
    )
    return {**shortened, "truncated": True} if is_cut else shortened


def _answered(kb: TenantKB, data: Json, strict: bool, body: type[InferBody | QueryBody]) -> Json:
    """Return the answers of a goal or pattern; one row beyond the limit is read to detect
    truncation.
    """
    max_rows = _limit(data)
    notes = Notes()
    goal: Question | Questions | Conjunction | Pattern
    arguments = instance(body).read({**data, "limit": max_rows + 1}, strict=strict)
    kb = seen(kb, arguments)
    (goal,) = arguments.values()
    if isinstance(goal, Questions):
        each = [
            _listed(orjson.loads(b"".join(parts)), max_rows)
            for parts in goal.each_written(kb, rows_written, notes)
        ]
        truncated = any(listed["truncated"] for listed in each)
        answer: Json = {"results": each, "count": len(each), "truncated": truncated}
    else:
        answer = _listed(orjson.loads(b"".join(goal.written(kb, rows_written, notes))), max_rows)
    answer |= shown_unknown(notes.unknown)
    return {**answer, "warnings": notes.warnings} if notes.warnings else answer


_LIMIT = Whole(1, MAX_ANSWERS)


def _limit(data: Json) -> int:
    """Return the limit on answers; raises InvalidInput."""
    limit = data.get("limit")
    if limit is None:
        return DEFAULT_ANSWERS
    try:
        return _LIMIT.read(limit)
    except ValueError as error:
        raise InvalidInput.at("limit", str(error)) from error


def _listed(rows: list[Any], max_rows: int) -> Json:
    return {
        "results": rows[:max_rows],
        "count": min(len(rows), max_rows),
        "truncated": len(rows) > max_rows,
    }
