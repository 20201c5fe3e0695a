"""The OpenAPI document: complete, valid, and in agreement with real responses."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest
from flask import Flask
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate
from scenarios.prepared_model import Prepared
from scenarios.single_node import CONFIG, NOW, OCTETS, play, record
from scenarios.two_nodes import play_nodes
from support.http import Served, error_of

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbserver import create_app
from kbserver.answers import JSON
from kbserver.openapi.document import document, operation_id, routes
from kbserver.operations import need_of, operation_at
from kbserver.security.permissions import PUBLIC
from kbtypes.errors import STATUS

UNLISTED = {
    ("/context/optimize", "POST"),
    ("/favicon.ico", "GET"),
    ("/console", "GET"),
    ("/console/", "GET"),
    ("/console/{name}", "GET"),
    ("/mcp", "POST"),
    ("/mcp", "GET"),
    ("/mcp", "DELETE"),
    ("/mcp/sse", "GET"),
    ("/mcp/messages", "POST"),
    ("/a2a", "POST"),
}
"""Past its sunset; for browsers; and what speaks protocols that have descriptions of their own."""

CARDS = {"/.well-known/agent.json", "/.well-known/agent-card.json"}
NODES = {"/replication/log", "/replication/snapshot"}
"""Answered in bytes, for other nodes."""

WITHOUT_EXAMPLE = (
    {"/admin/backup", "/metrics", "/openapi.json", "/docs", "/docs/{name}", "/llms.txt"}
    | {"/.well-known/kbcore-receipt-key"}
    | CARDS
    | NODES
    | {f"/.well-known/oauth-protected-resource{path}" for path in ("", "/mcp")}
)


@pytest.fixture
def app():
    runtime = open_runtime(Config(storage_backend="memory"), clock=ManualClock(NOW), llm=Prepared())
    yield create_app(runtime)
    runtime.close()


@pytest.fixture
def keyed():
    runtime = open_runtime(CONFIG, clock=ManualClock(NOW), llm=Prepared())
    yield create_app(runtime)
    runtime.close()


@pytest.fixture
def spec(app):
    return json.loads(json.dumps(document(app)))


def operations(spec):
    return {
        (path, method.upper()): one
        for path, methods in spec["paths"].items()
        for method, one in methods.items()
    }


def closed(value):
    """The same schemas where an object has no keys but those it names."""
    if isinstance(value, dict):
        found = {key: closed(below) for key, below in value.items()}
        if "properties" in found and "type" in found:
            found.setdefault("additionalProperties", False)
        return found
    return [closed(below) for below in value] if isinstance(value, list) else value


def check(spec, schema, value):
    schema = copy.deepcopy(schema) | {"components": spec["components"]}
    Draft202012Validator(schema).validate(value)


def test_every_route_is_in_the_document_and_no_other(app: Flask, spec):
    there = {(path, method) for path, method, _ in routes(app)}
    silent = [
        path for path, method, template in routes(app) if operation_at(method, template) is None
    ]
    assert silent == [], (
        "these routes do not say what they are: put @operation(...) above their functions"
    )
    assert set(operations(spec)) == there - UNLISTED
    assert there >= UNLISTED


def test_the_document_is_valid(spec):
    validate(spec)
    assert spec["openapi"] == "3.1.0"


def test_roles_are_in_the_document(spec):
    known = operations(spec)
    assert known["/health", "GET"]["security"] == []
    assert {"bearer": []} in known["/tell", "POST"]["security"]
    assert set(spec["components"]["securitySchemes"]) == {"bearer", "header"}
    for (path, method), one in known.items():
        template = re.sub(r"{(\w+)}", r"<\1>", path)
        declared = operation_at(method, template)
        need = need_of(method, template)
        role = need.role
        if declared is not None and declared.dry_runs:  # without `dryRun` the view demands more
            role = declared.role
        assert one["x-role"] == role, path
        said, itself = set(one["responses"]), {"401", "403"} if path == "/auth/bootstrap" else set()
        assert said & {"401", "403"} == (itself if need.role == PUBLIC else {"401", "403"}), path
        assert ("429" in said) == (need.role != PUBLIC or need.counted), path


@pytest.mark.parametrize("key", ["", "kb_nobody_nothing"])
def test_public_routes_accept_missing_and_wrong_keys(key):
    clock = ManualClock(NOW)
    tokens = {"oauth_issuer": "https://id.example", "public_url": "https://kb.example"}
    runtime = open_runtime(replace(CONFIG, rate_limit_address=(1, 60), **tokens), clock=clock)
    try:
        client = create_app(runtime).test_client()
        for path, method, _ in routes(client.application):
            need = need_of(method, path)
            if need.role == PUBLIC and method == "GET":
                answers = [
                    client.get(path, headers={"X-API-Key": key} if key else {}).status_code
                    for _ in range(2)
                ]
                assert answers[0] in (200, 204, 308), path
                assert answers[1] == (429 if need.counted else answers[0]), path
                clock.advance(60_000)
    finally:
        runtime.close()


def test_the_favicon_is_an_empty_response(keyed):
    found = keyed.test_client().get("/favicon.ico")
    assert (found.status_code, found.data, found.headers["Cache-Control"]) == (
        204,
        b"",
        "public, max-age=86400",
    )
    assert "Content-Type" not in found.headers


def test_operation_ids_are_unique(spec):
    names = [one["operationId"] for one in operations(spec).values()]
    assert len(names) == len(set(names))
    assert operation_id("/assert/fact", "POST") == "assertFact"
    assert operation_id("/admin/databases/{name}", "DELETE") == "deleteAdminDatabasesName"


def test_every_component_is_used_and_defined(spec):
    told = json.dumps(spec)
    used = set(re.findall(r'"#/components/(\w+)/([^"]+)"', told))
    for kind in ("schemas", "parameters", "responses", "headers"):
        known = set(spec["components"].get(kind, {}))
        assert {name for found, name in used if found == kind} <= known, kind
    assert set(spec["components"]["schemas"]) == {name for kind, name in used if kind == "schemas"}


def test_every_operation_has_request_and_response_examples(spec):
    missing = []
    for (path, method), one in operations(spec).items():
        if path in WITHOUT_EXAMPLE:
            continue
        if "requestBody" in one and "example" not in one["requestBody"]["content"][JSON]:
            missing.append(f"{method} {path}: body")
        good = [answer for status, answer in one["responses"].items() if status < "300"]
        if not any("example" in shown for answer in good for shown in answer["content"].values()):
            missing.append(f"{method} {path}: answer")
    assert missing == [], (
        "give them a step in docs/scenarios/single_node.py, then run python docs/generate.py"
    )


def test_every_error_status_has_an_example(spec):
    for name, answer in spec["components"]["responses"].items():
        shown = answer["content"][JSON]
        codes = spec["components"]["schemas"][name]["properties"]["code"]["enum"]
        assert {STATUS[code] for code in codes} == {int(name.removeprefix("Error"))} or name in (
            "Error410",
            "Error415",
        )
        check(spec, shown["schema"], shown["example"])


def test_request_examples_match_the_schemas(spec):
    for one in operations(spec).values():
        if "requestBody" in one:
            shown = one["requestBody"]["content"][JSON]
            check(closed(spec), closed(shown["schema"]), shown["example"])


BODIES = [
    ("/teach", {}, False),
    ("/teach", {"text": "p(a)."}, True),
    ("/teach", {"text": None}, False),
    ("/teach", {"head": {"predicate": "p", "args": ["?x"]}}, False),
    ("/teach", {"text": "p(a).", "body": [{"predicate": "q", "args": ["?x"]}]}, False),
    ("/retract/rule", {}, False),
    ("/explain", {"predicate": "p"}, False),
    ("/explain", {"text": "p(?x)"}, True),
    ("/aggregate", {"predicate": "p", "op": None}, False),
    ("/scope/fork", {"sourceScope": "a"}, False),
    ("/scope/fork", {"target": "b"}, True),
    ("/scope/diff", {}, False),
    ("/scope/merge", {"strategy": "SOURCE_WINS"}, False),
    ("/scope/diff", {"scopeA": None, "scopeB": "b"}, True),
    ("/admin/databases/{name}/tenants", {}, False),
]


@pytest.mark.parametrize(("path", "body", "sound"), BODIES)
def test_required_fields_are_in_the_schema(app, spec, path, body, sound):
    """Where one of several keys is required, the schema and the server agree on it."""
    told = spec["paths"][path]["post"]["requestBody"]
    known = Draft202012Validator(
        told["content"][JSON]["schema"] | {"components": spec["components"]}
    )
    assert known.is_valid(body) is sound
    assert told["required"]
    answer = app.test_client().post(
        path.replace("{name}", "default"), json=body, headers={"X-Tenant-ID": "t"}
    )
    assert (answer.status_code != 400) is sound, answer.text


def test_real_responses_match_the_schemas(keyed, spec):
    strict = closed(spec)
    known = operations(spec)
    for method, path, _, answer in [*play(keyed), *play_nodes(NOW)]:
        described = known[path, method]["responses"].get(str(answer.status_code))
        assert described is not None, (method, path, answer.status_code)
        if "$ref" in described:
            described = spec["components"]["responses"][described["$ref"].split("/")[-1]]
        if answer.status_code != 204 and answer.mimetype != OCTETS:
            shown = described["content"][answer.mimetype]
            check(
                strict,
                closed(shown["schema"]),
                answer.get_json() if answer.mimetype == JSON else answer.text,
            )
        for header in set(answer.headers.keys()) - {"Content-Type", "Content-Length"}:
            assert header in described["headers"], (path, header)


def test_examples_match_real_responses():
    kept = json.loads((files("kbserver.openapi") / "examples.json").read_text(encoding="utf-8"))
    assert kept == json.loads(json.dumps(record())), "run python docs/generate.py"


PROOFS = [{"withProof": True}, {"withProof": True, "proofFormat": "dag"}, {}]


@pytest.mark.parametrize("more", PROOFS)
def test_answers_and_proofs_of_every_form(app, spec, more):
    play_rules(app)
    body = {"predicate": "elder", "args": ["?x"], **more}
    found = app.test_client().post("/ask", json=body, headers={"X-Tenant-ID": "t"})
    shown = operations(spec)["/ask", "POST"]["responses"]["200"]["content"][JSON]
    assert found.get_json()
    check(closed(spec), closed(shown["schema"]), found.get_json())


@pytest.mark.parametrize(
    ("path", "body", "prefer"),
    [
        ("/retract", {"predicate": "age", "args": ["ann", "70"]}, "return=representation"),
        ("/explain", {"text": "elder(?x)", "plan": True, "format": "json"}, ""),
        ("/explain", {"text": "elder(zoe)", "whyNot": True, "depth": 2}, ""),
        ("/memory/context", {"query": "ann", "explain": True, "format": "natural"}, ""),
        ("/memory/decay", {"threshold": 1, "dryRun": True}, ""),
    ],
)
def test_other_forms_of_responses(app, spec, path, body, prefer):
    play_rules(app)
    found = app.test_client().post(path, json=body, headers={"X-Tenant-ID": "t", "Prefer": prefer})
    described = operations(spec)[path, "POST"]["responses"]["200"]
    assert found.status_code == 200, found.text
    check(spec, described["content"][found.mimetype]["schema"], found.get_json())
    assert set(found.headers.keys()) - {"Content-Type", "Content-Length"} <= set(
        described["headers"]
    )


def play_rules(app):
    client = app.test_client()
    text = 'age(ann, 70). age(bob, 20). elder(?x) :- age(?x, ?n), ?n > 60, not age(?x, "71").'
    assert (
        client.post("/teach", json={"text": text}, headers={"X-Tenant-ID": "t"}).status_code == 200
    )


def test_the_document_is_public_and_answers_304(served: Served):
    first = served.app.test_client().get("/openapi.json")
    assert first.status_code == 200
    assert first.content_type == "application/json"
    tag = first.headers["ETag"]
    assert not tag.startswith("W/")
    again = served.app.test_client().get("/openapi.json", headers={"If-None-Match": tag})
    assert (again.status_code, again.data) == (304, b"")
    assert (
        served.app.test_client().get("/openapi.json", headers={"If-None-Match": '"other"'}).data
        == first.data
    )


def test_the_page_loads_nothing_external(served: Served):
    client = served.app.test_client()
    page = client.get("/docs")
    assert page.content_type == "text/html; charset=utf-8"
    assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
    assert not re.search(r"<script(?![^>]*src=)|<style|\son\w+=|style=", page.text)
    parts = re.findall(r'(?:src|href)="(docs/[^"]+)"', page.text)
    assert len(parts) == 2
    for part in parts:
        found = client.get("/" + part)
        assert found.status_code == 200
        assert "://" not in found.text
        assert "innerHTML" not in found.text
    error_of(client.get("/docs/other.js"), 404, "NOT_FOUND")
    error_of(client.get("/docs/..%2fapp.py"), 404, "NOT_FOUND")
