"""An existing Flask application with an embedded knowledge base.

Run it with `flask --app host_app run`. The pages of the host are at `/`, the knowledge base is at
`/kb/...`, and the host calls it directly, without HTTP, through the same runtime.
"""

from __future__ import annotations

import atexit
from typing import Any

from flask import Flask
from werkzeug.middleware.dispatcher import DispatcherMiddleware

from kbcore.config import Config
from kbcore.node.runtime import Runtime, open_runtime
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable
from kbserver import create_app


def make_host(runtime: Runtime) -> Flask:
    """Create the host application and mount the knowledge base under `/kb`."""
    host = Flask("host")

    @host.get("/visit/<name>")
    def visit(name: str) -> dict[str, Any]:
        """Store a visitor and list all visitors."""
        knowledge = runtime.knowledge_base(tenant="visitors")
        knowledge.assert_facts([Fact("visited", (name,))])
        return {
            "visitors": [
                row["args"][0] for row in knowledge.query_rows("visited", [Variable("who")])
            ]
        }

    host.wsgi_app = DispatcherMiddleware(  # type: ignore[method-assign]
        host.wsgi_app, {"/kb": create_app(runtime)}
    )
    return host


def create_host() -> Flask:
    """Open a runtime with the settings of the environment; close it when the process ends."""
    runtime = open_runtime(Config.from_env())
    atexit.register(runtime.close)
    return make_host(runtime)
