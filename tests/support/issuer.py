"""A small OAuth issuer on this machine: metadata, keys made by the test, tokens, and logins.

It answers the client credentials grant, and the authorization code grant with PKCE for a user who
agrees at once.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

CLIENT, SECRET = "agent", "the-secret-of-the-agent"


class SigningKey:
    """A private key with its id, and the public part as a JWK."""

    def __init__(self, kid: str, algorithm: str = "RS256", bits: int = 2048) -> None:
        self.kid, self.algorithm = kid, algorithm
        if algorithm.startswith("ES"):
            self.private: Any = ec.generate_private_key(ec.SECP256R1())
        elif algorithm == "EdDSA":
            self.private = ed25519.Ed25519PrivateKey.generate()
        else:
            self.private = rsa.generate_private_key(65537, bits)

    def public(self) -> Any:
        """Return the public key."""
        return self.private.public_key()

    def jwk(self, **more: Any) -> dict[str, Any]:
        """Return the public key as the issuer publishes it."""
        kind = jwt.get_algorithm_by_name(self.algorithm)
        members = json.loads(kind.to_jwk(self.public()))
        members.pop("key_ops", None)
        return {**members, "kid": self.kid, "use": "sig", "alg": self.algorithm, **more}


class Issuer:
    """The issuer; `requests` are the paths that were asked for. Use it as a context manager.

    `granted` are the scopes of the tokens that it issues to the client (None: the requested ones),
    `claims` further claims of them, and `documents` replace the answer to a path. A request for the
    keys sets `reached`, and waits for `gate`.
    """

    def __init__(self, path: str = "") -> None:
        self.keys = [FIRST_KEY]
        self.requests: list[str] = []
        self.documents: dict[str, Any] = {}
        self.claims: dict[str, Any] = {"tenant": "t"}
        self.granted: str | None = None
        self.audience = "https://kb.example/mcp"
        self.gate, self.reached = threading.Event(), threading.Event()
        self.gate.set()
        self.codes: dict[str, dict[str, str]] = {}
        self.scopes: list[str] = []
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}{path}"
        self._root, self._path = f"http://127.0.0.1:{self._http.server_port}", path

    def __enter__(self) -> Issuer:
        threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop answering."""
        self._http.shutdown()
        self._http.server_close()

    def token(
        self,
        scope: str | None = "kbcore:read kbcore:write",
        *,
        key: SigningKey | None = None,
        header: Mapping[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """Return a token; claims replace the usual ones, and None leaves one out."""
        signing = key or self.keys[0]
        now = int(time.time())
        members = {
            "iss": self.url,
            "aud": self.audience,
            "sub": "ann",
            "iat": now,
            "exp": now + 300,
            "scope": scope,
            **self.claims,
            **claims,
        }
        members = {name: value for name, value in members.items() if value is not None}
        algorithm = signing.algorithm
        return jwt.encode(
            members, signing.private, algorithm, headers={"kid": signing.kid, **(header or {})}
        )

    def answer(self, method: str, target: str, body: str) -> tuple[int, dict[str, str], Any]:
        """Return status, headers and document of the answer to a request."""
        path, _, query = target.partition("?")
        self.requests.append(path)
        if path in self.documents:
            return 200, {}, self.documents[path]
        if path == f"/.well-known/oauth-authorization-server{self._path}":
            return 200, {}, self.metadata()
        if path == f"{self._path}/keys":
            self.reached.set()
            assert self.gate.wait(60)
            return 200, {}, {"keys": [key.jwk() for key in self.keys]}
        fields = {name: each[0] for name, each in parse_qs(query or body).items()}
        if path == f"{self._path}/authorize":
            code = secrets.token_urlsafe(8)
            self.codes[code] = fields
            more = {"code": code, "state": fields["state"], "iss": self.url}
            return 302, {"Location": f"{fields['redirect_uri']}?{urlencode(more)}"}, {}
        if path == f"{self._path}/register":
            asked = json.loads(body)
            return 201, {}, {**asked, "client_id": "registered"}
        if path == f"{self._path}/token" and method == "POST":
            return self._issued(fields)
        return 404, {}, {"error": "not_found"}

    def metadata(self) -> dict[str, Any]:
        """Return the metadata of the issuer (RFC 8414)."""
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "registration_endpoint": f"{self.url}/register",
            "jwks_uri": f"{self.url}/keys",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "client_credentials"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post", "none"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _issued(self, fields: Mapping[str, str]) -> tuple[int, dict[str, str], Any]:
        if fields["grant_type"] == "authorization_code":
            asked = self.codes.pop(fields["code"])
            digest = hashlib.sha256(fields["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
                return 400, {}, {"error": "invalid_grant"}
            subject = "ann"
        else:
            if (fields.get("client_id"), fields.get("client_secret")) != (CLIENT, SECRET):
                return 401, {}, {"error": "invalid_client"}
            asked, subject = dict(fields), CLIENT
        requested = asked.get("scope", "")
        self.scopes.append(requested)
        scope = requested if self.granted is None else self.granted
        token = self.token(scope, sub=subject, aud=fields.get("resource", self.audience))
        return (
            200,
            {},
            {"access_token": token, "token_type": "Bearer", "expires_in": 300, "scope": scope},
        )


FIRST_KEY, NEXT_KEY, UNKNOWN_KEY = SigningKey("first"), SigningKey("next"), SigningKey("unknown")
"""Keys that all tests share, because making one takes a while."""


def redirected(url: str) -> dict[str, str]:
    """Return the parameters in the address to which a browser would be sent."""
    return {name: each[0] for name, each in parse_qs(urlsplit(url).query).items()}


def _handler(issuer: Issuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _respond(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size).decode()
            status, headers, document = issuer.answer(self.command, self.path, body)
            data = document if isinstance(document, bytes) else json.dumps(document).encode()
            self.send_response(status)
            for name, value in {"Content-Type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            self._respond()

        def do_POST(self) -> None:
            self._respond()

        def log_message(self, format: str, *args: Any) -> None:
            """Write nothing."""

    return Handler
