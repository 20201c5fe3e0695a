"""Access tokens of an OAuth issuer: what is accepted, what is refused, and what a client learns."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import jwt
import pytest
from support.http import Served, error_of, serve_in_memory
from support.issuer import FIRST_KEY, NEXT_KEY, UNKNOWN_KEY, Issuer, SigningKey
from support.keys import GOAL, ONE, TOLD, Keyed
from support.servers import Server

from kbcore.config import Config
from kbcore.errors import ConfigError, NotReady
from kbserver.security import guard as guards
from kbserver.security import issuer_keys
from kbserver.security.guard import GUARD, RevocableStream
from kbserver.security.tokens import Tokens

PUBLIC = "https://kb.example"
METADATA = f"{PUBLIC}/.well-known/oauth-protected-resource/mcp"
ADDRESS = "192.0.2.7"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with Issuer() as running:
        yield running


@contextmanager
def served_for(issuer: Issuer, **settings: Any) -> Iterator[Keyed]:
    with serve_in_memory(oauth_issuer=issuer.url, public_url=PUBLIC, **settings) as served:
        yield Keyed(served)


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Keyed, Issuer]]:
    """A server and an issuer for requests that leave both as they are."""
    with Issuer() as running, served_for(running) as server:
        yield server, running


@pytest.fixture
def node(issuer: Issuer) -> Iterator[Keyed]:
    with served_for(issuer) as running:
        yield running


def tokens_of(served: Served) -> Tokens:
    tokens = served.app.extensions[GUARD]._tokens
    assert tokens is not None
    return tokens


def ask(node: Keyed, token: str, **more: Any) -> Any:
    return node.send("POST", "/ask", token, GOAL, tenant=more.pop("tenant", "t"), **more)


def part(members: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(members).encode()).rstrip(b"=").decode()


def members_of(token: str) -> dict[str, Any]:
    return jwt.decode(token, options={"verify_signature": False})


# -- what is accepted ------------------------------------------------------------------------------


@pytest.mark.parametrize("fast_path", [True, False])
def test_a_token_reads_and_writes_what_its_scope_allows(node, issuer, fast_path) -> None:
    more = {} if fast_path else {"Prefer": "handling=strict"}
    writer, reader = issuer.token(), issuer.token("openid kbcore:read")
    assert node.send("POST", "/tell", writer, TOLD, tenant="t", **more).status_code == 200
    for token in (writer, reader, reader):
        assert [row["args"] for row in ask(node, token, **more).get_json()] == [["x"]]
    refused = node.send("POST", "/tell", reader, TOLD, tenant="t", **more)
    assert error_of(refused, 403, "FORBIDDEN")["details"]["scope"] == "kbcore:write"
    assert refused.headers["WWW-Authenticate"] == (
        f'Bearer error="insufficient_scope", scope="kbcore:write", resource_metadata="{METADATA}"'
    )


@pytest.mark.parametrize("algorithm", ["RS512", "PS256", "ES256", "EdDSA"])
def test_asymmetric_algorithms_are_accepted(node, issuer, algorithm) -> None:
    issuer.keys = [SigningKey("other", algorithm)]
    assert ask(node, issuer.token()).status_code == 200
    assert ask(node, issuer.token(header={"typ": "at+jwt"})).status_code == 200


@pytest.mark.parametrize(
    "claims", [{"scp": ["kbcore:read"]}, {"scp": "a kbcore:read"}, {"scope": ["kbcore:read"]}]
)
def test_scopes_may_be_a_list_and_may_be_in_scp(shared, claims) -> None:
    node, issuer = shared
    assert ask(node, issuer.token(**{"scope": None, **claims})).status_code == 200


def test_who_am_i_names_the_subject_and_the_limits(node, issuer) -> None:
    token = issuer.token(sub="auth0|42", tenant=["t", "u"])
    assert node.send("GET", "/auth/whoami", token).get_json() == {
        "mode": "oauth",
        "keyId": None,
        "name": "oauth:auth0|42",
        "role": "writer",
        "permissions": ["read", "write"],
        "databases": ["default"],
        "tenants": ["t", "u"],
    }
    assert node.send("GET", "/auth/status").get_json() == {
        "mode": "oauth",
        "bootstrapRequired": False,
        "keyCount": 0,
    }


@pytest.mark.parametrize("settings", [{"api_key": ONE}, {"auth_enabled": True, "api_key": ONE}])
def test_tokens_and_keys_are_accepted_beside_each_other(issuer, settings) -> None:
    with served_for(issuer, **settings) as node:
        assert ask(node, ONE).status_code == 200
        assert ask(node, issuer.token()).status_code == 200
        assert ask(node, "wrong").status_code == 401


def test_a_configured_audience_replaces_the_address(issuer) -> None:
    with served_for(issuer, oauth_audience="api://kb") as node:
        assert ask(node, issuer.token(aud="api://kb")).status_code == 200
        assert ask(node, issuer.token(aud=["other", "api://kb"])).status_code == 200
        assert ask(node, issuer.token()).status_code == 401


def test_a_token_without_a_key_of_the_issuer_does_not_open_a_server_without_one(issuer) -> None:
    with serve_in_memory(api_key=ONE) as served:
        refused = ask(Keyed(served), issuer.token())
        error_of(refused, 401, "UNAUTHORIZED")
        assert refused.headers["WWW-Authenticate"] == "Bearer"
        assert issuer.requests == []


# -- what is refused -------------------------------------------------------------------------------


def hmac_token(issuer: Issuer) -> str:
    """Return a token signed by HMAC with the public key of the issuer as the secret."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    secret = FIRST_KEY.public().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = part({"alg": "HS256", "typ": "JWT", "kid": FIRST_KEY.kid})
    signed = f"{head}.{part(members_of(issuer.token()))}"
    digest = hmac.new(secret, signed.encode(), hashlib.sha256).digest()
    return f"{signed}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def unsigned(issuer: Issuer, algorithm: Any = "none") -> str:
    head = part({"alg": algorithm, "typ": "JWT", "kid": FIRST_KEY.kid})
    return f"{head}.{part(members_of(issuer.token()))}."


def altered(issuer: Issuer) -> str:
    """Return a token whose claims were changed after it was signed."""
    head, _, signature = issuer.token("kbcore:read").split(".")
    return f"{head}.{part(members_of(issuer.token('kbcore:admin')))}.{signature}"


def deep(issuer: Issuer) -> str:
    text = base64.urlsafe_b64encode(b"[" * 3000).decode()
    return f"{text}.{text}.x"


WRONG = {
    "another audience": lambda issuer: issuer.token(aud="https://other.example/mcp"),
    "no audience": lambda issuer: issuer.token(aud=None),
    "another issuer": lambda issuer: issuer.token(iss="https://other.example"),
    "the issuer with a slash": lambda issuer: issuer.token(iss=f"{issuer.url}/"),
    "no expiry": lambda issuer: issuer.token(exp=None),
    "an endless expiry": lambda issuer: issuer.token(exp=float("inf")),
    "an expiry in a text": lambda issuer: issuer.token(exp=str(int(time.time()) + 300)),
    "no subject": lambda issuer: issuer.token(sub=None),
    "an empty subject": lambda issuer: issuer.token(sub=""),
    "a subject with a line": lambda issuer: issuer.token(sub="ann\nadmin action"),
    "a long subject": lambda issuer: issuer.token(sub="a" * 256),
    "alg none": unsigned,
    "alg None": lambda issuer: unsigned(issuer, "NONE"),
    "alg as list": lambda issuer: unsigned(issuer, ["RS256"]),
    "alg as object": lambda issuer: unsigned(issuer, {}),
    "HS256 with the public key": hmac_token,
    "an unknown key": lambda issuer: issuer.token(key=UNKNOWN_KEY),
    "a key under the id of another": lambda issuer: issuer.token(
        key=UNKNOWN_KEY, header={"kid": "first"}
    ),
    "no key id": lambda issuer: jwt.encode(members_of(issuer.token()), FIRST_KEY.private, "RS256"),
    "an algorithm that the key does not have": lambda issuer: jwt.encode(
        members_of(issuer.token()), FIRST_KEY.private, "RS512", {"kid": "first"}
    ),
    "another kind of JWT": lambda issuer: issuer.token(header={"typ": "logout+jwt"}),
    "a critical header": lambda issuer: issuer.token(header={"crit": ["b64"], "b64": True}),
    "a token bound to a key of the client": lambda issuer: issuer.token(cnf={"jkt": "x"}),
    "changed claims": altered,
    "a deep header": deep,
    "no JWT": lambda issuer: "a.b.c",
    "a long token": lambda issuer: issuer.token(padding="x" * 9000),
}


REASONS = {
    "another audience": "another audience",
    "no audience": "claim aud",
    "another issuer": "another issuer",
    "the issuer with a slash": "another issuer",
    "no expiry": "claim exp",
    "an expiry in a text": "claim exp",
    "no subject": "claim sub",
    "an empty subject": "subject",
    "a subject with a line": "subject",
    "a long subject": "subject",
    "alg none": "algorithm",
    "alg None": "algorithm",
    "alg as list": "algorithm",
    "alg as object": "algorithm",
    "HS256 with the public key": "algorithm",
    "an unknown key": "no such key",
    "a key under the id of another": "signature",
    "no key id": "kid",
    "an algorithm that the key does not have": "no such key",
    "another kind of JWT": "not an access token",
    "a critical header": "not a JWT",
    "a token bound to a key of the client": "bound",
    "changed claims": "signature",
    "a deep header": "not a JWT",
    "no JWT": "not a JWT",
    "a long token": "characters",
}
"""Words of the message, so that each token is refused for its own fault."""


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_token_is_refused(shared, name) -> None:
    node, issuer = shared
    refused = ask(node, WRONG[name](issuer))
    assert REASONS.get(name, "") in error_of(refused, 401, "UNAUTHORIZED")["message"]
    assert refused.headers["WWW-Authenticate"] == (
        'Bearer error="invalid_token", scope="kbcore:read kbcore:write", '
        f'resource_metadata="{METADATA}"'
    )


def test_times_have_a_leeway_of_a_minute(node, issuer) -> None:
    now = int(time.time())
    assert ask(node, issuer.token(exp=now - 30)).status_code == 200
    assert ask(node, issuer.token(nbf=now + 30)).status_code == 200
    for claims, problem in (({"exp": now - 61}, "expired"), ({"nbf": now + 90}, "not valid yet")):
        refused = ask(node, issuer.token(**claims))
        assert problem in error_of(refused, 401, "UNAUTHORIZED")["message"]
        assert 'error="invalid_token"' in refused.headers["WWW-Authenticate"]


class Later(datetime):
    """The clock of PyJWT, an hour later."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.now(tz) + timedelta(hours=1)


def test_a_token_ends_although_it_was_accepted_before(node, issuer, monkeypatch) -> None:
    token = issuer.token()
    assert ask(node, token).status_code == 200
    later = SimpleNamespace(time=lambda: time.time() + 3600)
    monkeypatch.setattr("kbserver.security.tokens.time", later)
    monkeypatch.setattr("jwt.api_jwt.datetime", Later)
    assert "expired" in error_of(ask(node, token), 401, "UNAUTHORIZED")["message"]


def test_without_credentials_the_answer_says_where_tokens_come_from(node) -> None:
    refused = node.send("POST", "/ask", None, GOAL)
    error_of(refused, 401, "UNAUTHORIZED")
    assert refused.headers["WWW-Authenticate"] == (
        f'Bearer scope="kbcore:read kbcore:write", resource_metadata="{METADATA}"'
    )


def test_tokens_in_addresses_and_in_the_header_of_keys_are_refused(node, issuer) -> None:
    token = issuer.token()
    for key in (None, token):
        refused = node.send("POST", f"/ask?access_token={token}", key, GOAL, tenant="t")
        assert token not in error_of(refused, 400, "VALIDATION_ERROR")["message"]
    error_of(
        node.send("POST", "/ask", None, GOAL, tenant="t", X_API_Key=token), 401, "UNAUTHORIZED"
    )


# -- tenants and scopes ----------------------------------------------------------------------------


def test_a_token_is_bound_to_its_tenants_in_the_default_database(node, issuer) -> None:
    token = issuer.token(tenant=["t", "u"])
    assert ask(node, token, tenant="u").status_code == 200
    for place in ({"tenant": "v"}, {"tenant": "t", "database": "shop"}):
        refused = ask(node, token, **place)
        error_of(refused, 403, "FORBIDDEN")
        assert "WWW-Authenticate" not in refused.headers


@pytest.mark.parametrize(
    "tenant", [[], "", None, 5, {"t": 1}, ["t", 5], ["../t"], "*", ["t"] * 1001]
)
@pytest.mark.parametrize("scope", ["kbcore:read", "kbcore:admin"])
def test_a_claim_of_another_form_gives_no_access(shared, tenant, scope) -> None:
    node, issuer = shared
    claims = members_of(issuer.token(scope)) | {"tenant": tenant}
    token = jwt.encode(claims, FIRST_KEY.private, "RS256", {"kid": "first"})
    for path in ("/ask", "/admin/snapshot"):
        error_of(node.send("POST", path, token, GOAL, tenant="t"), 403, "FORBIDDEN")


def test_only_administrators_may_have_no_tenant(node, issuer) -> None:
    issuer.claims = {}
    for scope in ("kbcore:read", "kbcore:read kbcore:write"):
        assert "tenant" in error_of(ask(node, issuer.token(scope)), 403, "FORBIDDEN")["message"]
        error_of(node.send("GET", "/auth/whoami", issuer.token(scope)), 403, "FORBIDDEN")
    admin = issuer.token("kbcore:read kbcore:admin")
    assert node.send("POST", "/tell", admin, TOLD, tenant="any").status_code == 200
    assert node.send("GET", "/admin/databases", admin).status_code == 200


def test_an_administrator_with_tenants_has_no_more_than_these(node, issuer) -> None:
    admin = issuer.token("kbcore:admin", tenant="t")
    assert node.send("POST", "/tell", admin, TOLD, tenant="t").status_code == 200
    error_of(node.send("GET", "/admin/databases", admin), 403, "FORBIDDEN")
    error_of(node.send("POST", "/tell", admin, TOLD, tenant="u"), 403, "FORBIDDEN")


@pytest.mark.parametrize("scope", [None, "", "openid profile", "kbcore:reader", "KBCORE:READ"])
def test_a_token_without_a_scope_of_this_server_gives_no_access(shared, scope) -> None:
    node, issuer = shared
    refused = ask(node, issuer.token(scope))
    error_of(refused, 403, "FORBIDDEN")
    assert 'error="insufficient_scope", scope="kbcore:read"' in refused.headers["WWW-Authenticate"]


def test_another_claim_may_hold_the_tenant(issuer) -> None:
    claim = "https://kb.example/tenant"
    with served_for(issuer, oauth_tenant_claim=claim) as node:
        assert ask(node, issuer.token(tenant=None, **{claim: "t"})).status_code == 200
        error_of(ask(node, issuer.token()), 403, "FORBIDDEN")


# -- the keys of the issuer ------------------------------------------------------------------------


def test_the_keys_are_read_once_and_again_when_the_issuer_has_new_ones(node, issuer) -> None:
    for _ in range(3):
        assert ask(node, issuer.token()).status_code == 200
    assert issuer.requests == ["/.well-known/oauth-authorization-server", "/keys"]
    issuer.keys = [NEXT_KEY, FIRST_KEY]
    rotated = issuer.token()
    assert ask(node, rotated).status_code == 401, "too early for another reading"
    node.served.clock.advance(issuer_keys.REFETCH_SECONDS * 1000 + 1)
    assert ask(node, rotated).status_code == 200
    assert ask(node, issuer.token(key=FIRST_KEY)).status_code == 200
    assert issuer.requests.count("/keys") == 2


def test_a_withdrawn_key_ends_tokens_that_were_accepted(node, issuer) -> None:
    token = issuer.token()
    assert ask(node, token).status_code == 200
    issuer.keys = [NEXT_KEY]
    node.served.clock.advance(issuer_keys.FRESH_SECONDS * 1000 + 1)
    assert ask(node, token).status_code == 401


def test_invented_key_ids_cause_one_reading_a_minute(node, issuer) -> None:
    for number in range(30):
        token = issuer.token(key=UNKNOWN_KEY, header={"kid": f"invented-{number}"})
        assert ask(node, token).status_code == 401
    assert issuer.requests.count("/keys") == 1
    node.served.clock.advance(issuer_keys.REFETCH_SECONDS * 1000 + 1)
    for number in range(5):
        ask(node, issuer.token(key=UNKNOWN_KEY, header={"kid": f"more-{number}"}))
    assert issuer.requests.count("/keys") == 2


def test_an_issuer_that_cannot_be_reached_is_no_wrong_token(node, issuer) -> None:
    token = issuer.token()
    issuer.close()
    answer = ask(node, token)
    error_of(answer, 503, "NOT_READY")
    assert answer.headers["Retry-After"]


def test_cached_keys_outlast_an_issuer_that_cannot_be_reached_for_an_hour(node, issuer) -> None:
    token = issuer.token()
    assert ask(node, token).status_code == 200
    issuer.close()
    node.served.clock.advance(issuer_keys.FRESH_SECONDS * 1000 + 1)
    assert ask(node, token).status_code == 200
    node.served.clock.advance(issuer_keys.MAX_AGE_SECONDS * 1000)
    error_of(ask(node, token), 503, "NOT_READY")


def test_a_reading_holds_up_no_request_whose_key_is_known(issuer) -> None:
    reached, go_on = threading.Event(), threading.Event()
    clock = [0.0]

    class Held(httpx.BaseTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            if clock[0]:
                reached.set()
                assert go_on.wait(30)
            _, _, document = issuer.answer("GET", request.url.path, "")
            return streamed(document)

    config = Config(oauth_issuer=issuer.url, public_url=PUBLIC)
    keys = issuer_keys.IssuerKeys(issuer.url, lambda: clock[0], Held())
    tokens = Tokens(config, lambda: clock[0], keys)
    token = issuer.token()
    assert tokens.principal(token).name == "oauth:ann"
    issuer.keys, clock[0] = [FIRST_KEY, NEXT_KEY], issuer_keys.FRESH_SECONDS + 1
    rotated: list[str] = []
    waiting = threading.Thread(
        target=lambda: rotated.append(tokens.principal(issuer.token(key=NEXT_KEY)).name)
    )
    waiting.start()
    try:
        assert reached.wait(30)
        assert tokens.principal(token).name == "oauth:ann"
        assert waiting.is_alive()
    finally:
        go_on.set()
        waiting.join(30)
    assert rotated == ["oauth:ann"]


def test_a_server_goes_on_while_it_reads_the_keys(issuer, tmp_path) -> None:
    settings = {"OAUTH_ISSUER": issuer.url, "PUBLIC_URL": PUBLIC, "API_KEY": ONE}
    answers: list[int] = []
    with Server(tmp_path, **settings) as server:

        def send(key: str) -> None:
            answers.append(server.post("/ask", GOAL, Authorization=f"Bearer {key}")[0])

        issuer.gate.clear()
        waiting = threading.Thread(target=send, args=(issuer.token(),))
        waiting.start()
        try:
            assert issuer.reached.wait(30)
            send(ONE)
            assert answers == [200]
            assert waiting.is_alive()
        finally:
            issuer.gate.set()
            waiting.join(30)
    assert answers == [200, 200]


def streamed(document: Any, status: int = 200, **headers: str) -> httpx.Response:
    """Return a response whose body is read from a stream, as from a network."""
    data = document if isinstance(document, bytes) else json.dumps(document).encode()
    return httpx.Response(status, headers=headers, stream=httpx.ByteStream(data))


def reading(documents: dict[str, Any], issuer: str = "https://id.example/realm") -> Any:
    """Return the keys of an issuer with these documents by path; other paths are 404."""

    def answer(request: httpx.Request) -> httpx.Response:
        document = documents.get(str(request.url))
        if document is None:
            return streamed({}, 404)
        return (
            streamed(**document)
            if isinstance(document, dict) and "status" in document
            else streamed(document)
        )

    return issuer_keys.IssuerKeys(issuer, lambda: 0.0, httpx.MockTransport(answer))


KEYS = {"keys": [FIRST_KEY.jwk()]}
RFC_8414 = "https://id.example/.well-known/oauth-authorization-server/realm"
OPENID = "https://id.example/realm/.well-known/openid-configuration"


@pytest.mark.parametrize("address", [RFC_8414, OPENID])
def test_the_metadata_is_found_at_both_addresses(address) -> None:
    metadata = {"issuer": "https://id.example/realm", "jwks_uri": "https://keys.example/k"}
    keys = reading({address: metadata, "https://keys.example/k": KEYS})
    assert keys.find("first") is not None


UNUSABLE = {
    "another issuer": {RFC_8414: {"issuer": "https://id.example", "jwks_uri": "https://k.example"}},
    "no issuer": {RFC_8414: {"jwks_uri": "https://k.example"}},
    "no address": {RFC_8414: {"issuer": "https://id.example/realm"}},
    "http": {
        RFC_8414: {"issuer": "https://id.example/realm", "jwks_uri": "http://k.example"},
        "http://k.example": KEYS,
    },
    "this machine": {
        RFC_8414: {"issuer": "https://id.example/realm", "jwks_uri": "http://127.0.0.1/k"},
        "http://127.0.0.1/k": KEYS,
    },
    "a file": {RFC_8414: {"issuer": "https://id.example/realm", "jwks_uri": "file:///etc/passwd"}},
    "a broken address": {
        RFC_8414: {"issuer": "https://id.example/realm", "jwks_uri": "https://[::1"}
    },
    "a redirect": {RFC_8414: {"document": {}, "status": 302, "Location": OPENID}, OPENID: KEYS},
    "an error": {RFC_8414: {"document": {}, "status": 500}},
    "a list": {RFC_8414: []},
    "no JSON": {RFC_8414: b"<html>"},
    "too long": {RFC_8414: b" " * 300_000 + b"{}"},
    "no document": {},
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_documents_that_cannot_be_used_give_no_keys(name, caplog) -> None:
    from kbcore.errors import NotReady

    with pytest.raises(NotReady):
        reading(UNUSABLE[name]).find("first")
    assert "could not be read" in caplog.text


UNUSABLE_KEYS = {
    "a secret": {"kty": "oct", "k": "c2VjcmV0", "kid": "first"},
    "a short key": SigningKey("first", bits=1024).jwk(),
    "for encryption": FIRST_KEY.jwk(use="enc"),
    "for HMAC": FIRST_KEY.jwk(alg="HS256"),
    "a private key": FIRST_KEY.jwk(d="x"),
    "no id": FIRST_KEY.jwk(kid=None),
    "no modulus": {"kty": "RSA", "kid": "first"},
    "an unknown curve": {"kty": "EC", "crv": "P-999", "x": "x", "y": "y", "kid": "first"},
    "no object": "first",
}


@pytest.mark.parametrize("name", UNUSABLE_KEYS)
def test_keys_that_cannot_verify_tokens_are_left_out(name) -> None:
    metadata = {"issuer": "https://id.example/realm", "jwks_uri": "https://id.example/k"}
    documents = {RFC_8414: metadata, "https://id.example/k": {"keys": [UNUSABLE_KEYS[name]]}}
    assert reading(documents).find("first") is None


# -- lock-out, audit, streams ----------------------------------------------------------------------


def test_wrong_tokens_count_as_wrong_keys_and_right_ones_pass_after_them(node, issuer) -> None:
    for _ in range(guards.MAX_WRONG_KEYS):
        assert ask(node, unsigned(issuer), address=ADDRESS).status_code == 401
    error_of(ask(node, unsigned(issuer), address=ADDRESS), 429, "RATE_LIMITED")
    error_of(ask(node, "wrong", address=ADDRESS), 429, "RATE_LIMITED")
    assert ask(node, issuer.token(), address=ADDRESS).status_code == 200


def test_expired_tokens_do_not_lock_out_an_address(node, issuer) -> None:
    """A hosted client serves many users from one address, and gets new tokens after a 401."""
    expired = issuer.token(exp=int(time.time()) - 100)
    for _ in range(guards.MAX_WRONG_KEYS + 5):
        assert ask(node, expired, address=ADDRESS).status_code == 401


@pytest.mark.parametrize("kind", ["expired", "no scope", "no tenant"])
def test_refused_tokens_have_a_limit_of_their_own(node, issuer, kind, caplog) -> None:
    if kind == "no tenant":
        issuer.claims = {}
    expired = {"exp": int(time.time()) - 100} if kind == "expired" else {}
    token = issuer.token("" if kind == "no scope" else "kbcore:write", **expired)
    path, status = "/admin/snapshot", 401 if kind == "expired" else 403
    with caplog.at_level("INFO", logger="kbserver.audit"):
        for _ in range(guards.MAX_REFUSED_TOKENS):
            answer = node.send("POST", path, token, address=ADDRESS)
            assert answer.status_code == status, answer.text
        for _ in range(3):
            error = error_of(node.send("POST", path, token, address=ADDRESS), 429, "RATE_LIMITED")
            assert error["details"]["limit"] == "tokens"
    lines = [record for record in caplog.records if record.message == "admin action"]
    assert len(lines) == guards.MAX_REFUSED_TOKENS
    assert node.send("POST", path, token, address="10.9.9.9").status_code == status
    issuer.claims = {"tenant": "t"}
    assert ask(node, issuer.token(), address=ADDRESS).status_code == 200
    error_of(ask(node, unsigned(issuer), address=ADDRESS), 401, "UNAUTHORIZED")


def test_idempotency_keys_belong_to_a_subject(node, issuer) -> None:
    issuer.claims = {"tenant": "t"}
    ann, bob = (issuer.token("kbcore:write", sub=name) for name in ("ann", "bob"))

    def tell(token: str, args: str) -> Any:
        body = {"predicate": "p", "args": [args]}
        headers = {"Idempotency_Key": "k"}
        return node.send("POST", "/tell", token, body, tenant="t", **headers)

    first = tell(ann, "of-ann")
    assert first.status_code == 200
    assert "Idempotency-Replayed" not in tell(bob, "of-bob").headers
    again = tell(ann, "of-ann")
    assert (again.headers["Idempotency-Replayed"], again.text) == ("true", first.text)
    error_of(tell(ann, "of-bob"), 409, "CONFLICT")
    undone = node.send("POST", "/memory/undo", bob, {"requestId": "k"}, tenant="t")
    assert undone.status_code == 200, undone.text
    rows = node.send("POST", "/query", ann, {"predicate": "p", "args": ["?x"]}, tenant="t")
    assert [row["args"] for row in rows.get_json()] == [["of-ann"]]


def test_audit_lines_name_the_subject_and_no_line_has_the_token(node, issuer, caplog) -> None:
    issuer.claims = {}
    token, wrong = issuer.token("kbcore:admin"), issuer.token(aud="x")
    with caplog.at_level("DEBUG"):
        assert node.send("POST", "/admin/snapshot", token).status_code == 200
        assert node.send("POST", "/admin/snapshot", wrong).status_code == 401
    lines = [record.fields for record in caplog.records if hasattr(record, "fields")]
    actions = [line for line in lines if line.get("action") == "POST /admin/snapshot"]
    assert [(line["who"], line["status"]) for line in actions] == [
        ("oauth:ann", 200),
        ("anybody", 401),
    ]
    text = "\n".join([caplog.text, *map(str, lines)])
    for each in (token, wrong):
        assert not any(piece in text for piece in each.split("."))


def test_a_stream_ends_with_its_token(node, issuer) -> None:
    served = node.served
    guard = served.app.extensions[GUARD]
    who = tokens_of(served).principal(issuer.token())
    stream = RevocableStream([b"1", b"2"], lambda: guard.is_valid(who))
    assert next(stream) == b"1"
    served.clock.advance(int(who.expires_at - served.clock.now_ms()))
    with pytest.raises(StopIteration):
        next(stream)


def test_a_tool_session_belongs_to_the_subject_that_opened_it(node, issuer) -> None:
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a"}}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about}
    ann, again, bob = issuer.token(), issuer.token(jti="2"), issuer.token(sub="bob")
    opened = node.send("POST", "/mcp", ann, message, tenant="t", Accept="application/json")
    session = {"Mcp_Session_Id": opened.headers["Mcp-Session-Id"]}
    assert node.send("GET", "/mcp", bob, tenant="t", **session).status_code == 404
    assert node.send("DELETE", "/mcp", bob, tenant="t", **session).status_code == 404
    assert node.send("DELETE", "/mcp", again, tenant="t", **session).status_code == 204


def test_several_processes_read_the_tenant_of_a_token(node, issuer) -> None:
    guard = node.served.app.extensions[GUARD]
    for token, tenant, is_known in (
        (issuer.token(), "t", True),
        (issuer.token(tenant=["t", "u"]), "default", True),
        (issuer.token(aud="x"), "default", False),
    ):
        environ = {"HTTP_AUTHORIZATION": f"Bearer {token}", "REMOTE_ADDR": ADDRESS}
        assert (guard.implied_tenant(environ), guard.recognises(environ)) == (tenant, is_known)


def test_an_endless_answer_of_the_issuer_is_abandoned(monkeypatch) -> None:
    monkeypatch.setattr(issuer_keys, "FETCH_SECONDS", 0.3)
    ended = threading.Event()
    results: list[bool] = []

    def trickle(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            with suppress(OSError):
                while not ended.wait(0.05):
                    connection.sendall(b"a")

    def find(url: str) -> None:
        with pytest.raises(NotReady):
            issuer_keys.IssuerKeys(url, time.monotonic).find("first")
        results.append(True)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        threads = [
            threading.Thread(target=trickle, args=(listener,)),
            threading.Thread(target=find, args=(url,)),
        ]
        for thread in threads:
            thread.start()
        threads[1].join(10)
        in_time = list(results)
        ended.set()
        for thread in threads:
            thread.join(10)
    assert in_time == [True]


# -- settings and documents ------------------------------------------------------------------------


def test_the_metadata_is_public_at_both_paths_and_absent_without_an_issuer(node, issuer) -> None:
    for path in ("", "/mcp"):
        answer = node.send("GET", f"/.well-known/oauth-protected-resource{path}", tenant=None)
        assert answer.get_json() == {
            "resource": f"{PUBLIC}/mcp",
            "authorization_servers": [issuer.url],
            "scopes_supported": ["kbcore:read", "kbcore:write", "kbcore:admin"],
            "bearer_methods_supported": ["header"],
            "resource_name": "kbcore",
        }
    with serve_in_memory() as served:
        answer = served.client.get("/.well-known/oauth-protected-resource")
        assert error_of(answer, 404, "NOT_FOUND")["details"] == {"setting": "OAUTH_ISSUER"}


def test_a_server_needs_its_address_for_tokens() -> None:
    with (
        pytest.raises(ConfigError, match="PUBLIC_URL"),
        serve_in_memory(oauth_issuer="https://id.example"),
    ):
        pass


@pytest.mark.parametrize(
    "text",
    ["http://id.example", "id.example", "https://", "https://a@b", "https://a/?x", "ftp://a"],
)
def test_an_issuer_has_an_https_address(text) -> None:
    with pytest.raises(ConfigError, match="OAUTH_ISSUER"):
        Config().updated({"OAUTH_ISSUER": text})


@pytest.mark.parametrize(
    "text", ["https://a.example/", "https://a.example", "http://localhost:8080/x"]
)
def test_an_issuer_is_taken_as_it_is(text) -> None:
    assert Config().updated({"OAUTH_ISSUER": text}).oauth_issuer == text


def test_the_text_for_language_models_is_public_and_short(node) -> None:
    answer = node.send("GET", "/llms.txt", tenant=None)
    assert answer.status_code == 200
    assert answer.content_type.startswith("text/plain")
    assert answer.text.startswith("# kbcore\n")
    assert "(/mcp)" in answer.text
    assert len(answer.data) <= 4096
