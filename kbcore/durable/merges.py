"""Merges as JSON objects and back: the scopes, the moment, how conflicts are usually settled, and the exceptions.

The usual way is the one most conflicts have, so that a record grows with what differs from it, not with the facts.
"""

from __future__ import annotations

from typing import Any

from kbcore.plug.ports import Keep, Standing
from kbcore.state.changes import Decision, MergeScope


def encode_merge(change: MergeScope) -> dict[str, Any]:
    """A merge as a JSON object."""
    found: dict[str, Any] = {"from": change.source, "s": change.target, "as": change.at, "usual": change.usual.value}
    if change.others:
        found["others"] = [_encode(*other) for other in change.others]
    return found


def decode_merge(found: dict[str, Any]) -> MergeScope:
    """The merge that `encode_merge` wrote."""
    others = tuple((one["p"], tuple(one["a"]), _decision(one)) for one in found.get("others", ()))
    return MergeScope(found["from"], found["s"], found["as"], Keep(found["usual"]), others)


def _encode(predicate: str, args: tuple[str, ...], decision: Decision) -> dict[str, Any]:
    found: dict[str, Any] = {"p": predicate, "a": args, "keep": decision.keep.value}
    if decision.keep is Keep.FACTS:
        found["facts"] = [
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
    return found


def _decision(found: dict[str, Any]) -> Decision:
    facts = (
        Standing(not fact["n"], fact["at"], fact["from"], fact["until"], fact["c"], fact["m"])
        for fact in found.get("facts", ())
    )
    return Decision(Keep(found["keep"]), tuple(facts))
