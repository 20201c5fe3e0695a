"""Output schemas of the tools; they describe only the main members, because every prompt includes them."""

from __future__ import annotations

from kbserver.schemas.jsonschema import FLAG, TEXT, TEXTS, WHOLE, Schema, array, obj

_OBJECT: Schema = {"type": "object"}
_ROWS = array(_OBJECT)

TOLD = obj({"asserted": WHOLE, "updated?": WHOLE})
TAUGHT = obj({"rules": TEXTS, "asserted?": WHOLE, "warnings?": TEXTS})
ROWS = obj({"results": _ROWS, "count": WHOLE, "truncated": FLAG})
RETRACTED = obj({"retracted": WHOLE, "cascaded?": WHOLE, "stillDerivable?": FLAG})
REMOVED = obj({"retracted": WHOLE, "atoms?": _ROWS, "cascaded?": WHOLE})
NUMBER = obj({"result": {}, "matchedFacts?": WHOLE})
WINDOW = obj({"windowId": TEXT, "entries?": _ROWS, "formattedText?": TEXT})
CHANGES = obj({"added": _ROWS, "removed?": _ROWS, "formattedText?": TEXT})
SAID = obj({"text": TEXT})
SCHEMA = obj({"predicates": _ROWS, "totalPredicates?": WHOLE, "truncated?": FLAG})
INGESTED = obj({"extracted": _ROWS, "rules?": TEXTS, "context?": _OBJECT})
CONSOLIDATED = obj({"factsConsolidated": WHOLE, "newFacts?": _ROWS})
DECAYED = obj({"expiredCount": WHOLE, "evictedCount?": WHOLE, "removedAtoms?": _ROWS})
FORKED = obj({"copied": WHOLE, "targetScope?": TEXT})
MERGED = obj({"merged": WHOLE, "conflicts?": WHOLE, "strategy?": TEXT})
COMPARED = obj({"added": _ROWS, "removed?": _ROWS, "modified?": _ROWS, "unchanged?": WHOLE})
SCOPES = obj({"scopes": TEXTS, "count?": WHOLE})
DELETED = obj({"deleted": WHOLE, "scope?": TEXT})
EXTRACTED = obj({"facts": _ROWS, "rules?": _ROWS, "asserted?": WHOLE})
SYNTHESIS = obj({"answer": TEXT, "derivation?": _ROWS, "confidence?": {"type": "number"}})
SUMMARY = obj({"totalFacts": WHOLE, "predicateCount?": WHOLE, "topSalientFacts?": _ROWS})
