"""Answers of a language model's routes as JSON Schema."""

from __future__ import annotations

from kbserver.schemas.jsonschema import (
    COUNT,
    FLAG,
    FRACTION,
    TEXT,
    TEXTS,
    array,
    named,
    nullable,
    obj,
    said,
    words,
)

_SAID = {"predicate": TEXT, "args": TEXTS, "negated": FLAG}

REJECTED = array(
    obj({"said": TEXT, "reason": TEXT}),
    description="What the model said that cannot be taken, and why.",
)
FAILURES = array(
    obj({"start": COUNT, "end": COUNT, "code": TEXT, "reason": TEXT}),
    description="Pieces of the text, from one character up to another, that the model could not read.",
)

EXTRACTED = named(
    "Extracted",
    obj(
        {
            "facts": array(obj({**_SAID, "confidence": nullable(FRACTION)})),
            "rules": array(
                obj(
                    {
                        "head": {"type": "object"},
                        "body": array({"type": "object"}),
                        "text": TEXT,
                        "confidence": nullable(FRACTION),
                    }
                )
            ),
            "asserted": said(COUNT, "Facts that were new and are stored."),
            "known": said(COUNT, "Facts that were stored before and are left as they were."),
            "contradictions": array(obj({**_SAID, "known": words("stored", "derived", "text")})),
            "rejected": REJECTED,
            "failures": FAILURES,
            "chunks": said(COUNT, "Pieces the text was read in."),
            "truncated": FLAG,
            "provider": TEXT,
            "model": TEXT,
        }
    ),
)
SYNTHESIZED = named(
    "Synthesized",
    obj(
        {
            "answer": TEXT,
            "derivation": array(
                obj(
                    {
                        "fact": TEXT,
                        "type": words("fact_match", "rule_application", "llm_reported"),
                        "rule": nullable(TEXT),
                        "confidence": nullable(FRACTION),
                        "scope": nullable(TEXT),
                    }
                )
            ),
            "confidence": FRACTION,
            "queriesExecuted": TEXTS,
            "queriesFailed": array(obj({"query": TEXT, "reason": TEXT})),
            "provider": TEXT,
            "model": TEXT,
        }
    ),
)
