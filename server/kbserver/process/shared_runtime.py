"""The runtime of a process that a WSGI server or a Flask application hosts, opened once.

A storage folder belongs to one process. Servers that start several processes, such as gunicorn and
uWSGI, are recognized: there the storage is opened when the application is loaded. Several workers
are refused with one sentence before any of them serves a request, also for a storage in memory, of
which each would have its own. A worker that follows another one during a reload waits for it.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from kbcore.config.settings import Config
from kbcore.errors import ConfigError, KBError, NotReady, StorageBusy, StorageFailed
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.scheduling import Scheduling
from kbserver.process.hosting_server import WAIT_SECONDS, HostingServer, end_process, hosting_server
from kbserver.replication.log_client import HTTPLogSource

OLD_WORKER_MARGIN_SECONDS = 5.0
"""Time for an old worker to close its storage, beside that which its server gives it to end."""

_ONE_PROCESS = (
    "only one process can open the storage: start one worker process with several threads,"
    " such as `gunicorn --workers 1 --threads 16`"
)
_IN_WORKER = (
    "load the application in the worker (gunicorn without --preload, uWSGI with --lazy-apps)"
)
_LOADED_BEFORE_FORK = f"the storage would be opened before the workers are forked; {_IN_WORKER}"
_FORKED = f"the storage was opened before this process was forked; {_IN_WORKER}"


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

        If that fails, or the server has more workers than one, print one sentence and end the
        process. While the worker before this one has the storage open, wait for its end.
        """
        server = hosting_server()
        if server is None:
            return
        if server.loads_before_fork:
            _refuse(server, _LOADED_BEFORE_FORK)
        if server.workers > 1:
            _refuse(server, f"the server has {server.workers} workers; {_ONE_PROCESS}")
        try:
            self._get_after_old_worker(server)
        except KBError as error:
            is_busy = isinstance(error, StorageBusy)
            _refuse(server, f"{error.message}; {_ONE_PROCESS}" if is_busy else error.message)
        os.register_at_fork(after_in_child=self._end_forked_worker)

    def _get_after_old_worker(self, server: HostingServer) -> None:
        """Open the runtime as soon as the worker before this one has closed it.

        Raises StorageBusy when that worker would have been killed, and KBError.
        """
        seconds = server.old_worker_seconds + OLD_WORKER_MARGIN_SECONDS
        end = time.monotonic() + seconds
        is_announced = False
        while True:
            try:
                self.get()
            except StorageBusy as error:
                if time.monotonic() > end:
                    raise
                if not is_announced:
                    _say(f"{error.message}; waiting up to {seconds:.0f} s for its end")
                    is_announced = True
            else:
                return
            server.notify()
            time.sleep(WAIT_SECONDS)

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
            _say(_FORKED)
            end_process()


def _say(message: str) -> None:
    sys.stderr.write(f"kbcore: {message}\n")
    sys.stderr.flush()


def _refuse(server: HostingServer, message: str) -> NoReturn:
    _say(message)
    server.end()


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
