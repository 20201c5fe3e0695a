"""Readiness of a node for requests, and the problems that prevent it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kbcore.config.settings import Config
from kbcore.durable.recovery import Recovered
from kbcore.llm.model import Model, model_check
from kbcore.plug.ports import LogStatus
from kbcore.replication.role import Replication
from kbcore.state.tenant import Tenant


def readiness(
    config: Config,
    status: LogStatus,
    recovered: Recovered,
    tenants: Iterable[Tenant],
    model: Model | None,
    replication: Replication,
    *,
    failed: bool,
    stopping: bool,
) -> dict[str, Any]:
    """Return the overall status, a check for each part, and `writable`.

    `failed`: the log has failed.
    """
    storage = {
        "status": "pass",
        "message": f"{config.storage_backend}, fsync {config.fsync_policy}",
    }
    if not status.writable:
        storage = {"status": "warn", "message": "the disk is full: reads only"}
    if failed:
        storage = {"status": "fail", "message": "the log failed"}
    recovery = {
        "status": "fail" if any(tenant.failed is not None for tenant in tenants) else "pass",
        "message": f"{recovered.records} records replayed after snapshot {recovered.snapshot}",
    }
    checks = {
        "storage": storage,
        "recovery": recovery,
        "replication": replication.check(),
        "llm": model_check(model),
    }
    worst = {check["status"] for check in checks.values()}
    if config.ready_requires_writes and not status.writable:
        worst.add("fail")
    overall = (
        "unhealthy" if "fail" in worst or stopping else "degraded" if "warn" in worst else "healthy"
    )
    writable = overall != "unhealthy" and status.writable and replication.leader_url is None
    return {"status": overall, "checks": checks, "writable": writable}
