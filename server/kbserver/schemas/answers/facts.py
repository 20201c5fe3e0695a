"""Answers of facts, rules and goals as JSON Schema. Nothing is sent through these: tests hold real answers against them."""

from __future__ import annotations

from kbserver.schemas.jsonschema import (
    ANYTHING,
    COUNT,
    FLAG,
    FRACTION,
    INSTANT,
    NUMBER,
    TEXT,
    TEXTS,
    WHOLE,
    Schema,
    array,
    mapping,
    named,
    nullable,
    obj,
    ref,
    said,
    words,
)

_ROW: dict[str, Schema] = {
    "predicate": TEXT,
    "args": TEXTS,
    "negated": FLAG,
    "scope": nullable(said(TEXT, "Null is the base partition.")),
    "metadata": {"type": "object"},
    "createdAt": nullable(said(WHOLE, "Epoch milliseconds; null for what was derived.")),
    "validFrom": nullable(INSTANT),
    "validUntil": nullable(INSTANT),
    "ttl": nullable(said(WHOLE, "Milliseconds from the last assertion.")),
    "confidence": nullable(FRACTION),
}

ROW = named("Row", obj(_ROW))
TRUE_ROW = named("StoredRow", obj({**_ROW, "truthVal": FLAG}))
SALIENT_ROW = named("SalientRow", obj({**_ROW, "salience": FRACTION}))
ROWS = array(ROW)

STORED = named(
    "Stored",
    obj(
        {
            "asserted": COUNT,
            "updated": COUNT,
            "failed": COUNT,
            "errors": array(ANYTHING),
            "timestamp": INSTANT,
        }
    ),
)
RETRACTED = named(
    "Retracted",
    obj(
        {
            "retracted": COUNT,
            "cascaded": COUNT,
            "cascadedAtoms": ROWS,
            "newlyDerivable": COUNT,
            "stillDerivable": FLAG,
            "truncated": FLAG,
        }
    ),
)
MATCHED = named(
    "Matched", obj({"retracted": COUNT, "atoms": ROWS, "cascaded": COUNT, "truncated?": FLAG})
)

RULE_ATOM = obj({"predicate": TEXT, "args": TEXTS, "negated": FLAG})
BODY_ITEM = {
    "anyOf": [
        obj(
            {
                "predicate": TEXT,
                "args": TEXTS,
                "negated": FLAG,
                "polarity?": TEXT,
                "builtin?": {"const": False},
            }
        ),
        obj({"builtin": TEXT, "args": TEXTS, "negated": FLAG}),
    ]
}
RULES = named(
    "Rules",
    obj(
        {
            "rules": array(
                obj(
                    {
                        "id": TEXT,
                        "text": TEXT,
                        "head": RULE_ATOM,
                        "body": array(BODY_ITEM),
                        "scope": nullable(TEXT),
                    }
                )
            )
        }
    ),
)

_STEPS = (
    *("fact_match", "rule_application", "negation_as_failure", "explicit_negative"),
    *("builtin", "aggregate", "elided"),
)
named(
    "ProofNode",
    obj(
        {
            "goal": ROW,
            "step": obj(
                {
                    "type": words(*_STEPS),
                    "fact": nullable(ROW),
                    "rule": nullable(TEXT),
                    "bodyProofs": nullable(array(ref("ProofNode"))),
                    "text?": TEXT,
                    "rows?": COUNT,
                    "inputs?": array(ANYTHING),
                }
            ),
            "substitution": mapping(TEXT),
        }
    ),
)
_DAG_NODE = obj(
    {
        "fact": obj({"predicate": TEXT, "args": TEXTS, "negated?": FLAG}),
        "kind": TEXT,
        "depth": COUNT,
        "premises": TEXTS,
        "alternatives?": COUNT,
        "text?": TEXT,
        "rule?": obj({"id": TEXT, "text": TEXT}),
        "bindings?": mapping(TEXT),
        "rows?": COUNT,
        "inputs?": array(ANYTHING),
    }
)
PROOF = named("ProofTree", obj({"result": ROW, "proof": ref("ProofNode")}))
GRAPH = named(
    "ProofGraph",
    obj(
        {
            "predicate": TEXT,
            "args": TEXTS,
            "negated": FLAG,
            "scope": nullable(TEXT),
            "confidence": nullable(FRACTION),
            "result": ROW,
            "proof": obj({"root": TEXT, "truncated": FLAG, "nodes": mapping(_DAG_NODE)}),
        }
    ),
)
ANSWERS = {
    "anyOf": [ROWS, array(PROOF), array(GRAPH)],
    "description": "Rows; with proofs asked for, a proof for each row.",
}
PLANS = named(
    "Plans",
    obj(
        {"goal": TEXT, "plans": array(said({"type": "object"}, "A plan for each partition asked."))}
    ),
)

NUMBER_FOUND = named(
    "Aggregated",
    obj(
        {
            "result": nullable(NUMBER),
            "op": TEXT,
            "operation": TEXT,
            "predicate": TEXT,
            "matchedFacts": COUNT,
            "timestamp": INSTANT,
        }
    ),
)
PREDICATES = named(
    "Predicates",
    obj(
        {
            "predicates": array(
                obj(
                    {
                        "predicate": TEXT,
                        "arity": COUNT,
                        "factCount": COUNT,
                        "ruleCount": COUNT,
                        "hasRules": FLAG,
                    }
                )
            ),
            "totalPredicates": COUNT,
            "totalFacts": COUNT,
            "totalRules": COUNT,
        }
    ),
)
EXECUTED = named(
    "Executed",
    obj(
        {
            "result": said(TEXT, "What was done and answered, line by line."),
            "answers": array(
                obj(
                    {
                        "question": said(COUNT, "Which question of the text it answers, from 0."),
                        "bindings": said(
                            mapping(TEXT), "The values of the variables of the question."
                        ),
                        **{f"{key}?": schema for key, schema in _ROW.items()},
                    },
                    description="The keys of a row are there where the question is a single atom.",
                )
            ),
            "questions": array(obj({"goal": TEXT, "answers": COUNT})),
            "asserted": said(COUNT, "Facts that were new."),
            "rules": said(TEXTS, "The rules of the text as they are stored."),
            "warnings": TEXTS,
            "timestamp": INSTANT,
        }
    ),
)
