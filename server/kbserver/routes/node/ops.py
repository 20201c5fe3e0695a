"""Health, readiness and metrics, without a tenant; health needs neither a key nor the storage."""

from __future__ import annotations

from typing import Any

from flask import Response, current_app

from kbcore import __version__
from kbcore.errors import NotFound
from kbcore.metrics.exposition import merged
from kbcore.node.shard_layout import SYSTEM
from kbcore.state.keys import READER
from kbserver.answers import as_json
from kbserver.http.request_context import runtime
from kbserver.operations import as_object, as_text, operation
from kbserver.schemas.node import Health, Readiness
from kbserver.security.permissions import PUBLIC, About

EXPOSITION = "text/plain; version=0.0.4; charset=utf-8"

_HEALTH: dict[str, Any] = {
    "role": PUBLIC,
    "about": About.NOTHING,
    "counted": False,
    "tenant": False,
    "headers_checked": False,
}


@operation("GET /health", replies=(as_object("The process responds.", Health),), **_HEALTH)
def health() -> Response:
    """Report that the process responds."""
    uptime = runtime().clock.monotonic() - current_app.extensions["kbcore.started"]
    return as_json({"status": "healthy", "version": __version__, "uptimeSeconds": round(uptime, 3)})


@operation(
    "GET /health/ready",
    replies=(
        as_object("The node accepts requests.", Readiness),
        as_object("The node does not accept requests.", Readiness, status=503),
    ),
    **_HEALTH,
)
def ready() -> Response:
    """Report the readiness of every subsystem; 503 if the node cannot work without one of them."""
    health = runtime().health()
    shape = {"status": health["status"], "checks": health["checks"], "writable": health["writable"]}
    return as_json(shape, status=503 if health["status"] == "unhealthy" else 200)


@operation(
    "GET /metrics",
    role=READER,
    about=About.NODE,
    counted=False,
    replies=(as_text("Every metric family, in the Prometheus text format."),),
    tenant=False,
    headers_checked=False,
    errors=(404,),
)
def metrics() -> Response:
    """Return the metrics in the Prometheus text format; 404 if no metrics sink supports it."""
    exposition = runtime().metrics.expose()
    if exposition is None:
        raise NotFound(
            "no metrics are exposed here: none of METRICS_SINKS can", {"setting": "METRICS_SINKS"}
        )
    peers = runtime().peers
    if peers is not None and (others := peers.expositions()):
        exposition = merged([(SYSTEM, exposition.decode()), *others]).encode()
    return Response(exposition, content_type=EXPOSITION)
