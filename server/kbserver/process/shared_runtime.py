"""The runtime of a process that a WSGI server or a Flask application hosts, opened once.

A storage folder belongs to one process. Servers that start several processes, such as gunicorn and
uWSGI, are recognized: there the storage is opened when the application is loaded, so that a second
process ends the start with one sentence instead of failing requests later.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Callable, Sequence

from kbcore.config.settings import Config, environment
from kbcore.errors import ConfigError, KBError, NotReady, StorageBusy, StorageFailed
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.scheduling import Scheduling
from kbserver.replication.log_client import HTTPLogSource

CANNOT_START = 3
"""Exit status with which a worker tells gunicorn to stop instead of starting another worker."""

_ONE_PROCESS = (
    "only one process can open it: start one worker process with several threads,"
    " such as `gunicorn --workers 1 --threads 16`"
)
_FORKED = (
    "the storage was opened before this process was forked;"
    " load the application in the worker (gunicorn without --preload, uWSGI with --lazy-apps)"
)


class SharedRuntime:
    """A runtime that is opened on first use, once per process, and closed when the process ends.

    `settings` returns the settings when the runtime is opened. `on_failure` is called when the log
    failed, and nothing may be acknowledged any more.
    """

    def __init__(
        self,
        settings: Callable[[], Config],
        *,
        plugins: Sequence[object] = (),
        on_failure: Callable[[StorageFailed], None] | None = None,
    ) -> None:
        self._settings = settings
        self._plugins = plugins
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._runtime: Runtime | None = None
        self._owner = 0

    def get(self) -> Runtime:
        """Return the runtime; the first call opens it.

        Raises ConfigError, StorageBusy, LogCorrupted, and NotReady in a process that was forked
        after the runtime was opened.
        """
        if self._runtime is None:
            with self._lock:
                if self._runtime is None:
                    self._runtime = self._open()
        if self._owner != os.getpid():
            raise NotReady(_FORKED)
        return self._runtime

    def open_in_worker(self) -> None:
        """Open the runtime now if a server with several processes has started this one.

        If that fails, print one sentence and end the process.
        """
        if not _has_worker_processes():
            return
        try:
            self.get()
        except KBError as error:
            is_busy = isinstance(error, StorageBusy)
            _end_worker(f"{error.message}; {_ONE_PROCESS}" if is_busy else error.message)
        os.register_at_fork(after_in_child=self._end_forked_worker)

    def close(self) -> None:
        """Close the runtime; in a process that was forked after the opening, do nothing."""
        with self._lock:
            runtime, self._runtime = self._runtime, None
        if runtime is not None and self._owner == os.getpid():
            runtime.close()

    def _open(self) -> Runtime:
        config = self._settings()
        if config.workers > 1:
            raise ConfigError(
                f"WORKERS={config.workers} is for `kbcore serve`; another server uses one process"
            )
        runtime = open_runtime(
            config,
            plugins=self._plugins,
            scheduling=_scheduling(),
            on_failure=self._on_failure,
        )
        self._owner = os.getpid()
        atexit.register(self.close)
        runtime.start_replication(HTTPLogSource)
        return runtime

    def _end_forked_worker(self) -> None:
        if self._runtime is not None:
            _end_worker(_FORKED)


def _has_worker_processes() -> bool:
    """Return True under a server that starts worker processes."""
    return environment().get("SERVER_SOFTWARE", "").startswith("gunicorn") or "uwsgi" in sys.modules


def _end_worker(message: str) -> None:
    sys.stderr.write(f"kbcore: {message}\n")
    sys.stderr.flush()
    os._exit(CANNOT_START)  # sys.exit would print a traceback, and is caught by some servers


def _scheduling() -> Scheduling:
    """Return the hooks for greenlets if gevent has patched this process, else those for threads."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is None or not monkey.is_module_patched("threading"):
        return Scheduling()
    from kbserver.process.offload import (
        Offload,
        OffloadWithin,
        yield_now,
        yield_to_sockets,
    )

    return Scheduling(
        offload=Offload(os.cpu_count() or 1),
        offload_disk=Offload(2),
        offload_wait=Offload(1),
        yield_now=yield_now,
        yield_in_background=yield_to_sockets,
        call_within=OffloadWithin(),
    )
