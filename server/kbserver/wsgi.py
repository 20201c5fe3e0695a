"""`kbserver.wsgi:application` for any WSGI server.

The settings come from the environment. Run one worker process with several threads, because only
one process can open a storage folder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from flask import Flask

from kbcore.config.settings import Config
from kbserver.app import create_app, stop_process
from kbserver.process.shared_runtime import SharedRuntime

_shared = SharedRuntime(Config.from_env, on_failure=stop_process)
_lock = threading.Lock()
_apps: list[Flask] = []


def application(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Serve one request; the first one opens the storage, if the start has not."""
    if not _apps:
        with _lock:
            if not _apps:
                _apps.append(create_app(_shared.get(), on_storage_failed=stop_process))
    return _apps[0](environ, start_response)


_shared.open_in_worker()
