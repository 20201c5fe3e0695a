"""Requests that carried a key: a client whose answer was lost may send its request again, also after a restart.

The change sets of such a request carry its key and digest, so it is known to have been carried out from the moment it is
durable; its answer follows in a record of its own.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

KEPT_MS = 86_400_000
KEPT_KEYS = 10_000
KEPT_BYTES = 4 << 20
ANSWER_BYTES = 64 * 1024
"""A larger answer is not kept; its request counts as carried out all the same."""

_ENTRY_BYTES = 200


@dataclass(frozen=True, slots=True)
class RequestKey:
    """The key a client gave its request, and a digest of what it asked for."""

    key: str
    digest: str


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it went out: status, headers that belong to it, and body as text."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What is known of a request: when it was carried out (epoch milliseconds), and its answer if that was kept."""

    digest: str
    at: int
    answer: Answer | None = None

    @property
    def size(self) -> int:
        """About how many bytes it takes."""
        return _ENTRY_BYTES + (len(self.answer.body) if self.answer else 0)


class AnsweredRequests:
    """The requests with a key that a tenant carried out in the last day of logged time, at most 10,000 and about 4 MiB."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Answered] = OrderedDict()
        self._bytes = 0

    def get(self, key: str, now: int) -> Answered | None:
        """What is known of a key, if that is not too long ago."""
        found = self._known.get(key)
        return found if found is not None and found.at > now - KEPT_MS else None

    def note(self, request: RequestKey, at: int, answer: Answer | None = None) -> None:
        """A request was carried out, or its answer is known, at this logged time, which never goes back."""
        before = self._known.pop(request.key, None)
        if before is not None:
            self._bytes -= before.size
            if answer is None and before.digest == request.digest:
                answer = before.answer
        made = self._known[request.key] = Answered(request.digest, at, answer)
        self._bytes += made.size
        while self._known:
            key, oldest = next(iter(self._known.items()))
            if len(self._known) <= KEPT_KEYS and self._bytes <= KEPT_BYTES and oldest.at > at - KEPT_MS:
                return
            del self._known[key]
            self._bytes -= oldest.size

    def all(self) -> list[list[object]]:
        """Everything known, oldest first, as JSON."""
        return [
            [key, found.digest, found.at, found.answer and answer_to_json(found.answer)]
            for key, found in self._known.items()
        ]

    def restore(self, known: Iterable[list[object]]) -> None:
        """Take over what `all` gave."""
        for key, digest, at, answer in known:
            made = self._known[str(key)] = Answered(str(digest), int(str(at)), answer_from_json(answer))
            self._bytes += made.size


def answer_to_json(answer: Answer) -> list[object]:
    """An answer as JSON."""
    return [answer.status, answer.headers, answer.body]


def answer_from_json(found: object) -> Answer | None:
    """The answer that `answer_to_json` wrote; None for null."""
    if not isinstance(found, list):
        return None
    status, headers, body = found
    return Answer(status, tuple((name, value) for name, value in headers), body)
