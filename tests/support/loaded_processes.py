"""Servers and scripts that are forks of a process with their modules loaded.

Loading modules takes nine tenths of the CPU time of a start. A process of tests starts one
interpreter that loads the modules of a server as `kbcore serve` does, gevent's replacements first,
and one that imports what scripts use. Each server or script is a fork with its own environment,
working directory, output and signals, which goes on where an interpreter would after loading.

With KB_TEST_STARTS=whole, as in CI with CI_FULL=1, each is an interpreter of its own; so are
servers with workers, and those with other settings of the interpreter.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

READ_AT_START = ("PYTHON", "LD_", "LC_", "LANG", "MALLOC_", "GEVENT_")
"""Beginnings of the names of variables that an interpreter reads once, at its start."""

MAX_REQUEST_BYTES = 1 << 20
NUMBER = struct.Struct("i")

LOAD = "import runpy, sys; runpy.run_path(sys.argv[1], run_name='__main__')"
"""For this program, Python puts no folder of the tests on the path."""


def can_fork(environ: Mapping[str, str] = os.environ, flags: Sequence[str] = ()) -> bool:
    """Return True if a process with these variables, and flags of a server, may be a fork."""
    if os.environ.get("KB_TEST_STARTS") == "whole":
        return False
    if "--workers" in flags or "WORKERS" in environ:
        return False
    return _read_at_start(environ) == _read_at_start(os.environ)


def _read_at_start(environ: Mapping[str, str]) -> dict[str, str]:
    unbuffered = "PYTHONUNBUFFERED"  # which no server has
    names = (name for name in environ if name.startswith(READ_AT_START) and name != unbuffered)
    return {name: environ[name] for name in names}


class Forked:
    """A fork of the process for a program, with the methods of `subprocess.Popen` that tests use.

    `output` and `errors` are open files; None is those of this process.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        environ: Mapping[str, str] = os.environ,
        *,
        folder: Path | None = None,
        output: int | None = None,
        errors: int | None = None,
    ) -> None:
        request = {
            "arguments": arguments,
            "environ": dict(environ),
            "folder": os.getcwd() if folder is None else str(folder),
        }
        self._status, status_end = os.pipe()
        files = (status_end, 1 if output is None else output, 2 if errors is None else errors)
        loaded, lock = _loaded(program)
        with lock:
            socket.send_fds(loaded, [json.dumps(request).encode()], files)
        os.close(status_end)
        (self.pid,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal; raise if the process runs for longer."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            (status,) = NUMBER.unpack(os.read(self._status, NUMBER.size))
            os.close(self._status)
            self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, or None while the process runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to a process that runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


class ForkedServer(Forked):
    """A server; what it prints is read from `stdout`."""

    def __init__(
        self, arguments: Sequence[str], environ: Mapping[str, str], errors: int | None
    ) -> None:
        output, output_end = os.pipe()
        super().__init__("server", arguments, environ, output=output_end, errors=errors)
        os.close(output_end)
        self.stdout = os.fdopen(output, encoding="utf-8")


def run_script(script: Path, seconds: float) -> None:
    """Run a Python file in its folder, with warnings as errors; raise if it fails."""
    command = [sys.executable, "-W", "error", str(script)]
    if not can_fork():
        subprocess.run(command, check=True, cwd=script.parent, timeout=seconds)
        return
    process = Forked("script", [str(script)], folder=script.parent)
    try:
        status = process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.wait()
        raise
    if status:
        raise subprocess.CalledProcessError(status, command)


@cache
def _loaded(program: str) -> tuple[socket.socket, threading.Lock]:
    """Start the process that forks for a program; it ends when this process closes the socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-c", LOAD, __file__, program, str(theirs.fileno())],
            stdout=subprocess.DEVNULL,  # as buffered as a pipe
            env=environ,
            pass_fds=[theirs.fileno()],
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, threading.Lock()


# ---- in a process with the modules ----


def fork_for_requests(program: str, descriptor: int) -> None:
    """Load the modules of a program, fork for each request, and run the program in the fork."""
    load, run = PROGRAMS[program]
    fork, requests = os.fork, socket.socket(fileno=descriptor)  # those without gevent
    load()
    while True:
        request, files, _, _ = socket.recv_fds(requests, MAX_REQUEST_BYTES, 3)
        if not request:
            os._exit(0)
        if fork() == 0:
            break
        for file in files:
            os.close(file)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    requests.close()
    status, *outputs = files
    pid = fork()
    if pid:
        for file in outputs:
            os.close(file)
        _watch(pid, status)
    os.close(status)
    for number, file in enumerate(outputs, 1):
        os.dup2(file, number)
        os.close(file)
    run(**json.loads(request))


def _watch(pid: int, status: int) -> None:
    """Be the parent of a process: send its process id and, at its end, its status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(BrokenPipeError):
        os.write(status, NUMBER.pack(pid))
        os.write(status, NUMBER.pack(os.waitpid(pid, 0)[1]))
    os._exit(0)


def _load_server() -> None:
    """Import what a server imports, in the order of its start."""
    import_module("kbserver.cli.server.serve")
    import_module("gevent.monkey").patch_all()
    import_module("kbserver.serve")
    import_module("kbserver.workers.worker")
    _load_plugins()


def _load_libraries() -> None:
    """Import what most scripts import; more would hide an import that a script lacks."""
    for library in map(import_module, ("kbcore", "kbcore_client")):
        for name in library.__all__:
            getattr(library, name)  # imports the module of a name
    _load_plugins()


def _load_plugins() -> None:
    for entry in entry_points(group="kbcore"):
        with contextlib.suppress(ImportError):  # of a library that is not installed
            entry.load()


def _become(arguments: list[str], environ: dict[str, str], folder: str) -> None:
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    os.chdir(folder)
    sys.path[0] = folder
    sys.argv = arguments


def _serve(arguments: list[str], environ: dict[str, str], folder: str) -> None:
    _become(["kbcore", *arguments], environ, folder)
    import_module("kbserver.cli").main(arguments)


def _run_file(arguments: list[str], environ: dict[str, str], folder: str) -> None:
    _become(arguments, environ, folder)
    warnings.simplefilter("error")
    sys.modules["__main__"] = module = ModuleType("__main__")
    module.__file__ = arguments[0]
    exec(compile(Path(arguments[0]).read_bytes(), arguments[0], "exec"), vars(module))


PROGRAMS = {"server": (_load_server, _serve), "script": (_load_libraries, _run_file)}


if __name__ == "__main__":
    fork_for_requests(sys.argv[2], int(sys.argv[3]))
