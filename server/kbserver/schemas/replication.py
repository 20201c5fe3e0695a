"""Bodies and answers of the replication routes."""

from __future__ import annotations

from typing import Any

from kbserver.schemas.base import Envelope
from kbserver.schemas.fields import flag
from kbserver.schemas.jsonschema import COUNT, TEXT, array, named, nullable, obj, words

_promotion = Envelope("Promotion", {"force": flag})

PROMOTED = named(
    "Promoted", obj({"promoted": {"const": True}, "logId": TEXT, "epoch": COUNT, "seq": COUNT})
)

STANDING = named(
    "ReplicationStatus",
    obj(
        {
            "role": words("LEADER", "FOLLOWER"),
            "logId": TEXT,
            "epoch": COUNT,
            "head": COUNT,
            "durable": COUNT,
            "snapshot": COUNT,
            "leader?": obj(
                {
                    "url": TEXT,
                    "head": COUNT,
                    "epoch": COUNT,
                    "lagRecords": COUNT,
                    "lagMs": nullable(COUNT),
                    "lastContactMs": nullable(COUNT),
                    "bootstraps": COUNT,
                    "divergences": COUNT,
                    "trouble": nullable(TEXT),
                }
            ),
            "followers": array(
                obj({"name": TEXT, "seq": COUNT, "lagRecords": COUNT, "lastContactMs": COUNT})
            ),
        }
    ),
)


@_promotion.shapes
def promotion(data: dict[str, Any], *, strict: bool) -> bool:
    """Read the body of /admin/promote: whether it shall be done although the leader answers."""
    return bool(_promotion.load(data, strict).get("force"))
