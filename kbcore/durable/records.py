"""Encoding and decoding of change sets as log records.

A payload is UTF-8 JSON: `{"at": ms, "db": database, "tenant": tenant, "changes": [...]}`, each
change an object with `op`. A commit of a transaction has the transaction's id as `tx`, a change set
of a request with an idempotency key has key and digest as `req`. `key` is the id of the API key,
not its secret, and `undoes` the number of the record that this one undoes; records of versions
before 0.3 have neither. `labels` are those of what is stored, `view` what is removed at most.
`salt` is random text: with it, a digest of the record tells nothing about an erased record.
Derived facts are never logged; they follow from facts and rules.
"""

from __future__ import annotations

import operator
import os
import re
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple

import orjson

from kbcore.errors import LogCorrupted
from kbcore.plug.ports import ConflictingFact, Keep
from kbcore.state.changes import (
    AddEpisodes,
    AddEvidence,
    AssertFacts,
    AssertRows,
    AssertRules,
    CatalogAction,
    Change,
    ChangeCatalog,
    ChangeKeys,
    ChangeSet,
    Decision,
    Declare,
    DeployRuleSet,
    DropScope,
    EndedFact,
    EndFacts,
    EndSubscriptions,
    EvictFacts,
    EvictReason,
    ForkScope,
    MergeScope,
    NoteAnswer,
    NoteDelivery,
    PurgeMemory,
    PutSubscription,
    RestoredFact,
    RestoreFacts,
    RetractFact,
    RetractPattern,
    RetractRule,
    SetPriority,
    UseLabels,
)
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.episodes.evidence import evidence_from_json
from kbcore.state.facts import Fact, FactRows
from kbcore.state.idempotency import RequestKey, answer_from_json, answer_to_json
from kbcore.state.keys import StoredKey
from kbcore.state.labels import from_json, to_json
from kbcore.state.record_chain import CHAINED_SINCE
from kbcore.state.rule_sets import (
    ItemKey,
    SetItems,
    SetVersion,
    StoredRuleSet,
    VersionNote,
    item_key,
)
from kbcore.state.rulebook import ParsedDeclaration, ParsedRule, stored_declaration, stored_rule
from kbcore.state.subscriptions import StatePosition, StoredSubscription, Webhook
from kbplanner.ir.operators import FUNCTION_LIST
from kbplanner.ir.terms import Rule, Variable
from kbplanner.pacing import YieldNow, in_parts, paced
from kbplanner.syntax.parser import parse_declaration, parse_rule
from kbplanner.syntax.printer import print_declaration, print_rule
from kbplanner.syntax.scanner import with_quotes

CHANGES = 1
"""Record type of a change set."""

SALT_BYTES = 12
"""A multiple of 3, so that its base64 has no padding."""

SALTS_AT_ONCE = 256

MAX_HASHED_LATER = 1 << 10
"""Largest payload that is hashed when it is applied; larger ones, away from the event loop."""

VERSION = CHAINED_SINCE
"""Version of the payload; a reader refuses a newer one. 2 has the change `rows`, 3 `catalog`,
`fork`, `dropScope`, `merge`, `evict`, `priority` and transactions, 4 `answer` and requests with
keys, 5 `keys`, 6 `episodes`, `purge`, `restore` and evidence of facts, 7 `subscribe`,
`unsubscribe`, `delivered` and purges of goals, 8 `end`, discarded facts, and the `ttl` of restored
ones, 9 `late` facts and agents of episodes, 10 inputs among the `phrases`, 11 `deploy`,
12 the times from which a fact was stated `again`, 13 labels and views, also of single changes,
14 the `salt`: records are in the chain of their tenant.
"""


OBJECTS_PER_YIELD = 200
LISTS_PER_YIELD = 50
TEXTS_PER_YIELD = 10_000
"""Elements of an array written between two calls of `yield_now`: objects such as facts, objects
with an array, and texts. About a millisecond.
"""


LANGUAGE = 2
"""Version of the rule language in texts of rules. A text without it has version 1, in which the
names of BUILTINS_SINCE_2 are predicates.
"""

BUILTINS_SINCE_2 = frozenset(
    (*(function.name for function in FUNCTION_LIST if function.test), "range", "split")
)


def encode_changes(changes: ChangeSet) -> bytes:
    """Return the payload without its time.

    `stamp` adds the time when the position in the log is known. Raises what `changes.yield_now`
    raises.
    """
    body: dict[str, Any] = {"db": changes.database, "tenant": changes.tenant}
    parts = [orjson.dumps(body)[:-1], b',"changes":[']
    first = changes.changes[0] if len(changes.changes) == 1 else None
    if type(first) is AssertFacts and len(first.facts) == 1 and not first.discarded:
        # the most frequent record by far
        parts.append(orjson.dumps({"op": "assert", "facts": (_FACT.encode(first.facts[0]),)}))
    else:
        listed = paced(changes.changes, changes.yield_now, OBJECTS_PER_YIELD)
        for number, change in enumerate(listed):
            parts.append(b"," if number else b"")
            op = _OPS[type(change)]
            parts += _CODECS[op].write(change, changes.yield_now, {"op": op})
    body.clear()
    if changes.transaction is not None:
        body["tx"] = changes.transaction
    if changes.request is not None:
        body["req"] = [changes.request.key, changes.request.digest]
    if changes.key is not None:
        body["key"] = changes.key
    if changes.undoes is not None:
        body["undoes"] = changes.undoes
    if changes.labels:
        body["labels"] = to_json(changes.labels)
    if changes.view:
        body["view"] = to_json(changes.view)
    parts += (b"],", orjson.dumps(body)[1:]) if body else (b"]}",)
    return b"".join(parts)


def stamp(payload: bytes, at: int) -> bytes:
    """Return a payload with its logged time (epoch milliseconds) and a new salt."""
    try:
        salt = _salts.pop()
    except IndexError:
        salt = _new_salts()
    return b"".join((b'{"at":%d,' % at, memoryview(payload)[1:-1], b',"salt":"%b"}' % salt))


_salts: list[bytes] = []
"""Random texts that no record has yet. Reading them one by one would be a third of the cost of the
chain."""

os.register_at_fork(after_in_child=_salts.clear)


def _new_salts() -> bytes:
    """Return a salt, and make further ones."""
    salts = b2a_base64(os.urandom(SALT_BYTES * SALTS_AT_ONCE), newline=False)
    size = len(salts) // SALTS_AT_ONCE
    several = [salts[at : at + size] for at in range(0, len(salts), size)]
    salt = several.pop()
    _salts.extend(several)
    return salt


def chained_digest(kind: int, version: int, payload: bytes) -> bytes | None:
    """Return the digest of a record in the chain of its tenant; None for a record before chains."""
    if version < CHAINED_SINCE:
        return None
    return sha256(_digest_prefix(kind, version) + payload).digest()


def chained(kind: int, version: int, payload: bytes) -> bytes | None:
    """Return what a chain hashes for a record, or the digest of a large one; None for a record
    before chains.
    """
    if version < CHAINED_SINCE:
        return None
    if len(payload) > MAX_HASHED_LATER:
        return chained_digest(kind, version, payload)
    return _digest_prefix(kind, version) + payload


@lru_cache
def _digest_prefix(kind: int, version: int) -> bytes:
    return b"kbcore record %d %d\n" % (kind, version)


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
    changes: tuple[Change, ...] = tuple(_decode_change(change) for change in body["changes"])
    request = RequestKey(*body["req"]) if "req" in body else None
    return body["at"], ChangeSet(
        body["db"],
        body["tenant"],
        changes,
        transaction=body.get("tx"),
        request=request,
        key=body.get("key"),
        undoes=body.get("undoes"),
        labels=from_json(body.get("labels", {})),
        view=from_json(body.get("view", {})),
    )


class Codec(NamedTuple):
    """Conversion of a value to JSON and back."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


class RecordMember(NamedTuple):
    """A member of a JSON object, which holds one attribute of a dataclass.

    An optional member is omitted if its JSON is null; the attribute then has its default value.
    """

    key: str
    attribute: str
    codec: Codec | ListCodec | ObjectCodec | None = None
    optional: bool = False


class ListCodec:
    """Conversion of a tuple to a JSON array and back; `element` converts each value, None: none."""

    def __init__(self, element: Codec | ObjectCodec | None) -> None:
        self._element = element

    def encode(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return a JSON array."""
        element = self._element
        return items if element is None else list(map(element.encode, items))

    def decode(self, items: Sequence[Any]) -> Sequence[Any]:
        """Return the tuple of a JSON array; an array of texts is returned as it is."""
        element = self._element
        return items if element is None else tuple(element.decode(item) for item in items)

    def write(self, items: Sequence[Any], yield_now: YieldNow) -> Iterator[bytes]:
        """Yield the array as JSON in pieces; `yield_now` is called about once a millisecond."""
        element = self._element
        yield b"["
        if isinstance(element, ObjectCodec) and element.has_lists:
            for number, item in enumerate(paced(items, yield_now, LISTS_PER_YIELD)):
                yield b"," if number else b""
                yield from element.write(item, yield_now)
        else:
            size = TEXTS_PER_YIELD if element is None else OBJECTS_PER_YIELD
            for number, part in enumerate(in_parts(items, yield_now, size)):
                yield b"," if number else b""
                yield orjson.dumps(self.encode(part))[1:-1]
        yield b"]"


class ObjectCodec:
    """Conversion of a dataclass to a JSON object with some members, in their order, and back."""

    def __init__(self, kind: type[Any], *members: RecordMember) -> None:
        self.kind = kind
        self._members = members
        self.has_lists = any(isinstance(member.codec, ListCodec) for member in members)
        """True if a value may be large: `write` writes it in pieces."""

    def encode(self, value: Any) -> dict[str, Any]:
        """Return a JSON object."""
        body: dict[str, Any] = {}
        for key, attribute, codec, optional in self._members:
            item = getattr(value, attribute)
            if codec is not None:
                item = codec.encode(item)
            if item is not None or not optional:
                body[key] = item
        return body

    def write(
        self, value: Any, yield_now: YieldNow, first: Mapping[str, Any] = MappingProxyType({})
    ) -> Iterator[bytes]:
        """Yield the JSON object in pieces, with some members in front of its own.

        `yield_now` is called about once a millisecond.
        """
        body = dict(first)
        start = b"{"
        for key, attribute, codec, optional in self._members:
            item = getattr(value, attribute)
            if isinstance(codec, ListCodec):
                body[key] = 0
                yield start + orjson.dumps(body)[1:-2]
                yield from codec.write(item, yield_now)
                body.clear()
                start = b","
                continue
            if codec is not None:
                item = codec.encode(item)
            if item is not None or not optional:
                body[key] = item
        yield start + orjson.dumps(body)[1:] if body or start == b"{" else b"}"

    def decode(self, body: dict[str, Any]) -> Any:
        """Return the dataclass of a JSON object."""
        values: dict[str, Any] = {}
        for key, attribute, codec, optional in self._members:
            if key in body or not optional:
                values[attribute] = body[key] if codec is None else codec.decode(body[key])
        return self.kind(**values)


def _optional(key: str, attribute: str, codec: Codec | None = None) -> RecordMember:
    return RecordMember(key, attribute, codec, optional=True)


def _enum(kind: type[Enum]) -> Codec:
    return Codec(lambda member: member.value, kind)


def _same(value: Any) -> Any:
    return value


_TUPLE = Codec(_same, tuple)
_METADATA = Codec(lambda metadata: metadata or None, _same)
_ABSENT_IF_POSITIVE = Codec(lambda positive: None if positive else True, operator.not_)
_ABSENT_IF_FALSE = Codec(lambda value: value or None, bool)
_NEGATED = Codec(operator.not_, operator.not_)
_REQUEST = Codec(lambda request: [request.key, request.digest], lambda body: RequestKey(*body))
_ANSWER = Codec(lambda answer: answer and answer_to_json(answer), answer_from_json)

_EVIDENCE = Codec(
    lambda spans: [span.to_json() for span in spans] or None,
    lambda spans: tuple(map(evidence_from_json, spans)),
)

# A variable is an object, so that it differs from every constant.
_TERM = Codec(
    lambda term: {"var": term.name} if isinstance(term, Variable) else term,
    lambda term: Variable(term["var"]) if isinstance(term, dict) else term,
)


class _FactCodec(ObjectCodec):
    """The codec of facts, of which a record may have many: `encode` reads the attributes that most
    facts lack without a codec for each.
    """

    def encode(self, value: Any) -> dict[str, Any]:
        """Return the JSON object of a fact, as its members describe it."""
        fact: Fact = value
        body: dict[str, Any] = {"p": fact.predicate, "a": fact.args}
        if not fact.positive:
            body["n"] = True
        if fact.scope is not None:
            body["s"] = fact.scope
        if fact.ttl is not None:
            body["ttl"] = fact.ttl
        if fact.valid_from is not None:
            body["from"] = fact.valid_from
        if fact.valid_until is not None:
            body["until"] = fact.valid_until
        if fact.confidence is not None:
            body["c"] = fact.confidence
        if fact.metadata:
            body["m"] = fact.metadata
        if fact.evidence:
            body["e"] = [span.to_json() for span in fact.evidence]
        if fact.late:
            body["late"] = True
        if fact.restated:
            body["again"] = fact.restated
        return body


_FACT = _FactCodec(
    Fact,
    RecordMember("p", "predicate"),
    RecordMember("a", "args", _TUPLE),
    _optional("n", "positive", _ABSENT_IF_POSITIVE),
    _optional("s", "scope"),
    _optional("ttl", "ttl"),
    _optional("from", "valid_from"),
    _optional("until", "valid_until"),
    _optional("c", "confidence"),
    _optional("m", "metadata", _METADATA),
    _optional("e", "evidence", _EVIDENCE),
    _optional("late", "late", _ABSENT_IF_FALSE),
    _optional("again", "restated", Codec(lambda times: times or None, tuple)),
)

_ROWS = ListCodec(
    ObjectCodec(
        FactRows,
        RecordMember("p", "predicate"),
        RecordMember("k", "arity"),
        RecordMember("a", "args", ListCodec(None)),
        _optional("n", "positive", _ABSENT_IF_POSITIVE),
        _optional("s", "scope"),
    )
)

_LABELS = Codec(lambda labels: to_json(labels) or None, from_json)

KEY_CODEC = ObjectCodec(
    StoredKey,
    RecordMember("id", "id"),
    RecordMember("name", "name"),
    RecordMember("role", "role"),
    RecordMember("sha256", "digest"),
    RecordMember("created", "created_at"),
    RecordMember("dbs", "databases", _TUPLE),
    RecordMember("tenants", "tenants", _TUPLE),
    RecordMember("expires", "expires_at"),
    RecordMember("says", "description"),
    _optional("view", "view", _LABELS),
    _optional("labels", "labels", _LABELS),
)
"""The codec of API keys, which have a digest in place of the secret."""

_STANDING = ObjectCodec(
    ConflictingFact,
    RecordMember("n", "positive", _NEGATED),
    RecordMember("at", "created_at"),
    RecordMember("from", "valid_from"),
    RecordMember("until", "valid_until"),
    RecordMember("c", "confidence"),
    RecordMember("m", "metadata"),
)
_STANDINGS = ListCodec(_STANDING)

_EPISODES = ListCodec(
    ObjectCodec(
        NewEpisode,
        RecordMember("id", "id"),
        RecordMember("by", "speaker"),
        RecordMember("text", "text"),
        _optional("at", "at"),
        _optional("in", "session"),
        _optional("for", "agent"),
    )
)

_RESTORED = ListCodec(
    ObjectCodec(
        RestoredFact,
        RecordMember("s", "scope"),
        RecordMember("p", "predicate"),
        RecordMember("a", "args", _TUPLE),
        RecordMember("is", "standing", Codec(_STANDING.encode, _STANDING.decode)),
        _optional("ttl", "ttl"),
        _optional("priority", "priority"),
    )
)

_ENDED = ListCodec(
    ObjectCodec(
        EndedFact,
        RecordMember("p", "predicate"),
        RecordMember("a", "args", _TUPLE),
        _optional("n", "positive", _ABSENT_IF_POSITIVE),
        _optional("s", "scope"),
        _optional("until", "until"),
    )
)

_MOMENT = Codec(lambda moment: moment and list(moment), lambda body: StatePosition(*body))

_WEBHOOK = ObjectCodec(
    Webhook,
    RecordMember("url", "url"),
    _optional("secret", "secret", Codec(lambda secret: secret or None, _same)),
)

SUBSCRIPTION_CODEC = ObjectCodec(
    StoredSubscription,
    RecordMember("id", "id"),
    RecordMember("goal", "goal"),
    RecordMember("s", "scope"),
    RecordMember("ttl", "ttl"),
    RecordMember("created", "created_at"),
    RecordMember("expires", "expires_at"),
    _optional("by", "owner"),
    _optional(
        "hook", "webhook", Codec(lambda hook: hook and _WEBHOOK.encode(hook), _WEBHOOK.decode)
    ),
    _optional("delivered", "delivered", _MOMENT),
    _optional("view", "view", _LABELS),
)
"""The codec of subscriptions to goals, in records and in snapshots."""


def encode_rule(stored: ParsedRule) -> dict[str, Any]:
    """Return a rule as a JSON object around its text."""
    rule = stored.rule
    text = stored.text if rule.confidence is None else print_rule(rule, bare=True)
    body: dict[str, Any] = {"text": text, "lang": LANGUAGE}
    for key, value in (("name", rule.name), ("c", rule.confidence), ("s", rule.scope)):
        if value is not None:
            body[key] = value
    return body


def decode_rule(body: dict[str, Any]) -> ParsedRule:
    """Return the rule that `encode_rule` wrote."""
    text = body["text"]
    if "lang" not in body:
        text = with_quotes(text, BUILTINS_SINCE_2)
    rule = parse_rule(text)
    return stored_rule(Rule(rule.head, rule.body, body.get("name"), body.get("c"), body.get("s")))


def _parsed_declaration(text: str) -> ParsedDeclaration:
    return stored_declaration(parse_declaration(text))


def _declaration_text(declared: ParsedDeclaration) -> str:
    return print_declaration(declared.declaration)


_SET_MEMBERS = (
    RecordMember("rules", "rules", ListCodec(Codec(encode_rule, decode_rule))),
    RecordMember(
        "phrases", "declarations", ListCodec(Codec(_declaration_text, _parsed_declaration))
    ),
    RecordMember("facts", "facts", ListCodec(_FACT)),
)
_SET_ITEMS = ObjectCodec(SetItems, *_SET_MEMBERS)
_SET_ITEMS_MEMBER = Codec(_SET_ITEMS.encode, _SET_ITEMS.decode)

_VERSION_NOTE = ObjectCodec(
    VersionNote,
    RecordMember("sha256", "digest"),
    _optional("says", "message"),
    _optional("revision", "revision"),
    _optional("by", "key"),
    _optional("back", "rolled_back_to"),
)
_VERSION_NOTE_MEMBER = Codec(_VERSION_NOTE.encode, _VERSION_NOTE.decode)

_VERSION = ObjectCodec(
    SetVersion,
    RecordMember("v", "number"),
    RecordMember("at", "at"),
    RecordMember("note", "note", _VERSION_NOTE_MEMBER),
    RecordMember("add", "added", _SET_ITEMS_MEMBER),
    RecordMember("drop", "removed", _SET_ITEMS_MEMBER),
)
_NO_ITEMS = SetItems()


def _decode_key(body: Sequence[Any]) -> ItemKey:
    if len(body) == 2:  # of a rule or declaration; a fact has kind, predicate, arguments and sign
        return body[0], body[1]
    return body[0], body[1], tuple(body[2]), body[3]


ITEM_KEYS = ListCodec(Codec(list, _decode_key))
"""The codec of identities of items of rule sets."""


def encode_item_keys(keys: Sequence[ItemKey], yield_now: YieldNow) -> orjson.Fragment:
    """Return identities of items of rule sets as a JSON array, for snapshots."""
    return orjson.Fragment(b"".join(ITEM_KEYS.write(keys, yield_now)))


def encode_rule_set(rule_set: StoredRuleSet, yield_now: YieldNow) -> dict[str, Any]:
    """Return a rule set with its kept versions as a JSON object, for snapshots."""

    def written(items: SetItems) -> orjson.Fragment:
        return orjson.Fragment(b"".join(_SET_ITEMS.write(items, yield_now)))

    versions = [
        {
            **_VERSION.encode(replace(each, added=_NO_ITEMS, removed=_NO_ITEMS)),
            "add": written(each.added),
            "drop": written(each.removed),
        }
        for each in rule_set.versions
    ]
    return {
        "name": rule_set.name,
        "s": rule_set.scope,
        "items": written(SetItems.of(rule_set.items.values(), yield_now)),
        "versions": versions,
        "whole": rule_set.is_whole,
        **({"labels": to_json(rule_set.labels)} if rule_set.labels else {}),
    }


def decode_rule_set(body: dict[str, Any]) -> StoredRuleSet:
    """Return the rule set that `encode_rule_set` wrote."""
    items = {item_key(item): item for item in _SET_ITEMS.decode(body["items"])}
    versions = tuple(map(_VERSION.decode, body["versions"]))
    labels = from_json(body.get("labels", {}))
    return StoredRuleSet(body["s"], body["name"], items, versions, body["whole"], labels=labels)


def _encode_decision(item: tuple[str, tuple[str, ...], Decision]) -> dict[str, Any]:
    predicate, args, decision = item
    body: dict[str, Any] = {"p": predicate, "a": args, "keep": decision.keep.value}
    if decision.keep is Keep.FACTS:
        body["facts"] = _STANDINGS.encode(decision.facts)
    return body


def _decode_decision(body: dict[str, Any]) -> tuple[str, tuple[str, ...], Decision]:
    facts = _STANDINGS.decode(body.get("facts", ()))
    return body["p"], tuple(body["a"]), Decision(Keep(body["keep"]), tuple(facts))


_DECISIONS = ListCodec(Codec(_encode_decision, _decode_decision))
_EXCEPTIONS = Codec(lambda others: _DECISIONS.encode(others) if others else None, _DECISIONS.decode)

_SCOPE = RecordMember("s", "scope")
_TARGET = (RecordMember("p", "predicate"), RecordMember("positive", "positive"), _SCOPE)

_CODECS = {
    "assert": ObjectCodec(
        AssertFacts,
        RecordMember("facts", "facts", ListCodec(_FACT)),
        _optional("not", "discarded", Codec(lambda count: count or None, _same)),
    ),
    "end": ObjectCodec(EndFacts, RecordMember("facts", "facts", _ENDED)),
    "rows": ObjectCodec(AssertRows, RecordMember("rows", "rows", _ROWS)),
    "teach": ObjectCodec(
        AssertRules, RecordMember("rules", "rules", ListCodec(Codec(encode_rule, decode_rule)))
    ),
    "phrases": ObjectCodec(
        Declare,
        RecordMember(
            "phrases", "declarations", ListCodec(Codec(print_declaration, parse_declaration))
        ),
    ),
    "labels": ObjectCodec(UseLabels, RecordMember("labels", "labels", Codec(to_json, from_json))),
    "retract": ObjectCodec(RetractFact, RecordMember("a", "args", _TUPLE), *_TARGET),
    "retractPattern": ObjectCodec(
        RetractPattern, RecordMember("a", "pattern", ListCodec(_TERM)), *_TARGET
    ),
    "forgetRule": ObjectCodec(RetractRule, RecordMember("id", "id"), _SCOPE),
    "deploy": ObjectCodec(
        DeployRuleSet,
        RecordMember("name", "name"),
        _SCOPE,
        RecordMember("v", "version"),
        RecordMember("note", "note", _VERSION_NOTE_MEMBER),
        *_SET_MEMBERS,
        RecordMember("gone", "dropped", ITEM_KEYS),
    ),
    "evict": ObjectCodec(
        EvictFacts,
        RecordMember("reason", "reason", _enum(EvictReason)),
        RecordMember("rows", "rows", _ROWS),
    ),
    "priority": ObjectCodec(
        SetPriority, RecordMember("a", "args", _TUPLE), RecordMember("v", "priority"), *_TARGET
    ),
    "episodes": ObjectCodec(AddEpisodes, RecordMember("episodes", "episodes", _EPISODES)),
    "evidence": ObjectCodec(AddEvidence, RecordMember("facts", "facts", ListCodec(_FACT))),
    "purge": ObjectCodec(
        PurgeMemory,
        RecordMember("id", "id"),
        RecordMember("by", "by"),
        RecordMember("rows", "rows", _ROWS),
        RecordMember("episodes", "episodes", _TUPLE),
        _optional("goals", "goals", Codec(lambda ids: list(ids) or None, tuple)),
    ),
    "subscribe": ObjectCodec(
        PutSubscription,
        RecordMember(
            "is", "subscription", Codec(SUBSCRIPTION_CODEC.encode, SUBSCRIPTION_CODEC.decode)
        ),
    ),
    "unsubscribe": ObjectCodec(EndSubscriptions, RecordMember("ids", "ids", _TUPLE)),
    "delivered": ObjectCodec(
        NoteDelivery, RecordMember("id", "id"), RecordMember("upto", "delivered", _MOMENT)
    ),
    "restore": ObjectCodec(RestoreFacts, RecordMember("facts", "facts", _RESTORED)),
    "answer": ObjectCodec(
        NoteAnswer, RecordMember("req", "request", _REQUEST), RecordMember("is", "answer", _ANSWER)
    ),
    "fork": ObjectCodec(
        ForkScope,
        RecordMember("from", "source"),
        RecordMember("s", "target"),
        RecordMember("over", "overwrite"),
    ),
    "dropScope": ObjectCodec(DropScope, _SCOPE),
    # The most frequent decision is the usual one, so the record grows with the exceptions only.
    "merge": ObjectCodec(
        MergeScope,
        RecordMember("from", "source"),
        RecordMember("s", "target"),
        RecordMember("as", "at"),
        RecordMember("usual", "usual", _enum(Keep)),
        _optional("others", "others", _EXCEPTIONS),
    ),
    "catalog": ObjectCodec(
        ChangeCatalog,
        RecordMember("action", "action", _enum(CatalogAction)),
        _optional("mark", "mark"),
    ),
    "keys": ObjectCodec(
        ChangeKeys,
        RecordMember("put", "put", ListCodec(KEY_CODEC)),
        RecordMember("drop", "drop", _TUPLE),
    ),
}
"""The members of every change by its `op`. Records of all versions are read by this table: members
may be added as optional ones, but not renamed."""

_OPS = {codec.kind: op for op, codec in _CODECS.items()}


def _decode_change(body: dict[str, Any]) -> Change:
    codec = _CODECS.get(body["op"])
    if codec is None:
        raise LogCorrupted(
            f"unknown change {body['op']!r} in a log record", directory="", segment="", offset=0
        )
    change: Change = codec.decode(body)
    return change


_PLAIN = frozenset("pans")


_BESIDES = frozenset(("tx", "req", "labels", "view"))
"""Members of records that are more than their changes."""


def plain_rows(body: dict[str, Any]) -> list[FactRows] | None:
    """Return the facts of a record that only asserts plain facts, in order.

    None for any other record.
    """
    if not (body.keys().isdisjoint(_BESIDES) and body["changes"]):
        return None
    rows: list[FactRows] = []
    for change in body["changes"]:
        if change["op"] == "rows":
            rows += _ROWS.decode(change["rows"])
        elif change["op"] == "assert" and all(
            len(fact) == 2 or fact.keys() <= _PLAIN for fact in change["facts"]
        ):
            for fact in change["facts"]:
                args = fact["a"]
                rows.append(FactRows(fact["p"], len(args), args, not fact.get("n"), fact.get("s")))
        else:
            return None
    return rows


_LOGGED_AT = re.compile(rb'\{"at":(-?\d{1,18}),')
_TENANT_CHUNK = b'{"kind":"tenant"'


def logged_at(data: bytes) -> int | None:
    """Return the logged time (epoch milliseconds) of a record, or the latest one of the tenant in a
    chunk of a snapshot; None if the bytes are neither.
    """
    if data.startswith(_TENANT_CHUNK):
        return int(orjson.loads(data)["now"])
    match = _LOGGED_AT.match(data)
    return None if match is None else int(match[1])


_OWNER = re.compile(rb'"db":"([^"\\]{1,128})","tenant":"([^"\\]{0,128})"')


def owners(data: bytes) -> set[tuple[str, str]]:
    """Return the databases and tenants named in bytes of a log.

    Whole payloads, or pieces of damaged ones.
    """
    return {
        (database.decode("utf-8", "replace"), tenant.decode("utf-8", "replace"))
        for database, tenant in _OWNER.findall(data)
    }
