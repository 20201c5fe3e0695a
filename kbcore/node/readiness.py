"""Readiness of a node for requests, and the problems that prevent it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbcore.config.settings import Config
from kbcore.durable.recovery import Recovered
from kbcore.plug.ports import LogStatus
from kbcore.state.catalog import Catalog
from kbplanner.syntax.diagnostics import counted

Check = dict[str, Any]
"""`status` (pass, warn or fail) and `message` of one part of a node, and its `indexProgress`."""


def storage_check(config: Config, status: LogStatus, *, failed: bool) -> Check:
    """Return the check of the log; `failed` is true after a failed append or sync."""
    if failed:
        return {"status": "fail", "message": "the log failed"}
    if not status.writable:
        return {"status": "warn", "message": "the disk is full: reads only"}
    if status.snapshot_lost:
        message = (
            "the newest snapshot was damaged or removed: an older state and the log replace it"
        )
        return {"status": "warn", "message": f"{message} until the next snapshot"}
    return {"status": "pass", "message": f"{config.storage_backend}, fsync {config.fsync_policy}"}


def recovery_check(recovered: Recovered, catalogs: Sequence[Catalog]) -> Check:
    """Return the check of the recovery, which fails while a tenant is unusable.

    It warns of databases that shards have quarantined.
    """
    tenants = (tenant for catalog in catalogs for tenant in catalog.tenants())
    message = f"{counted(recovered.records, 'record')} replayed after snapshot {recovered.snapshot}"
    if any(tenant.failed is not None for tenant in tenants):
        return {"status": "fail", "message": message}
    if any(catalog.quarantined for catalog in catalogs):
        problem = (
            "databases of shards that the system shard does not know are not served; see the log"
        )
        return {"status": "warn", "message": f"{message}; {problem}"}
    return {"status": "pass", "message": message}


def readiness(checks: Mapping[str, Check], *, available: bool, writable: bool) -> dict[str, Any]:
    """Return the overall status, the checks, and `writable`.

    `available` is false if the node must not get requests even if its checks pass, `writable` is
    false if it refuses writes.
    """
    statuses = {check["status"] for check in checks.values()}
    if "fail" in statuses or not available:
        return {"status": "unhealthy", "checks": checks, "writable": False}
    overall = "degraded" if "warn" in statuses else "healthy"
    return {"status": overall, "checks": checks, "writable": writable}


_SEVERITY = ("pass", "warn", "fail")
_STATUSES = ("healthy", "degraded", "unhealthy")


def _badness(check: Check) -> tuple[int, float]:
    return _SEVERITY.index(check["status"]), -check.get("indexProgress", 1.0)


def worst(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the readiness of several processes: of each check the worst; writable if all are."""
    checks = {
        name: max((report["checks"][name] for report in reports), key=_badness)
        for name in reports[0]["checks"]
    }
    status = max((report["status"] for report in reports), key=_STATUSES.index)
    writable = all(report["writable"] for report in reports)
    return {"status": status, "checks": checks, "writable": writable}
