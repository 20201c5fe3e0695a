"""Keys that may deploy rule sets, and the audit lines of deployments."""

from __future__ import annotations

import json
import logging

from support.keys import keyed

PATH = "/rulesets/access"
BODY = {"text": "p(a).", "message": "why", "revision": "abc"}


def test_a_reader_plans_a_deployment_and_a_writer_carries_it_out(node, caplog):
    caplog.set_level(logging.INFO)
    reader, writer = node.make("reader"), node.make("writer")
    dry = node.send("PUT", PATH, reader.secret, {**BODY, "dryRun": True})
    assert (dry.status_code, dry.get_json()["commit"]) == (200, None)
    for body in (BODY, {**BODY, "dryRun": False}):
        assert node.send("PUT", PATH, reader.secret, body).status_code == 403
    assert node.send("GET", "/rulesets", reader.secret).get_json()["ruleSets"] == []
    deployed = node.send("PUT", PATH, writer.secret, BODY)
    assert (deployed.status_code, deployed.get_json()["version"]) == (200, 1)
    assert node.send("POST", f"{PATH}/rollback", reader.secret, {}).status_code == 403
    lines = [record.fields for record in caplog.records if record.message == "admin action"]
    deployed = [line for line in lines if "ruleSet" in line]
    assert [(each["action"], each["who"], each["status"]) for each in deployed] == [
        ("PUT /rulesets/<name>", writer.key.name, 200)
    ]
    (line,) = deployed
    assert (line["ruleSet"], line["version"], line["message"], line["revision"]) == (
        "access",
        1,
        "why",
        "abc",
    )
    planned = [line for line in lines if "dryRun" in line]
    assert [(each["who"], each["status"], each["dryRun"]) for each in planned] == [
        (reader.key.name, 200, True)
    ]
    assert not {"version", "commit", "digest"} & planned[0].keys()
    assert line["key"] == writer.key.id
    assert len(line["digest"]) == 64
    refused = [line["status"] for line in lines if line["status"] == 403]
    assert len(refused) == 3
    (version,) = node.send("GET", f"{PATH}/versions", reader.secret).get_json()["versions"]
    assert (version["key"], version["digest"]) == (line["who"], line["digest"])


def call(node, key, tool, arguments):
    """Return whether a call of a tool succeeded, and its outcome."""
    asked = {"name": tool, "arguments": arguments}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": asked}
    result = node.send("POST", "/mcp", key.secret, message).get_json()["result"]
    return not result["isError"], json.loads(result["content"][0]["text"])


def test_tools_need_the_same_roles_and_have_the_same_audit_lines(caplog):
    caplog.set_level(logging.INFO, logger="kbserver.audit")
    body = {"name": "access", **BODY}
    with keyed(mcp_tools="all") as node:
        reader, writer = node.make("reader"), node.make("writer")
        for tool in ("deploy", "rollback"):
            done, error = call(node, reader, tool, body)
            assert (done, error["code"]) == (False, "FORBIDDEN")
        assert call(node, reader, "rule_sets", {})[1] == {"ruleSets": [], "count": 0}
        assert call(node, writer, "deploy", {**body, "dryRun": True})[1]["commit"] is None
        assert call(node, writer, "deploy", body)[1]["version"] == 1
        node.send("PUT", PATH, writer.secret, {**BODY, "text": "p(b)."})
        done, error = call(node, writer, "deploy", {**body, "expectedVersion": 1})
        assert (done, error["code"], error["details"]["version"]) == (False, "CONFLICT", 2)
        done, error = call(node, writer, "deploy", {**body, "text": "p("})
        assert (done, error["code"]) == (False, "VALIDATION_ERROR")
        rolled_back = call(node, writer, "rollback", {"name": "access", "message": "back"})[1]
        assert (rolled_back["version"], rolled_back["facts"]["added"]) == (3, ["p(a)."])
        listed = call(node, reader, "rule_sets", {"name": "access"})[1]["versions"]
    lines = [record.fields for record in caplog.records if record.message == "admin action"]
    assert [
        (line["action"], line["who"], line.get("outcome"), line.get("version")) for line in lines
    ] == [
        ("tool deploy", reader.key.name, "failed", None),
        ("tool rollback", reader.key.name, "failed", None),
        ("tool deploy", writer.key.name, "ok", None),
        ("tool deploy", writer.key.name, "ok", 1),
        ("PUT /rulesets/<name>", writer.key.name, None, 2),
        ("tool deploy", writer.key.name, "failed", None),
        ("tool deploy", writer.key.name, "failed", None),
        ("tool rollback", writer.key.name, "ok", 3),
    ]
    assert [line.get("dryRun") for line in lines] == [None, None, True, *[None] * 5]
    by_tool = lines[3]
    assert {each: by_tool[each] for each in ("ruleSet", "message", "revision", "digest")} == {
        "ruleSet": "access",
        "message": "why",
        "revision": "abc",
        "digest": listed[-1]["digest"],
    }
    assert lines[-1]["message"] == "back"


def test_a_dry_run_that_fails_is_marked_and_the_next_part_of_the_message_is_not(caplog):
    caplog.set_level(logging.INFO, logger="kbserver.audit")
    with keyed(mcp_tools="all") as node:
        writer = node.make("writer")
        wrong = {**BODY, "text": "p(", "dryRun": True}
        assert node.send("PUT", PATH, writer.secret, wrong).status_code == 400
        parts = [
            {"data": {"op": "deploy", "name": "access", **BODY, "dryRun": True}},
            {"data": {"op": "deploy", "name": "access", "text": "p("}},
        ]
        message = {"messageId": "m1", "role": "ROLE_USER", "parts": parts}
        call = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
        node.send("POST", "/a2a", writer.secret, call)
    lines = [record.fields for record in caplog.records if record.message == "admin action"]
    assert [(line["action"], line.get("dryRun"), line.get("outcome")) for line in lines] == [
        ("PUT /rulesets/<name>", True, None),
        ("tool deploy", True, "ok"),
        ("tool deploy", None, "failed"),
    ]
