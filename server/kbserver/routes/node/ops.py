"""Health, readiness and metrics, without a tenant; health needs neither a key nor the storage."""

from __future__ import annotations

from flask import Blueprint, Response, current_app

from kbcore import __version__
from kbcore.errors import NotFound
from kbserver.answers import as_json
from kbserver.http.request_context import runtime
from kbserver.operations import as_object, as_text, operation
from kbserver.schemas.answers.resources import HEALTH, READINESS

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

bp = Blueprint("ops", __name__)


@bp.get("/health")
@operation(as_object("It answers.", HEALTH), tenant=False)
def health() -> Response:
    """Report that the process responds."""
    uptime = runtime().clock.monotonic() - current_app.extensions["kbcore.started"]
    return as_json({"status": "healthy", "version": __version__, "uptimeSeconds": round(uptime, 3)})


@bp.get("/health/ready")
@operation(
    as_object("It can be sent requests.", READINESS),
    as_object("It cannot.", READINESS, status=503),
    tenant=False,
)
def ready() -> Response:
    """Report the readiness of every subsystem; 503 if the node cannot work without one of them."""
    health = runtime().health()
    shape = {"status": health["status"], "checks": health["checks"], "writable": health["writable"]}
    return as_json(shape, status=503 if health["status"] == "unhealthy" else 200)


@bp.get("/metrics")
@operation(
    as_text("Every family, in the Prometheus text format."), tenant=False, errors=frozenset({404})
)
def metrics() -> Response:
    """Return the metrics in the Prometheus text format; 404 if no metrics sink supports it."""
    health = runtime().metrics.expose()
    if health is None:
        raise NotFound(
            "no metrics are exposed here: none of METRICS_SINKS can", {"setting": "METRICS_SINKS"}
        )
    return Response(health, content_type=EXPOSITION)
