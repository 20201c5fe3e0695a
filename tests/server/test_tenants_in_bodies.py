"""Requests that name their tenant in the body reach the process that owns it."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from support.nodes import Nodes
from support.servers import Server
from support.workers import SHARDS, tenants_of

API_KEY = "one-key-0123456789abcdef"
LIMIT = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = {
        "STORAGE_SHARDS": str(SHARDS),
        "API_KEY": API_KEY,
        "MAX_BODY_BYTES": str(LIMIT),
        "LOG_LEVEL": "WARN",
    }
    folder = tmp_path_factory.mktemp("bodies")
    with Server(folder / "data", "--workers", "2", **settings) as running:
        yield running


def message(tenant: str, *parts: dict[str, Any], padding: int = 0) -> dict[str, Any]:
    """A message to the agent for a tenant, which stands after the parts."""
    sent = {"messageId": "m" + "x" * padding, "role": "ROLE_USER", "parts": list(parts)}
    params = {"message": sent, "tenant": tenant}
    return {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params}


def send(
    server: Server, body: Any, *, chunked: bool = False, method: str = "POST", **headers: str
) -> Any:
    """The status and the parsed answer of a message, over a connection of its own."""
    connection = server.connect()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}", **named}
    data = json.dumps(body).encode()
    parts = (data[start : start + 9000] for start in range(0, len(data), 9000))
    connection.request(method, "/a2a", parts if chunked else data, named, encode_chunked=chunked)
    answer = connection.getresponse()
    status, text = answer.status, answer.read()
    connection.close()
    return status, json.loads(text)


def told(answer: Any) -> Any:
    return answer[1]["result"]["message"]["parts"][0]["data"]


@pytest.mark.parametrize("padding", [0, 100_000], ids=["small", "large"])
@pytest.mark.parametrize("chunked", [False, True], ids=["stated", "chunked"])
def test_a_message_reaches_the_tenant_of_its_parameters(server, padding, chunked) -> None:
    for _ in range(3):  # either worker accepts it
        for index in (0, 1):
            tenant = tenants_of(index)[0]
            tell = {"data": {"op": "tell", "predicate": "p", "args": [tenant]}}
            answer = send(server, message(tenant, tell, padding=padding), chunked=chunked)
            assert "result" in told(answer), answer
            query = {"data": {"op": "query", "predicate": "p", "args": ["?x"]}}
            # The header names a tenant of the other worker.
            header = {"X_Tenant_ID": tenants_of(1 - index)[0]}
            answer = send(server, message(tenant, query), **header)
            result = told(answer)["result"]
            assert (result["count"], json.dumps(tenant) in json.dumps(result)) == (1, True)


def test_a_message_whose_method_is_in_lower_case_reaches_its_tenant(server) -> None:
    for _ in range(3):
        for tenant in (tenants_of(0)[0], tenants_of(1)[0]):
            tell = {"data": {"op": "tell", "predicate": "lower", "args": [tenant]}}
            assert "result" in told(send(server, message(tenant, tell), method="post"))


def test_messages_on_one_connection_change_between_tenants(server) -> None:
    connection = server.connect()
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {API_KEY}"}
    for number in range(12):
        tenant = tenants_of(number % 3 % 2)[1]
        tell = {"data": {"op": "tell", "predicate": "n", "args": [number]}}
        connection.request("POST", "/a2a", json.dumps(message(tenant, tell)), headers)
        answer = connection.getresponse()
        assert "result" in told((answer.status, json.loads(answer.read())))
    connection.close()


@pytest.mark.parametrize(
    "body",
    [
        [],
        "text",
        None,
        {"params": []},
        {"params": {"tenant": 7}},
        {"params": {"tenant": ""}},
        {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"tenant": "a b"}},
        {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"tenant": {"a": 1}}},
    ],
)
def test_a_wrong_message_gets_an_answer(server, body) -> None:
    status, answer = send(server, body)
    assert (status, answer["jsonrpc"]) == (200, "2.0")
    assert answer["error"]["code"] in (-32600, -32601, -32602)


@pytest.mark.parametrize("path", ["/a2a", "/admin/databases/default/tenants"])
def test_the_body_of_a_client_without_a_key_is_not_read(server, path) -> None:
    for key in ("", "Authorization: Bearer wrong\r\n"):
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{key}"
        head += "Transfer-Encoding: chunked\r\n\r\n5\r\n[1,2,\r\n"  # the rest never comes
        with socket.create_connection(server.address, timeout=60) as sock:
            sock.sendall(head.encode())
            assert sock.recv(65536).startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("path", ["/a2a", "/admin/databases/default/tenants"])
def test_a_body_has_the_limit_of_other_bodies(server, path) -> None:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    head += f"Authorization: Bearer {API_KEY}\r\n"
    chunk = b"%x\r\n%b\r\n" % (2 * LIMIT, b" " * 2 * LIMIT)
    for framing, body in (
        (f"Content-Length: {LIMIT + 1}", b""),
        ("Transfer-Encoding: chunked", chunk),
    ):
        with socket.create_connection(server.address, timeout=60) as sock:
            sock.sendall(f"{head}{framing}\r\n\r\n".encode() + body)
            assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_what_is_read_early_is_counted_until_the_answer(server) -> None:
    """No byte of the bodies of answered requests counts any more."""
    for index in (0, 1):
        tell = {"data": {"op": "tell", "predicate": "p", "args": ["a"]}}
        send(server, message(tenants_of(index)[2], tell, padding=200_000))
    connection = server.connect()
    connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {API_KEY}"})
    text = connection.getresponse().read().decode()
    connection.close()
    counted = [line for line in text.splitlines() if line.startswith("svc_http_body_bytes")]
    assert len(counted) == 2
    assert all(float(line.rsplit(" ", 1)[1]) == 0 for line in counted), counted


def test_a_message_reaches_a_tenant_of_another_node(tmp_path, postgres_url) -> None:
    settings = {"API_KEY": API_KEY, "AUTH_ENABLED": "", "CLUSTER_TTL_MS": "5000"}
    with Nodes(tmp_path, postgres_url, 2, **settings) as running:
        running.headers = {"X_API_Key": API_KEY}
        running.settled()
        node = running.nodes[0]
        tenants = [f"t{number}" for number in range(12)]
        for tenant in tenants:
            for asked in running.nodes:
                tell = {"data": {"op": "tell", "predicate": "p", "args": [tenant]}}
                for padding in (0, 100_000):
                    answer = send(asked, message(tenant, tell, padding=padding))
                    assert "result" in told(answer), answer
        for tenant in tenants:
            query = {"data": {"op": "query", "predicate": "p", "args": ["?x"]}}
            answer = send(node, message(tenant, query))
            result = told(answer)["result"]
            assert (result["count"], json.dumps(tenant) in json.dumps(result)) == (1, True)
