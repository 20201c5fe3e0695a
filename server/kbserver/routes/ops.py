"""Is the server alive, and may it be sent requests: no tenant, no key, no storage touched for the first."""

from __future__ import annotations

from flask import Blueprint, Response, current_app

from kbcore import __version__
from kbserver.answers import as_json
from kbserver.request_context import runtime

bp = Blueprint("ops", __name__)


@bp.get("/health")
def health() -> Response:
    """Say that the process answers."""
    uptime = runtime().clock.monotonic() - current_app.extensions["kbcore.started"]
    return as_json({"status": "healthy", "version": __version__, "uptimeSeconds": round(uptime, 3)})


@bp.get("/health/ready")
def ready() -> Response:
    """Say whether every subsystem is ready; 503 when one makes the node useless."""
    found = runtime().health()
    shape = {"status": found["status"], "checks": found["checks"], "writable": found["writable"]}
    return as_json(shape, status=503 if found["status"] == "unhealthy" else 200)
