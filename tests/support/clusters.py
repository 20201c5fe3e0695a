"""Clusters of servers that elect their leader, clients that record what they see, and its check."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import threading
import time
from collections import defaultdict

from support.linearizable import READ, REMOVE, STORE, Operation, is_linearizable
from support.proxies import Proxy
from support.replicas import TOKEN, get, numbers, standing, until
from support.servers import Server

TTL_MS = 1000
ANSWER_SECONDS = 5.0
"""How long a client waits for an answer; afterwards the outcome is unknown."""

LAG = "X-Replication-Lag-Ms"


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def replacements_of_ports(text):
    """The ports of a page beside 9300, which the fixture serves, each with a free port to use
    instead.
    """
    named = sorted(set(re.findall(r"\b93[1-9]\d\b", text)))
    return dict(zip(named, map(str, free_ports(len(named))), strict=True))


def with_ports(text, ports):
    return re.sub(r"\b93[1-9]\d\b", lambda match: ports[match[0]], text)


class Cluster:
    """Nodes with a coordinator; the other nodes reach each of them through a proxy.

    `coordinator_url` is a URL, or returns that of a node by its number.
    """

    def __init__(self, folder, coordinator_url, count=3, **settings):
        self._folder = folder
        self._url = coordinator_url
        self._settings = {
            "CLUSTER_TTL_MS": str(TTL_MS),
            "REPLICATION_SYNC_TIMEOUT_MS": "1000",
            "REPLICATION_TOKEN": TOKEN,
            "REPLICATION_POLL_MS": "200",
            **settings,
        }
        self.ports = free_ports(count)
        self.proxies = [Proxy(("127.0.0.1", port)) for port in self.ports]
        self.nodes = [None] * count
        self._logs = []
        for number in range(count):
            self.start(number)

    def start(self, number):
        log = self._folder / f"node{number}.{len(self._logs)}.log"
        self._logs.append((number, log))
        settings = {
            "COORDINATOR_URL": self._url(number) if callable(self._url) else self._url,
            "ADVERTISE_URL": self.proxies[number].url,
            "REPLICATION_MODE": "FOLLOWER" if number else "LEADER",
            **self._settings,
        }
        self.nodes[number] = Server(
            self._folder / f"node{number}",
            "--port",
            str(self.ports[number]),
            log=log,
            **settings,
        )

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for number, node in enumerate(self.nodes):
            if node is not None:
                self.signal(number, signal.SIGCONT)
                node.kill()
        for proxy in self.proxies:
            proxy.close()

    def signal(self, number, what):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.nodes[number].process.pid, what)

    def kill(self, number):
        self.nodes[number].kill()

    @property
    def running(self):
        return [n for n, node in enumerate(self.nodes) if node.process.poll() is None]

    def leader(self, among=None, seconds=60.0):
        """Wait until a node leads and takes writes; return its number."""

        def find():
            for number in self.running if among is None else among:
                with contextlib.suppress(OSError, http.client.HTTPException, AssertionError):
                    if state(self.nodes[number])["writable"]:
                        return number + 1
            return 0

        return until(find, seconds) - 1

    def heal(self):
        """Start, continue and connect every node."""
        for proxy in self.proxies:
            proxy.heal()
        for number in range(len(self.nodes)):
            self.signal(number, signal.SIGCONT)
        for number in set(range(len(self.nodes))) - set(self.running):
            self.kill(number)
            self.start(number)

    def whole(self, seconds=120.0):
        """Wait until a node leads and all others are in sync with it; return its number."""

        def find():
            leader = self.leader()
            followers = standing(self.nodes[leader])["followers"]
            in_sync = sum(each["inSync"] for each in followers)
            return in_sync == len(self.nodes) - 1 and leader + 1

        return until(find, seconds) - 1

    def terms(self):
        """Return the nodes that led in each term, as their logs say."""
        leaders = defaultdict(set)
        for number, log in self._logs:
            for term in re.findall(r"this node leads in term (\d+)", log.read_text()):
                leaders[int(term)].add(number)
        return leaders

    def log_text(self):
        return "\n".join(log.read_text() for _, log in self._logs)


def state(server):
    """Return the readiness of a server that may be stopped or paused."""
    connection = http.client.HTTPConnection(*server.address, timeout=0.5)
    with contextlib.closing(connection):
        connection.request("GET", "/health/ready")
        return json.loads(connection.getresponse().read())


class Clients:
    """Threads that write and read, each on the node that took its last write.

    `acknowledged` are numbers that were stored for good. In addition each client stores, removes
    and reads a few facts, whose histories are checked. `before` are clients that have stopped.
    """

    def __init__(self, cluster, count=4, seed=0, before=None, tenants=("t",)):
        self._tenants = tenants
        self.acknowledged = set() if before is None else before.acknowledged
        self.reads = self.operations = 0
        self._cluster = cluster
        self._mutex = threading.Lock()
        self._histories = defaultdict(list)
        self._facts = 0 if before is None else before._facts + 3
        self._stop = False
        self._next = 0 if before is None else before._next
        self._threads = [
            threading.Thread(target=self._run, args=(random.Random(seed * 1000 + n),), daemon=True)
            for n in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def new_facts(self):
        """Use other facts from now on, so that each history stays short."""
        with self._mutex:
            self._facts += 3

    def stop(self):
        self._stop = True
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()

    def check(self):
        """Check the histories, and that each node has what was acknowledged; return the terms."""
        self.operations = sum(map(len, self._histories.values()))
        for fact, history in self._histories.items():
            assert is_linearizable(history), f"fact {fact}: {sorted(history, key=_begin)}"
        leader = self._cluster.whole()
        for tenant in self._tenants:
            header = {"X-Tenant-ID": tenant}
            expected = numbers(self._cluster.nodes[leader], **header)
            lost = {number for of, number in self.acknowledged if of == tenant} - expected
            assert not lost, f"acknowledged writes of {tenant} are lost: {sorted(lost)[:10]}"
            for node in self._cluster.nodes:
                until(
                    lambda node=node, header=header, expected=expected: (
                        numbers(node, **header) == expected
                    )
                )
        terms = self._cluster.terms()
        assert all(len(leaders) == 1 for leaders in terms.values()), terms
        return len(terms)

    def _run(self, rng):
        target, connection = rng.randrange(len(self._cluster.nodes)), None
        while not self._stop:
            if connection is None:
                connection = http.client.HTTPConnection(
                    "127.0.0.1", self._cluster.ports[target], timeout=ANSWER_SECONDS
                )
            status = self._step(rng, connection)
            if status != 200:
                connection.close()
                connection, target = None, rng.randrange(len(self._cluster.nodes))
                threading.Event().wait(0.02)  # not a busy loop while no node leads
        if connection is not None:
            connection.close()

    def _step(self, rng, connection):
        tenant = rng.choice(self._tenants)
        if rng.random() < 0.3:
            with self._mutex:
                number = self._next = self._next + 1
            body = {"predicate": "n", "args": [str(number)]}
            status, _, _ = _post(connection, "/tell", body, tenant)
            if status == 200:
                with self._mutex:
                    self.acknowledged.add((tenant, number))
            return status
        fact = str(self._facts + rng.randrange(3))
        kind = rng.choice((STORE, REMOVE, READ, READ))
        path = {STORE: "/tell", REMOVE: "/retract", READ: "/query"}[kind]
        begin = time.monotonic()
        status, body, headers = _post(connection, path, {"predicate": "f", "args": [fact]}, tenant)
        end = time.monotonic()
        fact = f"{tenant}: {fact}"
        if kind == READ:
            if status == 200 and LAG not in headers:  # the answer of a leader
                self._note(fact, Operation(READ, begin, end, bool(json.loads(body))))
                self.reads += 1
            return status
        if status == 200:
            self._note(fact, Operation(kind, begin, end))
        elif not _was_refused(status, body):
            self._note(fact, Operation(kind, begin, None))
        return status

    def _note(self, fact, operation):
        with self._mutex:
            self._histories[fact].append(operation)


def _begin(operation):
    return operation.begin


def _post(connection, path, body, tenant):
    """Return status, body and headers; status 0 if there was no answer."""
    headers = {"Content-Type": "application/json", "X-Tenant-ID": tenant}
    try:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    except (OSError, http.client.HTTPException):
        return 0, b"", {}


def _was_refused(status, body):
    """Return True if a write was certainly not carried out."""
    if status == 409:
        return True
    return status == 503 and (json.loads(body)["details"] or {}).get("outcome") == "not_done"


__all__ = ["TTL_MS", "Clients", "Cluster", "get", "standing", "state", "until"]
