"""Receipts: signed bundles of the answers of goals with their proofs, facts, rules and records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from kbcore.durable.earlier_states import RECORDS_AT_ONCE, first_record
from kbcore.durable.known_states import owner_of_payload
from kbcore.durable.records import chained_digest
from kbcore.errors import InvalidInput, LogCorrupted, LogTruncated, NotFound
from kbcore.operations.base import Snapshot, not_here
from kbcore.operations.proofs import Proofs
from kbcore.plug.ports import LogRecord, LogStore
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.receipts.canonical_json import canonical_parts
from kbcore.receipts.signing import SETTING, ReceiptKey
from kbcore.receipts.verifier import FORMAT, STORED, stated, statement
from kbcore.state.episodes.purges import PurgeRecord
from kbcore.state.record_chain import DIGEST_BYTES, NO_HEAD, ChainState, next_head
from kbcore.state.tenant import Tenant
from kbplanner.ir.terms import Literal
from kbplanner.pacing import paced
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.printer import print_item

MAX_GOALS = 100
"""Maximum number of goals of a receipt."""

MAX_RECORD_BYTES = 64 << 10
"""Maximum size of a record whose text is in a receipt; of a larger one it has the digest."""

MAX_RECORDS_BYTES = 4 << 20
"""Maximum size of the records in a receipt together."""

_PARTS_PER_YIELD = 2000
_DIGESTS_PER_YIELD = 1000
_BYTES_PER_YIELD = 1 << 20
"""Parts, digests and bytes that are looked at between two calls of `yield_now`: about a
millisecond. Each mark is looked for in the bytes of a record.
"""


@dataclass(slots=True)
class _Content:
    """The content of a receipt as it was read from one state of the tenant."""

    seq: int
    chain: ChainState
    purges: list[PurgeRecord]
    at: int
    goals: list[dict[str, Any]] = field(default_factory=list)
    facts: dict[tuple[Any, ...], dict[str, Any]] = field(default_factory=dict)
    rules: dict[tuple[str | None, str, str], dict[str, Any]] = field(default_factory=dict)

    @property
    def erased(self) -> int:
        """Position of the last record that a purge erases."""
        return max((each.position for each in self.purges), default=0)


class Receipts(Proofs):
    """Receipts of a knowledge base."""

    def receipt(
        self,
        goals: Sequence[Literal],
        scope: str | None = None,
        *,
        since: int | None = None,
        request_limits: RequestLimits | None = None,
    ) -> bytes:
        """Return a signed receipt of the answers of goals, which are answered from one state.

        With `since`, the position of a record, the chain of the receipt begins after it. Raises
        NotFound if no key is configured, InvalidInput for a proof that meets the limits, or a
        `since` whose digest is not kept, and BudgetExceeded.
        """
        key = self._receipt_key(scope)
        if not 1 <= len(goals) <= MAX_GOALS:
            raise InvalidInput.at("goals", f"must be 1 to {MAX_GOALS} goals")
        for number, goal in enumerate(goals):
            if goal.negated:
                reason = "has `not`; ask for the goal itself: without answers, there are none"
                raise InvalidInput.at(f"goals[{number}]", reason)
        content = self.at_once(lambda handle: handle._receipt_content(goals, scope), request_limits)
        with self._budget(request_limits) as budget:
            try:
                records = self._stating_records(content, budget)
            except LogTruncated as error:
                raise InvalidInput("the log was compacted during the request; ask again") from error
            receipt = self._receipt_of(content, records, since, key, budget)
            parts = list(paced(canonical_parts(receipt), budget.yield_now, _PARTS_PER_YIELD))
        signed = "".join(parts)
        return f'{{"receipt":{signed},"signature":"{key.sign(signed.encode())}"}}'.encode()

    def _receipt_key(self, scope: str | None) -> ReceiptKey:
        """Return the key; raise InvalidInput where no receipt can be made."""
        self.require_present()
        self._check_receipt()
        self._check_scope(scope)
        if self.view or self.labels:
            raise not_here("view" if self.view else "labels")
        key = self._services.receipt_key
        if key is None:
            raise NotFound("this server has no key for receipts", {"setting": SETTING})
        return key

    def _check_receipt(self) -> None:
        """Raise InvalidInput if the state that is read is not that of the log."""

    def _receipt_content(self, goals: Sequence[Literal], scope: str | None) -> _Content:
        """Return the answers with their proofs, and the facts and rules of these."""
        snapshot = self._snapshot
        if snapshot is None:
            raise AssertionError("a receipt is of one state")
        tenant = snapshot.tenant
        content = _Content(
            tenant.seq,
            tenant.chain.state(),
            tenant.purges.all(),
            self._services.clock.now_ms(),
        )
        options = AnswerOptions(scope)
        for number, goal in enumerate(goals):
            answers = []
            for each in self.prove(goal, options, ProofOptions("dag")):
                if each["proof"]["truncated"]:
                    raise InvalidInput.at(f"goals[{number}]", "has a proof that is too large")
                answers.append(_answer(each))
                _collect(content, tenant, each, snapshot)
            content.goals.append({"goal": print_item(goal), "scope": scope, "answers": answers})
        return content

    def _stating_records(self, content: _Content, budget: Budget) -> dict[int, LogRecord]:
        """Return the last record that states each fact and rule, by position; note the positions in
        these. Only records with a digest in the chain, and with a text that is not too large and
        that no purge erases, count.
        """
        owner = self.database, self.tenant
        store = self._services.log(*owner)
        first, digests = content.chain.first, content.chain.digests
        positions = {
            digests[at : at + DIGEST_BYTES]: first + at // DIGEST_BYTES
            for at in paced(
                range(0, len(digests), DIGEST_BYTES), budget.yield_now, _DIGESTS_PER_YIELD
            )
        }
        stated_items = [*content.facts.values(), *content.rules.values()]
        items = {
            statement(each): each
            for each in paced(stated_items, budget.yield_now, _DIGESTS_PER_YIELD)
        }
        marks = {orjson.dumps(each.get("text", each.get("predicate"))) for each in items.values()}
        records: dict[int, LogRecord] = {}
        size = searched = 0
        for record in _records(store, owner, content, budget):
            if len(record.payload) > MAX_RECORD_BYTES:
                continue
            searched += len(record.payload) * len(marks)
            if searched >= _BYTES_PER_YIELD:
                searched = 0
                budget.yield_now()
            if not any(mark in record.payload for mark in marks):
                continue
            budget.yield_now()
            digest = chained_digest(record.type, record.version, record.payload)
            position = None if digest is None else positions.get(digest)
            if position is None or position <= content.erased:
                continue
            for key in stated(record.payload.decode()) & items.keys():
                items[key]["record"] = position
                records[position] = record
            size += len(record.payload)
            if size > 2 * MAX_RECORDS_BYTES:
                records = _within_limits(records, stated_items)
                size = sum(len(each.payload) for each in records.values())
        return _within_limits(records, stated_items)

    def _receipt_of(
        self,
        content: _Content,
        records: dict[int, LogRecord],
        since: int | None,
        key: ReceiptKey,
        budget: Budget,
    ) -> dict[str, Any]:
        chain = content.chain
        first = min(records, default=chain.count + 1)
        if since is not None:
            if not chain.first - 1 <= since <= chain.count:
                raise InvalidInput.at(
                    "since",
                    f"must be {chain.first - 1} to {chain.count}, the digests that are kept",
                )
            first = min(first, since + 1)
        start, digests = _chain_from(chain, first, budget)
        return {
            "format": FORMAT,
            "key": key.id,
            "database": self.database,
            "tenant": self.tenant,
            "createdAt": content.at,
            "chain": {
                "count": chain.count,
                "head": chain.head.hex(),
                "start": start,
                "digests": digests,
            },
            "records": [
                {
                    "position": position,
                    "type": record.type,
                    "version": record.version,
                    "payload": record.payload.decode(),
                }
                for position, record in sorted(records.items())
            ],
            "facts": list(content.facts.values()),
            "rules": list(content.rules.values()),
            "goals": content.goals,
            "purges": [
                {
                    "id": each.id,
                    "by": each.by,
                    "at": each.at,
                    "position": each.position,
                    "facts": each.facts,
                    "episodes": each.episodes,
                }
                for each in content.purges
            ],
        }


def _within_limits(
    records: dict[int, LogRecord], items: Sequence[dict[str, Any]]
) -> dict[int, LogRecord]:
    """Return the records that items have, the newest first, as long as they are not too large
    together; items without their record get None.
    """
    stating: dict[int, list[dict[str, Any]]] = {}
    for each in items:
        if each["record"] is not None:
            stating.setdefault(each["record"], []).append(each)
    chosen: dict[int, LogRecord] = {}
    total = 0
    for position in sorted(stating, reverse=True):
        size = len(records[position].payload)
        if total + size <= MAX_RECORDS_BYTES:
            chosen[position] = records[position]
            total += size
            continue
        for each in stating[position]:
            each["record"] = None
    return chosen


def _answer(proved: dict[str, Any]) -> dict[str, Any]:
    nodes = {
        name: {member: value for member, value in node.items() if member != "evidence"}
        for name, node in proved["proof"]["nodes"].items()
    }
    return {
        "predicate": proved["predicate"],
        "args": proved["args"],
        "negated": proved["negated"],
        "scope": proved["scope"],
        "confidence": _confidence(proved["confidence"]),
        "proof": {"root": proved["proof"]["root"], "nodes": nodes},
    }


def _confidence(value: float | None) -> str | None:
    """Return a confidence as text: the numbers of a receipt are integers."""
    return None if value is None else repr(value)


def _collect(content: _Content, tenant: Tenant, proved: dict[str, Any], snapshot: Snapshot) -> None:
    """Add the facts and rules of a proof."""
    scope = proved["scope"]
    for node in paced(proved["proof"]["nodes"].values(), snapshot.budget.yield_now, 500):
        if node["kind"] in STORED:
            fact = {"scope": scope, "negated": False, **node["fact"], "record": None}
            content.facts.setdefault(statement(fact), fact)
        rule = node.get("rule")
        if rule is not None:
            _collect_rule(content, tenant, scope, rule)


def _collect_rule(
    content: _Content, tenant: Tenant, scope: str | None, named: dict[str, Any]
) -> None:
    own = tenant.rules.get(scope, named["id"])
    stored = own or tenant.rules.get(None, named["id"])
    if stored is None or stored.text != named["text"]:
        raise InvalidInput.at("goals", f"depends on the rule {named['id']}, which is not stored")
    key = stored.rule.scope, named["id"], named["text"]
    if key not in content.rules:
        shape = rule_to_json(stored.rule)
        content.rules[key] = {
            "id": named["id"],
            "text": named["text"],
            "scope": stored.rule.scope,
            "head": shape["head"],
            "body": shape["body"],
            "record": None,
        }


def _records(
    store: LogStore, owner: tuple[str, str], content: _Content, budget: Budget
) -> Iterator[LogRecord]:
    """Yield the records of a tenant up to the state of a receipt that no purge erases."""
    erased = max((each.seq for each in content.purges), default=0)
    for record in store.read(max(first_record(store) - 1, erased)):
        if record.seq > content.seq:
            return
        if record.seq % RECORDS_AT_ONCE == 0 or len(record.payload) > MAX_RECORD_BYTES:
            budget.yield_now()
        if owner_of_payload(record.payload) == owner:
            yield record


def _chain_from(chain: ChainState, first: int, budget: Budget) -> tuple[str, list[str]]:
    """Return the head before the record at a position, in hexadecimal digits, and the digests from
    there.

    Raises LogCorrupted if the digests of the chain do not lead to its head.
    """
    head, start, digests = chain.start, chain.start, list[str]()
    offsets = range(0, len(chain.digests), DIGEST_BYTES)
    for position, at in enumerate(
        paced(offsets, budget.yield_now, _DIGESTS_PER_YIELD), chain.first
    ):
        digest = chain.digests[at : at + DIGEST_BYTES]
        if position == first:
            start = head
        if position >= first:
            digests.append(digest.hex())
        head = next_head(head, digest)
    if head != chain.head or (chain.first == 1 and chain.start != NO_HEAD):
        raise LogCorrupted(
            "the digests of the records do not lead to the head of their chain",
            directory="",
            segment="",
            offset=0,
        )
    return (start if digests else head).hex(), digests
