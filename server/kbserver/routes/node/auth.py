"""API keys: the current key, and for administrators creation, listing, rotation and revocation.

No tenant header is needed.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response, current_app, request

from kbcore.errors import Conflict, Forbidden, RateLimited, Unauthorized
from kbcore.node.api_keys import Keys, NewKey, first_admin, same
from kbcore.state.keys import ADMIN, StoredKey
from kbserver.answers import as_json
from kbserver.http.request_context import DEFAULT, outside, runtime
from kbserver.operations import as_object, operation
from kbserver.schemas.auth import (
    AUTH_STATUS,
    KEYS,
    MADE,
    REVOKED,
    WHOAMI,
    bootstrap,
    new_key,
    rotation,
)
from kbserver.schemas.base import load
from kbserver.schemas.jsonschema import said, words
from kbserver.security import audit
from kbserver.security.guard import DISABLED, MANAGED, WHO, mode_of
from kbserver.security.permissions import PERMISSIONS
from kbserver.security.token_bucket import Buckets

bp = Blueprint("auth", __name__, url_prefix="/auth")

BOOTSTRAP_TRIES, BOOTSTRAP_SECONDS = 5, 60
"""Tries to make the first key that a node takes in a minute."""

_CREATED = 201
_TRIES = "kbcore.bootstrap_tries"
_SECRET = {"Cache-Control": "no-store"}
_KEPT = {"Cache-Control": said(words("no-store"), "A key is not to be kept on its way.")}


@bp.before_request
def _alone() -> None:
    outside(DEFAULT)


@bp.get("/status")
@operation(as_object("How keys are asked for.", AUTH_STATUS), tenant=False)
def status() -> Response:
    """Return the authentication mode, the number of keys, and True if the first key is missing."""
    keys, mode = runtime().keys(), mode_of(runtime().config)
    count = {DISABLED: 0, MANAGED: len(keys)}.get(mode, 1)
    return as_json(
        {"mode": mode, "bootstrapRequired": mode == MANAGED and keys.unused, "keyCount": count}
    )


@bp.get("/whoami")
@operation(as_object("What the key of the request may do.", WHOAMI), tenant=False)
def whoami() -> Response:
    """Return the identity and permissions of the caller's key.

    Without authentication every caller may do everything.
    """
    who = request.environ.get(WHO)
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
        }
    )


@bp.post("/bootstrap")
@operation(
    as_object("The first key.", MADE, status=_CREATED, headers=_KEPT),
    body=bootstrap,
    tenant=False,
    writes=True,
    errors=(401, 403),
)
def first_key() -> Response:
    """Create the first key, with role admin, using the token in BOOTSTRAP_TOKEN; works once."""
    tries: Buckets = current_app.extensions.get(_TRIES) or current_app.extensions.setdefault(
        _TRIES, Buckets("bootstrap", BOOTSTRAP_TRIES, BOOTSTRAP_SECONDS, runtime().clock.monotonic)
    )
    if seconds := tries.wait(""):
        limit = {"limit": "bootstrap", "requests": BOOTSTRAP_TRIES, "seconds": BOOTSTRAP_SECONDS}
        raise RateLimited(f"at most {BOOTSTRAP_TRIES} tries a minute", seconds, limit)
    tries.take("")
    asked = load(bootstrap)
    keys, token = _managed(), runtime().config.bootstrap_token
    if not keys.unused:
        raise Forbidden("the first key has been made; an admin key makes more")
    if not token:
        raise Forbidden(
            "no BOOTSTRAP_TOKEN is set; make the first key on the machine: kbcore keys create"
        )
    if not same(asked.token, token):
        raise Unauthorized("that is not the bootstrap token")
    return _made(keys.create(first_admin(asked.name, asked.description), first=True))


@bp.get("/keys")
@operation(
    as_object("Every key, the oldest first, without its secret.", KEYS), tenant=False, errors=(409,)
)
def listed() -> Response:
    """List the keys; expired ones stay until they are revoked."""
    now = runtime().clock.now_ms()
    found = [{**_shown(key), "expired": not key.holds(now)} for key in _managed().all()]
    return as_json({"keys": found, "count": len(found)})


@bp.post("/keys")
@operation(
    as_object("The key; it is shown this once.", MADE, status=_CREATED, headers=_KEPT),
    body=new_key,
    tenant=False,
    writes=True,
)
def create() -> Response:
    """Create an API key."""
    wanted = load(new_key)
    return _made(_managed().create(wanted))


@bp.post("/keys/<id>/rotate")
@operation(
    as_object("The new key; it is shown this once.", MADE, status=_CREATED, headers=_KEPT),
    body=rotation,
    tenant=False,
    writes=True,
    errors=(404,),
)
def rotate(id: str) -> Response:
    """Create a key with the same permissions; the old key stays valid for an overlap period."""
    overlap = load(rotation)
    return _made(_managed().rotate(id, overlap))


@bp.delete("/keys/<id>")
@operation(as_object("That it is revoked.", REVOKED), tenant=False, writes=True, errors=(404,))
def revoke(id: str) -> Response:
    """Revoke a key immediately and close its open streams."""
    gone = _managed().revoke(id)
    audit.done(keyName=gone.name)
    return as_json({"message": f"Key '{gone.name}' revoked", "id": id})


def _managed() -> Keys:
    """Return the keys of the node; raises Conflict if it does not manage keys."""
    mode = mode_of(runtime().config)
    if mode != MANAGED:
        raise Conflict(
            "this server does not manage keys; AUTH_ENABLED=true makes it", {"mode": mode}
        )
    return runtime().keys()


def _made(made: NewKey) -> Response:
    key = made.key
    audit.done(madeKey=key.id, keyName=key.name, role=key.role)
    shown = _shown(key)
    return as_json(
        {"id": shown.pop("id"), "name": shown.pop("name"), "key": made.secret, **shown},
        _SECRET,
        _CREATED,
    )


def _shown(key: StoredKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "prefix": key.prefix,
        "role": key.role,
        "databases": key.databases,
        "tenants": key.tenants,
        "description": key.description,
        "createdAt": key.created_at,
        "expiresAt": key.expires_at,
    }
