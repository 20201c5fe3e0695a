"""Encoding and decoding of merges as JSON objects.

The scopes, the time, the usual decision, and the exceptions.

The usual decision is the most frequent one, so that a record grows with the exceptions, not with
the facts.
"""

from __future__ import annotations

from typing import Any

from kbcore.plug.ports import Keep, Standing
from kbcore.state.changes import Decision, MergeScope


def encode_merge(change: MergeScope) -> dict[str, Any]:
    """Return a merge as a JSON object."""
    body: dict[str, Any] = {
        "from": change.source,
        "s": change.target,
        "as": change.at,
        "usual": change.usual.value,
    }
    if change.others:
        body["others"] = [_encode(*other) for other in change.others]
    return body


def decode_merge(body: dict[str, Any]) -> MergeScope:
    """Return the merge that `encode_merge` wrote."""
    others = tuple(
        (other["p"], tuple(other["a"]), _decision(other)) for other in body.get("others", ())
    )
    return MergeScope(body["from"], body["s"], body["as"], Keep(body["usual"]), others)


def _encode(predicate: str, args: tuple[str, ...], decision: Decision) -> dict[str, Any]:
    body: dict[str, Any] = {"p": predicate, "a": args, "keep": decision.keep.value}
    if decision.keep is Keep.FACTS:
        body["facts"] = [
            {
                "n": not fact.positive,
                "at": fact.created_at,
                "from": fact.valid_from,
                "until": fact.valid_until,
                "c": fact.confidence,
                "m": fact.metadata,
            }
            for fact in decision.facts
        ]
    return body


def _decision(body: dict[str, Any]) -> Decision:
    facts = (
        Standing(not fact["n"], fact["at"], fact["from"], fact["until"], fact["c"], fact["m"])
        for fact in body.get("facts", ())
    )
    return Decision(Keep(body["keep"]), tuple(facts))
