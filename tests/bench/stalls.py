"""Stalls: the longest wait of another tenant's request while one request with a hostile body is
served.

Each field of each route that takes a text or a list is filled up to the largest body that the route
allows.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from http_routes import HOST, Server
from measure import Effort, Sample
from table import Row

from kbcore.config.settings import Config
from kbserver.operations import operations

MAX_WAIT_SECONDS = 0.05
"""The aim on an idle machine."""

MAX_CPU_SECONDS = 1.0
"""The aim for `/teach` of 2,000 rules."""

CPU_ROW = "cpu: /teach"

TIMEOUT_MS = 5000
"""Requests that read longer than this are refused: it bounds the benchmark, not the waits."""

MAX_BULK_FACTS = 100_000

RULE_FIELDS = (
    ("/check", "text"),
    ("/execute", "command"),
    ("/preview", "teach"),
    ("/assert/rule", "text"),
    ("/context/ingest", "text"),
)
"""Fields that take rules."""

FACT = {"predicate": "likes", "args": ["ann12345", "bob54321"]}

LISTS: dict[str, Any] = {
    "Elements": FACT,
    "Goals": "likes(ann12345, ?x)",
    "TextOrElements": "likes(ann12345, bob54321)",
    "Arguments": "ann12345",
    "PatternArguments": "ann12345",
    "Predicates": "likes",
    "Literals": {"predicate": "q", "args": ["?x"]},
    "EvidenceSpans": {"episode": "ep-1"},
    "Value": "likes(ann12345, bob54321)",
}
"""An element for each kind of field that takes a list."""

ELEMENTS = {
    "facts": b'{"predicate":"likes","args":["ann12345","bob54321"]}',
    "arrays": b"[]",
    "numbers": b"1",
    "floats": b"1e20",
    "deep arrays": b"[" * 60 + b"]" * 60,
}
"""Elements of JSON arrays that take long to parse."""


def stalls(effort: Effort, peers: Any) -> Iterator[Row]:
    """The longest of the waits for `/health`, for each route and shape of body."""
    text_bytes, bulk_bytes = Config().max_text_body_bytes, Config().max_body_bytes
    rules = 2000
    if effort.small:
        text_bytes, bulk_bytes, rules = 50_000, 200_000, 100
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(Server(folder, env={"QUERY_TIMEOUT_MS": str(TIMEOUT_MS)})) as server,
    ):
        if effort.rows in CPU_ROW:
            yield _cpu(server, _rules(rules))
        for number, (path, shape, body) in enumerate(_bodies(text_bytes, bulk_bytes, rules)):
            name = f"stall: {path} {shape}"
            if effort.rows in name:
                yield _row(server.port, f"stalls{number}", name, path, body)
        for operation in "fork", "diff", "merge", "drop":
            name = f"stall: {operation} of a scope"
            if effort.rows in name:
                yield _scope_row(server.port, name, operation, effort.pick(100_000, 1000))


def _bodies(text_bytes: int, bulk_bytes: int, rules: int) -> Iterator[tuple[str, str, bytes]]:
    """Yield paths, names of shapes, and bodies."""
    for path, field in RULE_FIELDS:
        text = _rules(rules)
        yield path, f"{field}: {rules} rules", json.dumps({field: text}).encode()
    for path, field, kind, is_bulk in _fields():
        size = bulk_bytes if is_bulk else text_bytes
        if kind in LISTS:
            count = (size - 100) // (len(json.dumps(LISTS[kind])) + 2)
            count = min(count, MAX_BULK_FACTS) if is_bulk else count
            value: Any = [LISTS[kind]] * count
            yield path, f"{field}: list", json.dumps({"predicate": "q", field: value}).encode()
        else:
            for shape, text in _texts(size - 100, (path, field) in RULE_FIELDS):
                yield path, f"{field}: {shape}", json.dumps({field: text}).encode()
    for shape, text in _texts(text_bytes - 400, False):
        yield "/mcp", f"ingest: {shape}", _call_of("ingest", {"text": text})
        yield "/a2a", f"text: {shape}", _message_of(text)
    facts = [FACT] * ((text_bytes - 400) // (len(json.dumps(FACT)) + 2))
    yield "/mcp", "bulk_assert: facts", _call_of("bulk_assert", {"facts": facts})
    for path, most in ("/ask", text_bytes), ("/mcp", text_bytes), ("/assert/facts", bulk_bytes):
        for shape, element in ELEMENTS.items():
            count = (most - 20) // (len(element) + 1)
            body = b'{"facts":[%b]}' % b",".join([element] * count)
            yield path, f"json {shape}", body


def _fields() -> Iterator[tuple[str, str, str, bool]]:
    """Yield path, field, kind of field, and whether the body is a bulk, of all fields with texts
    and lists."""
    from kbserver.app import create_app  # noqa: F401 - declares all operations

    for each in operations():
        method, _, path = each.routes[0].partition(" ")
        if method != "POST" or each.body_reader is None or "<" in path:
            continue
        if path.startswith(("/admin", "/auth")):
            continue
        for key, (_, field) in each.body_reader._fields.items():
            kind = type(field).__name__
            if kind in LISTS or kind in ("Text", "AtomOrText"):
                yield path, key, kind, each.bulk


def _texts(size: int, with_rules: bool) -> Iterator[tuple[str, str]]:
    """Yield names and texts of `size` bytes as JSON."""
    yield "p(", "p(" * (size // 2)
    facts = "".join(f"likes(ann{number}, bob).\n" for number in range(size // 20))
    end = facts.rfind("\n", 0, size - facts.count("\n", 0, size)) + 1  # \n takes two bytes
    yield "facts", facts[:end]
    yield "lines", "\n" * (size // 2)
    if with_rules:
        rules = _rules(size // 25)
        yield "rules", rules[: rules.rfind("\n", 0, size - rules.count("\n", 0, size)) + 1]


def _rules(count: int) -> str:
    return "".join(f"h{number}(?x) :- q(?x, a{number}).\n" for number in range(count))


def _call_of(tool: str, arguments: Any) -> bytes:
    params = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    return json.dumps(message).encode()


def _message_of(text: str) -> bytes:
    message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}
    body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    return json.dumps(body).encode()


def _cpu(server: Server, rules: str) -> Row:
    """The CPU time of the server for `/teach`, everything included."""
    before = server.cpu_seconds()
    status = _call(server.port, "POST", "/teach", json.dumps({"text": rules}).encode(), "cpu")
    if status != 200:
        raise RuntimeError(f"/teach was answered with {status}")
    seconds = server.cpu_seconds() - before
    size = f"{rules.count(chr(10))} rules"
    return Row(CPU_ROW, size, 1, Sample(seconds), floor="1 s", met=seconds < MAX_CPU_SECONDS)


def _scope_row(port: int, name: str, operation: str, count: int) -> Row:
    """Fork, compare, merge or drop a scope with `count` facts that end and have metadata."""
    tenant = f"stalls-{operation}"
    for scope, facts in ("s", count), ("u", count // 2 if operation in ("diff", "merge") else 0):
        for start in range(0, facts, FACTS_OF_A_BODY):
            elements = [
                {
                    **FACT,
                    "args": [f"a{n}", "b"],
                    "scope": scope,
                    "ttl": 10**9,
                    "metadata": {"in": scope},
                }
                for n in range(start, min(start + FACTS_OF_A_BODY, facts))
            ]
            body = json.dumps({"facts": elements}).encode()
            status = _call(port, "POST", "/assert/facts", body, tenant)
            if status != 200:
                raise RuntimeError(f"/assert/facts was answered with {status}")
    scopes = {"sourceScope": "s", "targetScope": "u"}
    if operation == "drop":
        return _row(port, tenant, name, "/scope/s", b"{}", "DELETE")
    return _row(port, tenant, name, f"/scope/{operation}", json.dumps(scopes).encode())


FACTS_OF_A_BODY = 20_000


def _row(port: int, tenant: str, name: str, path: str, body: bytes, method: str = "POST") -> Row:
    waits, status = _waits(port, tenant, path, body, method)
    longest = max(waits)
    return Row(
        name,
        f"{len(body)} bytes, {status}",
        len(waits),
        Sample(longest),
        floor="50 ms",
        met=longest < MAX_WAIT_SECONDS,
    )


def _waits(port: int, tenant: str, path: str, body: bytes, method: str) -> tuple[list[float], int]:
    """Return the seconds of each request for `/health` while another one is served, and the status
    of that.

    A process of its own measures: the thread that sends a large body would hold it up.
    """
    context = multiprocessing.get_context("fork")
    ended, results = context.Event(), context.SimpleQueue()
    prober = context.Process(target=_probe, args=(port, ended, results))
    prober.start()
    results.get()
    try:
        status = _call(port, method, path, body, tenant)
    finally:
        ended.set()
        waits = results.get()
        prober.join()
    return waits, status


def _probe(port: int, ended: Any, results: Any) -> None:
    """Ask for `/health` until `ended` is set; send a sign after the first answer, then the
    seconds of each.
    """
    waits: list[float] = []
    while not ended.is_set() or not waits:
        began = time.perf_counter()
        _call(port, "GET", "/health", None, "other")
        waits.append(time.perf_counter() - began)
        if len(waits) == 1:
            results.put(None)
    results.put(waits[1:] or waits)


def _call(port: int, method: str, path: str, body: bytes | None, tenant: str) -> int:
    """Send a request and read the answer; return its status."""
    connection = http.client.HTTPConnection(HOST, port, timeout=120)
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "X-Tenant-ID": tenant,
    }
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status
