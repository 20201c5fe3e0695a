"""The supervisor: opens the sockets, starts the workers, and starts those again that end.

It holds the listening sockets, so no connection is lost when a worker ends: new ones wait in the
queue of the socket. It neither serves requests nor opens the storage.
"""

from __future__ import annotations

import logging
import os
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from kbcore.config.settings import Config
from kbcore.errors import ConfigError
from kbserver import logs
from kbserver.forwarding.proofs import SECRET_BYTES
from kbserver.http.certificates import has_tls, tls_problems
from kbserver.http.listening import listen
from kbserver.workers.worker import SYSTEM_WORKER, Worker, handover_path, private_path

MIN_UPTIME_S = 5.0
"""A worker that ends before it serves, or earlier than this after its start, may be unable to
run.
"""

MAX_FAILURES = 5
"""Number of such ends in a row after which the whole server stops."""

FIRST_DELAY_S = 0.25
"""Delay before a worker that ended early is started again; it doubles each time."""

STOP_GRACE_S = 30.0
"""Seconds after SHUTDOWN_TIMEOUT_MS for snapshots; then workers are killed."""

_KILLED = 128
_BACKLOG = 1024

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Child:
    """A worker process, and its early ends in a row. `due` is when it is started again.

    On `ready`, a pipe, the worker reports that it serves.
    """

    worker: Worker
    ready: int = -1
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    failures: int = 0
    due: float = 0.0


def supervise(config: Config, command: Sequence[str], say: Callable[[str], None]) -> int:
    """Serve with several processes until SIGTERM or SIGINT; return the exit status.

    `command` starts a worker; the description of the worker is added to it. Raises ConfigError and
    OSError before a worker is started.
    """
    if config.storage_backend == "memory":
        raise ConfigError(
            f"WORKERS={config.workers}: STORAGE_BACKEND=memory is for one process;"
            " choose a storage that keeps its data, or WORKERS=1"
        )
    logs.configure(config.log_level, config.log_format, secrets=config.secrets())
    for problem in tls_problems(config):
        raise ConfigError(problem)
    listener = listen(config.host, config.port)
    folder = tempfile.mkdtemp(prefix="kbcore-")  # mode 700
    try:
        return _Supervisor(config, command, listener, folder).run(say)
    finally:
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)


class _Supervisor:
    """The workers of one server, and the signals that stop it."""

    def __init__(
        self, config: Config, command: Sequence[str], listener: socket.socket, folder: str
    ) -> None:
        self._config = config
        self._command = command
        self._stopping = False
        self._status = 0
        self._reloads = (signal.SIGHUP,) if has_tls(config) else ()
        self._secret = secrets.token_bytes(SECRET_BYTES)
        alive, self._alive = os.pipe()
        self._sockets = [listener]
        self._children: list[_Child] = []
        for index in range(config.workers):
            private = _unix_listener(socket.SOCK_STREAM, private_path(folder, index))
            handover = _unix_listener(socket.SOCK_SEQPACKET, handover_path(folder, index))
            self._sockets += [private, handover]
            worker = Worker(
                index,
                config.workers,
                folder,
                listener.fileno(),
                private.fileno(),
                handover.fileno(),
                alive,
            )
            self._children.append(_Child(worker))

    def run(self, say: Callable[[str], None]) -> int:
        """Start the workers, keep them running, and stop them; return the exit status."""
        read, write = socket.socketpair()
        for end in (read, write):
            end.setblocking(False)
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        for number in self._reloads:
            signal.signal(number, self._reload)
        signal.signal(signal.SIGCHLD, _wake)
        selector = selectors.DefaultSelector()
        selector.register(read, selectors.EVENT_READ)
        try:
            if self._start_all(say):
                while not self._stopping:
                    selector.select(self._check())
                    with suppress(BlockingIOError):
                        while read.recv(4096):
                            pass
        finally:
            self._stop_all()
            selector.close()
            for each in (read, write, *self._sockets[1:]):
                each.close()
        return self._status

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True
        for child in self._children:  # one of them may be starting, which is waited for
            if child.process is not None:
                child.process.send_signal(signal.SIGTERM)

    def _reload(self, number: int, frame: object) -> None:
        """Have the workers read the TLS files again."""
        for child in self._children:
            if child.process is not None:
                child.process.send_signal(signal.SIGHUP)

    def _start_all(self, say: Callable[[str], None]) -> bool:
        """Start the workers; return False if one ended before it was ready.

        The worker with the system shard is first: it creates the storage, and the others ask it.
        """
        lines: list[str] = []
        for group in (self._children[:1], self._children[1:]):
            for child in group:
                self._start(child)
            for child in group:
                text = _announcement(child)
                if not text:
                    self._status = 0 if self._stopping else _exit_status(child)
                    return False
                if child.worker.index == SYSTEM_WORKER:
                    lines = text.splitlines()
        for line in lines:
            say(line)
        return True

    def _start(self, child: _Child) -> None:
        """Start a worker."""
        child.ready, write = os.pipe()
        secret, to_worker = os.pipe()
        os.write(to_worker, self._secret)  # fits into the pipe
        os.close(to_worker)
        worker = replace(child.worker, ready=write, secret_pipe=secret)
        child.started = time.monotonic()
        # The worker inherits the mask: a SIGHUP waits until it has a handler, instead of ending it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, self._reloads)
        try:
            child.process = subprocess.Popen(  # noqa: S603  # nosec B603
                [*self._command, "--worker", worker.encode()],
                pass_fds=[
                    worker.listener,
                    worker.private,
                    worker.handover,
                    worker.alive,
                    worker.ready,
                    worker.secret_pipe,
                ],
                stdin=subprocess.DEVNULL,
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.close(write)
        os.close(secret)

    def _check(self) -> float | None:
        """Start workers that ended; return the seconds until the next start, None without one."""
        now = time.monotonic()
        for child in self._children:
            if child.process is not None and child.process.poll() is not None:
                self._ended(child, now)
            if self._stopping:
                return 0.0
            if child.process is None and child.due <= now:
                self._start(child)
        due = [child.due for child in self._children if child.process is None]
        return max(0.0, min(due) - now) if due else None

    def _ended(self, child: _Child, now: float) -> None:
        has_served = child.ready < 0 or bool(_announcement(child))
        status, child.process = _exit_status(child), None
        is_early = not has_served or now - child.started < MIN_UPTIME_S
        child.failures = child.failures + 1 if is_early else 0
        delay = FIRST_DELAY_S * 2 ** (child.failures - 1) if child.failures else 0.0
        child.due = now + delay
        log.error("worker %d ended with status %d", child.worker.index, status)
        if child.failures >= MAX_FAILURES:
            log.critical(
                "worker %d cannot run: it ended %d times in a row; stopping",
                child.worker.index,
                child.failures,
            )
            self._status = status or 1
            self._stopping = True

    def _stop_all(self) -> None:
        """Stop all workers; those that do not end in time are killed."""
        running = [child for child in self._children if child.process is not None]
        for child in running:
            if child.process is not None and child.process.poll() is None:
                child.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + self._config.shutdown_timeout_ms / 1000 + STOP_GRACE_S
        for child in running:
            if child.process is None:
                continue
            try:
                child.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                log.error("worker %d did not stop in time and is killed", child.worker.index)
                child.process.kill()
                child.process.wait()
            if not self._stopping or child.process.returncode > 0:
                self._status = self._status or _exit_status(child)


def _unix_listener(kind: int, path: str) -> socket.socket:
    """Return a listening Unix socket."""
    listener = socket.socket(socket.AF_UNIX, kind)
    listener.bind(path)
    listener.listen(_BACKLOG)
    listener.setblocking(False)
    return listener


def _wake(number: int, frame: object) -> None:
    """Do nothing: the wake-up descriptor has ended the wait."""


def _announcement(child: _Child) -> str:
    """Wait until a worker serves or ends; return the lines that it reports, "" if it ended."""
    pipe, child.ready = child.ready, -1
    with os.fdopen(pipe, encoding="utf-8") as file:
        return file.read()


def _exit_status(child: _Child) -> int:
    """Return the exit status of a worker, after waiting for its end."""
    status = 0 if child.process is None else child.process.wait()
    return status if status >= 0 else _KILLED - status


def worker_command(flags: Sequence[str]) -> list[str]:
    """Return the command that starts a worker with the options of `kbcore serve`."""
    return [sys.executable, "-m", "kbserver.cli", "serve", *flags]
