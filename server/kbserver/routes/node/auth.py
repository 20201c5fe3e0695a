"""API keys: the current key, and for administrators creation, listing, rotation and revocation.

No tenant header is needed.
"""

from __future__ import annotations

from typing import Any

from flask import Response, current_app

from kbcore.errors import Conflict, Forbidden, RateLimited, Unauthorized
from kbcore.node.api_keys import Keys as KeyStore
from kbcore.node.api_keys import NewKey, first_admin, is_equal
from kbcore.state.keys import ADMIN
from kbcore.state.labels import to_json
from kbserver.answers import as_json
from kbserver.http.request_context import current_request, runtime
from kbserver.operations import Method, as_object, operation
from kbserver.schemas.node import (
    AuthStatus,
    BootstrapBody,
    KeyRotationBody,
    KeyShown,
    ListedKey,
    MadeKey,
    NewKeyBody,
    RevokedKey,
    WhoAmI,
)
from kbserver.schemas.requests import load
from kbserver.security import audit
from kbserver.security.guard import DISABLED, MANAGED, OAUTH, mode_of
from kbserver.security.permissions import ANY, PERMISSIONS, PUBLIC, About
from kbserver.security.token_bucket import Buckets

BOOTSTRAP_TRIES, BOOTSTRAP_SECONDS = 5, 60
"""Wrong bootstrap tokens that a node answers with 401 in a minute; further ones get 429."""

_CREATED = 201
_TRIES = "kbcore.bootstrap_tries"
_SECRET = {"Cache-Control": "no-store"}
_NOT_CACHED = {
    "Cache-Control": {
        "type": "string",
        "enum": ["no-store"],
        "description": "No cache may store a key.",
    }
}
_ADMIN: dict[str, Any] = {"role": ADMIN, "about": About.NODE, "tenant": False}


@operation(
    "GET /auth/status",
    role=PUBLIC,
    about=About.NOTHING,
    replies=(as_object("The authentication mode.", AuthStatus),),
    tenant=False,
)
def status() -> Response:
    """Return the authentication mode, the number of keys, and True if the first key is missing."""
    keys, mode = runtime().keys(), mode_of(runtime().config)
    count = {DISABLED: 0, OAUTH: 0, MANAGED: len(keys)}.get(mode, 1)
    return as_json(
        {"mode": mode, "bootstrapRequired": mode == MANAGED and keys.never_used, "keyCount": count}
    )


@operation(
    "GET /auth/whoami",
    role=ANY,
    about=About.NOTHING,
    replies=(as_object("The permissions of the key of the request.", WhoAmI),),
    tenant=False,
)
def whoami() -> Response:
    """Return the identity and permissions of the caller's key.

    Without authentication every caller may do everything.
    """
    who = current_request().principal
    role = ADMIN if who is None else who.role
    return as_json(
        {
            "mode": mode_of(runtime().config),
            "keyId": who and who.key,
            "name": who and who.name,
            "role": role,
            "permissions": PERMISSIONS.get(role, ()),
            "databases": sorted(who.databases) if who else [],
            "tenants": sorted(who.tenants) if who else [],
            **({"view": to_json(who.view)} if who and who.view else {}),
            **({"labels": to_json(who.labels)} if who and who.labels else {}),
        }
    )


@operation(
    "POST /auth/bootstrap",
    role=PUBLIC,
    about=About.NOTHING,
    replies=(as_object("The first key.", MadeKey, status=_CREATED, headers=_NOT_CACHED),),
    body=BootstrapBody,
    tenant=False,
    writes=True,
    errors=(401, 403),
)
def first_key() -> Response:
    """Create the first key, with role admin, using the token in BOOTSTRAP_TOKEN; works once."""
    asked = load(BootstrapBody)
    keys, token = _managed(), runtime().config.bootstrap_token
    if not keys.never_used:
        raise Forbidden("the first key has been made; an admin key makes more")
    if not token:
        raise Forbidden(
            "no BOOTSTRAP_TOKEN is set; make the first key on the machine: kbcore keys create"
        )
    if not is_equal(asked["token"], token):
        _count_wrong_token()
        raise Unauthorized("that is not the bootstrap token")
    return _made(keys.create(first_admin(asked["name"], asked.get("description", "")), first=True))


def _count_wrong_token() -> None:
    """Count a wrong bootstrap token; raise RateLimited beyond BOOTSTRAP_TRIES. The right token is
    never refused for the wrong ones of others.
    """
    tries: Buckets = current_app.extensions.get(_TRIES) or current_app.extensions.setdefault(
        _TRIES, Buckets("bootstrap", BOOTSTRAP_TRIES, BOOTSTRAP_SECONDS, runtime().clock.monotonic)
    )
    if seconds := tries.wait(""):
        message = f"at most {BOOTSTRAP_TRIES} wrong tokens a minute"
        raise RateLimited(message, seconds, tries.details())
    tries.take("")


@operation(
    "GET /auth/keys",
    replies=(
        as_object(
            "Every key, the oldest first, without its secret.",
            {"type": "array", "items": ListedKey},
        ),
    ),
    methods=(Method(signature="api_keys() -> list[ApiKey]"),),
    errors=(409,),
    **_ADMIN,
)
def listed() -> Response:
    """List the keys; expired ones stay until they are revoked."""
    now = runtime().clock.now_ms()
    keys = [{**KeyShown.write(key), "expired": not key.holds(now)} for key in _managed().all()]
    return as_json(keys)


@operation(
    "POST /auth/keys",
    replies=(
        as_object(
            "The key, which is shown only this once.",
            MadeKey,
            status=_CREATED,
            headers=_NOT_CACHED,
        ),
    ),
    body=NewKeyBody,
    methods=(
        Method(
            signature="create_api_key(name: str, role: str, *, databases: Sequence[str] = (), "
            "tenants: Sequence[str] = (), expires_in_days: float | None = None, "
            "description: str = '') -> ApiKey"
        ),
    ),
    writes=True,
    **_ADMIN,
)
def create() -> Response:
    """Create an API key.

    Its secret is `key` of the answer, and is never shown again. The role is `reader`, `writer`,
    `admin` or `replica`. Without `databases` and `tenants` the key is valid everywhere.
    """
    return _made(_managed().create(load(NewKeyBody)["wanted"]))


@operation(
    "POST /auth/keys/<id>/rotate",
    replies=(
        as_object(
            "The new key, which is shown only this once.",
            MadeKey,
            status=_CREATED,
            headers=_NOT_CACHED,
        ),
    ),
    body=KeyRotationBody,
    methods=(
        Method(signature="rotate_api_key(id: str, *, overlap_seconds: float = 3600) -> ApiKey"),
    ),
    writes=True,
    errors=(404,),
    **_ADMIN,
)
def rotate(id: str) -> Response:
    """Create a key with the same permissions; the old key stays valid for an overlap period."""
    overlap = load(KeyRotationBody)["overlap"]
    return _made(_managed().rotate(id, overlap))


@operation(
    "DELETE /auth/keys/<id>",
    replies=(as_object("The key is revoked.", RevokedKey),),
    methods=(Method(signature="revoke_api_key(id: str) -> None"),),
    writes=True,
    errors=(404,),
    **_ADMIN,
)
def revoke(id: str) -> Response:
    """Revoke a key immediately and close its open streams."""
    gone = _managed().revoke(id)
    audit.done(keyName=gone.name)
    return as_json({"message": f"Key '{gone.name}' revoked", "id": id})


def _managed() -> KeyStore:
    """Return the keys of the node; raises Conflict if it does not manage keys."""
    mode = mode_of(runtime().config)
    if mode != MANAGED:
        raise Conflict(
            "this server does not manage keys; AUTH_ENABLED=true makes it", {"mode": mode}
        )
    return runtime().keys()


def _made(new_key: NewKey) -> Response:
    key = new_key.key
    audit.done(madeKey=key.id, keyName=key.name, role=key.role)
    members = KeyShown.write(key)
    return as_json(
        {"id": members.pop("id"), "name": members.pop("name"), "key": new_key.secret, **members},
        _SECRET,
        _CREATED,
    )
