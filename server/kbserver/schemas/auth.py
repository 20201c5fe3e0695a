"""Bodies about keys, and what answers about them look like."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kbcore.node.api_keys import MAX_EXPIRY_DAYS, MAX_OVERLAP_S, OVERLAP_S, KeyWanted
from kbcore.state.keys import ROLES
from kbserver.schemas.base import Envelope
from kbserver.schemas.fields import NAME, Reader, one_of, takes, text
from kbserver.schemas.jsonschema import (
    COUNT,
    FLAG,
    INSTANT,
    TEXT,
    TEXTS,
    Schema,
    array,
    named,
    nullable,
    obj,
    said,
    words,
)


@takes(array(NAME, description="Names; none is all of them."))
def _names(value: Any) -> tuple[str, ...]:
    """Read names, which are judged one by one where the key is made."""
    if type(value) is not list or not all(type(name) is str for name in value):
        raise ValueError("must be an array of names")
    return tuple(value)


def _number(low: float, high: float, *, above: bool) -> Reader:
    bound = "exclusiveMinimum" if above else "minimum"

    @takes({"type": "number", bound: low, "maximum": high})
    def read(value: Any) -> float:
        if type(value) not in (int, float) or not low <= value <= high or (above and value == low):
            raise ValueError(
                f"must be a number {'over' if above else 'from'} {low:g} up to {high:g}"
            )
        return float(value)

    return read


_key = Envelope(
    "NewKey",
    {
        "name": text,
        "role": one_of(*ROLES),
        "databases": _names,
        "tenants": _names,
        "expiresInDays": _number(0, MAX_EXPIRY_DAYS, above=True),
        "description": text,
    },
    required=("name", "role"),
)
_bootstrap = Envelope(
    "Bootstrap", {"name": text, "description": text, "token": text}, required=("name", "token")
)
_rotation = Envelope("KeyRotation", {"overlapSeconds": _number(0, MAX_OVERLAP_S, above=False)})


@dataclass(frozen=True, slots=True)
class Bootstrap:
    """A request for the first key: name, purpose, and the bootstrap token."""

    name: str
    description: str
    token: str


@_key.shapes
def new_key(data: dict[str, Any], *, strict: bool) -> KeyWanted:
    """Read the body that makes a key."""
    fields = _key.load(data, strict)
    return KeyWanted(
        fields["name"],
        fields["role"],
        fields.get("databases", ()),
        fields.get("tenants", ()),
        fields.get("expiresInDays"),
        fields.get("description", ""),
    )


@_bootstrap.shapes
def bootstrap(data: dict[str, Any], *, strict: bool) -> Bootstrap:
    """Read the body that makes the first key."""
    fields = _bootstrap.load(data, strict)
    return Bootstrap(fields["name"], fields.get("description", ""), fields["token"])


@_rotation.shapes
def rotation(data: dict[str, Any], *, strict: bool) -> float:
    """Read the body that replaces a key: seconds the old one goes on."""
    seconds: float = _rotation.load(data, strict).get("overlapSeconds", float(OVERLAP_S))
    return seconds


_ROLE = words(*ROLES)
_SHOWN: dict[str, Schema] = {
    "id": TEXT,
    "name": TEXT,
    "prefix": said(TEXT, "How the key begins."),
    "role": _ROLE,
    "databases": said(TEXTS, "Where it holds; none is everywhere."),
    "tenants": said(TEXTS, "The same."),
    "description": TEXT,
    "createdAt": INSTANT,
    "expiresAt": nullable(INSTANT),
}

KEYS = named("Keys", obj({"keys": array(obj({**_SHOWN, "expired": FLAG})), "count": COUNT}))
MADE = named("MadeKey", obj({**_SHOWN, "key": said(TEXT, "The whole key; it is shown this once.")}))
REVOKED = named("RevokedKey", obj({"message": TEXT, "id": TEXT}))
AUTH_STATUS = named(
    "AuthStatus",
    obj(
        {
            "mode": words("disabled", "single", "managed"),
            "bootstrapRequired": FLAG,
            "keyCount": COUNT,
        }
    ),
)
WHOAMI = named(
    "WhoAmI",
    obj(
        {
            "mode": words("disabled", "single", "managed"),
            "keyId": nullable(TEXT),
            "name": nullable(TEXT),
            "role": _ROLE,
            "permissions": TEXTS,
            "databases": TEXTS,
            "tenants": TEXTS,
        }
    ),
)
