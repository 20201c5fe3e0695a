"""Authentication: the three modes, both headers, wrong keys, authentication plugins."""

from __future__ import annotations

import pytest
from pluggy import HookimplMarker
from support.http import Served, error_of, serve_in_memory
from support.keys import GOAL, ONE, TOLD, Keyed

from kbcore.config import Config
from kbserver.hookspecs import Principal
from kbserver.security.guard import RevocableStream

# -- modes -----------------------------------------------------------------------------------------


def test_without_authentication_every_request_is_allowed(client):
    assert client.get("/auth/status").get_json() == {
        "mode": "disabled",
        "bootstrapRequired": False,
        "keyCount": 0,
    }
    assert client.get("/auth/whoami").get_json() == {
        "mode": "disabled",
        "keyId": None,
        "name": None,
        "role": "admin",
        "permissions": ["read", "write", "admin", "replicate"],
        "databases": [],
        "tenants": [],
    }
    assert (
        client.post("/tell", TOLD, headers={"Authorization": "Bearer anything"}).status_code == 200
    )


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/auth/keys"), ("POST", "/auth/keys"), ("DELETE", "/auth/keys/x"), ("POST", "/auth/keys/x/rotate"),
    ("POST", "/auth/bootstrap"),
])  # fmt: skip
def test_keys_cannot_be_created_while_authentication_is_off(client, path, method):
    body = {"name": "a", "role": "admin", "token": "x"}
    answer = client.flask.open(path, method=method, **({"json": body} if method == "POST" else {}))
    assert error_of(answer, 409, "CONFLICT")["details"] == {"mode": "disabled"}


def test_the_single_key_allows_everything(single):
    assert single.send("GET", "/auth/status").get_json() == {
        "mode": "single",
        "bootstrapRequired": False,
        "keyCount": 1,
    }
    error_of(single.send("POST", "/tell", None, TOLD), 401, "UNAUTHORIZED")
    error_of(single.send("POST", "/tell", ONE + "x", TOLD), 401, "UNAUTHORIZED")
    assert single.send("POST", "/tell", ONE, TOLD).status_code == 200
    assert single.send("GET", "/admin/databases", ONE).status_code == 200
    assert single.send("GET", "/metrics", ONE).status_code == 200
    who = single.send("GET", "/auth/whoami", ONE).get_json()
    assert (who["mode"], who["role"], who["keyId"], who["name"]) == (
        "single",
        "admin",
        "api-key",
        "API_KEY",
    )


def test_the_single_key_stays_an_admin_key_with_managed_keys():
    with serve_in_memory(api_key=ONE, auth_enabled=True) as served:
        node = Keyed(served)
        made = node.send("POST", "/auth/keys", ONE, {"name": "a", "role": "reader"}).get_json()[
            "key"
        ]
        assert node.send("POST", "/ask", made, GOAL).status_code == 200


# -- headers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/ask", "/predicates"])
def test_keys_are_read_from_two_headers_only(node, path):
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


def test_a_key_does_not_change_unknown_paths(node):
    assert node.send("GET", "/nope").status_code == 401
    key = node.make("reader").secret
    error_of(node.send("GET", "/nope", key), 404, "NOT_FOUND")
    error_of(node.send("PUT", "/ask", key), 405, "VALIDATION_ERROR")


def test_a_body_is_not_read_before_authentication(node):
    answer = node.served.client.flask.post(
        "/tell", data=b"{not json", headers={"Content-Type": "application/json", "X-Tenant-ID": "a"}
    )
    error_of(answer, 401, "UNAUTHORIZED")


# -- wrong keys ------------------------------------------------------------------------------------


def test_an_address_has_ten_wrong_keys_a_minute(single):
    here, there = "192.0.2.1", "192.0.2.2"
    for _ in range(10):
        assert single.send("POST", "/ask", "wrong", GOAL, address=here).status_code == 401
    refused = single.send("POST", "/ask", "wrong", GOAL, address=here)
    error_of(refused, 429, "RATE_LIMITED")
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert single.send("POST", "/ask", ONE, GOAL, address=there).status_code == 200
    assert single.send("GET", "/health", address=here).status_code == 200
    single.served.clock.advance(60_000)
    assert single.send("POST", "/ask", "wrong", GOAL, address=here).status_code == 401


def test_wrong_keys_from_its_address_do_not_block_a_managed_key(node):
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
    ("hops", "told", "last"),
    [(0, "198.51.100.{}", 429), (1, "198.51.100.{}", 401), (1, "1.1.1.{}, 9.9.9.9", 429)],
)
def test_forwarded_addresses_count_for_trusted_proxies_only(hops, told, last):
    with serve_in_memory(api_key=ONE, forwarded_hops=hops) as served:
        node = Keyed(served)
        for number in range(11):
            answer = node.send(
                "POST",
                "/ask",
                "wrong",
                GOAL,
                address="10.0.0.1",
                X_Forwarded_For=told.format(number),
            )
        assert answer.status_code == last


# -- plugins at the door ---------------------------------------------------------------------------


class Doorman:
    """Knows ann by a header."""

    @HookimplMarker("kbcore")
    def kb_http_authenticate(self, headers):
        return Principal("ann", role="reader") if headers.get("x-user") == "ann" else None


def test_an_authentication_plugin_comes_before_the_keys():
    from support.http import NOW, ForgetfulPlugin

    from kbcore.clock import ManualClock
    from kbcore.node.opening import open_runtime
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


def test_a_stream_ends_when_its_key_is_revoked():
    holds = [True, True, False]
    closed = []

    class Parts(list):
        def close(self):
            closed.append(True)

    stream = RevocableStream(Parts([b"a", b"b", b"c", b"d"]), lambda: holds.pop(0))
    assert list(stream) == [b"a", b"b"]
    stream.close()
    assert closed == [True]
