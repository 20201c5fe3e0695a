"""A real server as a separate process: start on a free port, requests, kill."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.loaded_processes import ForkedServer, can_fork
from support.sockets import connected


class Server:
    """`kbcore serve` on a folder; `with` kills it without mercy if it still runs.

    `more` are settings by their names; with `trust` its clients use TLS; with `log` its log, from
    INFO on, goes into that file.
    """

    program: tuple[str, ...] = ("-m", "kbserver.cli")

    def __init__(
        self,
        folder: Path,
        *flags: str,
        log: Path | None = None,
        trust: ssl.SSLContext | None = None,
        **more: str,
    ) -> None:
        self.trust = trust
        arguments = ["serve", "--port", "0", "--storage-dir", str(folder), *flags]
        settings = {
            **os.environ,
            "MIN_FREE_MB": "0",
            "LOG_LEVEL": "INFO" if log else "ERROR",
            **more,
        }
        settings.pop("PYTHONUNBUFFERED", None)  # what is announced must not wait in a buffer
        self.log = log
        self.process: ForkedServer | subprocess.Popen[str]
        with open(os.devnull if log is None else log, "w") as file:
            if self.program == Server.program and can_fork(settings, flags):
                errors = None if log is None else file.fileno()
                self.process = ForkedServer(arguments, settings, errors)
            else:
                self.process = subprocess.Popen(
                    [sys.executable, *self.program, *arguments],
                    stdout=subprocess.PIPE,
                    stderr=None if log is None else file,
                    text=True,
                    env=settings,
                )
        assert self.process.stdout is not None
        found = None
        while found is None:
            line = self.process.stdout.readline()
            assert line, f"the server ended with {self.process.wait()}"
            found = re.search(r"https?://([\d.]+):(\d+)", line)
        self.address = found[1], int(found[2])

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()

    def connect(self, seconds: float = 60) -> http.client.HTTPConnection:
        """A keep-alive connection."""
        if self.trust is not None:
            return http.client.HTTPSConnection(*self.address, timeout=seconds, context=self.trust)
        return http.client.HTTPConnection(*self.address, timeout=seconds)

    def socket(self) -> socket.socket:
        """A connection for the bytes of a test."""
        return connected(self.address, self.trust, 60)

    def post(
        self,
        path: str,
        body: Any,
        connection: http.client.HTTPConnection | None = None,
        **more: str,
    ) -> tuple[int, bytes]:
        """Status and body of an answer; `more` are headers, with _ for -."""
        http_ = connection or self.connect()
        headers = {"Content-Type": "application/json", "X-Tenant-ID": "t"}
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        http_.request("POST", path, json.dumps(body), headers)
        answer = http_.getresponse()
        found = answer.status, answer.read()
        if connection is None:
            http_.close()
        return found

    def peak_bytes(self) -> int:
        """The most memory it has had so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found
        return int(found[1]) << 10

    def kill(self) -> None:
        """End it as a power switch would, as far as a process can tell."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
        self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def stop(self) -> int:
        """Ask it to stop; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(60)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return status
