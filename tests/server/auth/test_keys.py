"""API keys over HTTP and from the command line: creation, rotation, revocation, audit lines."""

from __future__ import annotations

import json
import logging

import pytest
from support.commands import kbcore
from support.http import error_of, serve_in_memory
from support.keys import BOOTSTRAP, GOAL, TOLD, Keyed

from kbcore.config import Config
from kbserver.cli import cli
from kbserver.serve import announcement

# -- the first key ---------------------------------------------------------------------------------


def test_the_first_key_is_created_once_with_the_bootstrap_token(node):
    assert node.send("GET", "/auth/status").get_json() == {
        "mode": "managed",
        "bootstrapRequired": True,
        "keyCount": 0,
    }
    error_of(
        node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": "wrong"}),
        401,
        "UNAUTHORIZED",
    )
    made = node.send(
        "POST",
        "/auth/bootstrap",
        None,
        {"name": "root", "token": BOOTSTRAP, "description": "first"},
    )
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    shown = made.get_json()
    assert {
        "id",
        "name",
        "key",
        "prefix",
        "role",
        "databases",
        "tenants",
        "expiresAt",
    } <= shown.keys()
    assert (shown["name"], shown["role"], shown["databases"], shown["tenants"]) == (
        "root",
        "admin",
        [],
        [],
    )
    assert shown["expiresAt"] is None
    assert shown["key"].startswith(shown["prefix"] + "_")
    again = node.send("POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP})
    error_of(again, 403, "FORBIDDEN")
    assert node.send("GET", "/auth/status").get_json() == {
        "mode": "managed",
        "bootstrapRequired": False,
        "keyCount": 1,
    }
    assert (
        node.send("DELETE", f"/auth/keys/{shown['id']}", shown["key"]).get_json()["id"]
        == shown["id"]
    )
    error_of(
        node.send("POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP}),
        403,
        "FORBIDDEN",
    )


def test_bootstrapping_allows_five_wrong_tokens_a_minute(node):
    for _ in range(5):
        node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": "guess"})
    refused = node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": "guess"})
    error_of(refused, 429, "RATE_LIMITED")
    assert int(refused.headers["Retry-After"]) <= 60
    assert refused.headers["RateLimit-Policy"] == '"bootstrap";q=5;w=60'
    node.served.clock.advance(60_000)
    again = node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": "guess"})
    assert again.status_code == 401


def test_without_a_bootstrap_token_bootstrapping_is_off():
    with serve_in_memory(auth_enabled=True) as served:
        error_of(
            Keyed(served).send("POST", "/auth/bootstrap", None, {"name": "a", "token": ""}),
            403,
            "FORBIDDEN",
        )


# -- making and losing keys ------------------------------------------------------------------------


def test_keys_are_created_listed_rotated_and_revoked(node):
    root = node.make("admin").secret
    place = {"databases": ["default"], "tenants": ["a"]}
    body = {"name": "bob", "role": "writer", **place, "expiresInDays": 1, "description": "x"}
    made = node.send("POST", "/auth/keys", root, body)
    assert made.status_code == 201
    bob = made.get_json()
    assert node.send("POST", "/tell", bob["key"], TOLD).status_code == 200
    listed = node.send("GET", "/auth/keys", root)
    assert bob["key"] not in listed.text
    _, row = listed.get_json()  # a bare array, the oldest first
    assert row == {key: value for key, value in {**bob, "expired": False}.items() if key != "key"}
    new = node.send(
        "POST", f"/auth/keys/{bob['id']}/rotate", root, {"overlapSeconds": 10}
    ).get_json()
    for key in (bob["key"], new["key"]):
        assert node.send("GET", "/auth/whoami", key).get_json()["tenants"] == ["a"]
    node.served.clock.advance(10_000)
    assert node.send("GET", "/auth/whoami", bob["key"]).status_code == 401
    gone = node.send("DELETE", f"/auth/keys/{new['id']}", root)
    assert gone.get_json() == {"message": "Key 'bob' revoked", "id": new["id"]}
    assert node.send("GET", "/auth/whoami", new["key"]).status_code == 401
    error_of(node.send("DELETE", f"/auth/keys/{new['id']}", root), 404, "NOT_FOUND")
    error_of(node.send("POST", "/auth/keys/none/rotate", root), 404, "NOT_FOUND")


@pytest.mark.parametrize(
    ("field", "more"),
    [
        ("name", {"name": None}),
        ("name", {"name": ""}),
        ("name", {"name": 5}),
        ("role", {"role": "root"}),
        ("role", {"role": None}),
        ("role", {"role": "replica", "tenants": ["a"]}),
        ("databases", {"databases": "default"}),
        ("databases[0]", {"databases": ["no name"]}),
        ("tenants", {"tenants": [1]}),
        ("expiresInDays", {"expiresInDays": 0}),
        ("expiresInDays", {"expiresInDays": "1"}),
        ("expiresInDays", {"expiresInDays": 1e9}),
        ("description", {"description": "x\u0007"}),
    ],
)
def test_an_invalid_field_is_named(node, field, more):
    root = node.make("admin").secret
    answer = node.send("POST", "/auth/keys", root, {"name": "a", "role": "reader", **more})
    assert field in error_of(answer, 400, "VALIDATION_ERROR")["details"]["fields"]
    assert len(node.served.runtime.keys()) == 1


def test_an_expired_key_is_refused(node):
    key = node.make("reader", expires_in_days=1).secret
    node.served.clock.advance(86_400_000)
    assert (
        "expired" in error_of(node.send("POST", "/ask", key, GOAL), 401, "UNAUTHORIZED")["message"]
    )


# -- what is written down --------------------------------------------------------------------------


def test_admin_actions_are_audited_without_secrets(node, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "kbserver.access")
    made = node.send(
        "POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP}, address="192.0.2.7"
    ).get_json()
    root = made["key"]
    node.send("POST", "/auth/keys", root, {"name": "bob", "role": "reader"})
    node.send("POST", "/admin/databases", root, {"name": "shop"})
    node.send("POST", "/admin/databases/shop/nuke", root)
    node.send("GET", "/admin/databases", root)
    node.send("DELETE", "/auth/keys/none", root)
    node.send("POST", "/admin/databases", node.make("reader").secret, {"name": "other"})
    node.send("POST", "/tell", "kb_0123456789abcdef_" + "f" * 64, TOLD)
    lines = [record.fields for record in caplog.records if record.message == "admin action"]
    assert [(line["action"], line["who"], line["status"]) for line in lines] == [
        ("POST /auth/bootstrap", "anybody", 201),
        ("POST /auth/keys", "root", 201),
        ("POST /admin/databases", "root", 201),
        ("POST /admin/databases/<name>/nuke", "root", 200),
        ("DELETE /auth/keys/<id>", "root", 404),
        ("POST /admin/databases", "reader", 403),
    ]
    assert lines[0]["address"] == "192.0.2.7"
    assert lines[1]["keyName"] == "bob"
    everything = repr([(record.getMessage(), record.__dict__) for record in caplog.records])
    for secret in (BOOTSTRAP, root, root[-64:], "f" * 64):
        assert secret not in everything


def test_a_method_in_lower_case_is_audited_too(node, caplog):
    caplog.set_level(logging.INFO)
    made = node.send("post", "/admin/databases", node.make("admin").secret, {"name": "shop"})
    assert made.status_code == 201
    (line,) = (each.fields for each in caplog.records if each.message == "admin action")
    assert (line["action"], line["who"]) == ("POST /admin/databases", "admin")


def test_no_secret_is_in_errors_or_metrics(node):
    key = node.make("admin").secret
    texts = [
        node.send("POST", "/tell", key + "0", TOLD).text,
        node.send("POST", "/auth/keys", key, {"name": key, "role": "nope"}).text,
        node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": BOOTSTRAP}).text,
        node.send("GET", "/metrics", key).text,
        node.send("GET", "/auth/keys", key).text,
        node.send("GET", "/auth/whoami", key).text,
    ]
    for secret in (key, key[-64:], BOOTSTRAP):
        assert all(secret not in text for text in texts)


# -- the start and the command line ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "authentication is off"),
        ({"host": "0.0.0.0"}, "WARNING: authentication is off and HOST=0.0.0.0"),
        ({"host": "0.0.0.0", "api_key": "x" * 16}, "authentication: one key"),
        ({"host": "0.0.0.0", "api_key": "short"}, "WARNING: API_KEY has fewer than 16"),
        ({"auth_enabled": True}, "none created yet"),
        ({"oauth_issuer": "https://a.example/"}, "authentication: access tokens of https://a"),
    ],
)
def test_the_start_up_lines_describe_authentication(settings, said):
    lines = list(announcement(Config(**settings), ("127.0.0.1", 9300)))
    assert any(line.startswith(said) or said in line for line in lines[2:])
    assert any("WARNING" in line for line in lines) == ("WARNING" in said)
    assert "short" not in "\n".join(lines)


def test_the_command_creates_lists_rotates_and_revokes(tmp_path, capsys):
    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli(["keys", *words, "--storage-dir", str(tmp_path)])
        assert ended.value.code in (0, None), capsys.readouterr().err
        return capsys.readouterr().out

    key = run(
        "create", "bob", "--role", "writer", "--tenants", "a, b", "--expires-in-days", "1"
    ).strip()
    id = key.split("_")[1]
    assert run("list").startswith(f"{id}  writer  bob  databases *, tenants a,b, expires 20")
    new = run("rotate", id, "--overlap", "0").strip()
    assert new != key
    assert run("revoke", new.split("_")[1]) == "Key 'bob' revoked\n"
    assert run("list") == ""
    with pytest.raises(SystemExit) as ended:
        cli(["keys", "revoke", "none", "--storage-dir", str(tmp_path)])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "kbcore: no such key\n"


def test_the_command_works_on_a_server_with_a_key(tmp_path):
    import os
    import subprocess
    import sys

    from support.servers import Server

    def run(*words: str, key: str | None, url: str) -> subprocess.CompletedProcess[str]:
        more = {"KBCORE_API_KEY": key} if key else {}
        command = [sys.executable, "-m", "kbserver.cli", "keys", *words]
        settings = {**os.environ, "KBCORE_URL": url, **more}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=settings)

    with Server(
        tmp_path, log=tmp_path.with_suffix(".log"), AUTH_ENABLED="true", BOOTSTRAP_TOKEN=BOOTSTRAP
    ) as server:
        url = "http://{}:{}".format(*server.address)
        status, body = server.post("/auth/bootstrap", {"name": "root", "token": BOOTSTRAP})
        assert status == 201
        root = json.loads(body)["key"]
        made = run("create", "bob", "--role", "reader", key=root, url=url)
        bob = made.stdout.strip()
        assert (
            run("list", key=bob, url=url).stderr
            == "kbcore: the key 'bob' has role reader, and this needs admin\n"
        )
        assert server.post("/tell", TOLD, Authorization=f"Bearer {root}")[0] == 200
        server.kill()
    with Server(tmp_path, AUTH_ENABLED="true") as server:
        assert server.post("/ask", GOAL, Authorization=f"Bearer {bob}")[0] == 200
        assert server.post("/tell", TOLD, Authorization=f"Bearer {bob}")[0] == 403
        assert server.post("/ask", GOAL)[0] == 401
    written = tmp_path.with_suffix(".log").read_text()
    assert "admin action" in written
    for secret in (root, root[-64:], bob[-64:], BOOTSTRAP):
        assert secret not in written


def settings(monkeypatch, folder, **others) -> None:
    """Set the environment of a unit, as deploy/kbcore.env.example does."""
    values = {"STORAGE_DIR": str(folder), "AUTH_ENABLED": "true", "MIN_FREE_MB": "0", **others}
    for name, value in values.items():
        monkeypatch.setenv(f"KBCORE_{name}", value)


def test_the_first_key_is_made_once_before_the_first_start(tmp_path, monkeypatch) -> None:
    folder, file = tmp_path / "data", tmp_path / "admin.key"
    settings(monkeypatch, folder)
    assert "copy it to a safe place" in kbcore("keys", "first", str(file)).stdout
    secret = file.read_text(encoding="utf-8").strip()
    assert file.stat().st_mode & 0o777 == 0o600
    listed = kbcore("keys", "list", "--storage-dir", str(folder)).stdout
    assert listed.split("  ")[1:3] == ["admin", "first"]
    assert listed.split("  ")[0] == secret.split("_")[1]
    assert "exists" in kbcore("keys", "first", str(file)).stderr
    assert file.read_text(encoding="utf-8").strip() == secret
    file.unlink()  # as the operator does
    assert "has data" in kbcore("keys", "first", str(file)).stderr
    assert not file.exists()
    assert len(kbcore("keys", "list", "--storage-dir", str(folder)).stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("others", "reason"),
    [
        ({"AUTH_ENABLED": "false"}, "AUTH_ENABLED is not set"),
        ({"REPLICATION_MODE": "FOLLOWER", "LEADER_URL": "http://leader:9300"}, "leader"),
        ({"STORAGE_BACKEND": "memory"}, "not a folder"),
    ],
)
def test_no_first_key_is_made_where_none_is_needed(tmp_path, monkeypatch, others, reason) -> None:
    settings(monkeypatch, tmp_path / "data", **others)
    assert reason in kbcore("keys", "first", str(tmp_path / "key")).stderr
    assert not (tmp_path / "key").exists()
    assert not (tmp_path / "data").exists()


def test_a_first_key_that_cannot_be_written_is_not_made(tmp_path, monkeypatch) -> None:
    settings(monkeypatch, tmp_path / "data")
    failed = kbcore("keys", "first", str(tmp_path / "none" / "key"), expect=1)
    assert "cannot be created" in failed.stderr
    assert not (tmp_path / "data").exists()


def test_a_failed_opening_leaves_no_file(tmp_path, monkeypatch) -> None:
    (tmp_path / "data").write_text("a file in place of the folder")
    settings(monkeypatch, tmp_path / "data")
    kbcore("keys", "first", str(tmp_path / "key"), expect=74)
    assert not (tmp_path / "key").exists()
