"""Keys over HTTP: the three modes, both headers, the first key, wrong keys, what is written down and what is not."""

from __future__ import annotations

import json
import logging

import pytest
from pluggy import HookimplMarker
from support.http import Served, error_of, serve_in_memory
from support.keys import BOOTSTRAP, Keyed, keyed

from kbcore.config import Config
from kbserver.cli import cli
from kbserver.guard import WhileItHolds
from kbserver.hookspecs import Principal
from kbserver.serve import announcement

GOAL = {"predicate": "p", "args": ["?x"]}
TOLD = {"predicate": "p", "args": ["x"]}
ONE = "the-one-key-of-this-server"


@pytest.fixture
def node():
    with keyed() as found:
        yield found


@pytest.fixture
def single():
    with serve_in_memory(api_key=ONE) as served:
        yield Keyed(served)


# -- modes --------------------------------------------------------------------------------------------------------------


def test_without_keys_everybody_may_do_everything(client):
    assert client.get("/auth/status").get_json() == {"mode": "disabled", "bootstrapRequired": False, "keyCount": 0}
    assert client.get("/auth/whoami").get_json() == {
        "mode": "disabled",
        "keyId": None,
        "name": None,
        "role": "admin",
        "permissions": ["read", "write", "admin", "replicate"],
        "databases": [],
        "tenants": [],
    }
    assert client.post("/tell", TOLD, headers={"Authorization": "Bearer anything"}).status_code == 200


@pytest.mark.parametrize(("method", "path"), [
    *(("GET", "/auth/keys"), ("POST", "/auth/keys"), ("DELETE", "/auth/keys/x"), ("POST", "/auth/keys/x/rotate")),
    ("POST", "/auth/bootstrap"),
])  # fmt: skip
def test_nobody_plants_keys_before_they_are_asked_for(client, path, method):
    body = {"name": "a", "role": "admin", "token": "x"}
    answer = client.flask.open(path, method=method, **({"json": body} if method == "POST" else {}))
    assert error_of(answer, 409, "CONFLICT")["details"] == {"mode": "disabled"}


def test_one_key_opens_everything(single):
    assert single.send("GET", "/auth/status").get_json() == {"mode": "single", "bootstrapRequired": False, "keyCount": 1}
    error_of(single.send("POST", "/tell", None, TOLD), 401, "UNAUTHORIZED")
    error_of(single.send("POST", "/tell", ONE + "x", TOLD), 401, "UNAUTHORIZED")
    assert single.send("POST", "/tell", ONE, TOLD).status_code == 200
    assert single.send("GET", "/admin/databases", ONE).status_code == 200
    assert single.send("GET", "/metrics", ONE).status_code == 200
    who = single.send("GET", "/auth/whoami", ONE).get_json()
    assert (who["mode"], who["role"], who["keyId"], who["name"]) == ("single", "admin", "api-key", "API_KEY")


def test_the_one_key_stays_an_admin_key_beside_managed_ones():
    with serve_in_memory(api_key=ONE, auth_enabled=True) as served:
        node = Keyed(served)
        made = node.send("POST", "/auth/keys", ONE, {"name": "a", "role": "reader"}).get_json()["key"]
        assert node.send("POST", "/ask", made, GOAL).status_code == 200


# -- headers ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ask", "/predicates"])
def test_both_headers_are_taken_and_nothing_else(node, path):
    key = node.make("reader").secret
    method, body = ("POST", GOAL) if path == "/ask" else ("GET", None)

    def status(**headers: str) -> int:
        return node.send(method, path, None, body, **headers).status_code

    assert status(Authorization=f"Bearer {key}") == 200
    assert status(Authorization=f"bearer   {key} ") == 200
    assert status(X_API_Key=key) == 200
    assert status(Authorization=f"Bearer {key}", X_API_Key=key) == 200
    assert status(Authorization=f"Bearer {key}", X_API_Key="other") == 401
    assert status(Authorization=key) == 401
    assert status(Authorization=f"Basic {key}") == 401
    assert status(Authorization="Bearer ") == 401
    assert status(Cookie=f"key={key}") == 401
    for name in ("api_key", "key", "token", "access_token", "X-API-Key", "Authorization"):
        assert node.send(method, f"{path}?{name}={key}", None, body).status_code == 401


def test_a_key_does_not_open_what_is_not_there(node):
    assert node.send("GET", "/nope").status_code == 401
    key = node.make("reader").secret
    error_of(node.send("GET", "/nope", key), 404, "NOT_FOUND")
    error_of(node.send("PUT", "/ask", key), 405, "VALIDATION_ERROR")


def test_a_body_is_not_read_before_the_door(node):
    answer = node.served.client.flask.post(
        "/tell", data=b"{not json", headers={"Content-Type": "application/json", "X-Tenant-ID": "a"}
    )
    error_of(answer, 401, "UNAUTHORIZED")


# -- the first key ------------------------------------------------------------------------------------------------------


def test_the_first_key_is_made_with_the_token_and_once(node):
    assert node.send("GET", "/auth/status").get_json() == {"mode": "managed", "bootstrapRequired": True, "keyCount": 0}
    error_of(node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": "wrong"}), 401, "UNAUTHORIZED")
    made = node.send("POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP, "description": "first"})
    assert made.status_code == 201
    assert made.headers["Cache-Control"] == "no-store"
    shown = made.get_json()
    assert {"id", "name", "key", "prefix", "role", "databases", "tenants", "expiresAt"} <= shown.keys()
    assert (shown["name"], shown["role"], shown["databases"], shown["tenants"]) == ("root", "admin", [], [])
    assert shown["expiresAt"] is None
    assert shown["key"].startswith(shown["prefix"] + "_")
    again = node.send("POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP})
    error_of(again, 403, "FORBIDDEN")
    assert node.send("GET", "/auth/status").get_json() == {"mode": "managed", "bootstrapRequired": False, "keyCount": 1}
    assert node.send("DELETE", f"/auth/keys/{shown['id']}", shown["key"]).get_json()["id"] == shown["id"]
    error_of(node.send("POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP}), 403, "FORBIDDEN")


def test_bootstrapping_takes_five_tries_a_minute(node):
    for _ in range(5):
        node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": "guess"})
    refused = node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": BOOTSTRAP})
    error_of(refused, 429, "RATE_LIMITED")
    assert int(refused.headers["Retry-After"]) <= 60
    assert refused.headers["RateLimit-Policy"] == '"bootstrap";q=5;w=60'
    node.served.clock.advance(60_000)
    assert node.send("POST", "/auth/bootstrap", None, {"name": "a", "token": BOOTSTRAP}).status_code == 201


def test_without_a_token_nobody_bootstraps():
    with serve_in_memory(auth_enabled=True) as served:
        error_of(Keyed(served).send("POST", "/auth/bootstrap", None, {"name": "a", "token": ""}), 403, "FORBIDDEN")


# -- making and losing keys ---------------------------------------------------------------------------------------------


def test_keys_are_made_listed_replaced_and_revoked(node):
    root = node.make("admin").secret
    place = {"databases": ["default"], "tenants": ["a"]}
    body = {"name": "bob", "role": "writer", **place, "expiresInDays": 1, "description": "x"}
    made = node.send("POST", "/auth/keys", root, body)
    assert made.status_code == 201
    bob = made.get_json()
    assert node.send("POST", "/tell", bob["key"], TOLD).status_code == 200
    listed = node.send("GET", "/auth/keys", root)
    assert bob["key"] not in listed.text
    assert listed.get_json()["count"] == 2
    row = listed.get_json()["keys"][1]
    assert row == {key: value for key, value in {**bob, "expired": False}.items() if key != "key"}
    new = node.send("POST", f"/auth/keys/{bob['id']}/rotate", root, {"overlapSeconds": 10}).get_json()
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
def test_a_bad_wish_is_refused_by_the_name_of_its_field(node, field, more):
    root = node.make("admin").secret
    answer = node.send("POST", "/auth/keys", root, {"name": "a", "role": "reader", **more})
    assert field in error_of(answer, 400, "VALIDATION_ERROR")["details"]["fields"]
    assert len(node.served.runtime.keys()) == 1


def test_a_key_that_ends_is_refused_and_told_so(node):
    key = node.make("reader", expires_in_days=1).secret
    node.served.clock.advance(86_400_000)
    assert "expired" in error_of(node.send("POST", "/ask", key, GOAL), 401, "UNAUTHORIZED")["message"]


# -- wrong keys ---------------------------------------------------------------------------------------------------------


def test_an_address_has_ten_wrong_keys_a_minute(single):
    here, there = "192.0.2.1", "192.0.2.2"
    for _ in range(10):
        assert single.send("POST", "/ask", "wrong", GOAL, address=here).status_code == 401
    for key in ("wrong", ONE):  # the right one too: else guessing would go on
        refused = single.send("POST", "/ask", key, GOAL, address=here)
        error_of(refused, 429, "RATE_LIMITED")
        assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert single.send("POST", "/ask", ONE, GOAL, address=there).status_code == 200
    assert single.send("GET", "/health", address=here).status_code == 200
    single.served.clock.advance(60_000)
    assert single.send("POST", "/ask", ONE, GOAL, address=here).status_code == 200


def test_a_managed_key_is_not_locked_out_by_the_wrong_keys_of_its_neighbours(node):
    key = node.make("reader").secret
    for _ in range(12):
        node.send("POST", "/ask", "wrong", GOAL, address="192.0.2.1")
    assert node.send("POST", "/ask", key, GOAL, address="192.0.2.1").status_code == 200


def test_addresses_of_one_ipv6_network_count_together(single):
    for number in range(10):
        single.send("POST", "/ask", "wrong", GOAL, address=f"2001:db8::{number}")
    assert single.send("POST", "/ask", "wrong", GOAL, address="2001:db8::99").status_code == 429
    assert single.send("POST", "/ask", "wrong", GOAL, address="2001:db8:1::1").status_code == 401


@pytest.mark.parametrize(
    ("hops", "told", "last"), [(0, "198.51.100.{}", 429), (1, "198.51.100.{}", 401), (1, "1.1.1.{}, 9.9.9.9", 429)]
)
def test_what_proxies_say_counts_as_far_as_they_are_trusted(hops, told, last):
    with serve_in_memory(api_key=ONE, forwarded_hops=hops) as served:
        node = Keyed(served)
        for number in range(11):
            answer = node.send("POST", "/ask", "wrong", GOAL, address="10.0.0.1", X_Forwarded_For=told.format(number))
        assert answer.status_code == last


# -- what is written down -------------------------------------------------------------------------------------------------


def test_what_administrators_do_is_written_down_without_secrets(node, caplog):
    caplog.set_level(logging.DEBUG)
    logging.getLogger("kbserver.access").setLevel(logging.DEBUG)
    made = node.send("POST", "/auth/bootstrap", None, {"name": "root", "token": BOOTSTRAP}, address="192.0.2.7").get_json()
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


# -- plugins at the door ------------------------------------------------------------------------------------------------


class Doorman:
    """Knows ann by a header."""

    @HookimplMarker("kbcore")
    def kb_http_authenticate(self, headers):
        return Principal("ann", role="reader") if headers.get("x-user") == "ann" else None


def test_a_plugin_is_asked_before_the_keys():
    from support.http import NOW, ForgetfulPlugin

    from kbcore.clock import ManualClock
    from kbcore.runtime import open_runtime
    from kbserver import create_app

    plugin = ForgetfulPlugin()
    config = Config(storage_backend="forgetful", auth_enabled=True)
    with open_runtime(config, plugins=(plugin, Doorman()), clock=ManualClock(NOW)) as runtime:
        app = create_app(runtime)
        node = Keyed(Served(app, runtime, plugin.store, ManualClock(NOW), None, []))
        assert node.send("POST", "/ask", None, GOAL, X_User="ann").status_code == 200
        error_of(node.send("POST", "/tell", None, TOLD, X_User="ann"), 403, "FORBIDDEN")
        error_of(node.send("POST", "/ask", None, GOAL, X_User="eve"), 401, "UNAUTHORIZED")
        assert node.send("POST", "/tell", node.make("writer").secret, TOLD).status_code == 200


def test_parts_end_when_the_key_does():
    holds = [True, True, False]
    closed = []

    class Parts(list):
        def close(self):
            closed.append(True)

    stream = WhileItHolds(Parts([b"a", b"b", b"c", b"d"]), lambda: holds.pop(0))
    assert list(stream) == [b"a", b"b"]
    stream.close()
    assert closed == [True]


# -- the start and the command line -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "no keys are asked for"),
        ({"host": "0.0.0.0"}, "WARNING: no keys are set and 0.0.0.0"),
        ({"host": "0.0.0.0", "api_key": "x" * 16}, "keys: one"),
        ({"host": "0.0.0.0", "api_key": "short"}, "WARNING: API_KEY has fewer than 16"),
        ({"auth_enabled": True}, "there is none yet"),
    ],
)
def test_the_start_says_who_is_let_in(settings, said):
    lines = list(announcement(Config(**settings), ("127.0.0.1", 9300)))
    assert any(line.startswith(said) or said in line for line in lines[2:])
    assert any("WARNING" in line for line in lines) == ("WARNING" in said)
    assert "short" not in "\n".join(lines)


def test_the_command_makes_lists_replaces_and_revokes(tmp_path, capsys):
    def run(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            cli(["keys", *words, "--storage-dir", str(tmp_path)])
        assert ended.value.code in (0, None), capsys.readouterr().err
        return capsys.readouterr().out

    key = run("create", "bob", "--role", "writer", "--tenants", "a, b", "--expires-in-days", "1").strip()
    id = key.split("_")[1]
    assert run("list").startswith(f"{id}  writer  bob  databases *, tenants a,b, 20")
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

    with Server(tmp_path, log=tmp_path.with_suffix(".log"), AUTH_ENABLED="true", BOOTSTRAP_TOKEN=BOOTSTRAP) as server:
        url = "http://{}:{}".format(*server.address)
        status, body = server.post("/auth/bootstrap", {"name": "root", "token": BOOTSTRAP})
        assert status == 201
        root = json.loads(body)["key"]
        made = run("create", "bob", "--role", "reader", key=root, url=url)
        bob = made.stdout.strip()
        assert run("list", key=bob, url=url).stderr == "kbcore: the key 'bob' has role reader, and this needs admin\n"
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
