"""A real server with a full, failing or stalled disk, a folder in use, and backups under load."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time

import pytest
from support.faulty_server import FaultyServer
from support.servers import Server

FACT = {"predicate": "n", "args": ["1"]}


def get(server, path):
    connection = server.connect()
    connection.request("GET", path)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def ready(server):
    status, body = get(server, "/health/ready")
    return status, json.loads(body)


def facts(server):
    return sorted(
        row["args"][0]
        for row in json.loads(server.post("/query", {"predicate": "n", "args": ["?x"]})[1])
    )


def tell(server, name):
    return server.post("/tell", {"predicate": "n", "args": [name]})


def writable_within(server, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if ready(server)[1]["writable"]:
            return True
    return False


def test_a_full_disk_allows_reads_and_recovers_without_a_restart(tmp_path) -> None:
    with FaultyServer(tmp_path / "d") as server:
        assert tell(server, "before")[0] == 200
        server.fault("full")
        for n in range(5):
            status, body = tell(server, f"refused{n}")
            error = json.loads(body)
            assert (status, error["code"]) == (507, "STORAGE_FULL")
            assert error["details"]["freeBytes"] == 0
            assert error["details"]["neededBytes"] > 0
            assert str(tmp_path) not in str(body)
        assert facts(server) == ["before"]
        status, found = ready(server)
        assert (status, found["status"], found["writable"]) == (200, "degraded", False)
        assert get(server, "/health")[0] == 200
        server.fault("")
        assert writable_within(server, 5)
        assert tell(server, "after")[0] == 200
        server.kill()
    with FaultyServer(tmp_path / "d") as server:
        assert facts(server) == ["after", "before"]
        assert server.stop() == 0


def test_readiness_can_ask_for_writes(tmp_path) -> None:
    with FaultyServer(tmp_path / "d", READY_REQUIRES_WRITES="true") as server:
        assert ready(server)[0] == 200
        server.fault("full")
        assert tell(server, "x")[0] == 507
        assert ready(server)[0] == 503


def test_writes_that_free_space_are_accepted_on_a_nearly_full_disk(tmp_path) -> None:
    with FaultyServer(
        tmp_path / "d", MIN_FREE_MB=str(1 << 20)
    ) as server:  # more than the disk has: full from the start
        assert tell(server, "x")[0] == 507
        assert server.post("/forget", FACT)[0] == 200
        assert server.post("/retract/pattern", {"predicate": "n", "args": [None]})[0] == 200
        assert server.post("/assert/facts", {"facts": [FACT]})[0] == 507


def test_a_failing_sync_ends_the_process_with_74_and_nothing_acknowledged_is_lost(tmp_path) -> None:
    acknowledged = []
    for n in range(3):
        with FaultyServer(tmp_path / "d") as server:
            assert [
                name for name in facts(server) if name != "lost"
            ] == acknowledged  # what got no answer may be there
            assert tell(server, f"{n}")[0] == 200
            acknowledged.append(f"{n}")
            server.fault("fsync")
            with pytest.raises((OSError, http.client.HTTPException)):
                tell(server, "lost")
            assert server.process.wait(30) == 74
            server.fault("")
    with FaultyServer(tmp_path / "d") as server:
        assert [name for name in facts(server) if name != "lost"] == acknowledged


def test_an_interval_sync_blocks_no_request(tmp_path) -> None:
    with FaultyServer(tmp_path / "d", FSYNC_POLICY="interval", FSYNC_INTERVAL_MS="1") as server:
        connection = server.connect()
        server.post("/tell", FACT, connection)
        server.fault("slow")
        slowest = 0.0
        end = time.monotonic() + 1.2  # a sync takes half a second, and one follows the other
        while time.monotonic() < end:
            began = time.monotonic()
            assert server.post("/tell", FACT, connection)[0] == 200
            slowest = max(slowest, time.monotonic() - began)
        connection.close()
        server.fault("")
        assert slowest < 0.3


def test_two_servers_never_share_a_folder(tmp_path) -> None:
    with Server(tmp_path) as server:
        assert server.post("/tell", FACT)[0] == 200
        command = [
            sys.executable,
            "-m",
            "kbserver.cli",
            "serve",
            "--port",
            "0",
            "--storage-dir",
            str(tmp_path),
        ]
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 75
        assert f"pid {server.process.pid} on" in second.stderr
        assert server.post("/tell", FACT)[0] == 200


def test_a_requested_snapshot_and_a_backup_under_load(tmp_path) -> None:
    with Server(tmp_path / "a") as server:
        assert tell(server, "0")[0] == 200
        status, body = server.post("/admin/snapshot", {})
        assert status == 200
        assert json.loads(body)["snapshot"] >= 1
        assert (tmp_path / "a" / f"snap-{json.loads(body)['snapshot']:020d}.kbs").exists()
        done = threading.Event()

        def load():
            connection = server.connect()
            n = 0
            while not done.is_set():
                n += 1
                server.post("/tell", {"predicate": "n", "args": [str(n)]}, connection)
            connection.close()

        writer = threading.Thread(target=load)
        writer.start()
        try:
            status, data = get(server, "/admin/backup")
        finally:
            done.set()
            writer.join()
        assert status == 200
        (tmp_path / "file").write_bytes(data)
        # The command refuses what is not right, each time with one line and a status.
        kbcore = [sys.executable, "-m", "kbserver.cli"]
        url = f"http://127.0.0.1:{server.address[1]}"
        for words, status in (
            (["restore", str(tmp_path / "file"), "--to", str(tmp_path / "b")], 0),
            (["restore", str(tmp_path / "file"), "--to", str(tmp_path / "b")], 1),
            (["backup", "--url", url, "--to", str(tmp_path / "file")], 1),
            (["backup", "--to", str(tmp_path / "other")], 1),
            (["fsck", str(tmp_path / "a")], 75),
            (["fsck", str(tmp_path / "b")], 0),
            (["fsck", str(tmp_path / "none")], 78),
        ):
            ended = subprocess.run(
                [*kbcore, *words], capture_output=True, text=True, timeout=60, check=False
            )
            assert ended.returncode == status, (words, ended.stderr)
            assert len(ended.stderr.splitlines()) == (status != 0)
        assert server.post("/admin/snapshot", {}, X_Strict="1")[0] == 200
    (tmp_path / "file").write_bytes(data[:-1])
    words = ["restore", str(tmp_path / "file"), "--to", str(tmp_path / "c")]
    assert (
        subprocess.run([*kbcore, *words], capture_output=True, timeout=60, check=False).returncode
        == 65
    )
    with Server(tmp_path / "b") as server:
        assert "0" in facts(server)
        found = [int(n) for n in facts(server)]
        assert sorted(found) == list(range(len(found)))  # a prefix of what was written
