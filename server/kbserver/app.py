"""The Flask application: routes, the number and the log line of each request, and one way out for every error."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from flask import Flask, Response, g, request
from flask.sessions import SessionInterface

from kbcore import __version__
from kbcore.errors import NotFound, StorageFailed
from kbcore.kb.slow_log import REQUEST
from kbcore.metrics.catalogue import EVENT_STREAMS, HTTP_BODY_BYTES, MCP_SUBSCRIBERS
from kbserver.answers import JSON
from kbserver.errors import ErrorAnswer, answer_of
from kbserver.events.streams import EventHub
from kbserver.fast_path import FastPath
from kbserver.http.body_memory import Bodies
from kbserver.http.compress import VARY, compressed, compressible, wanted_by
from kbserver.http.cors import Cors
from kbserver.http.etags import weakened
from kbserver.http.idempotency import Idempotency
from kbserver.http.request_context import release
from kbserver.http.request_id import request_id
from kbserver.logs import access, log_request, traced
from kbserver.mcp.transport import Transport
from kbserver.process.instruments import UNMATCHED, HttpMeters, reading
from kbserver.replication import requests as following
from kbserver.routes import BLUEPRINTS
from kbserver.routes.agents.mcp import EXTENSION
from kbserver.routes.plugin_routes import mount
from kbserver.security.audit import note
from kbserver.security.guard import WHO, Guard, WhileItHolds
from kbserver.security.limits import headers_of
from kbserver.security.permissions import NO_ROUTE, need_of

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


STORAGE_FAILED_STATUS = 74
"""How the process ends when a sync of the disk failed, by the names of sysexits an input/output error."""

EVENT_STREAM = "text/event-stream"

NOT_MODIFIED = 304

_SHOWN = 128

log = logging.getLogger(__name__)


class Application(Flask):
    """Flask without asking of each function, at each call, whether it is asynchronous."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Give the function itself: all of ours are synchronous."""
        return func


class _NoSession(SessionInterface):
    """There are no cookies here."""

    def open_session(self, app: Flask, request: object) -> None:
        """Open nothing."""


def create_app(
    runtime: Runtime,
    *,
    on_storage_failed: Callable[[StorageFailed], None] | None = None,
    pause: Callable[[], None] | None = None,
    lean: bool = True,
) -> Flask:
    """Make a WSGI application that serves `runtime`; whoever opened the runtime closes it.

    `pause` lets other requests have their turn while a long body is read. `on_storage_failed` is called when a sync of the
    disk failed and the state of the log is unknown: nothing may be acknowledged afterwards, so a server stops its process.
    `lean` serves the usual requests of the hot routes without Flask.
    """
    app = Application("kbserver", static_folder=None, template_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.extensions["kbcore"] = runtime
    app.extensions["kbcore.pause"] = pause or _go_on
    app.extensions["kbcore.started"] = runtime.clock.monotonic()
    app.extensions["kbcore.events"] = events = EventHub(runtime)
    runtime.metrics.on_collect(reading(EVENT_STREAMS, lambda: len(events)))
    app.extensions["kbcore.bodies"] = bodies = Bodies(runtime.config.max_bodies_bytes)
    runtime.metrics.on_collect(reading(HTTP_BODY_BYTES, lambda: bodies.bytes))
    app.session_interface = _NoSession()
    meters = HttpMeters(runtime.metrics)

    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)
    mount(app, runtime)
    guard = app.extensions["kbcore.guard"] = Guard(
        runtime, plugin=runtime.plugins.listens("kb_http_authenticate")
    )
    guarded = guard.active

    @app.before_request
    def begin() -> None:
        g.started = runtime.clock.monotonic()
        runtime.replication.last_commit.seq = 0
        meters.under_way += 1
        g.request_id = request_id(request.environ.get("HTTP_X_REQUEST_ID"))
        REQUEST.set(g.request_id)
        astray = request.environ.get("PATH_INFO", "").startswith("//")  # which Flask takes for one
        if guarded:
            rule = None if astray else request.url_rule
            need = NO_ROUTE if rule is None else need_of(request.method, rule.rule)
            guard.admit(request.environ, need, request.view_args)
        if astray:
            raise NotFound("no such path")

    @app.after_request
    def shrink(
        response: Response,
    ) -> Response:  # registered first, so it sees the answer as it will be
        if not response.is_streamed:
            _compress(response, runtime)
        return response

    following.install(app, runtime)
    Idempotency(runtime).install(app)

    def failed(error: Exception, number: str) -> ErrorAnswer:
        if isinstance(error, StorageFailed) and on_storage_failed is not None:
            on_storage_failed(error)
        answer = answer_of(error, number)
        meters.error(answer.code)
        return answer

    @app.errorhandler(Exception)
    def fail(error: Exception) -> Response:
        release(error)
        answer = failed(error, _number())
        return Response(
            answer.body(), status=answer.status, content_type=JSON, headers=dict(answer.headers)
        )

    @app.after_request
    def finish(response: Response) -> Response:
        response.headers["X-Request-ID"] = _number()
        response.headers["X-KB-Version"] = __version__
        if "ignored" in g:
            response.headers.extend(g.ignored.headers())
        if "applied" in g:
            response.headers["Preference-Applied"] = ", ".join(dict.fromkeys(g.applied))
        environ, rule = request.environ, request.url_rule
        note(request, response.status_code, _number(), runtime.config.forwarded_hops)
        if guarded:
            for name, value in headers_of(environ).items():
                response.headers.setdefault(name, value)
            if response.mimetype == EVENT_STREAM and (who := environ.get(WHO)) is not None:
                response.response = WhileItHolds(response.response, lambda: guard.holds(who))
        seconds = runtime.clock.monotonic() - g.started
        route = UNMATCHED if rule is None else rule.rule
        meters.answered(environ.get("REQUEST_METHOD", ""), route, response.status_code, seconds)
        if access.isEnabledFor(
            logging.DEBUG if route == following.LOG else logging.INFO
        ):  # followers ask all the time
            log_request(
                {
                    "method": environ.get("REQUEST_METHOD", ""),
                    "path": environ.get("PATH_INFO", ""),
                    "status": response.status_code,
                    "ms": round(seconds * 1000, 2),
                    "id": _number(),
                    "tenant": environ.get("HTTP_X_TENANT_ID", "")[:_SHOWN],
                    **traced(environ),
                }
            )
        return response

    @app.teardown_request
    def leave(error: BaseException | None) -> None:
        bodies.release(request.environ)
        release(error)
        REQUEST.set("")
        if "started" in g:
            meters.under_way -= 1

    app.extensions[EXTENSION] = tools = Transport(app, runtime, failed)
    runtime.metrics.on_collect(reading(MCP_SUBSCRIBERS, lambda: len(tools.streams)))

    if lean:
        app.wsgi_app = FastPath(  # type: ignore[method-assign]
            app.wsgi_app, runtime, failed, meters, bodies, guard if guarded else None
        )
    if runtime.config.cors_origins:
        app.wsgi_app = Cors(app.wsgi_app, runtime.config.cors_origins)  # type: ignore[method-assign]
    return app


def _compress(response: Response, runtime: Runtime) -> None:
    parts = cast("list[bytes]", response.response)
    size = sum(map(len, parts))
    if response.status_code == NOT_MODIFIED:  # says what the answer it stands for would depend on
        response.vary.add(VARY)
    if (
        not compressible(response.content_type or "", size)
        or "Content-Encoding" in response.headers
    ):
        return
    response.vary.add(VARY)
    if wanted_by(request.environ):
        packed = compressed(parts, size, runtime.offload)
        response.response = [packed]
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(packed))
        weakened(response)


def _go_on() -> None:
    """Do not pause: threads share the processor by themselves."""


def stop_process(error: StorageFailed) -> None:
    """End the process at once: what the disk holds is unknown, so not one more request may be acknowledged."""
    log.critical("storage failed, stopping: %s", error.message)
    logging.shutdown()
    os._exit(STORAGE_FAILED_STATUS)


def _number() -> str:
    """Give the number of this request, also where it failed before it got one."""
    if "request_id" not in g:
        g.request_id = request_id(request.environ.get("HTTP_X_REQUEST_ID"))
    number: str = g.request_id
    return number
