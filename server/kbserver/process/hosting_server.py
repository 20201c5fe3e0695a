"""The WSGI server with worker processes that loads the application: gunicorn or uWSGI."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any, NoReturn

CANNOT_START = 3
"""Exit status with which a worker tells gunicorn to stop instead of starting another worker."""

SECOND = 2
"""The number of the second worker of gunicorn."""

WAIT_SECONDS = 0.1

UWSGI_MERCY = 60
"""Seconds for which uWSGI lets an old worker live by default."""


@dataclass(frozen=True, slots=True)
class HostingServer:
    """Properties of a server that the start of a hosted application depends on.

    `workers` is the number of worker processes. `loads_before_fork` is True if this process is not
    a worker but forks them later. During a reload the worker before this one may live for
    `old_worker_seconds`; a worker that waits calls `notify`, so that its server does not end it.

    `end` ends the server because its workers cannot be used, with CANNOT_START where the server has
    an exit status for that.
    """

    workers: int
    loads_before_fork: bool
    old_worker_seconds: float
    notify: Callable[[], None]
    end: Callable[[], NoReturn]


def hosting_server() -> HostingServer | None:
    """Return the server that is loading the application now, None for any other."""
    if (uwsgi := sys.modules.get("uwsgi")) is not None:
        return _of_uwsgi(uwsgi)
    return _of_gunicorn()


def _of_gunicorn() -> HostingServer | None:
    """Return what the worker or the master of gunicorn says that is loading the application.

    Only these objects have the settings; gunicorn passes them to no function of an application.
    """
    base, arbiter = (sys.modules.get(f"gunicorn.{name}") for name in ("workers.base", "arbiter"))
    if base is None or arbiter is None:
        return None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        owner = frame.f_locals.get("self")
        if isinstance(owner, base.Worker):
            config, end = owner.cfg, partial(_end_gunicorn, owner)
            return HostingServer(config.workers, False, config.graceful_timeout, owner.notify, end)
        if isinstance(owner, arbiter.Arbiter):
            config = owner.cfg
            return HostingServer(
                config.workers, True, config.graceful_timeout, _nothing, end_process
            )
        frame = frame.f_back
    return None


def _end_gunicorn(worker: Any) -> NoReturn:
    """Have the second worker tell gunicorn to stop; the others wait for that.

    Two workers that end with this status at the same time make gunicorn print a traceback.
    """
    master = os.getppid()
    while worker.cfg.workers > 1 and worker.age != SECOND:
        if not worker.alive or os.getppid() != master:
            os._exit(0)
        worker.notify()
        time.sleep(WAIT_SECONDS)
    end_process()


def _of_uwsgi(uwsgi: Any) -> HostingServer:
    loads_before_fork = uwsgi.masterpid() != 0 and uwsgi.worker_id() == 0
    mercy = uwsgi.opt.get("worker-reload-mercy") or uwsgi.opt.get("reload-mercy") or UWSGI_MERCY
    end = end_process if loads_before_fork else partial(_end_uwsgi, uwsgi)
    return HostingServer(uwsgi.numproc, loads_before_fork, float(mercy), _nothing, end)


def _end_uwsgi(uwsgi: Any) -> NoReturn:
    """Stop the master, which would start a worker that has ended again for ever.

    The other workers, which are still importing and have nothing open, are ended first: a worker
    that the master interrupts there prints a traceback, and lives on without an application.
    """
    if master := uwsgi.masterpid():
        for worker in uwsgi.workers():
            if worker["pid"] not in (0, os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(worker["pid"], signal.SIGKILL)
        signal.pthread_sigmask(
            signal.SIG_BLOCK, {signal.SIGINT}
        )  # what the master sends to this one
        os.kill(master, signal.SIGQUIT)
    end_process()


def end_process() -> NoReturn:
    """End this process; `sys.exit` would print a traceback, and is caught by some servers."""
    os._exit(CANNOT_START)


def _nothing() -> None:
    """Do nothing: a server that does not end a worker which is waiting."""
