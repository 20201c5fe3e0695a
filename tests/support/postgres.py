"""A PostgreSQL server for tests: the one that answers, or one of our own from Debian's binaries.

KB_TEST_POSTGRES_URL names one; else the default socket is tried. Each test works in a schema of its
own.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


def psycopg() -> Any:
    return pytest.importorskip(
        "psycopg", reason="psycopg is not installed: pip install 'psycopg[binary]'"
    )


def answering() -> str | None:
    """Return the URL of a server that answers, or None. One that was named must answer."""
    named = os.environ.get("KB_TEST_POSTGRES_URL")
    for url in [named] if named else ["postgresql:///postgres", "postgresql://postgres@/postgres"]:
        try:
            psycopg().connect(url, connect_timeout=2).close()
        except psycopg().Error:
            if named:
                raise
        else:
            return url
    return None


def _binary(name: str) -> str | None:
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), reverse=True)
    return str(found[0]) if found else shutil.which(name)


class OwnServer:
    """A server in a folder of its own, on 127.0.0.1, that can be stopped, killed and started
    again.
    """

    def __init__(self, *, fsync: bool = False) -> None:
        initdb, self._postgres = _binary("initdb"), _binary("postgres")
        if initdb is None or self._postgres is None:
            pytest.skip(
                "no PostgreSQL server answers, and Debian's package postgresql is not installed"
            )
        # What kills it in tests is a signal, which the kernel survives.
        self._fsync = "on" if fsync else "off"
        self._as = self._user() if os.getuid() == 0 else []
        self.folder = Path(tempfile.mkdtemp(prefix="kbcore-postgres-", dir="/tmp"))
        if self._as:
            shutil.chown(self.folder, self._as[2])
        data = str(self.folder / "data")
        command = [
            *self._as,
            initdb,
            "-D",
            data,
            "-A",
            "trust",
            "-U",
            "postgres",
            "--no-sync",
            "-E",
            "UTF8",
            "--locale=C",
        ]
        subprocess.run(command, check=True, capture_output=True, cwd="/", timeout=60)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"postgresql://postgres:hush-{self.port}@127.0.0.1:{self.port}/postgres"
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    @staticmethod
    def _user() -> list[str]:
        for name in ("postgres", "nobody"):
            try:
                pwd.getpwnam(name)
            except KeyError:
                continue
            return ["runuser", "-u", name, "--"]
        raise AssertionError("root may not run a server, and no other user exists")

    def start(self) -> None:
        """Start it and wait until it answers."""
        settings = [
            "-p",
            str(self.port),
            "-h",
            "127.0.0.1",
            "-k",
            str(self.folder),
            "-c",
            "max_connections=40",
        ]
        settings += ["-c", f"fsync={self._fsync}"]
        command = [*self._as, str(self._postgres), "-D", str(self.folder / "data"), *settings]
        with open(os.devnull, "w") as nowhere:
            self.process = subprocess.Popen(command, stdout=nowhere, stderr=nowhere, cwd="/")
        for _ in range(300):
            try:
                psycopg().connect(self.url, connect_timeout=1).close()
            except psycopg().Error:
                try:
                    self.process.wait(0.05)
                except subprocess.TimeoutExpired:
                    continue
                raise AssertionError("the PostgreSQL server did not start") from None
            else:
                return
        raise AssertionError("the PostgreSQL server does not answer")

    def _pid(self) -> int:
        return int((self.folder / "data" / "postmaster.pid").read_text().splitlines()[0])

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it: SIGINT drops the connections, SIGQUIT is a crash it recovers from."""
        if self.process is not None and self.process.poll() is None:
            os.kill(self._pid(), how)
            self.process.wait(60)

    def remove(self) -> None:
        """Stop it and delete its folder."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def schema(server: str) -> Iterator[str]:
    """The URL of an empty schema, which is dropped afterwards."""
    name = f"kbcore_test_{uuid.uuid4().hex[:12]}"
    with psycopg().connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {name}")
    joiner = "&" if "?" in server else "?"
    try:
        yield f"{server}{joiner}options=-csearch_path%3D{name}"
    finally:
        with psycopg().connect(server, autocommit=True) as connection:
            connection.execute("SET client_min_messages = error")
            shards = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (f"{name}_",)
            )
            for each in (name, *(row[0] for row in shards.fetchall())):
                connection.execute(f"DROP SCHEMA IF EXISTS {each} CASCADE")
