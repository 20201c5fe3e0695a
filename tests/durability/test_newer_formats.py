"""A storage that a newer version has written is refused with exit status 78 and stays as it is."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from support.postgres import psycopg
from support.servers import Server

from kbplugins.storage_sqlite import file as sqlite_file
from kbplugins.storage_wal import manifest
from kbplugins.table_log import FORMAT


def _raise_sqlite(path: Path) -> None:
    with sqlite3.connect(path) as db:
        fields = db.execute("SELECT log_id, epoch, first, head FROM meta").fetchone()
        crc = crc32(sqlite_file._META.pack(FORMAT + 1, *fields))
        db.execute("UPDATE meta SET format = ?, crc = ?", (FORMAT + 1, crc))
    db.close()


def _raise_manifest(path: Path) -> None:
    old = path.read_bytes().rsplit(b"\n", 2)[0] + b"\n"
    text = old.replace(b"KBMANIFEST 2\n", b"KBMANIFEST 3\n")
    assert text != old
    path.write_bytes(text + b"%08x\n" % crc32(text))


def _stored(url: str) -> Any:
    with psycopg().connect(url) as connection:
        return connection.execute("SELECT format, writer, head FROM kbcore_meta").fetchone()


def _content(path: Path) -> Any:
    if path.suffix != ".sqlite":
        return path.read_bytes()
    with sqlite3.connect(path) as db:
        return list(db.iterdump())


@pytest.mark.parametrize("storage", ["wal", "sqlite", "postgres"])
def test_a_newer_format_is_refused(
    tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    settings = {}
    if storage == "sqlite":
        settings = {"STORAGE_URL": f"sqlite:{tmp_path / 'kb.sqlite'}"}
    elif storage == "postgres":
        settings = {"STORAGE_URL": request.getfixturevalue("postgres_url")}
    url = settings.get("STORAGE_URL", "")
    with Server(tmp_path / "data", **settings) as server:
        assert server.post("/tell", {"predicate": "p", "args": ["a"]})[0] == 200
        assert server.stop() == 0
    if storage == "wal":
        (path,) = (tmp_path / "data").rglob(manifest.NAME)
        _raise_manifest(path)
    elif storage == "sqlite":
        path = tmp_path / "kb.sqlite"
        _raise_sqlite(path)
    else:
        with psycopg().connect(url) as connection:
            connection.execute("UPDATE kbcore_meta SET format = format + 1")
    before = _stored(url) if storage == "postgres" else _content(path)
    command = [sys.executable, "-m", "kbserver.cli", "serve", "--port", "0"]
    options = ["--storage-dir", str(tmp_path / "data")]
    options += ["--storage-url", url] if url else []
    done = subprocess.run(
        [*command, *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 78, done.stderr
    assert "format 3" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert before == (_stored(url) if storage == "postgres" else _content(path))


def test_tables_of_an_earlier_format_are_raised(tmp_path: Path, postgres_url: str) -> None:
    settings = {"STORAGE_URL": postgres_url}
    with Server(tmp_path, **settings) as server:
        assert server.stop() == 0
    with psycopg().connect(postgres_url) as connection:
        connection.execute("UPDATE kbcore_meta SET format = 1")
    with Server(tmp_path, **settings) as server:
        assert server.post("/tell", {"predicate": "p", "args": ["a"]})[0] == 200
        assert server.stop() == 0
    assert _stored(postgres_url)[0] == FORMAT
