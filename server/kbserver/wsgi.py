"""`kbserver.wsgi:application` for any WSGI server.

The settings come from the environment; the first request opens the storage. Run one worker,
because only one process can open a storage folder.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from kbcore.config.settings import Config
from kbcore.node.runtime import open_runtime
from kbcore.replication.role import FOLLOWER
from kbserver.app import create_app, stop_process
from kbserver.replication.log_client import HTTPLogSource

_lock = threading.Lock()
_apps: list[Flask] = []


def _open() -> Flask:
    runtime = open_runtime(Config.from_env(), on_failure=stop_process)
    atexit.register(runtime.close)
    if runtime.config.replication_mode == FOLLOWER:
        runtime.replication.follow(HTTPLogSource(runtime.config))
    return create_app(runtime, on_storage_failed=stop_process)


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Serve one request."""
    if not _apps:
        with _lock:
            if not _apps:
                _apps.append(_open())
    return _apps[0](environ, start_response)
