"""Change sets to bytes and back: what a log record holds.

A payload is UTF-8 JSON: `{"at": ms, "db": database, "tenant": tenant, "changes": [...]}`, each change an object with `op`;
what commits a transaction has its id as `tx`, what a request with a key commits has key and digest as `req`.
Derived facts are never logged; they follow from facts and rules.
"""

from __future__ import annotations

import re
from typing import Any

import orjson

from kbcore.durable.merges import decode_merge, encode_merge
from kbcore.errors import LogCorrupted
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    CatalogAction,
    Change,
    ChangeCatalog,
    ChangeKeys,
    ChangeSet,
    DropScope,
    EvictFacts,
    EvictReason,
    ForkScope,
    MergeScope,
    NoteAnswer,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
)
from kbcore.state.facts import Fact, FactRows
from kbcore.state.idempotency import RequestKey, answer_from_json, answer_to_json
from kbcore.state.keys import StoredKey
from kbplanner.ir.terms import Rule, Variable
from kbplanner.syntax.parser import parse_rule
from kbplanner.syntax.printer import print_rule

CHANGES = 1
"""Record type of a change set."""

VERSION = 5
"""Version of the payload; a reader refuses a newer one. 2 has the change `rows`, 3 `catalog`, `fork`, `dropScope`, `merge`,
`evict`, `priority` and transactions, 4 `answer` and requests with keys, 5 `keys`."""


def encode_changes(changes: ChangeSet) -> bytes:
    """The payload without its time; `stamp` adds that when the record's place in the log is known."""
    body: dict[str, Any] = {
        "db": changes.database,
        "tenant": changes.tenant,
        "changes": [_encode(change) for change in changes.changes],
    }
    if changes.transaction is not None:
        body["tx"] = changes.transaction
    if changes.request is not None:
        body["req"] = [changes.request.key, changes.request.digest]
    return orjson.dumps(body)


def stamp(payload: bytes, at: int) -> bytes:
    """A payload with its logged time (epoch milliseconds)."""
    return b'{"at":%d,' % at + payload[1:]


def decode_changes(kind: int, version: int, payload: bytes) -> tuple[int, ChangeSet]:
    """The logged time and the change set of a record; raises LogCorrupted for what this version cannot read."""
    return read_changes(read_body(kind, version, payload))


def read_body(kind: int, version: int, payload: bytes) -> dict[str, Any]:
    """A record as JSON; raises LogCorrupted for what this version cannot read."""
    if kind != CHANGES or version > VERSION:
        raise LogCorrupted(
            f"log record of type {kind} version {version} was written by a newer kbcore", directory="", segment="", offset=0
        )
    body: dict[str, Any] = orjson.loads(payload)
    return body


def read_changes(body: dict[str, Any]) -> tuple[int, ChangeSet]:
    """The logged time and the change set in a record's JSON; raises LogCorrupted for changes this version does not know."""
    changes: tuple[Change, ...] = tuple(_decode(change) for change in body["changes"])
    request = RequestKey(*body["req"]) if "req" in body else None
    return body["at"], ChangeSet(body["db"], body["tenant"], changes, transaction=body.get("tx"), request=request)


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


def encode_key(key: StoredKey) -> dict[str, Any]:
    """A key as a JSON object; what it holds of the secret is a digest."""
    return {
        "id": key.id,
        "name": key.name,
        "role": key.role,
        "sha256": key.digest,
        "created": key.created_at,
        "dbs": key.databases,
        "tenants": key.tenants,
        "expires": key.expires_at,
        "says": key.description,
    }


def decode_key(found: dict[str, Any]) -> StoredKey:
    """The key that `encode_key` wrote."""
    return StoredKey(
        *(found["id"], found["name"], found["role"], found["sha256"], found["created"]),
        databases=tuple(found["dbs"]),
        tenants=tuple(found["tenants"]),
        expires_at=found["expires"],
        description=found["says"],
    )


def _encode(change: Change) -> dict[str, Any]:
    if isinstance(change, AssertFacts):
        return {"op": "assert", "facts": [encode_fact(fact) for fact in change.facts]}
    if isinstance(change, AssertRows):
        return {"op": "rows", "rows": [_encode_rows(rows) for rows in change.rows]}
    if isinstance(change, AssertRules):
        return {"op": "teach", "rules": [encode_rule(rule) for rule in change.rules]}
    if isinstance(change, RetractRule):
        return {"op": "forgetRule", "id": change.id, "s": change.scope}
    if isinstance(change, ChangeCatalog):
        return {"op": "catalog", "action": change.action.value}
    if isinstance(change, ChangeKeys):
        return {"op": "keys", "put": [encode_key(key) for key in change.put], "drop": change.drop}
    if isinstance(change, ForkScope):
        return {"op": "fork", "from": change.source, "s": change.target, "over": change.overwrite}
    if isinstance(change, DropScope):
        return {"op": "dropScope", "s": change.scope}
    if isinstance(change, MergeScope):
        return {"op": "merge", **encode_merge(change)}
    if isinstance(change, NoteAnswer):
        asked, kept = change.request, change.answer
        return {"op": "answer", "req": [asked.key, asked.digest], "is": kept and answer_to_json(kept)}
    if isinstance(change, EvictFacts):
        return {"op": "evict", "reason": change.reason.value, "rows": [_encode_rows(rows) for rows in change.rows]}
    found: dict[str, Any] = {"p": change.predicate, "positive": change.positive, "s": change.scope}
    if isinstance(change, RetractFact):
        return {"op": "retract", "a": change.args, **found}
    if isinstance(change, SetPriority):
        return {"op": "priority", "a": change.args, "v": change.priority, **found}
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


_PLAIN = frozenset("pans")


def plain_rows(body: dict[str, Any]) -> list[FactRows] | None:
    """The facts of a record that only tells facts with nothing beside their arguments, in order; None for any other."""
    if "tx" in body or "req" in body or not body["changes"]:
        return None
    found: list[FactRows] = []
    for change in body["changes"]:
        if change["op"] == "rows":
            found += _decode_rows(change["rows"])
        elif change["op"] == "assert" and all(len(fact) == 2 or fact.keys() <= _PLAIN for fact in change["facts"]):
            for fact in change["facts"]:
                args = fact["a"]
                found.append(FactRows(fact["p"], len(args), args, not fact.get("n"), fact.get("s")))
        else:
            return None
    return found


def _decode_rows(found: list[dict[str, Any]]) -> tuple[FactRows, ...]:
    return tuple(FactRows(r["p"], r["k"], r["a"], not r.get("n"), r.get("s")) for r in found)


def _decode(found: dict[str, Any]) -> Change:
    op = found["op"]
    if op == "assert":
        return AssertFacts(tuple(decode_fact(fact) for fact in found["facts"]))
    if op == "rows":
        return AssertRows(_decode_rows(found["rows"]))
    if op == "evict":
        return EvictFacts(_decode_rows(found["rows"]), EvictReason(found["reason"]))
    if op == "priority":
        return SetPriority(found["p"], tuple(found["a"]), found["v"], found["positive"], found["s"])
    if op == "answer":
        return NoteAnswer(RequestKey(*found["req"]), answer_from_json(found["is"]))
    if op == "teach":
        return AssertRules(tuple(decode_rule(rule) for rule in found["rules"]))
    if op == "forgetRule":
        return RetractRule(found["id"], found["s"])
    if op == "catalog":
        return ChangeCatalog(CatalogAction(found["action"]))
    if op == "keys":
        return ChangeKeys(tuple(decode_key(key) for key in found["put"]), tuple(found["drop"]))
    if op == "fork":
        return ForkScope(found["from"], found["s"], found["over"])
    if op == "dropScope":
        return DropScope(found["s"])
    if op == "merge":
        return decode_merge(found)
    if op == "retract":
        return RetractFact(found["p"], tuple(found["a"]), found["positive"], found["s"])
    if op == "retractPattern":
        terms = tuple(Variable(term["var"]) if isinstance(term, dict) else term for term in found["a"])
        return RetractPattern(found["p"], terms, found["positive"], found["s"])
    raise LogCorrupted(f"unknown change {op!r} in a log record", directory="", segment="", offset=0)


_OWNER = re.compile(rb'"db":"([^"\\]{1,128})","tenant":"([^"\\]{0,128})"')


def owners(data: bytes) -> set[tuple[str, str]]:
    """The databases and tenants that bytes of a log speak of: whole payloads, or pieces of damaged ones."""
    found = ((one.decode("utf-8", "replace"), other.decode("utf-8", "replace")) for one, other in _OWNER.findall(data))
    return set(found)
