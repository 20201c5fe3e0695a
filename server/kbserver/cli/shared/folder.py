"""A storage folder, opened in this process; it serves the requests of commands as a server
would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from flask import Flask

from kbcore.config.settings import Config
from kbcore.node.api_keys import Keys
from kbcore.node.opening import open_runtime
from kbcore.operations.tenant_kb import TenantKB
from kbplanner.pacing import yielding
from kbserver import operations
from kbserver.cli.shared.client import ServerAnswer
from kbserver.http.body_memory import Bodies
from kbserver.routes import subject_of

MAX_BODY_BYTES = 1 << 40
"""Bodies come from this process, which has them in memory already."""


def _unhurried() -> None:
    """Do nothing: the text of a command is read without a deadline, and nothing else waits."""


class Folder:
    """An open storage: the operations of the HTTP interface without a network.

    There is no authentication and there are no rate limits: the caller can read the files. Errors
    are those of the core, with their full messages.
    """

    local = True

    def __init__(self, config: Config, database: str, tenant: str) -> None:
        self._runtime = open_runtime(
            replace(config, max_body_bytes=MAX_BODY_BYTES, max_text_body_bytes=MAX_BODY_BYTES)
        )
        self._database, self._tenant = database, tenant
        self.headers = {"X-Database": database, "X-Tenant-ID": tenant}
        self._app = Flask("kbserver", static_folder=None, template_folder=None)
        self._app.extensions |= {
            "kbcore": self._runtime,
            "kbcore.bodies": Bodies(MAX_BODY_BYTES),
        }
        self._subjects: set[str] = set()

    def send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        also: int | None = None,
    ) -> ServerAnswer:
        """Run an operation and return its response; raises KBError."""
        if (subject := subject_of(path)) not in self._subjects:
            import_module(subject)  # only this subject, so that a command starts quickly
            operations.install(self._app)
            self._subjects.add(subject)
        with (
            yielding(_unhurried),
            self._app.test_request_context(path, method=method, json=body, headers=self.headers),
        ):
            response = self._app.make_response(self._app.dispatch_request())
            headers = {name.lower(): value for name, value in response.headers.items()}
            return ServerAnswer(headers, response.get_data())

    @property
    def kb(self) -> TenantKB:
        """The knowledge base of the tenant."""
        return self._runtime.knowledge_base(self._database, self._tenant)

    def keys(self) -> Keys:
        """Return the API keys that a server on this storage accepts."""
        return self._runtime.keys()

    def close(self) -> None:
        """Write a snapshot if anything has changed, and release the storage."""
        self._runtime.close()


def open_folder(
    storage_url: str | None, storage_dir: str | None, database: str, tenant: str
) -> Folder:
    """Open a storage by its URL or its folder, with the settings of the environment."""
    config = Config.from_env()
    if storage_url is not None:
        config = config.updated({"STORAGE_URL": storage_url})
    else:
        config = config.with_storage(None, storage_dir)
    return Folder(config, database, tenant)


def open_memory(database: str, tenant: str) -> Folder:
    """Open a knowledge base that is lost at the end, with the settings of the environment."""
    config = Config.from_env()
    return Folder(config.with_storage(None, None), database, tenant)
