"""Operations of `kbcore memory` on a server or on a folder, with the answers of the HTTP interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.reason.ask import terms_of
from kbplanner.ir.terms import Atom
from kbplanner.syntax.jsonwriter import atom_to_json
from kbplanner.syntax.parser import parse_goal
from kbserver.cli.shared.target import Server, Target, folder
from kbserver.schemas.answers.memory import consolidated, decayed, recalled

Rows = list[dict[str, Any]]


def decay(target: Target, threshold: float, scope: str | None, dry_run: bool) -> dict[str, Any]:
    """Evict what has expired or faded; what went, or would go."""
    if isinstance(target, Server):
        body = {"threshold": threshold, "scope": scope, "dryRun": dry_run}
        removed: dict[str, Any] = _posted(target, "/memory/decay", body)
        return removed
    return decayed(folder(target).kb.decay(threshold, scope=scope, dry_run=dry_run))


def consolidate(
    target: Target, least: int, predicates: Sequence[str] | None, scope: str | None, dry_run: bool
) -> dict[str, Any]:
    """Sum up facts that repeat themselves; the summaries that came, or would come."""
    if isinstance(target, Server):
        named = None if predicates is None else list(predicates)
        body = {"minGroupSize": least, "predicates": named, "scope": scope, "dryRun": dry_run}
        made: dict[str, Any] = _posted(target, "/memory/consolidate", body)
        return made
    kb = folder(target).kb
    return consolidated(
        kb.consolidate(min_group_size=least, predicates=predicates, scope=scope, dry_run=dry_run)
    )


def prioritize(target: Target, fact: Atom, priority: float, scope: str | None) -> None:
    """Say how important a stored fact is."""
    args = [arg for arg in fact.args if isinstance(arg, str)]
    if len(args) != fact.arity:
        raise InvalidInput("a variable names no single fact")
    if isinstance(target, Server):
        target.send(
            "POST", "/memory/priority", {**_asked(fact), "priority": priority, "scope": scope}
        )
    else:
        folder(target).kb.kb.prioritize(
            fact.predicate, args, priority, positive=fact.positive, scope=scope
        )


def salient(
    target: Target,
    pattern: Atom | None,
    predicate: str | None,
    limit: int,
    minimum: float,
    scope: str | None,
) -> Rows:
    """The facts that matter most: those of a pattern (of both signs), of a predicate, or all."""
    if isinstance(target, Server):
        asked = _asked(pattern) if pattern else {"predicate": predicate}
        asked.pop("negated", None)
        body = {**asked, "limit": limit, "minSalience": minimum, "scope": scope}
        best: Rows = _posted(target, "/memory/query/salient", body)
        return best
    name, args = (pattern.predicate, terms_of(pattern)) if pattern else (predicate, None)
    return folder(target).kb.kb.salient(name, args, limit=limit, minimum=minimum, scope=scope)


def recall(target: Target, pattern: Atom, at: int, limit: int | None, scope: str | None) -> Rows:
    """The facts of a pattern that were valid at a moment (epoch milliseconds)."""
    if isinstance(target, Server):
        body = {**_asked(pattern), "timestamp": at, "limit": limit, "scope": scope}
        then: Rows = _posted(target, "/memory/recall", body)
        return then
    kb, args = folder(target).kb.kb, terms_of(pattern)
    return recalled(
        kb.recall(pattern.predicate, args, at, positive=pattern.positive, limit=limit, scope=scope)
    )


def atom(text: str) -> Atom:
    """Read one atom, `p(...)` or `~p(...)`; raises RuleSyntaxError and InvalidInput."""
    literal = parse_goal(text).literal
    if literal.negated:
        raise InvalidInput("'not' is for goals; a stored negative is written ~p(...)")
    return literal.atom


def _asked(pattern: Atom) -> dict[str, Any]:
    return {
        "predicate": pattern.predicate,
        "args": atom_to_json(pattern)["args"],
        "negated": not pattern.positive,
    }


def _posted(target: Server, path: str, body: dict[str, Any]) -> Any:
    return target.send("POST", path, body).json()
