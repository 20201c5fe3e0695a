"""Nodes of a running cluster believe each other, and no client that poses as a node."""

from __future__ import annotations

import json
import os
import socket
from typing import Any

import pytest
from support.nodes import Nodes, post
from support.postgres import schema

from kbserver.cluster.signing import NODE, digest_of

TTL_MS = "5000"
"""No lease ends on a busy machine: the tests are not about that."""


@pytest.fixture(scope="module")
def pair(tmp_path_factory, postgres_server):
    with (
        schema(postgres_server) as url,
        Nodes(tmp_path_factory.mktemp("signed"), url, 2, CLUSTER_TTL_MS=TTL_MS) as running,
    ):
        running.settled()
        yield running


def raw(node, data: bytes) -> bytes:
    """Everything that a node answers to some bytes."""
    with socket.create_connection(node.address, timeout=60) as sock:
        sock.sendall(data)
        return b"".join(iter(lambda: sock.recv(65536), b""))


def request(method: str, target: str, *headers: str, body: bytes = b"") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: x", "X-Tenant-ID: t", "Connection: close"]
    lines += [*headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def directory(node) -> Any:
    connection = node.connect()
    connection.request("GET", "/admin/databases")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_unsigned_calls_over_tcp_are_unknown_paths_and_wrong_ones_unauthorized(pair) -> None:
    tenants = (*pair.tenants_of(0, 2), *pair.tenants_of(1, 2))
    for tenant in tenants:
        assert post(pair.nodes[0], "/tell", {"predicate": "p", "args": ["a"]}, tenant)[0] == 200
    before = directory(pair.nodes[0])
    forged = json.dumps(
        {"version": 1 << 40, "databases": [["default", 0, 1 << 50]], "keysUsed": True, "keys": []}
    ).encode()
    release = json.dumps({"shard": 0, "to": pair.name(1)}).encode()
    for node in pair.nodes:
        for prefix in ("/-/", "/%2d/", "/-%2f", "//-/", "/%252d/", "/x/../-/"):
            for method, name, body in (
                ("GET", "directory", b""),
                ("POST", "directory", forged),
                ("POST", "release", release),
                ("GET", "shards", b""),
                ("GET", "capture/0", b""),
            ):
                answer = raw(node, request(method, prefix + name, body=body))
                assert answer.startswith(b"HTTP/1.1 404 "), answer
                for value in ("", f"1:2:{digest_of(body)}:{'0' * 64}"):
                    answer = raw(
                        node, request(method, prefix + name, f"{NODE}: {value}", body=body)
                    )
                    assert answer.startswith(b"HTTP/1.1 401 "), answer
    assert directory(pair.nodes[0]) == before
    for tenant in tenants:
        _, rows, _ = post(pair.nodes[1], "/query", {"predicate": "p", "args": ["?x"]}, tenant)
        assert [row["args"] for row in rows] == [["a"]]


def test_bodies_of_every_size_pass_from_node_to_node(pair) -> None:
    for index in (0, 1):
        tenant = pair.tenants_of(1 - index, 1)[0]
        node = pair.nodes[index]
        for number, count in enumerate((1, 700, 2500)):
            facts = [{"predicate": f"b{number}", "args": [f"{n:060}"]} for n in range(count)]
            body = json.dumps({"facts": facts}).encode()
            chunk = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            for version, framing, data in (
                ("1.1", f"Content-Length: {len(body)}", body),
                ("1.0", f"Content-Length: {len(body)}", body),
                ("1.1", "Transfer-Encoding: chunked", chunk),
            ):
                head = f"POST /assert/facts HTTP/{version}\r\nHost: localhost\r\n"
                head += f"X-Tenant-ID: {tenant}\r\n{framing}"
                head += "\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"
                answer = raw(node, head.encode() + data)
                assert answer.startswith(b"HTTP/1.1 200 "), answer[:300]
            goal = {"predicate": f"b{number}", "args": ["?x"]}
            assert len(post(node, "/query", goal, tenant)[1]) == count
        size = 1 << 40
        head = f"POST /assert/facts HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: {tenant}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        with socket.create_connection(node.address, timeout=60) as sock:
            sock.sendall(head.encode())
            assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_a_recorded_request_is_not_carried_out_again(tmp_path, postgres_url) -> None:
    """Someone on the wire between two nodes repeats what he has seen, as it is and altered."""
    with Nodes(tmp_path, postgres_url, 2, links=True, CLUSTER_TTL_MS=TTL_MS) as running:
        running.settled()
        tenant = running.tenants_of(1, 1)[0]
        seen: list[bytes] = []
        running.proxies[1].record = seen.append
        fact = {"predicate": "p", "args": ["a"]}
        assert post(running.nodes[0], "/tell", fact, tenant)[0] == 200
        recorded = next(data for data in seen if data.startswith(b"POST /tell "))
        other = os.fsencode(tenant)
        for data in (
            recorded,
            recorded.replace(b'["a"]', b'["b"]'),
            recorded.replace(b"X-TENANT-ID: " + other, b"X-TENANT-ID: other"),
            recorded.replace(b"POST /tell ", b"POST /-/release "),
        ):
            for node in running.nodes:
                answer = raw(node, data)
                assert answer.startswith(b"HTTP/1.1 401 "), answer
        goal = {"predicate": "p", "args": ["?x"]}
        assert [row["args"] for row in post(running.nodes[0], "/query", goal, tenant)[1]] == [["a"]]
