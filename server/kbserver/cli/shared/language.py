"""Text output of the commands that use a language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kbplanner.syntax.printer import print_row
from kbserver.cli.shared.target import Server, Target, folder
from kbserver.schemas.language import shown_extracted, shown_synthesis


def extracted(
    target: Target, text: str, store: bool, rules: bool, scope: str | None, context: str | None
) -> dict[str, Any]:
    """Return the answer of POST /extract for a text."""
    if isinstance(target, Server):
        body = {"text": text, "assert": store, "rules": rules, "scope": scope, "context": context}
        found: dict[str, Any] = target.send("POST", "/extract", body).json()
        return found
    kb = folder(target).kb
    return shown_extracted(kb.extract(text, store=store, rules=rules, scope=scope, context=context))


def synthesized(target: Target, question: str, scope: str | None) -> dict[str, Any]:
    """Return the answer of POST /synthesize to a question."""
    if isinstance(target, Server):
        found: dict[str, Any] = target.send(
            "POST", "/synthesize", {"question": question, "scope": scope}
        ).json()
        return found
    return shown_synthesis(folder(target).kb.synthesize(question, scope=scope))


def extracted_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield the facts and rules in the rule language, as input for `kbcore load`."""
    for fact in found["facts"]:
        sure = "" if fact["confidence"] is None else f" [confidence={fact['confidence']:g}]"
        yield f"{print_row(fact['predicate'], fact['args'], fact['negated'])}{sure}."
    for rule in found["rules"]:
        yield rule["text"]


def trouble_lines(found: dict[str, Any]) -> Iterator[str]:
    """Yield contradictions, refused facts and unread passages."""
    for one in found["contradictions"]:
        fact_text = print_row(one["predicate"], one["args"], one["negated"])
        known = {
            "stored": "what is stored",
            "derived": "what rules derive",
            "text": "the text itself",
        }[one["known"]]
        yield f"{fact_text} contradicts {known}"
    for one in found["rejected"]:
        yield f"refused: {one['said']}: {one['reason']}"
    for one in found["failures"]:
        yield f"not read: characters {one['start']} to {one['end']}: {one['reason']}"
    if found["truncated"]:
        yield "there was more than EXTRACTION_MAX_FACTS"
