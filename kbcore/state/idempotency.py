"""Requests with an idempotency key, and ids of recently committed transactions.

A client that lost an answer can repeat its request, or ask whether its commit took place, even
after a restart.

The change sets of such a request carry its key and digest, so the request is known as executed as
soon as it is durable, with its outcome: what applying the change sets has counted, which is the
same on every node and after every start. An answer that cannot be made again from the request and
its outcome follows in a separate record.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import astuple, dataclass, replace

KEPT_MS = 86_400_000
KEPT_KEYS = 10_000
KEPT_BYTES = 4 << 20
COMMITTED_KEPT_MS = 600_000
COMMITTED_KEPT_IDS = 10_000
ANSWER_BYTES = 64 * 1024
"""Largest stored answer; the request of a larger answer still counts as executed."""

_ENTRY_BYTES = 200

_CONCEALED = " "
"""First character of a digest in place of a key; no key of a client begins with a space."""


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The idempotency key of a request, and a digest of its contents."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class IdempotentAnswer:
    """An answer as it was sent: status, the headers that belong to it, and the body as text."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """Effect of the change sets of a request.

    `seq` is the number of the last one in the log, `at` its logged time (epoch milliseconds). The
    counts are those of all: facts that were new, known, and removed.
    """

    seq: int
    at: int
    asserted: int = 0
    updated: int = 0
    removed: int = 0
    discarded: int = 0

    def after(self, earlier: Outcome | None) -> Outcome:
        """Return the outcome of this change set and the earlier ones of the same request."""
        if earlier is None:
            return self
        return Outcome(
            self.seq,
            self.at,
            earlier.asserted + self.asserted,
            earlier.updated + self.updated,
            earlier.removed + self.removed,
            earlier.discarded + self.discarded,
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """Idempotency record of a request.

    When it was executed (epoch milliseconds), its answer if that was stored, and its outcome; None
    if it changed nothing in the log, or was restored from an older snapshot.
    """

    digest: str
    at: int
    answer: IdempotentAnswer | None = None
    outcome: Outcome | None = None

    @property
    def size(self) -> int:
        """Approximate memory use in bytes."""
        return _ENTRY_BYTES + (len(self.answer.body) if self.answer else 0)


class AnsweredRequests:
    """The requests with a key that a tenant executed in the last day of logged time, at most 10,000
    and about 4 MiB.

    A purge replaces the keys by their digests, because clients may have put names into them.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, Answered] = OrderedDict()
        self._bytes = 0

    def get(self, key: str, now: int) -> Answered | None:
        """Return the record of a key, None if there is no record within the retention period."""
        record = self._known.get(key) or self._known.get(_concealed(key))
        return record if record is not None and record.at > now - KEPT_MS else None

    def note(
        self,
        request: RequestKey,
        at: int,
        answer: IdempotentAnswer | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """Record that a request was executed, with the outcome of one of its change sets, or its
        answer, at a logged time.

        Logged times never decrease.
        """
        key = request.key
        before = self._known.pop(key, None)
        if before is None and (before := self._known.pop(_concealed(key), None)) is not None:
            key = _concealed(key)
        if before is not None:
            self._bytes -= before.size
            if before.digest == request.digest:
                answer = answer or before.answer
                outcome = before.outcome if outcome is None else outcome.after(before.outcome)
        record = self._known[key] = Answered(request.digest, at, answer, outcome)
        self._bytes += record.size
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if (
                len(self._known) <= KEPT_KEYS
                and self._bytes <= KEPT_BYTES
                and oldest.at > at - KEPT_MS
            ):
                return
            del self._known[key]
            self._bytes -= oldest.size

    def forget_texts(self) -> None:
        """Remove all answers and the texts of the keys: the requests still count as executed."""
        self._known = OrderedDict(
            (key if key.startswith(_CONCEALED) else _concealed(key), replace(record, answer=None))
            for key, record in self._known.items()
        )
        self._bytes = sum(record.size for record in self._known.values())

    def all(self) -> list[list[object]]:
        """Return every record, oldest first, as JSON."""
        return [
            [
                key,
                record.digest,
                record.at,
                record.answer and answer_to_json(record.answer),
                record.outcome and list(astuple(record.outcome)),
            ]
            for key, record in self._known.items()
        ]

    def restore(self, known: Iterable[list[object]]) -> None:
        """Load what `all` returned; earlier versions wrote no outcome."""
        for key, digest, at, answer, *outcome in known:
            record = self._known[str(key)] = Answered(
                str(digest), int(str(at)), answer_from_json(answer), _outcome_from_json(*outcome)
            )
            self._bytes += record.size


def _concealed(key: str) -> str:
    return _CONCEALED + hashlib.blake2b(key.encode(), digest_size=16).hexdigest()


def answer_to_json(answer: IdempotentAnswer) -> list[object]:
    """Return an answer as JSON."""
    return [answer.status, answer.headers, answer.body]


def answer_from_json(stored: object) -> IdempotentAnswer | None:
    """Return the answer that `answer_to_json` wrote; None for null."""
    if not isinstance(stored, list):
        return None
    status, headers, body = stored
    return IdempotentAnswer(status, tuple((name, value) for name, value in headers), body)


def _outcome_from_json(stored: object = None) -> Outcome | None:
    return Outcome(*map(int, stored)) if isinstance(stored, list) else None


class CommittedTransactions:
    """Ids of the transactions that a tenant committed in the last ten minutes of logged time, at
    most 10,000.
    """

    def __init__(self) -> None:
        self._at: OrderedDict[str, int] = OrderedDict()

    def known(self, transaction: str, now: int) -> bool:
        """Return True if a transaction was committed within the retention period."""
        return self._at.get(transaction, now - COMMITTED_KEPT_MS) > now - COMMITTED_KEPT_MS

    def note(self, transaction: str, at: int) -> None:
        """Record a commit at a logged time (epoch milliseconds); logged times never decrease."""
        self._at[transaction] = at
        self.prune(at)

    def prune(self, now: int) -> None:
        """Remove ids beyond the age limit or the count limit."""
        while self._at:
            oldest = next(iter(self._at))
            if len(self._at) <= COMMITTED_KEPT_IDS and self._at[oldest] > now - COMMITTED_KEPT_MS:
                return
            del self._at[oldest]

    def all(self) -> dict[str, int]:
        """Return ids with their commit times, oldest first."""
        return dict(self._at)

    def restore(self, known: Iterable[tuple[str, int]]) -> None:
        """Load the ids of a snapshot."""
        self._at = OrderedDict(known)
