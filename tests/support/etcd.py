"""An etcd server for tests, from Debian's package etcd-server, in a folder of its own.

KB_TEST_ETCD=required: without etcd the tests fail, instead of being skipped.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest

START_SECONDS = 60


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class EtcdServer:
    """A server on 127.0.0.1 that can be stopped and started again."""

    def __init__(self) -> None:
        binary = shutil.which("etcd")
        if binary is None:
            message = "etcd is not installed: install Debian's package etcd-server"
            if os.environ.get("KB_TEST_ETCD") == "required":
                pytest.fail(message)
            pytest.skip(message)
        self._binary = binary
        self._folder = Path(tempfile.mkdtemp(prefix="kbcore-etcd-", dir="/tmp"))
        self.port, self._peer_port = _free_port(), _free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        peer = f"http://127.0.0.1:{self._peer_port}"
        arguments = {
            "data-dir": self._folder / "data",
            "listen-client-urls": self.address,
            "advertise-client-urls": self.address,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"default={peer}",
            # The minimum for times to live of leases is 1.5 times the election timeout.
            "heartbeat-interval": 50,
            "election-timeout": 500,
        }
        command = [self._binary, *(f"--{key}={value}" for key, value in arguments.items())]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            try:
                if httpx.get(f"{self.address}/health", trust_env=False).is_success:
                    return
            except httpx.HTTPError:
                assert self._process.poll() is None, (self._folder / "log").read_text()[-2000:]
            try:
                self._process.wait(0.05)
            except subprocess.TimeoutExpired:
                continue
        raise AssertionError("the etcd server does not answer")

    def call(self, path: str, **body: Any) -> dict[str, Any]:
        """Return the answer to a request of the gateway."""
        response = httpx.post(f"{self.address}/v3/{path}", json=body, trust_env=False)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer

    def write(self, key: bytes) -> int:
        """Write a key without a lease; return the revision of the store."""
        text = b64encode(key).decode()
        return int(self.call("kv/put", key=text, value="")["header"]["revision"])

    def stop(self) -> None:
        """Kill the server; what it has acknowledged is on disk."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
