"""The Flask application: routes, the number and the log line of each request, and one way out for every error."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from flask import Flask, Response, g, request
from flask.sessions import SessionInterface

from kbcore.errors import StorageFailed
from kbserver.answers import JSON
from kbserver.errors import ErrorAnswer, answer_of
from kbserver.lean import Lean
from kbserver.logs import access, log_request
from kbserver.request_id import request_id
from kbserver.routes import BLUEPRINTS

if TYPE_CHECKING:
    from kbcore.runtime import Runtime


STORAGE_FAILED_STATUS = 74
"""How the process ends when a sync of the disk failed, by the names of sysexits an input/output error."""

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
    app.session_interface = _NoSession()

    for blueprint in BLUEPRINTS:
        app.register_blueprint(blueprint)

    @app.before_request
    def begin() -> None:
        g.started = runtime.clock.monotonic()
        g.request_id = request_id(request.environ.get("HTTP_X_REQUEST_ID"))

    def failed(error: Exception, number: str) -> ErrorAnswer:
        if isinstance(error, StorageFailed) and on_storage_failed is not None:
            on_storage_failed(error)
        return answer_of(error, number)

    @app.errorhandler(Exception)
    def fail(error: Exception) -> Response:
        answer = failed(error, _number())
        return Response(answer.body(), status=answer.status, content_type=JSON, headers=dict(answer.headers))

    @app.after_request
    def finish(response: Response) -> Response:
        response.headers["X-Request-ID"] = _number()
        if access.isEnabledFor(logging.INFO):
            environ = request.environ
            log_request(
                {
                    "method": environ.get("REQUEST_METHOD", ""),
                    "path": environ.get("PATH_INFO", ""),
                    "status": response.status_code,
                    "ms": round((runtime.clock.monotonic() - g.started) * 1000, 2) if "started" in g else None,
                    "id": _number(),
                    "tenant": environ.get("HTTP_X_TENANT_ID", "")[:_SHOWN],
                }
            )
        return response

    if lean:
        app.wsgi_app = Lean(app.wsgi_app, runtime, failed)  # type: ignore[method-assign]
    return app


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
