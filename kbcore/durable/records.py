"""Change sets to bytes and back: what a log record holds.

A payload is UTF-8 JSON: `{"at": ms, "db": database, "tenant": tenant, "changes": [...]}`, each change an object with `op`.
Derived facts are never logged; they follow from facts and rules.
"""

from __future__ import annotations

from typing import Any

import orjson

from kbcore.errors import LogCorrupted
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    ChangeSet,
    RetractFact,
    RetractPattern,
    RetractRule,
)
from kbcore.state.facts import Fact, FactRows
from kbplanner.parser import parse_rule
from kbplanner.printer import print_rule
from kbplanner.terms import Rule, Variable

CHANGES = 1
"""Record type of a change set."""

VERSION = 2
"""Version of the payload; a reader refuses a newer one. 2 has the change `rows`."""


def encode_changes(changes: ChangeSet) -> bytes:
    """The payload without its time; `stamp` adds that when the record's place in the log is known."""
    body = {
        "db": changes.database,
        "tenant": changes.tenant,
        "changes": [_encode(change) for change in changes.changes],
    }
    return orjson.dumps(body)


def stamp(payload: bytes, at: int) -> bytes:
    """A payload with its logged time (epoch milliseconds)."""
    return b'{"at":%d,' % at + payload[1:]


def decode_changes(kind: int, version: int, payload: bytes) -> tuple[int, ChangeSet]:
    """The logged time and the change set of a record; raises LogCorrupted for what this version cannot read."""
    if kind != CHANGES or version > VERSION:
        raise LogCorrupted(
            f"log record of type {kind} version {version} was written by a newer kbcore", directory="", segment="", offset=0
        )
    body = orjson.loads(payload)
    changes: tuple[Change, ...] = tuple(_decode(change) for change in body["changes"])
    return body["at"], ChangeSet(body["db"], body["tenant"], changes)


def encode_fact(fact: Fact) -> dict[str, Any]:
    """A fact as a JSON object that leaves out what is usual."""
    found: dict[str, Any] = {"p": fact.predicate, "a": fact.args}
    if not fact.positive:
        found["n"] = True
    for key, value in (
        ("s", fact.scope),
        ("ttl", fact.ttl),
        ("from", fact.valid_from),
        ("until", fact.valid_until),
        ("c", fact.confidence),
        ("m", fact.metadata or None),
    ):
        if value is not None:
            found[key] = value
    return found


def decode_fact(found: dict[str, Any]) -> Fact:
    """The fact that `encode_fact` wrote."""
    get = found.get
    return Fact(
        found["p"],
        tuple(found["a"]),
        not get("n"),
        get("s"),
        get("ttl"),
        get("from"),
        get("until"),
        get("c"),
        get("m") or {},
    )


def encode_rule(rule: Rule) -> dict[str, Any]:
    """A rule as a JSON object around its text."""
    bare = Rule(rule.head, rule.body)
    found: dict[str, Any] = {"text": print_rule(bare)}
    for key, value in (("name", rule.name), ("c", rule.confidence), ("s", rule.scope)):
        if value is not None:
            found[key] = value
    return found


def decode_rule(found: dict[str, Any]) -> Rule:
    """The rule that `encode_rule` wrote."""
    rule = parse_rule(found["text"])
    return Rule(rule.head, rule.body, found.get("name"), found.get("c"), found.get("s"))


def _encode(change: Change) -> dict[str, Any]:
    if isinstance(change, AssertFacts):
        return {"op": "assert", "facts": [encode_fact(fact) for fact in change.facts]}
    if isinstance(change, AssertRows):
        return {"op": "rows", "rows": [_encode_rows(rows) for rows in change.rows]}
    if isinstance(change, AssertRules):
        return {"op": "teach", "rules": [encode_rule(rule) for rule in change.rules]}
    if isinstance(change, RetractRule):
        return {"op": "forgetRule", "id": change.id, "s": change.scope}
    found: dict[str, Any] = {"p": change.predicate, "positive": change.positive, "s": change.scope}
    if isinstance(change, RetractFact):
        return {"op": "retract", "a": change.args, **found}
    # A variable is an object, so that no constant can be taken for one.
    pattern = [{"var": term.name} if isinstance(term, Variable) else term for term in change.pattern]
    return {"op": "retractPattern", "a": pattern, **found}


def _encode_rows(rows: FactRows) -> dict[str, Any]:
    found: dict[str, Any] = {"p": rows.predicate, "k": rows.arity, "a": rows.args}
    if not rows.positive:
        found["n"] = True
    if rows.scope is not None:
        found["s"] = rows.scope
    return found


def _decode(found: dict[str, Any]) -> Change:
    op = found["op"]
    if op == "assert":
        return AssertFacts(tuple(decode_fact(fact) for fact in found["facts"]))
    if op == "rows":
        return AssertRows(tuple(FactRows(r["p"], r["k"], r["a"], not r.get("n"), r.get("s")) for r in found["rows"]))
    if op == "teach":
        return AssertRules(tuple(decode_rule(rule) for rule in found["rules"]))
    if op == "forgetRule":
        return RetractRule(found["id"], found["s"])
    if op == "retract":
        return RetractFact(found["p"], tuple(found["a"]), found["positive"], found["s"])
    if op == "retractPattern":
        terms = tuple(Variable(term["var"]) if isinstance(term, dict) else term for term in found["a"])
        return RetractPattern(found["p"], terms, found["positive"], found["s"])
    raise LogCorrupted(f"unknown change {op!r} in a log record", directory="", segment="", offset=0)
