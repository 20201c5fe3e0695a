"""kill -9 of the server with each storage: acknowledged writes survive, and refused ones do not
appear.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest
from support.kill_writers import check, check_upkeep, kill_rounds, load, upkeep
from support.postgres import schema
from support.servers import Server


@pytest.fixture(params=["sqlite", "postgres"])
def settings(request, tmp_path):
    """Settings of a server on the storage."""
    if request.param == "sqlite":
        return {"STORAGE_URL": f"sqlite:{tmp_path / 'kb.sqlite'}"}
    return {"STORAGE_URL": request.getfixturevalue("postgres_url")}


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path, settings):
    assert kill_rounds(tmp_path, rounds=2, seed=1, load=load, check=check, **settings) > 120


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_by_fifty_kills(tmp_path, settings):
    assert kill_rounds(tmp_path, rounds=50, seed=2, load=load, check=check, **settings) > 3000


@pytest.mark.crash
def test_scopes_evictions_and_transactions_are_whole_after_kills(tmp_path, settings):
    assert (
        kill_rounds(tmp_path, rounds=20, seed=3, load=upkeep, check=check_upkeep, **settings) > 800
    )


@pytest.mark.parametrize("policy", ["interval", "never"])
def test_a_weaker_policy_loses_nothing_by_a_kill_either(tmp_path, policy):
    more = {"STORAGE_URL": f"sqlite:{tmp_path / 'kb.sqlite'}", "FSYNC_POLICY": policy}
    assert kill_rounds(tmp_path, rounds=1, seed=4, load=load, check=check, **more) > 60


def test_a_server_continues_after_a_crash_of_its_database(tmp_path, own_postgres):
    """No answer is lost or made up: writes wait for the database and are acknowledged once."""
    with schema(own_postgres.url) as url, Server(tmp_path, STORAGE_URL=url) as server:
        acknowledged: list[tuple[str, str]] = []
        sent: list[tuple[str, str]] = []
        enough = threading.Event()
        threads = [
            threading.Thread(target=load, args=(server, worker, 0, acknowledged, sent, enough))
            for worker in range(4)
        ]
        for thread in threads:
            thread.start()
        assert enough.wait(60)
        for how in (signal.SIGQUIT, signal.SIGINT):
            own_postgres.stop(how)
            own_postgres.start()
            target = len(acknowledged) + random.Random(5).randrange(20, 60)
            while len(acknowledged) < target and server.process.poll() is None:
                enough.wait(0.001)
            assert server.process.poll() is None
        check(server, list(acknowledged), sent)
        server.kill()
        for thread in threads:
            thread.join(60)
        with Server(tmp_path, STORAGE_URL=url) as again:
            check(again, acknowledged, sent)
            assert again.stop() == 0


@pytest.mark.parametrize(
    ("url", "status", "said"),
    [
        ("sqlite:{}/damaged.sqlite", 65, "damaged"),
        ("sqlite:{}/theirs.sqlite", 78, "not a storage file"),
        ("postgresql://u:hush@127.0.0.1:1/d", 69, "postgresql://u:***@127.0.0.1:1/d"),
        ("nonsense hush", 78, "STORAGE_URL"),
        ("stone:x", 78, "no plugin offers it; choose from: memory, postgres, sqlite, wal"),
    ],
)
def test_a_failed_start_names_the_reason(tmp_path, url, status, said):
    pytest.importorskip("psycopg")
    (tmp_path / "damaged.sqlite").write_bytes(b"")
    with sqlite3.connect(tmp_path / "theirs.sqlite") as theirs:
        theirs.execute("CREATE TABLE t (x)")
    theirs.close()
    command = [
        sys.executable,
        "-m",
        "kbserver.cli",
        "serve",
        "--port",
        "0",
        "--storage-url",
        url.format(tmp_path),
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env={**os.environ}
    )
    assert done.returncode == status, done.stderr
    assert said in done.stderr
    assert "hush" not in done.stderr.replace("nonsense hush", "")
    assert len(done.stderr.splitlines()) == 1
