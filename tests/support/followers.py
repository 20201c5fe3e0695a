"""A client that follows a goal over HTTP, and connects again with its last event id."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any


class GoalFollower:
    """Applies the changes of a goal `p(?x)` in a thread, until `with` ends.

    `connect` opens a connection to a server. `problems` has what may never happen: a change that
    repeats or skips something, the end of the goal, and an answer that is neither a stream nor 503.
    """

    def __init__(
        self, connect: Callable[[], http.client.HTTPConnection], tenant: str, id: str, since: str
    ) -> None:
        self.answers: set[str] = set()
        self.problems: list[Any] = []
        self.connections = 0
        self._connect = connect
        self._headers = {"X-Tenant-ID": tenant}
        self._path = f"/goals/{id}/events"
        self._since = since
        self._seq = 0
        self._stop = threading.Event()
        self._socket: socket.socket | None = None
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def wait(self, condition: Callable[[GoalFollower], object], seconds: float = 60.0) -> None:
        """Wait until a condition holds after a change or a new connection."""
        with self._changed:
            held = self._changed.wait_for(lambda: self.problems or condition(self), seconds)
        assert not self.problems, self.problems
        assert held, (sorted(self.answers), self.connections)

    def __enter__(self) -> GoalFollower:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            connection = self._connect()
            try:
                connection.connect()
                self._socket = (
                    connection.sock
                )  # a response of a stream takes it from the connection
                if not self._stop.is_set():
                    self._follow(connection)
            except (OSError, http.client.HTTPException):
                pass  # the server of this connection ended, or has not started yet
            finally:
                connection.close()
            self._stop.wait(0.05)

    def _follow(self, connection: http.client.HTTPConnection) -> None:
        headers = {**self._headers, "Last-Event-ID": self._since}
        connection.request("GET", self._path, headers=headers)
        response = connection.getresponse()
        with contextlib.closing(response):
            self._read(response)

    def _read(self, response: http.client.HTTPResponse) -> None:
        if response.status != 200:
            if response.status != 503:
                self._problem((response.status, response.read()))
            return
        with self._changed:
            self.connections += 1
            self._changed.notify_all()
        for kind, event_id, body in _events(response):
            if kind == "changed":
                self._apply(body)
                self._since = event_id
            else:
                self._problem((kind, body))

    def _apply(self, change: dict[str, Any]) -> None:
        gone = {row["args"][0] for row in change["disappeared"]}
        new = {row["args"][0] for row in change["appeared"]}
        if not gone <= self.answers or new & self.answers or change["commitSeq"] <= self._seq:
            self._problem(("repeated or missing", change, sorted(self.answers)))
        with self._changed:
            self._seq = change["commitSeq"]
            self.answers = (self.answers - gone) | new
            self._changed.notify_all()

    def _problem(self, problem: Any) -> None:
        with self._changed:
            self.problems.append(problem)
            self._changed.notify_all()


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield kind, id and data of the events of a stream, until it ends."""
    fields: dict[str, str] = {}
    while line := response.readline():
        text = line.decode().rstrip("\n")
        name, _, value = text.partition(": ")
        if text and name:
            fields[name] = value
        elif "data" in fields:
            yield fields["event"], fields.get("id", ""), json.loads(fields["data"])
            fields = {}


class GoalWriter:
    """Writes facts `p(n)` in a thread, and retracts each third one, each until it is acknowledged.

    `post` sends a request: path, body, tenant and headers; it returns the status first, and may
    raise OSError. `truth` are the facts that are stored at the end of `with`.
    """

    def __init__(self, post: Callable[..., tuple[Any, ...]], tenant: str) -> None:
        self.truth: set[str] = set()
        self.written = 0
        self.refused: list[Any] = []
        self._post = post
        self._tenant = tenant
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def __enter__(self) -> GoalWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            number = str(self.written)
            self._send("/tell", {"predicate": "p", "args": [number]}, f"tell-{number}")
            self.truth.add(number)
            if self.written % 3 == 0:
                self._send("/retract", {"text": f"p({number})"}, f"retract-{number}")
                self.truth.discard(number)
            self.written += 1

    def _send(self, path: str, body: Any, key: str) -> None:
        """Send a request until it was carried out; the key keeps it from being carried out
        twice.
        """
        while True:
            try:
                status, *rest = self._post(path, body, self._tenant, Idempotency_Key=key)
            except (OSError, http.client.HTTPException):
                self._stop.wait(0.02)
                continue
            if status == 200:
                return
            if status not in (409, 503):
                self.refused.append((status, rest))
                return
            self._stop.wait(0.02)
