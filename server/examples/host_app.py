"""A Flask application with a knowledge base inside.

Run it with `flask --app host_app run`. The pages of the host are at `/`, the HTTP interface of the
knowledge base is at `/kb/...`, and the host uses the same knowledge base directly.
"""

from __future__ import annotations

from typing import Any

from flask import Flask

from kbserver.flask import KBCore

kb = KBCore()


def create_app(config: dict[str, Any] | None = None) -> Flask:
    """Create the application; `config` overrides its configuration."""
    app = Flask("host")
    app.config["KBCORE_STORAGE_DIR"] = "./visitors"
    app.config["KBCORE_URL_PREFIX"] = "/kb"
    app.config.update(config or {})
    kb.init_app(app)

    @app.get("/visit/<name>")
    def visit(name: str) -> dict[str, Any]:
        """Store a visitor and list all visitors."""
        visitors = kb.open("visitors")
        visitors.tell("visited", [name])
        return {"visitors": [who for (who,) in visitors.query("visited(?who)")]}

    return app
