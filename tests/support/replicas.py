"""Leaders and followers as separate processes."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import time

from support.proxies import Proxy
from support.servers import Server

TOKEN = "0123456789-secret-of-all-nodes"


def leader(folder, port=0, **more):
    return Server(
        folder, "--port", str(port), REPLICATION_MODE="LEADER", REPLICATION_TOKEN=TOKEN, **more
    )


def follower(folder, url, port=0, **more):
    settings = {
        "REPLICATION_MODE": "FOLLOWER",
        "LEADER_URL": url,
        "REPLICATION_TOKEN": TOKEN,
        **more,
    }
    return Server(folder, "--port", str(port), **{"REPLICATION_POLL_MS": "200", **settings})


def get(server, path, **headers):
    connection = server.connect()
    try:
        connection.request(
            "GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()}
        )
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())
    finally:
        connection.close()


def standing(server):
    status, body, _ = get(server, "/replication/status", Authorization=f"Bearer {TOKEN}")
    assert status == 200, body
    return json.loads(body)


def until(what, seconds=20.0):
    """Ask until something holds; the pause between questions leaves the processors to the
    servers.
    """
    end, pause = time.monotonic() + seconds, threading.Event()
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if found := what():
                return found
        assert time.monotonic() < end, "it did not come about in time"
        pause.wait(0.02)


def caught_up(follower, leader, seconds=20.0):
    """Wait until a follower has what its leader has now; how long that took."""
    begun = time.monotonic()
    head = standing(leader)["durable"]
    until(lambda: standing(follower)["durable"] >= head, seconds)
    return time.monotonic() - begun


def numbers(server, **headers):
    """The numbers a server knows, and how old it says they may be at most."""
    connection = server.connect()
    try:
        headers = {"Content-Type": "application/json", "X-Tenant-ID": "t", **headers}
        connection.request(
            "POST", "/query", json.dumps({"predicate": "n", "args": ["?x"]}), headers
        )
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, body
        return {int(row["args"][0]) for row in json.loads(body)}
    finally:
        connection.close()


def known(server):
    """How many numbers a server knows, for less work than telling which."""
    status, body = server.post("/aggregate", {"predicate": "n", "op": "COUNT"})
    assert status == 200, body
    return json.loads(body)["result"]


class Writer:
    """Tells n(0), n(1), n(2) one after the other, to whichever server `server` is; each is sent
    until it is acknowledged.

    `pause` is how many seconds it rests after each.
    """

    def __init__(self, server, pause=0.0):
        self.server = server
        self._pause = pause
        self._yield_now = threading.Event()
        self.acknowledged = 0
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop = True
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self):
        connection, used = None, None
        while not self._stop:
            try:
                if used is not self.server or connection is None:
                    if connection is not None:
                        connection.close()
                    used, connection = self.server, self.server.connect()
                body = {"predicate": "n", "args": [str(self.acknowledged)]}
                status, _ = used.post("/tell", body, connection)
                if status == 200:
                    self.acknowledged += 1
                    self._yield_now.wait(self._pause)
            except (OSError, http.client.HTTPException):
                if connection is not None:
                    connection.close()
                connection = None
                self._yield_now.wait(0.02)
        if connection is not None:
            connection.close()


WHOLE = 10
"""Counting reads for each read that checks every number."""


class Reader:
    """Reads a follower all the time: it always knows the first n numbers, and n never decreases."""

    def __init__(self, server):
        self.server = server
        self.reads = 0
        self.seen = 0
        self.wrong = ""
        self._stop = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self):
        self._stop = True
        self._thread.join(60)
        assert not self.wrong
        return self.reads

    def _run(self):
        pause = threading.Event()
        while not self._stop and not self.wrong:
            try:
                found = numbers(self.server) if self.reads % WHOLE == 0 else known(self.server)
            except (OSError, http.client.HTTPException, AssertionError):
                pause.wait(0.02)
                continue
            if isinstance(found, set):
                if found != set(range(len(found))):
                    self.wrong = f"holes: {sorted(set(range(max(found) + 1)) - found)[:5]}"
                found = len(found)
            if found < self.seen:
                self.wrong = f"it went back from {self.seen} to {found}"
            self.seen, self.reads = found, self.reads + 1


__all__ = [
    "TOKEN",
    "Proxy",
    "Reader",
    "Writer",
    "caught_up",
    "follower",
    "get",
    "known",
    "leader",
    "numbers",
    "standing",
    "until",
]
