"""Nodes of a cluster that share a PostgreSQL storage, as separate processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from urllib.parse import urlsplit

from kbcore.node.shard_layout import shard_of
from support.clusters import free_ports
from support.proxies import Proxy
from support.replicas import get, until
from support.servers import Server

TTL_MS = 1000
SHARDS = 8


class Nodes:
    """Nodes of one cluster; with `links` each reaches PostgreSQL, and is reached, through proxies.

    `url` is that of an empty schema.
    """

    def __init__(self, folder, url, count=2, *, links=False, shards=SHARDS, **settings):
        self._folder = folder
        self._url = url
        self._settings = {
            "CLUSTER_TTL_MS": str(TTL_MS),
            "STORAGE_SHARDS": str(shards),
            "SHUTDOWN_TIMEOUT_MS": "5000",
            **settings,
        }
        self.headers = {}
        """Headers of the requests for the status: a key, if the nodes have keys."""
        self.shards = shards
        self.ports = free_ports(count)
        self.proxies = [Proxy(("127.0.0.1", port)) for port in self.ports] if links else []
        self.storage_links = [Proxy(_address(url)) for _ in self.ports] if links else []
        self.nodes = [None] * count
        self.stopping = set()
        self._starts = self._calls = 0
        for number in range(count):
            self.start(number)

    def add(self, **settings):
        """Start one more node, with its own settings as well; return its number."""
        self.ports += free_ports(1)
        self.nodes.append(None)
        self.start(len(self.nodes) - 1, **settings)
        return len(self.nodes) - 1

    def start(self, number, **own):
        self._starts += 1
        settings = {"CLUSTER_URL": self._url, **self._settings, **own}
        if self.proxies:
            settings["ADVERTISE_URL"] = self.proxies[number].url
            settings["CLUSTER_URL"] = _through(self._url, self.storage_links[number])
        self.nodes[number] = Server(
            self._folder / "unused",
            "--port",
            str(self.ports[number]),
            log=self._folder / f"node{number}.{self._starts}.log",
            **settings,
        )
        return self.nodes[number]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for number, node in enumerate(self.nodes):
            if node is not None:
                self.signal(number, signal.SIGCONT)
                node.kill()
        for proxy in (*self.proxies, *self.storage_links):
            proxy.close()

    def signal(self, number, what):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.nodes[number].process.pid, what)

    def name(self, number):
        own = f"127.0.0.1:{self.ports[number]}"
        address = self.proxies[number].url.removeprefix("http://") if self.proxies else own
        return "".join(char if char.isalnum() else "-" for char in address)

    def status(self, number=0):
        status, body, _ = get(self.nodes[number], "/admin/cluster", **self.headers)
        assert status == 200, body
        return json.loads(body)

    def shards_of(self, number, through=0):
        nodes = self.status(through)["nodes"]
        return next((n["shards"] for n in nodes if n["name"] == self.name(number)), [])

    def settled(self, alive=None, seconds=60.0):
        """Wait until each live node has the shards that are assigned to it; return the status."""
        alive = list(range(len(self.nodes))) if alive is None else alive

        def is_settled():
            for number in alive:
                status = self.status(number)
                names = {node["name"] for node in status["nodes"] if node["state"] != "leaving"}
                if names != {self.name(n) for n in alive} or status["unowned"] or status["moving"]:
                    return None
                if status["open"] != self.shards_of(number, number):
                    return None
            return status

        return until(is_settled, seconds)

    def whole(self, seconds=60.0):
        self.settled(seconds=seconds)
        return 0

    def heal(self):
        """Start, continue and connect every node."""
        for proxy in (*self.proxies, *self.storage_links):
            proxy.heal()
        for number, node in enumerate(self.nodes):
            self.signal(number, signal.SIGCONT)
            if number in self.stopping:
                node.process.wait(60)
            if node.process.poll() is not None:
                node.kill()
                self.start(number)
        self.stopping.clear()

    def stop(self, number):
        """Ask a node to stop, and do not wait until it has."""
        self.stopping.add(number)
        self.signal(number, signal.SIGTERM)

    def terms(self):
        """Return nothing: a cluster has no terms."""
        return {}

    def tenants_of(self, number, count=3):
        """Return tenants that no call has returned before, whose shards a node has."""
        shards = set(self.shards_of(number))
        self._calls += 1
        names = (f"t{self._calls}-{index}" for index in range(10_000))
        found = []
        for name in names:
            if shard_of("default", name, self.shards) in shards:
                found.append(name)
                if len(found) == count:
                    break
        return found


def post(server, path, body, tenant="t", seconds=30.0, *, method="POST", **headers):
    """Return status, parsed body and headers of an answer."""
    connection = server.connect(seconds)
    with contextlib.closing(connection):
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(
            method,
            path,
            json.dumps(body),
            {"Content-Type": "application/json", "X-Tenant-ID": tenant, **named},
        )
        answer = connection.getresponse()
        text = answer.read()
        is_json = answer.headers.get_content_type() == "application/json"
        return answer.status, json.loads(text) if is_json else text.decode(), answer.headers


def _address(url):
    parts = urlsplit(url)
    return parts.hostname or "127.0.0.1", parts.port or 5432


def _through(url, proxy):
    parts = urlsplit(url)
    user = f"{parts.username or 'root'}" + (f":{parts.password}" if parts.password else "")
    address = urlsplit(proxy.url)
    return parts._replace(netloc=f"{user}@127.0.0.1:{address.port}").geturl()
