"""Encoding and decoding of change sets as log records.

A payload is UTF-8 JSON: `{"at": ms, "db": database, "tenant": tenant, "changes": [...]}`, each
change an object with `op`. A commit of a transaction has the transaction's id as `tx`, a change set
of a request with an idempotency key has key and digest as `req`. Derived facts are never logged;
they follow from facts and rules.
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
"""Version of the payload; a reader refuses a newer one. 2 has the change `rows`, 3 `catalog`,
`fork`, `dropScope`, `merge`, `evict`, `priority` and transactions, 4 `answer` and requests with
keys, 5 `keys`."""


def encode_changes(changes: ChangeSet) -> bytes:
    """Return the payload without its time.

    `stamp` adds the time when the position in the log is known.
    """
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
    """Return a payload with its logged time (epoch milliseconds)."""
    return b'{"at":%d,' % at + payload[1:]


def decode_changes(kind: int, version: int, payload: bytes) -> tuple[int, ChangeSet]:
    """Return the logged time and the change set of a record.

    Raise LogCorrupted for one this version cannot read.
    """
    return read_changes(read_body(kind, version, payload))


def read_body(kind: int, version: int, payload: bytes) -> dict[str, Any]:
    """Return a record as JSON; raise LogCorrupted for one this version cannot read."""
    if kind != CHANGES or version > VERSION:
        raise LogCorrupted(
            f"log record of type {kind} version {version} was written by a newer kbcore",
            directory="",
            segment="",
            offset=0,
        )
    body: dict[str, Any] = orjson.loads(payload)
    return body


def read_changes(body: dict[str, Any]) -> tuple[int, ChangeSet]:
    """Return the logged time and the change set of a record's JSON.

    Raise LogCorrupted for an unknown change.
    """
    changes: tuple[Change, ...] = tuple(_decode(change) for change in body["changes"])
    request = RequestKey(*body["req"]) if "req" in body else None
    return body["at"], ChangeSet(
        body["db"], body["tenant"], changes, transaction=body.get("tx"), request=request
    )


def encode_fact(fact: Fact) -> dict[str, Any]:
    """Return a fact as a JSON object without the members that have default values."""
    body: dict[str, Any] = {"p": fact.predicate, "a": fact.args}
    if not fact.positive:
        body["n"] = True
    for key, value in (
        ("s", fact.scope),
        ("ttl", fact.ttl),
        ("from", fact.valid_from),
        ("until", fact.valid_until),
        ("c", fact.confidence),
        ("m", fact.metadata or None),
    ):
        if value is not None:
            body[key] = value
    return body


def decode_fact(body: dict[str, Any]) -> Fact:
    """Return the fact that `encode_fact` wrote."""
    get = body.get
    return Fact(
        body["p"],
        tuple(body["a"]),
        not get("n"),
        get("s"),
        get("ttl"),
        get("from"),
        get("until"),
        get("c"),
        get("m") or {},
    )


def encode_rule(rule: Rule) -> dict[str, Any]:
    """Return a rule as a JSON object around its text."""
    bare = Rule(rule.head, rule.body)
    body: dict[str, Any] = {"text": print_rule(bare)}
    for key, value in (("name", rule.name), ("c", rule.confidence), ("s", rule.scope)):
        if value is not None:
            body[key] = value
    return body


def decode_rule(body: dict[str, Any]) -> Rule:
    """Return the rule that `encode_rule` wrote."""
    rule = parse_rule(body["text"])
    return Rule(rule.head, rule.body, body.get("name"), body.get("c"), body.get("s"))


def encode_key(key: StoredKey) -> dict[str, Any]:
    """Return an API key as a JSON object, with a digest in place of the secret."""
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


def decode_key(body: dict[str, Any]) -> StoredKey:
    """Return the API key that `encode_key` wrote."""
    return StoredKey(
        *(body["id"], body["name"], body["role"], body["sha256"], body["created"]),
        databases=tuple(body["dbs"]),
        tenants=tuple(body["tenants"]),
        expires_at=body["expires"],
        description=body["says"],
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
        request, answer = change.request, change.answer
        return {
            "op": "answer",
            "req": [request.key, request.digest],
            "is": answer and answer_to_json(answer),
        }
    if isinstance(change, EvictFacts):
        return {
            "op": "evict",
            "reason": change.reason.value,
            "rows": [_encode_rows(rows) for rows in change.rows],
        }
    body: dict[str, Any] = {"p": change.predicate, "positive": change.positive, "s": change.scope}
    if isinstance(change, RetractFact):
        return {"op": "retract", "a": change.args, **body}
    if isinstance(change, SetPriority):
        return {"op": "priority", "a": change.args, "v": change.priority, **body}
    # A variable is an object, so that it differs from every constant.
    pattern = [
        {"var": term.name} if isinstance(term, Variable) else term for term in change.pattern
    ]
    return {"op": "retractPattern", "a": pattern, **body}


def _encode_rows(rows: FactRows) -> dict[str, Any]:
    body: dict[str, Any] = {"p": rows.predicate, "k": rows.arity, "a": rows.args}
    if not rows.positive:
        body["n"] = True
    if rows.scope is not None:
        body["s"] = rows.scope
    return body


_PLAIN = frozenset("pans")


def plain_rows(body: dict[str, Any]) -> list[FactRows] | None:
    """Return the facts of a record that only asserts plain facts, in order.

    None for any other record.
    """
    if "tx" in body or "req" in body or not body["changes"]:
        return None
    rows: list[FactRows] = []
    for change in body["changes"]:
        if change["op"] == "rows":
            rows += _decode_rows(change["rows"])
        elif change["op"] == "assert" and all(
            len(fact) == 2 or fact.keys() <= _PLAIN for fact in change["facts"]
        ):
            for fact in change["facts"]:
                args = fact["a"]
                rows.append(FactRows(fact["p"], len(args), args, not fact.get("n"), fact.get("s")))
        else:
            return None
    return rows


def _decode_rows(groups: list[dict[str, Any]]) -> tuple[FactRows, ...]:
    return tuple(FactRows(r["p"], r["k"], r["a"], not r.get("n"), r.get("s")) for r in groups)


def _decode(body: dict[str, Any]) -> Change:
    op = body["op"]
    if op == "assert":
        return AssertFacts(tuple(decode_fact(fact) for fact in body["facts"]))
    if op == "rows":
        return AssertRows(_decode_rows(body["rows"]))
    if op == "evict":
        return EvictFacts(_decode_rows(body["rows"]), EvictReason(body["reason"]))
    if op == "priority":
        return SetPriority(body["p"], tuple(body["a"]), body["v"], body["positive"], body["s"])
    if op == "answer":
        return NoteAnswer(RequestKey(*body["req"]), answer_from_json(body["is"]))
    if op == "teach":
        return AssertRules(tuple(decode_rule(rule) for rule in body["rules"]))
    if op == "forgetRule":
        return RetractRule(body["id"], body["s"])
    if op == "catalog":
        return ChangeCatalog(CatalogAction(body["action"]))
    if op == "keys":
        return ChangeKeys(tuple(decode_key(key) for key in body["put"]), tuple(body["drop"]))
    if op == "fork":
        return ForkScope(body["from"], body["s"], body["over"])
    if op == "dropScope":
        return DropScope(body["s"])
    if op == "merge":
        return decode_merge(body)
    if op == "retract":
        return RetractFact(body["p"], tuple(body["a"]), body["positive"], body["s"])
    if op == "retractPattern":
        terms = tuple(
            Variable(term["var"]) if isinstance(term, dict) else term for term in body["a"]
        )
        return RetractPattern(body["p"], terms, body["positive"], body["s"])
    raise LogCorrupted(f"unknown change {op!r} in a log record", directory="", segment="", offset=0)


_OWNER = re.compile(rb'"db":"([^"\\]{1,128})","tenant":"([^"\\]{0,128})"')


def owners(data: bytes) -> set[tuple[str, str]]:
    """Return the databases and tenants named in bytes of a log.

    Whole payloads, or pieces of damaged ones.
    """
    return {
        (database.decode("utf-8", "replace"), tenant.decode("utf-8", "replace"))
        for database, tenant in _OWNER.findall(data)
    }
