"""The example scenario on one node, whose recorded responses are the OpenAPI examples.

`record` runs it on a fresh application with a fixed clock; `docs/generate.py` writes the result to
`examples.json`, and a test fails when that file is out of date. A new route
needs a step here, or an `example` in its record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flask import Flask
from werkzeug.test import Client

from kbcore.clock import ManualClock
from kbcore.config.settings import Config
from kbcore.errors import (
    BudgetExceeded,
    Forbidden,
    LogTruncated,
    ModelFailed,
    ModelNotConfigured,
    NotReady,
    RateLimited,
    StorageFull,
    TooLarge,
    Unauthorized,
)
from kbcore.node.opening import open_runtime
from kbserver.answers import JSON
from kbserver.app import create_app
from kbserver.errors import UNEXPECTED, UnsupportedMedia, answer_of
from kbserver.operations import operations
from scenarios.cluster import play_cluster
from scenarios.prepared_model import QUESTION, TEXT, Prepared
from scenarios.two_nodes import play_nodes

NOW = 1_767_225_600_000
"""The time of the scenario: 2026-01-01, 00:00 UTC, in epoch milliseconds."""

OCTETS, NO_CONTENT = "application/octet-stream", 204
"""The media type and the status of responses that make no example: binary data and nothing."""

TOKEN = "the-token-of-the-first-start"
CONFIG = Config(
    storage_backend="memory",
    auth_enabled=True,
    bootstrap_token=TOKEN,
    receipt_key_file=str(Path(__file__).with_name("receipt.key")),
)
"""A node with authentication: the scenario creates the first key and sends it from then on."""

Step = tuple[str, str, Any]

FAMILY = (
    "ancestor(?x, ?y) :- parent(?x, ?y).\nancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."
)
ACCESS = "@module access.\nmay_enter(?who) :- level(?who, ?level), ?level >= 3.\nlevel(bob, 3)."
_ACCESS = {"_path": {"name": "access"}}
_ANN = {"predicate": "parent", "args": ["ann", "bob"]}
_WHO = {"predicate": "ancestor", "args": ["ann", "?who"]}

_LIKES = {
    "predicate": "likes",
    "args": ["bob", "tea"],
    "evidence": [{"episode": "m-1", "start": 0, "end": 14}],
}

STEPS: tuple[Step, ...] = (
    ("GET", "/", None),
    ("GET", "/health", None),
    ("GET", "/health/ready", None),
    ("GET", "/auth/status", None),
    ("POST", "/auth/bootstrap", {"name": "operator", "token": TOKEN}),
    ("GET", "/auth/whoami", None),
    ("GET", "/auth/keys", None),
    (
        "POST",
        "/auth/keys",
        {"name": "agent", "role": "writer", "databases": ["default"], "tenants": ["demo"]},
    ),
    ("POST", "/auth/keys/{id}/rotate", {}),
    ("DELETE", "/auth/keys/{id}", {}),
    ("POST", "/assert/fact", _ANN),
    (
        "POST",
        "/assert/facts",
        {"facts": [{"predicate": "parent", "args": ["bob", name]} for name in ("cid", "dee")]},
    ),
    ("POST", "/assert/rule", {"text": FAMILY}),
    ("POST", "/check", {"text": "uncle(?x, ?z) :- brother(?x, ?y), parrent(?y, ?w)."}),
    ("GET", "/rules", None),
    ("POST", "/infer", _WHO),
    ("POST", "/explain", {"text": "ancestor(ann, cid)"}),
    ("POST", "/query", {"predicate": "parent", "args": ["bob", "?child"]}),
    ("POST", "/neighbours", {"constant": "bob", "limit": 10}),
    ("POST", "/aggregate", {"predicate": "parent", "op": "COUNT"}),
    ("GET", "/predicates", None),
    ("GET", "/goals/slow", None),
    ("POST", "/goals/subscribe", {"goal": "ancestor(ann, ?who)", "id": "family"}),
    ("GET", "/goals", None),
    ("POST", "/tell", {"text": "parent(dee, gil)"}),
    ("GET", "/goals/{id}/changes", {"id": "family", "_query": "since={eventId}"}),
    ("GET", "/goals/{id}", {"id": "family"}),
    ("GET", "/goals/{id}/events", {"id": "family"}),
    ("DELETE", "/goals/{id}", {"id": "family"}),
    ("POST", "/preview", {"tell": "parent(cid, fay).", "forget": ["parent(ann, bob)"]}),
    ("POST", "/execute", {"command": "parent(cid, eve).\n?- ancestor(bob, ?who)."}),
    ("POST", "/memory/priority", {**_ANN, "priority": 0.9}),
    ("POST", "/memory/query/salient", {"predicate": "parent", "limit": 1}),
    (
        "POST",
        "/memory/query/temporal",
        {"predicate": "parent", "args": ["ann", None], "timestamp": NOW},
    ),
    ("POST", "/memory/consolidate", {"minGroupSize": 2, "dryRun": True}),
    ("POST", "/memory/decay", {"threshold": 0.05}),
    (
        "POST",
        "/memory/add",
        {"messages": [{"role": "user", "content": "I moved to Berlin."}], "session": "s1"},
    ),
    ("POST", "/memory/search", {"question": "Who moved to Berlin?", "maxTokens": 200}),
    ("POST", "/memory/update", {"fact": "lives_in(mia, Berlin)", "since": "2026-11-13"}),
    ("GET", "/memory/facts", None),
    ("POST", "/memory/forget", {"about": "lives_in(mia, ?where)"}),
    ("POST", "/episodes", {"speaker": "ann", "text": "Bob likes tea.", "id": "m-1"}),
    ("POST", "/episodes", {"speaker": "ann", "text": "Bob likes tea.", "id": "m-1"}),
    ("GET", "/episodes", None),
    ("POST", "/tell", _LIKES),
    ("GET", "/episodes/{id}", {"id": "m-1"}),
    (
        "POST",
        "/memory/correct",
        {"old": "likes(bob, tea)", "new": "likes(bob, coffee)", "reason": "Bob said so."},
    ),
    ("POST", "/memory/purge", {"episode": "m-1", "dryRun": True}),
    ("POST", "/memory/purge", {"episode": "m-1"}),
    ("GET", "/memory/purges", None),
    ("POST", "/memory/context", {"maxFacts": 2, "goals": [_WHO], "sessionId": "chat-1"}),
    (
        "POST",
        "/memory/context",
        {"query": "which allergies", "minCoverage": 0.5, "format": "facts"},
    ),
    ("POST", "/context/diff", {"sessionId": "chat-1"}),
    ("POST", "/context/session/clear", {"sessionId": "chat-1"}),
    ("POST", "/context/ingest", {"text": "likes(ann, tea).", "maxFacts": 1}),
    ("POST", "/context", {"turns": ["likes(bob, tea)."], "maxFacts": 1}),
    ("POST", "/extract", {"text": TEXT, "assert": True}),
    ("POST", "/synthesize", {"question": QUESTION}),
    ("POST", "/context/summary", {}),
    ("GET", "/memory/events", None),
    ("POST", "/scope/fork", {"targetScope": "draft"}),
    ("POST", "/scope/diff", {"sourceScope": None, "targetScope": "draft"}),
    ("POST", "/scope/merge", {"sourceScope": "draft", "strategy": "TARGET_WINS"}),
    ("GET", "/scopes", None),
    ("DELETE", "/scope/{name}", {"name": "draft"}),
    ("PUT", "/rulesets/{name}", {**_ACCESS, "text": ACCESS, "expectedVersion": 0}),
    ("PUT", "/rulesets/{name}", {**_ACCESS, "text": ACCESS.replace(">= 3", ">= 2")}),
    ("GET", "/rulesets", None),
    ("GET", "/rulesets/{name}", {"name": "access"}),
    ("GET", "/rulesets/{name}/versions", {"name": "access"}),
    ("GET", "/rulesets/{name}/diff", {"name": "access", "_query": "from=1&to=2"}),
    ("POST", "/rulesets/{name}/rollback", {"message": "Too many.", **_ACCESS}),
    ("POST", "/tx/begin", {}),
    ("POST", "/tx/commit/{id}", {}),
    ("POST", "/tx/begin", {}),
    ("POST", "/tx/rollback/{id}", {}),
    (
        "POST",
        "/retract/rule",
        {"head": _WHO | {"args": ["?x", "?y"]}, "body": [_ANN | {"args": ["?x", "?y"]}]},
    ),
    ("POST", "/retract/pattern", {"predicate": "parent", "args": ["bob", None]}),
    ("POST", "/retract", _ANN),
    ("POST", "/admin/databases", {"name": "shop"}),
    ("POST", "/admin/databases/{name}/tenants", {"tenantId": "acme", "_path": {"name": "shop"}}),
    ("POST", "/admin/databases/{name}/tenants", {"tenantId": "acme", "_path": {"name": "shop"}}),
    ("POST", "/admin/snapshot", {}),
    ("GET", "/admin/databases", None),
    ("GET", "/admin/databases/{name}/tenants", {"name": "shop"}),
    (
        "POST",
        "/admin/databases/{name}/tenants/{tenant}/nuke",
        {"_path": {"name": "shop", "tenant": "acme"}},
    ),
    ("DELETE", "/admin/databases/{name}/tenants/{tenant}", {"name": "shop", "tenant": "acme"}),
    ("POST", "/admin/databases/{name}/nuke", {"_path": {"name": "shop"}}),
    ("DELETE", "/admin/databases/{name}", {"name": "shop"}),
    ("POST", "/tell", {"predicate": "parent", "args": ["ann", "?x"]}),
    ("POST", "/tx/commit/{id}", {"_path": {"id": "none"}}),
    ("POST", "/tx/commit/{id}", {}),
)
"""Method, path and body. What stands for `{...}` in a path is in the body of GET and DELETE, else
in its `_path`, else the last transaction or key.
"""

ERRORS = (
    Unauthorized("missing or unknown key"),
    Forbidden("this key may only read"),
    TooLarge(
        "a request body has at most 33554432 bytes", {"limit": "MAX_BODY_BYTES", "value": 33554432}
    ),
    BudgetExceeded("the goal took more than 5000 ms", "timeMs", 5000),
    RateLimited("too many long goals of this tenant are at work", 1.0),
    ModelNotConfigured(
        "nothing of the text is in predicate syntax, and no language model is configured"
    ),
    ModelFailed(
        "openai answered 503",
        {"provider": "openai", "model": "a-model", "reason": "error", "attempts": 3},
    ),
    NotReady("the server is stopping"),
    LogTruncated("records up to 4096 are no longer kept", {"first": 4097}),
    StorageFull("no room on the disk"),
    UnsupportedMedia("a body needs Content-Type: application/json", {"header": "Content-Type"}),
)
"""Errors that no step causes; their answers come from the table of errors."""


def listen(client: Client, address: str, headers: Mapping[str, str]) -> Any:
    """Read an event stream until its first event; return the text received."""
    answer = client.get(address, headers=headers, buffered=False)
    parts = answer.iter_encoded()
    received = [next(parts)]
    client.post("/tell", json={"predicate": "likes", "args": ["cid", "tea"]}, headers=headers)
    received.append(next(parts))
    answer.close()
    answer.set_data(b"".join(received))
    return answer


REFUSED = {
    ("POST /tell", 400),
    ("POST /tx/commit/{id}", 404),
    ("POST /tx/commit/{id}", 409),
    ("GET /replication/log", 409),
    ("POST /tell", 409),
}
"""Requests that some steps send to show an error, with its status."""


def record() -> dict[str, Any]:
    """Run the scenario; return the examples of each operation and of each error status."""
    runtime = open_runtime(CONFIG, clock=ManualClock(NOW), llm=Prepared())
    try:
        return _examples(create_app(runtime))
    finally:
        runtime.close()


def play(app: Flask) -> list[tuple[str, str, Any, Any]]:
    """Run the scenario on an application; return method, path, body and answer of each step."""
    client, last, done = Client(app), "", []
    event_id = ""
    headers = {"X-Tenant-ID": "demo"}
    for method, path, arguments in (*STEPS, *_examples_of_records()):
        body = dict(arguments) if isinstance(arguments, dict) else None
        path_values: Mapping[str, str] = (
            body.pop("_path", {}) if body and method in ("POST", "PUT") else body or {}
        )
        if method not in ("POST", "PUT"):
            body = None
        address = path
        if "_query" in path_values:
            address += "?" + path_values["_query"]
        for name, value in {"id": last, "eventId": event_id, **path_values}.items():
            address = address.replace(f"{{{name}}}", str(value))
        if path.endswith("/events"):
            answer = listen(client, address, headers)
        else:
            answer = client.open(address, method=method, json=body, headers=headers)
        if path == "/tx/begin":
            last = answer.text
        if path == "/goals/subscribe":
            event_id = answer.get_json()["eventId"]
        if path.startswith("/auth/") and "key" in (new_key := answer.get_json()):
            last = new_key["id"]
            headers.setdefault("Authorization", f"Bearer {new_key['key']}")
        done.append((method, path, body, answer))
    return done


def _examples_of_records() -> list[Step]:
    """Return a step for each operation whose record has an example."""
    return [
        ("POST", declared.routes[0].removeprefix("POST "), declared.example)
        for declared in operations()
        if declared.example is not None
    ]


def _examples(app: Flask) -> dict[str, Any]:
    by_operation: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    for method, path, body, answer in [*play(app), *play_nodes(NOW), *play_cluster(NOW)]:
        media, status = answer.mimetype, str(answer.status_code)
        if media == OCTETS or answer.status_code == NO_CONTENT:
            continue
        content = _stable(answer.get_json() if media == JSON else answer.text)
        if answer.status_code >= 400:
            if (f"{method} {path}", answer.status_code) not in REFUSED:
                raise RuntimeError(f"{method} {path} is an example and failed: {answer.text}")
            errors.setdefault(status, content)
            continue
        known = by_operation.setdefault(f"{method} {path}", {"answers": {}})
        if body is not None:
            known.setdefault("request", body)
        known["answers"].setdefault(status, {}).setdefault(media, content)
    for error in (*map(answer_of, ERRORS), UNEXPECTED):
        shape = {"code": error.code, "message": error.message, "details": error.details}
        errors.setdefault(str(error.status), shape)
    return {"operations": by_operation, "errors": errors}


DIGEST, SIGNATURE = "5f0c1d7e9a3b4c2d" * 4, "Xwwdfpo7TC0" * 7 + "Xwwdfpo7A"
"""A digest and a signature in examples: those of a receipt are different each time."""


def _stable(value: Any) -> Any:
    """Replace random values by fixed ones."""
    if isinstance(value, str):
        value = re.sub(
            r"\bkb_[0-9a-f]+_[0-9a-f]+\b", "kb_0123456789abcdef_" + "5f0c1d7e9a3b4c2d" * 4, value
        )
        value = re.sub(r"\bkb_[0-9a-f]+\b(?!_)", "kb_0123456789abcdef", value)
        value = re.sub(r"^[0-9a-f]{8,16}$", "0123456789abcdef", value)
        value = re.sub(r"\b[0-9a-f]{32}\b", "5f0c1d7e9a3b4c2d8e6f7a1b2c3d4e5f", value)
        value = re.sub(r"\b[0-9a-f]{8}\.([0-9]+(\.[0-9]+)?)\b", r"0f1e2d3c.\1", value)
        value = re.sub(r"\bpurge-[0-9a-f]{16}\b", "purge-0123456789abcdef", value)
        value = re.sub(r'"key":"[0-9a-f]{16}"', '"key":"0123456789abcdef"', value)
        value = re.sub(r'"salt":"[^"]{16}"', '"salt":"5f0c1d7e9a3b4c2d"', value)
        return re.sub(r"\bctx-[0-9a-f]{16}\b", "ctx-0123456789abcdef", value)
    if isinstance(value, dict) and value.keys() == {"receipt", "signature"}:
        receipt = value["receipt"]
        chain = json.loads(re.sub(r"\b[0-9a-f]{64}\b", DIGEST, json.dumps(receipt["chain"])))
        return {"receipt": {**_stable(receipt), "chain": chain}, "signature": SIGNATURE}
    if isinstance(value, dict):
        return {key: _stable(below) for key, below in value.items()}
    return [_stable(below) for below in value] if isinstance(value, list) else value
