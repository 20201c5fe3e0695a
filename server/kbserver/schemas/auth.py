"""API keys: bodies and answers."""

from __future__ import annotations

from kbcore.node.api_keys import MAX_EXPIRY_DAYS, MAX_OVERLAP_S, OVERLAP_S, KeyWanted
from kbcore.state.keys import ROLES
from kbserver.schemas.base import Answer, Body, JsonObject
from kbserver.schemas.fields import Choice, Count, Flag, Json, Many, Names, Number, Text, Time


class NewKeyBody(Body):
    """A key to create."""

    name = Text(required=True)
    role = Choice(*ROLES, required=True)
    databases = Names()
    tenants = Names()
    expires_in_days = Number(above=0, high=MAX_EXPIRY_DAYS)
    description = Text()

    def arguments(self, fields: Json) -> Json:
        """Return the requested key."""
        return {
            "wanted": KeyWanted(
                fields["name"],
                fields["role"],
                fields.get("databases", ()),
                fields.get("tenants", ()),
                fields.get("expires_in_days"),
                fields.get("description", ""),
            )
        }


class BootstrapBody(Body):
    """The first key to create, and the bootstrap token."""

    name = Text(required=True)
    description = Text()
    token = Text(required=True)


class KeyRotationBody(Body):
    """Seconds for which the replaced key stays valid."""

    overlap_seconds = Number(low=0, high=MAX_OVERLAP_S)

    def arguments(self, fields: Json) -> Json:
        """Return the overlap in seconds."""
        return {"overlap": fields.get("overlap_seconds", float(OVERLAP_S))}


class KeyShown(Answer):
    """A key without its secret."""

    id = Text()
    name = Text()
    prefix = Text("How the key begins.")
    role = Choice(*ROLES)
    databases = Many(Text(), "Where the key is valid; none means everywhere.")
    tenants = Many(Text(), "Where the key is valid; none means everywhere.")
    description = Text()
    created_at = Time()
    expires_at = Time(allow_none=True)


class ListedKey(KeyShown):
    """A key and whether it has expired."""

    expired = Flag()


class MadeKey(KeyShown):
    """A new key."""

    key = Text("The whole key, which is shown only this once.")


class RevokedKey(JsonObject):
    """A revoked key."""

    message = Text()
    id = Text()


class AuthStatus(JsonObject):
    """The authentication mode."""

    mode = Choice("disabled", "single", "managed")
    bootstrap_required = Flag()
    key_count = Count()


class WhoAmI(JsonObject):
    """The identity and permissions of a key."""

    mode = Choice("disabled", "single", "managed")
    key_id = Text(allow_none=True)
    name = Text(allow_none=True)
    role = Choice(*ROLES)
    permissions = Many(Text())
    databases = Many(Text())
    tenants = Many(Text())
