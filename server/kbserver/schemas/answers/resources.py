"""Answers about windows, memory, scopes, databases and health as JSON Schema; see `shown.py`."""

from __future__ import annotations

from kbcore.context.removed import REASONS
from kbserver.schemas.answers.facts import ROW, ROWS
from kbserver.schemas.answers.language import FAILURES, REJECTED
from kbserver.schemas.jsonschema import (
    COUNT,
    FLAG,
    FRACTION,
    INSTANT,
    NUMBER,
    TEXT,
    TEXTS,
    Schema,
    array,
    mapping,
    named,
    nullable,
    obj,
    said,
    words,
)

_SALIENCE = said(NUMBER, "0 to 1, and above for what goals rest on.")
_ENTRY: dict[str, Schema] = {
    "predicate": TEXT,
    "args": TEXTS,
    "negated": FLAG,
    "scope": nullable(TEXT),
    "salience": _SALIENCE,
    "category": said(
        TEXT, "The name of a bucket, or such as `goal_relevant`, `inferred`, `recent`, `asserted`."
    ),
    "charCount": COUNT,
    "provenance": nullable(obj({"rule": TEXT, "premises": TEXTS})),
    "createdAt": INSTANT,
    "validFrom": nullable(INSTANT),
    "validUntil": nullable(INSTANT),
    "metadata": {"type": "object"},
    "contradicted": said(
        FLAG, "The opposite is stored or derivable too; this side was kept or neither was left out."
    ),
    "why?": {"type": "object"},
}
ENTRY = named("Entry", obj(_ENTRY))
ENTRIES = array(ENTRY)

_OPTIMIZED: dict[str, Schema] = {
    "deduplicationSavings": COUNT,
    "contradictionsFound": COUNT,
    "contradictionsResolved": COUNT,
    "contradictions": array(
        obj(
            {
                "predicate": TEXT,
                "args": TEXTS,
                "positiveSalience": _SALIENCE,
                "negativeSalience": _SALIENCE,
            }
        )
    ),
    "bucketStats": mapping(
        obj(
            {
                "factsIncluded": COUNT,
                "maxAllocation": COUNT,
                "minSalience": _SALIENCE,
                "maxSalience": _SALIENCE,
            }
        )
    ),
    "goalDriven": FLAG,
    "knowledgeGeneration": COUNT,
}
_WINDOW: dict[str, Schema] = {
    "windowId": TEXT,
    "entries": ENTRIES,
    "facts": said(ENTRIES, "The same as `entries`."),
    "relevantRules": TEXTS,
    "rules": said(TEXTS, "The same as `relevantRules`."),
    "totalFactsAvailable": COUNT,
    "totalAvailable": COUNT,
    "totalFactsIncluded": COUNT,
    "windowSize": COUNT,
    "predicateDistribution": mapping(COUNT),
    "totalCharCount": COUNT,
    "tokenEstimate": said(
        COUNT, "Tokens of the text in the requested format; of `structured` that of `facts`."
    ),
    "generatedAt": INSTANT,
    "formattedText?": said(TEXT, "With `format: natural` or `facts`."),
    "cut?": said({"type": "object"}, "With `explain: true`: what was left out, and why."),
}
WINDOW = named("Window", obj({**_WINDOW, **_OPTIMIZED}))
FAST_WINDOW = named(
    "AnyWindow",
    obj(
        {**_WINDOW, **{f"{key}?": schema for key, schema in _OPTIMIZED.items()}},
        description="What goals, a session or buckets ask for has every field of a Window.",
    ),
)
CHANGES = named(
    "WindowDiff",
    obj(
        {
            "previousWindowId": nullable(TEXT),
            "currentWindowId": TEXT,
            "added": array(obj({"key": TEXT, **_ENTRY})),
            "removed": array(
                obj(
                    {
                        "key": TEXT,
                        "predicate": TEXT,
                        "args": TEXTS,
                        "negated": FLAG,
                        "scope": nullable(TEXT),
                        "reason": said(
                            words(*REASONS),
                            "Why it is not in the new window. With `superseded` and `not_selected` it is still true.",
                        ),
                    }
                )
            ),
            "unchanged": COUNT,
            "fullRefreshRecommended": FLAG,
            "reason": nullable(TEXT),
            "formattedText?": said(TEXT, "With `format: natural` or `facts`: the changes as text."),
        }
    ),
)
INGESTED = named(
    "Ingested",
    obj(
        {
            "extracted": array(
                obj({"predicate": TEXT, "args": TEXTS, "negated": FLAG, "confidence": FRACTION})
            ),
            "rules": TEXTS,
            "extractionProvider": TEXT,
            "extractionModel": nullable(TEXT),
            "unreadLines": array(COUNT),
            "rejected": REJECTED,
            "failures": FAILURES,
            "context": WINDOW,
        }
    ),
)
REMEMBERED = named(
    "TurnsRead",
    obj(
        {
            "facts": array(
                obj(
                    {
                        "predicate": TEXT,
                        "args": TEXTS,
                        "negated": FLAG,
                        "salience": _SALIENCE,
                        "provenance": nullable(TEXT),
                        "contradicted": FLAG,
                    }
                )
            ),
            "totalFactsInKB": COUNT,
            "factsReturned": COUNT,
            "contradictions": COUNT,
            "newFactsExtracted": COUNT,
            "sessionId": nullable(TEXT),
            "warning": nullable(TEXT),
            "briefingDelta": nullable(TEXT),
        }
    ),
)
SUMMARY = named(
    "Summary",
    obj(
        {
            "totalFacts": COUNT,
            "predicateCount": COUNT,
            "topPredicates": array(obj({"predicate": TEXT, "count": COUNT})),
            "factsWithTtl": COUNT,
            "factsExpiringWithin1h": COUNT,
            "contradictions": COUNT,
            "topSalientFacts": ENTRIES,
            "totalCharCount": COUNT,
            "knowledgeGeneration": COUNT,
            "generatedAt": INSTANT,
        }
    ),
)

DECAYED = named(
    "Decayed",
    obj(
        {
            "expiredCount": COUNT,
            "evictedCount": COUNT,
            "removedAtoms": said(ROWS, "With `dryRun` each row says `why`."),
            "timestamp": INSTANT,
            "truncated?": FLAG,
            "dryRun?": FLAG,
        }
    ),
)
CONSOLIDATED = named(
    "Consolidated",
    obj(
        {
            "factsConsolidated": COUNT,
            "summariesRemoved": COUNT,
            "newFacts": ROWS,
            "timestamp": INSTANT,
            "dryRun?": FLAG,
        }
    ),
)

FORKED = named("Forked", obj({"copied": COUNT, "sourceScope": nullable(TEXT), "targetScope": TEXT}))
COMPARED = named(
    "Compared",
    obj(
        {
            "added": ROWS,
            "removed": ROWS,
            "modified": array(obj({"before": ROW, "after": ROW})),
            "onlyInA": ROWS,
            "onlyInB": ROWS,
            "inBoth": COUNT,
            "conflicts": COUNT,
            "unchanged": COUNT,
        }
    ),
)
MERGED = named(
    "Merged",
    obj(
        {
            "merged": COUNT,
            "conflictsResolved": COUNT,
            "conflicts": COUNT,
            "strategy": TEXT,
            "timestamp": INSTANT,
        }
    ),
)
DROPPED = named("Dropped", obj({"deleted": said(COUNT, "Facts that went."), "scope": TEXT}))
SCOPES = named("Scopes", obj({"scopes": TEXTS, "count": COUNT}))

DATABASES = array(
    named(
        "Database",
        obj(
            {
                "name": TEXT,
                "isMultiTenant": FLAG,
                "tenants": COUNT,
                "facts": COUNT,
                "createdAt": nullable(INSTANT),
            }
        ),
    )
)

HEALTH = named(
    "Health", obj({"status": {"const": "healthy"}, "version": TEXT, "uptimeSeconds": NUMBER})
)
READINESS = named(
    "Readiness",
    obj(
        {
            "status": words("healthy", "degraded", "unhealthy"),
            "checks": mapping(obj({"status": words("pass", "warn", "fail"), "message": TEXT})),
            "writable": FLAG,
        }
    ),
)
