"""Bodies about context windows, and windows as they are shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.context.diff import WindowDiff
from kbcore.context.request import FILLS, FORMATS, STRUCTURED, Bucket, WindowRequest
from kbcore.context.text.render import render_changes
from kbcore.context.window import Entry, Window
from kbcore.errors import InvalidInput
from kbcore.reason.budget import BudgetWanted
from kbplanner.ir.terms import Literal
from kbplanner.syntax.jsonform import atom_from_json, goal_from_json
from kbserver.http.request_context import NAME_RULE, is_name
from kbserver.schemas.base import Envelope, budget_wanted
from kbserver.schemas.fields import (
    BUDGET,
    NAME,
    Reader,
    buckets,
    flag,
    fraction,
    goals,
    one_of,
    predicates,
    scope_to_read,
    takes,
    text,
    whole,
)

MOST_FACTS = 10_000
"""Facts a window may hold."""


@takes(NAME)
def session_name(value: Any) -> str:
    """Read the name of a session."""
    if type(value) is not str or not is_name(value):
        raise ValueError(f"is not a name of a session: it has {NAME_RULE}")
    return value


_WINDOW: dict[str, Reader] = {
    "maxFacts": whole(1, MOST_FACTS),
    "maxTokens": whole(1),
    "minSalience": fraction,
    "predicates": predicates,
    "scope": scope_to_read,
    "format": one_of(*FORMATS),
    "includeRules": flag,
    "goals": goals,
    "sessionId": session_name,
    "autoResolveContradictions": flag,
    "maxFactsPerPredicate": whole(1),
    "relevanceBuckets": buckets,
    "query": text,
    "asker": text,
    "fill": one_of(*FILLS),
    "minRelevance": fraction,
    "explain": flag,
    **BUDGET,
}

_context = Envelope("Context", _WINDOW)
_diff = Envelope("ContextDiff", _WINDOW, required=("sessionId",))
_OPTIMIZE = (
    *("maxFacts", "goals", "relevanceBuckets", "scope", "predicates", "sessionId"),
    *("autoResolveContradictions", "maxFactsPerPredicate", *BUDGET),
)
_optimize = Envelope("ContextOptimize", {name: _WINDOW[name] for name in _OPTIMIZE})
_clear = Envelope("ContextClear", {"sessionId": session_name}, required=("sessionId",))


@dataclass(frozen=True, slots=True)
class ContextAsked:
    """A window asked for, and what may be used for it."""

    request: WindowRequest
    wanted: BudgetWanted


@dataclass(frozen=True, slots=True)
class DiffAsked:
    """A diff asked for: of what session, the fields of the request that are not as in its last window."""

    session: str
    changes: dict[str, Any]
    wanted: BudgetWanted


@_context.shapes
def context(data: dict[str, Any], *, strict: bool) -> ContextAsked:
    """Read the body of /memory/context."""
    found = _context.load(data, strict)
    return ContextAsked(WindowRequest(**_fields(found)), budget_wanted(found))


@_optimize.shapes
def optimization(data: dict[str, Any], *, strict: bool) -> ContextAsked:
    """Read the body of /context/optimize."""
    found = _optimize.load(data, strict)
    return ContextAsked(WindowRequest(**_fields(found)), budget_wanted(found))


@_diff.shapes
def diff(data: dict[str, Any], *, strict: bool) -> DiffAsked:
    """Read the body of /context/diff."""
    found = _diff.load(data, strict)
    changes = _fields(found)
    return DiffAsked(changes.pop("session"), changes, budget_wanted(found))


@_clear.shapes
def clear(data: dict[str, Any], *, strict: bool) -> str:
    """Read the body of /context/session/clear."""
    session: str = _clear.load(data, strict)["sessionId"]
    return session


def goal_literals(goals: Any) -> tuple[Literal, ...]:
    """Read goals; raises InvalidInput."""
    if type(goals) is not list:
        raise InvalidInput.at("goals", "must be an array of goals")
    return tuple(goal_from_json(goal, f"goals[{place}]") for place, goal in enumerate(goals))


def shown_entry(entry: Entry) -> dict[str, Any]:
    """An entry for the outside."""
    source = entry.provenance
    found = {
        "predicate": entry.predicate,
        "args": list(entry.args),
        "negated": entry.negated,
        "scope": entry.scope,
        "salience": entry.salience,
        "category": entry.category,
        "charCount": entry.char_count,
        "provenance": None
        if source is None
        else {"rule": source.rule, "premises": list(source.premises)},
        "createdAt": entry.created_at,
        "validFrom": entry.valid_from,
        "validUntil": entry.valid_until,
        "metadata": dict(entry.metadata),
        "contradicted": entry.contradicted,
    }
    return found if entry.why is None else {**found, "why": dict(entry.why)}


def shown_window(window: Window, request: WindowRequest, *, whole: bool = False) -> dict[str, Any]:
    """A window for the outside: the fields of both paths, those of a Context window where optimized or `whole`."""
    entries = [shown_entry(entry) for entry in window.entries]
    distribution: dict[str, int] = {}
    for entry in window.entries:
        distribution[entry.predicate] = distribution.get(entry.predicate, 0) + 1
    rules = list(window.rules)
    found: dict[str, Any] = {
        "windowId": window.id,
        "entries": entries,
        "facts": entries,
        "relevantRules": rules,
        "rules": rules,
        "totalFactsAvailable": window.available,
        "totalAvailable": window.available,
        "totalFactsIncluded": len(entries),
        "windowSize": len(entries),
        "predicateDistribution": distribution,
        "totalCharCount": window.chars,
        "tokenEstimate": window.tokens,
        "generatedAt": window.generated_at,
    }
    if whole or request.optimizes:
        found |= {
            "deduplicationSavings": window.savings,
            "contradictionsFound": window.contradictions_found,
            "contradictionsResolved": window.resolved,
            "contradictions": [
                {
                    "predicate": one.predicate,
                    "args": list(one.args),
                    "positiveSalience": one.positive_salience,
                    "negativeSalience": one.negative_salience,
                }
                for one in window.contradictions
            ],
            "bucketStats": {
                name: {
                    "factsIncluded": stats.facts_included,
                    "maxAllocation": stats.max_allocation,
                    "minSalience": stats.min_salience,
                    "maxSalience": stats.max_salience,
                }
                for name, stats in window.buckets.items()
            },
            "goalDriven": window.goal_driven,
            "knowledgeGeneration": window.generation,
        }
    if request.format != STRUCTURED:
        found["formattedText"] = window.text
    if window.cut is not None:
        found["cut"] = dict(window.cut)
    return found


def shown_diff(diff: WindowDiff) -> dict[str, Any]:
    """A diff for the outside, with its text unless the format is `structured`."""
    found: dict[str, Any] = {
        "previousWindowId": diff.previous,
        "currentWindowId": diff.current,
        "added": [{"key": entry.key, **shown_entry(entry)} for entry in diff.added],
        "removed": [
            {
                "key": one.key,
                "predicate": one.entry.predicate,
                "args": list(one.entry.args),
                "negated": one.entry.negated,
                "scope": one.entry.scope,
                "reason": one.reason,
            }
            for one in diff.removed
        ],
        "unchanged": diff.unchanged,
        "fullRefreshRecommended": diff.refresh,
        "reason": diff.reason,
    }
    if diff.format != STRUCTURED:
        found["formattedText"] = render_changes(diff, diff.format)
    return found


def _fields(found: dict[str, Any]) -> dict[str, Any]:
    """The fields of a window request that a body names."""
    names = {
        "maxFacts": "max_facts",
        "maxTokens": "max_tokens",
        "minSalience": "min_salience",
        "scope": "scope",
        "sessionId": "session",
        "autoResolveContradictions": "auto_resolve",
        "maxFactsPerPredicate": "max_per_predicate",
        "includeRules": "include_rules",
        "query": "query",
        "asker": "asker",
        "fill": "fill",
        "minRelevance": "min_relevance",
        "explain": "explain",
        "format": "format",
    }
    fields: dict[str, Any] = {field: found[name] for name, field in names.items() if name in found}
    if "predicates" in found:
        fields["predicates"] = _predicates(found["predicates"], "predicates")
    if "goals" in found:
        fields["goals"] = goal_literals(found["goals"])
    if "relevanceBuckets" in found:
        fields["buckets"] = _buckets(found["relevanceBuckets"])
    return fields


def _predicates(names: Any, path: str) -> tuple[str, ...]:
    if type(names) is not list:
        raise InvalidInput.at(path, "must be an array of predicates")
    found = []
    for place, name in enumerate(names):
        try:
            found.append(atom_from_json({"predicate": name, "args": []}).predicate)
        except InvalidInput as error:
            fields = (error.details or {}).get("fields") or {"": [error.message]}
            raise InvalidInput.at(f"{path}[{place}]", next(iter(fields.values()))[0]) from None
    return tuple(found)


def _buckets(values: Any) -> tuple[Bucket, ...]:
    if type(values) is not list:
        raise InvalidInput.at("relevanceBuckets", "must be an array of buckets")
    found: list[Bucket] = []
    for place, value in enumerate(values):
        path = f"relevanceBuckets[{place}]"
        if type(value) is not dict:
            raise InvalidInput.at(path, "must be an object")
        name, weight, predicates = (
            value.get("name"),
            value.get("weight", 1.0),
            value.get("predicates"),
        )
        if type(name) is not str or not name:
            raise InvalidInput.at(f"{path}.name", "must be a text that is not empty")
        if any(bucket.name == name for bucket in found):
            raise InvalidInput.at(f"{path}.name", "is the name of another bucket")
        if type(weight) not in (int, float) or not 0 < weight <= 1e9:
            raise InvalidInput.at(f"{path}.weight", "must be a number above 0")
        named = None if predicates is None else _predicates(predicates, f"{path}.predicates")
        found.append(Bucket(name, named, float(weight)))
    return tuple(found)
