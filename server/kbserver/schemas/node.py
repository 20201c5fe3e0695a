"""API keys, health, maintenance, replication and cluster of a node: bodies and answers."""

from __future__ import annotations

from typing import ClassVar

from kbcore.errors import InvalidInput
from kbcore.node.api_keys import MAX_EXPIRY_DAYS, MAX_OVERLAP_S, OVERLAP_S, KeyWanted
from kbcore.state.keys import ROLES, StoredKey
from kbcore.state.labels import to_json
from kbserver.schemas.base import Answer, Body, JsonObject, present
from kbserver.schemas.fields import (
    ByName,
    Choice,
    Count,
    Flag,
    Json,
    LabelValues,
    Many,
    Name,
    Names,
    Number,
    Object,
    One,
    Text,
    Time,
    Value,
    Whole,
)


class Home(JsonObject):
    """The start page."""

    name = Text()
    version = Text()
    links = ByName(Text(), "Paths by name.")


class PromotionBody(Body):
    """The promotion of a follower, even if its leader responds."""

    force = Flag()


class Promoted(JsonObject):
    """The epoch that the node leads in."""

    promoted = Value(schema={"type": "boolean", "enum": [True]})
    log_id = Text()
    epoch = Count()
    seq = Count()


class LeaderStatus(JsonObject):
    """The leader of a follower, and how far behind the follower is."""

    url = Text(allow_none=True)
    head = Count()
    epoch = Count()
    lag_records = Count()
    lag_ms = Count(allow_none=True)
    last_contact_ms = Count(allow_none=True)
    bootstraps = Count()
    divergences = Count()
    trouble = Text(allow_none=True)


class LeaseStatus(JsonObject):
    """The lease of a leader: fencing token, and how long the leader may rely on it."""

    token = Count()
    remaining_ms = Count()


class FollowerStatus(JsonObject):
    """A follower, and how far behind it is."""

    name = Text()
    seq = Count()
    lag_records = Count()
    last_contact_ms = Count()
    in_sync = Flag()


class ErasureStatus(JsonObject):
    """Progress of the removal of purged text, and of deleted tenants, from the storage of a
    node.
    """

    erased = Count("No record up to this number is in the storage.")
    pending = Count("The text of records up to this number is to be removed; 0: none.")
    waits_for = Choice("work", "followers", "retry", "storage", allow_none=True)
    problem = Text("Why the last attempt failed.", allow_none=True)


class ReplicationStatus(JsonObject):
    """The role of a node and its position in the log."""

    role = Choice("LEADER", "FOLLOWER")
    log_id = Text()
    epoch = Count()
    head = Count()
    durable = Count()
    snapshot = Count()
    lease = One(LeaseStatus, optional=True)
    leader = One(LeaderStatus, optional=True)
    followers = Many(FollowerStatus)
    erasure = One(ErasureStatus)


class SnapshotTaken(JsonObject):
    """A snapshot: the last record in it."""

    snapshot = Count()
    timestamp = Time()


class Health(JsonObject):
    """The process responds."""

    status = Value(schema={"type": "string", "enum": ["healthy"]})
    version = Text()
    uptime_seconds = Number()


class Check(JsonObject):
    """The readiness of a subsystem."""

    status = Choice("pass", "warn", "fail")
    message = Text()
    index_progress = Number(
        "Of `search`, while word indexes are made: the share of facts that are indexed, 0 to 1.",
        optional=True,
    )


class Readiness(JsonObject):
    """The readiness of the node and its subsystems."""

    status = Choice("healthy", "degraded", "unhealthy")
    checks = ByName(Check)
    writable = Flag()


class MoveBody(Body):
    """A shard, or a tenant that is in it, and the node to which it moves."""

    shard = Whole(0)
    tenant_id = Name()
    database = Name()
    node = Text(required=True)

    requires: ClassVar[Json] = {
        "oneOf": [
            present("shard", without=("tenantId", "database")),
            present("tenantId", without=("shard",)),
        ]
    }

    def arguments(self, fields: Json) -> Json:
        """Return the fields, of which one names the shard or a tenant; raises InvalidInput."""
        if ("shard" in fields) == ("tenant_id" in fields):
            raise InvalidInput.at("shard", "either this or `tenantId` is required")
        if "shard" in fields and "database" in fields:
            raise InvalidInput.at("database", "goes with `tenantId`")
        return fields


class DrainBody(Body):
    """The node that gives its shards to the others."""

    node = Text(required=True)


class ClusterNodeStatus(JsonObject):
    """A live node and the shards that it has."""

    name = Text()
    url = Text()
    weight = Count()
    state = Choice("active", "drained", "leaving")
    shards = Many(Count())


class ShardMove(JsonObject):
    """A shard that is about to move from one node to another."""

    shard = Count()
    from_ = Text(data_key="from")
    to = Text()


class MovedShard(JsonObject):
    """A shard that an operator has moved to a node."""

    shard = Count()
    node = Text()


class ClusterStatus(JsonObject):
    """The nodes of a cluster; `node` is the one that answers, `open` are the shards it serves."""

    shards = Count()
    unowned = Many(Count())
    moving = Many(ShardMove)
    nodes = Many(ClusterNodeStatus)
    moved = Many(MovedShard)
    drained = Many(Text())
    node = Text()
    open = Many(Count())


class NewKeyBody(Body):
    """A key to create."""

    name = Text(required=True)
    role = Choice(*ROLES, required=True)
    databases = Names()
    tenants = Names()
    expires_in_days = Number(above=0, high=MAX_EXPIRY_DAYS)
    description = Text()
    view = LabelValues(description="What the key may see at most of a tenant.")
    labels = LabelValues(description="Labels of what the key stores.")

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
                fields.get("view", {}),
                fields.get("labels", {}),
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


def _view(key: StoredKey) -> Json | None:
    return to_json(key.view) or None


def _labels(key: StoredKey) -> Json | None:
    return to_json(key.labels) or None


class KeyShown(Answer):
    """A key without its secret."""

    id = Text()
    name = Text()
    prefix = Text("How the key begins.")
    role = Choice(*ROLES)
    databases = Many(Text(), "Where the key is valid; none means everywhere.")
    tenants = Many(Text(), "Where the key is valid; none means everywhere.")
    description = Text()
    view = Object("What the key may see at most. Left out without a view.", of=_view, optional=True)
    labels = Object(
        "Labels of what the key stores. Left out without any.", of=_labels, optional=True
    )
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

    mode = Choice("disabled", "single", "managed", "oauth")
    bootstrap_required = Flag()
    key_count = Count()


class ProtectedResource(JsonObject):
    """The metadata of this server as a protected resource of OAuth (RFC 9728)."""

    resource = Text()
    authorization_servers = Many(Text(), data_key="authorization_servers")
    scopes_supported = Many(Text(), data_key="scopes_supported")
    bearer_methods_supported = Many(Text(), data_key="bearer_methods_supported")
    resource_name = Text(data_key="resource_name")


class PublicKey(JsonObject):
    """A public key of Ed25519 as a JSON Web Key (RFC 8037); `kid` is its thumbprint (RFC 7638)."""

    kty = Choice("OKP")
    crv = Choice("Ed25519")
    x = Text()
    kid = Text()
    use = Choice("sig")
    alg = Choice("EdDSA")


class ReceiptKeys(JsonObject):
    """A JSON Web Key Set (RFC 7517)."""

    keys = Many(One(PublicKey))


class WhoAmI(JsonObject):
    """The identity and permissions of a key."""

    mode = Choice("disabled", "single", "managed", "oauth")
    key_id = Text(allow_none=True)
    name = Text(allow_none=True)
    role = Choice(*ROLES)
    permissions = Many(Text())
    databases = Many(Text())
    tenants = Many(Text())
    view = Object("What the key may see at most. Left out without a view.", optional=True)
    labels = Object("Labels of what the key stores. Left out without any.", optional=True)
