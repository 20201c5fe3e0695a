"""Text form of proofs: a line per node, premises indented below their conclusion."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import Any

from kbcore.reason.ask import GOAL
from kbcore.state.facts import Row
from kbcore.timestamps import time_text
from kbplanner.syntax.printer import print_constant, print_row
from kbtypes.rule_sets import sets_note

MAX_INDENT_LEVELS = 40
"""Deeper levels are not indented further."""

_ENDS = {
    "fact_match": "stored",
    "explicit_negative": "stored as false",
    "external": "external",
    "negation_as_failure": "nothing found",
    "builtin": "holds",
    "elided": "follows from rules; cut here, ask for it separately",
}

MAX_QUOTED_CHARS = 300
"""Characters of a quotation after which it is cut."""

LINES_PER_YIELD = 200
"""Lines written between two calls of `yield_now`: about a millisecond."""


def proof_text(proof: Mapping[str, Any], yield_now: Callable[[], None]) -> str:
    """Return a proof tree as text; `yield_now` is called about once a millisecond."""
    lines = []
    for line in _lines(proof["proof"], _known(proof["result"])):
        lines.append(line)
        if not len(lines) % LINES_PER_YIELD:
            yield_now()
    return "\n".join(lines)


def no_answer(goal: str) -> str:
    """Return the text for a goal without answers."""
    return f"No answer: nothing stored and nothing that follows from the rules matches {goal}"


def _lines(top: Mapping[str, Any], known: str) -> Iterator[str]:
    todo = [(top, 0)]
    while todo:
        node, level = todo.pop()
        step = node["step"]
        indent = "  " * min(level, MAX_INDENT_LEVELS)
        if step["type"] == "aggregate":
            over = f"{step['text']} over {step['rows']}" + (
                f", {len(step['inputs'])} shown" if len(step["inputs"]) < step["rows"] else ""
            )
            yield f"{indent}{_atom(node['goal'])}  by {_rule(step)}  ({over}){known}"
        elif step["type"] != "rule_application":
            yield f"{indent}{step.get('text') or _atom(node['goal'])}  {_ENDS[step['type']]}{known}"
            for span in (step["fact"] or {}).get("evidence", ()):
                yield f"{indent}  {_said(span)}"
        elif node["goal"]["predicate"] == GOAL:
            yield indent + (_values(node["substitution"]) or "yes") + known
        else:
            yield f"{indent}{_atom(node['goal'])}  by {_rule(step)}{known}"
        known = ""
        todo.extend((below, level + 1) for below in reversed(step["bodyProofs"] or ()))


def _rule(step: Mapping[str, Any]) -> str:
    """Return the rule of a step, with the rule sets that contain it."""
    rule_sets = step.get("ruleSets")
    return f"{step['rule']}  ({sets_note(rule_sets)})" if rule_sets else step["rule"]


def _atom(row: Row) -> str:
    return print_row(row["predicate"], row["args"], row["negated"])


def _values(values: Mapping[str, str]) -> str:
    return ", ".join(f"{name} = {print_constant(value)}" for name, value in values.items())


def _known(row: Row) -> str:
    """Return the annotations of an answer in parentheses, or an empty text."""
    parts: list[str] = []
    if row["confidence"] is not None:
        parts.append(f"confidence {row['confidence']:g}")
    if row["createdAt"] is None:
        parts += [f"from {_instant(row['validFrom'])}"] if row["validFrom"] is not None else []
    parts += [f"until {_instant(row['validUntil'])}"] if row["validUntil"] is not None else []
    parts += _marked(row["metadata"])
    return f"  ({', '.join(parts)})" if parts else ""


def _marked(metadata: Mapping[str, Any]) -> Iterable[str]:
    if metadata.get("contradicted"):
        yield "contradicted"
    if metadata.get("nonMonotonic"):
        yield "may be retracted by new facts"


def _said(span: Mapping[str, Any]) -> str:
    """Return a quotation in one line; its text is always in quotes."""
    text = span["text"]
    if len(text) > MAX_QUOTED_CHARS:
        text = text[:MAX_QUOTED_CHARS] + "…"
    speaker = print_constant(span["speaker"])
    return f"said by {speaker} on {time_text(span['at']).replace('.000Z', 'Z')}: {json.dumps(text, ensure_ascii=False)}"


def _instant(milliseconds: int) -> str:
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(
            timespec="milliseconds"
        )
    except (OverflowError, ValueError, OSError):
        return str(milliseconds)
