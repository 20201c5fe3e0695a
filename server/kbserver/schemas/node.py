"""Health, maintenance and replication of a node: bodies and answers."""

from __future__ import annotations

from kbserver.schemas.base import Body, JsonObject
from kbserver.schemas.fields import (
    ByName,
    Choice,
    Count,
    Flag,
    Many,
    Number,
    One,
    Text,
    Time,
    Value,
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


class Readiness(JsonObject):
    """The readiness of the node and its subsystems."""

    status = Choice("healthy", "degraded", "unhealthy")
    checks = ByName(Check)
    writable = Flag()
