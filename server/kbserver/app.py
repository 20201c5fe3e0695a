"""The Flask application: routes, middleware, and the hooks around each request."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from flask import Flask, Response, request
from flask.sessions import SessionInterface

from kbcore.errors import NotFound, StorageFailed
from kbcore.metrics.catalogue import EVENT_STREAMS, HTTP_BODY_BYTES, MCP_SUBSCRIBERS
from kbserver import operations
from kbserver.accounting import Accounting
from kbserver.answers import JSON
from kbserver.events.streams import EventHub
from kbserver.fast_path import FastPath
from kbserver.freeing import free_arguments
from kbserver.http.body_memory import Bodies
from kbserver.http.compress import VARY, compressed, compressible, wanted_by
from kbserver.http.etags import weakened
from kbserver.http.request_context import current_request, release
from kbserver.idempotency import Idempotency
from kbserver.mcp.rpc import RpcFailure
from kbserver.mcp.transport import Transport
from kbserver.operations import need_of
from kbserver.process.instruments import gauge
from kbserver.replication import requests as replication
from kbserver.routes import every  # noqa: F401  declares the operations
from kbserver.routes.agents.context import mark_deprecated
from kbserver.routes.agents.mcp import EXTENSION, failed
from kbserver.routes.plugin_routes import mount
from kbserver.security.browser_guard import EXTENSION as BROWSER_GUARD
from kbserver.security.browser_guard import BrowserGuard
from kbserver.security.guard import GUARD, Guard, RevocableStream
from kbserver.security.permissions import NO_ROUTE
from kbserver.subscriptions.streams import GoalStreams

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


STORAGE_FAILED_STATUS = 74
"""Exit status after a failed sync of the disk: an input/output error in the terms of sysexits."""

EVENT_STREAM = "text/event-stream"

NOT_MODIFIED = 304

log = logging.getLogger(__name__)


class Application(Flask):
    """A Flask application whose functions are all synchronous, which saves a check at each call."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function unchanged."""
        return func


class _NoSession(SessionInterface):
    """No sessions: the server uses no cookies."""

    def open_session(self, app: Flask, request: object) -> None:
        """Return None."""


def create_app(
    runtime: Runtime,
    *,
    on_storage_failed: Callable[[StorageFailed], None] | None = None,
    fast_path: bool = True,
) -> Flask:
    """Create a WSGI application that serves `runtime`; the caller closes the runtime.

    `on_storage_failed` is called when a sync of the disk failed and the content of the log is
    unknown: the server must stop its process, because nothing may be acknowledged afterwards.
    `fast_path` serves common requests of the hot routes without Flask.
    """
    app = Application("kbserver", static_folder=None, template_folder=None)
    app.config["PROVIDE_AUTOMATIC_OPTIONS"] = False
    app.url_map.merge_slashes = False
    app.session_interface = _NoSession()
    accounting = Accounting(runtime, on_storage_failed)
    events, bodies = EventHub(runtime), Bodies(runtime.config.max_bodies_bytes)
    app.extensions |= {
        "kbcore": runtime,
        "kbcore.started": runtime.clock.monotonic(),
        "kbcore.events": events,
        "kbcore.goal_streams": GoalStreams(runtime, events),
        "kbcore.bodies": bodies,
    }
    operations.install(app)
    app.register_error_handler(RpcFailure, failed)
    app.after_request(mark_deprecated)
    mount(app, runtime)
    guard = Guard(runtime, plugin=runtime.plugins.listens("kb_http_authenticate"))
    app.extensions[GUARD] = guard
    active_guard = guard if guard.active else None
    browser_guard = app.extensions[BROWSER_GUARD] = BrowserGuard(runtime)
    _install_hooks(app, runtime, accounting, bodies, active_guard)
    app.extensions[EXTENSION] = mcp = Transport(app, runtime, accounting.failed)

    runtime.metrics.on_collect(gauge(EVENT_STREAMS, lambda: len(events)))
    runtime.metrics.on_collect(gauge(HTTP_BODY_BYTES, lambda: bodies.bytes))
    runtime.metrics.on_collect(gauge(MCP_SUBSCRIBERS, lambda: len(mcp.streams)))

    app.wsgi_app = FastPath(  # type: ignore[method-assign]
        app.wsgi_app,
        runtime,
        accounting,
        bodies,
        browser_guard,
        active_guard,
        fast_path=fast_path,
    )
    return app


def _install_hooks(
    app: Flask, runtime: Runtime, accounting: Accounting, bodies: Bodies, guard: Guard | None
) -> None:
    """Add the hooks around each request.

    Flask calls the functions after a request in reverse order of their registration: compression
    comes first here, because it needs the final response.
    """

    @app.before_request
    def begin() -> None:
        environ, served = request.environ, current_request()
        accounting.begin(served)
        # Flask routes a path that starts with two slashes as if it had one.
        has_two_slashes = environ.get("PATH_INFO", "").startswith("//")
        if guard is not None:
            rule = None if has_two_slashes else request.url_rule
            need = NO_ROUTE if rule is None else need_of(request.method, rule.rule)
            guard.admit(served, need, request.view_args)
        if has_two_slashes:
            raise NotFound("no such path")

    @app.after_request
    def compress(response: Response) -> Response:
        if not response.is_streamed:
            _compress(response, runtime)
        return response

    def refused(error: Exception) -> Response:
        answer = accounting.failed(error, current_request().id)
        return Response(
            answer.body(), status=answer.status, content_type=JSON, headers=dict(answer.headers)
        )

    replication.install(app, runtime, refused)
    Idempotency(runtime).install(app)

    @app.errorhandler(Exception)
    def fail(error: Exception) -> Response:
        release(error)
        return refused(error)

    @app.after_request
    def finish(response: Response) -> Response:
        served, rule = current_request(), request.url_rule
        for name, value in served.answer_headers(dict(response.headers)):
            response.headers[name] = value
        who = served.principal
        if guard is not None and who is not None and response.mimetype == EVENT_STREAM:
            response.response = RevocableStream(response.response, lambda: guard.is_valid(who))
        template = None if rule is None else rule.rule
        accounting.finish(served, template, response.status_code)
        return response

    @app.teardown_request
    def end(error: BaseException | None) -> None:
        bodies.release(request.environ)
        release(error)
        served = current_request()
        arguments, served.arguments = served.arguments, None
        if arguments is not None:
            free_arguments(arguments, runtime.yield_now)
        accounting.end(served)


def _compress(response: Response, runtime: Runtime) -> None:
    parts = cast("list[bytes]", response.response)
    size = sum(map(len, parts))
    if response.status_code == NOT_MODIFIED:  # has the Vary header of the response it stands for
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


def stop_process(error: StorageFailed) -> None:
    """End the process at once: the content of the disk is unknown, so no request may be
    acknowledged.
    """
    log.critical("storage failed, stopping: %s", error.message)
    logging.shutdown()
    os._exit(STORAGE_FAILED_STATUS)
