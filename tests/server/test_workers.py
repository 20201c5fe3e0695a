"""`kbcore serve --workers N`: one server for its clients, whichever worker has their connection."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.followers import GoalFollower, GoalWriter
from support.servers import Server
from support.workers import DEADLINE_S, SHARDS, both, children, tenants_of, until

import kbcore
from kbcore.config import Config
from kbcore.offline.migrate import check_storage, copy_storage
from kbcore.offline.rescue import restore_file


def call(
    server: Server, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Send a request over a connection of its own, which any worker may accept."""
    connection = server.connect()
    sent = {"X-Tenant-ID": "t", **{k.replace("_", "-"): v for k, v in headers.items()}}
    data = None
    if body is not None:
        data = json.dumps(body)
        sent["Content-Type"] = "application/json"
    connection.request(method, path, data, sent)
    answer = connection.getresponse()
    found = answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    connection.close()
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("workers")
    settings = {"STORAGE_SHARDS": str(SHARDS), "AUTH_ENABLED": "", "LOG_LEVEL": "WARN"}
    with Server(folder / "data", "--workers", "2", **settings) as running:
        yield running


def test_every_tenant_is_served_over_every_connection(server) -> None:
    """One connection has requests of all tenants in turn, so half of them are forwarded."""
    tenants = [*tenants_of(0), *tenants_of(1)]
    for _ in range(4):
        connection = server.connect()
        for tenant in tenants:
            body = {"predicate": "p", "args": ["é", tenant]}
            status, text = server.post("/tell", body, connection, X_Tenant_ID=tenant)
            assert (status, text.decode()) == (200, f"Fact Asserted: p(é, {tenant})")
            ask = {"predicate": "p", "args": ["?x", "?y"]}
            status, text = server.post("/ask", ask, connection, X_Tenant_ID=tenant)
            assert [row["args"] for row in json.loads(text)] == [["é", tenant]]
        connection.close()


def test_headers_of_forwarded_requests_are_those_of_direct_ones(server) -> None:
    seen = []
    for tenant in (tenants_of(0)[0], tenants_of(1)[0]):
        connection = server.connect()
        for path in ("/tell", "/query", "/nothing", "/scopes"):
            method = "GET" if path == "/scopes" else "POST"
            body = json.dumps({"predicate": "h", "args": ["a"]})
            headers = {"X-Tenant-ID": tenant, "X-Request-ID": "my-id", "X-KBCore-Client": "evil 1"}
            connection.request(method, path, body, {**headers, "Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            assert answer.headers["X-Request-ID"] == "my-id"
            changing = ("Date", "X-Commit-Seq", "ETag")
            names = [name for name, _ in answer.getheaders()]
            values = {k: v for k, v in answer.getheaders() if k not in changing}
            seen.append((tenant, path, answer.status, names, values, len(text)))
        connection.close()
    half = len(seen) // 2
    assert [each[1:] for each in seen[:half]] == [each[1:] for each in seen[half:]]


def test_large_bodies_pipelines_and_old_clients_pass(server) -> None:
    for tenant in (tenants_of(0)[1], tenants_of(1)[1]):
        facts = [{"predicate": "big", "args": [f"{n:050}"]} for n in range(5000)]
        status, text = server.post("/assert/facts", {"facts": facts}, X_Tenant_ID=tenant)
        assert status == 200, text
        ask = {"predicate": "big", "args": ["?x"]}
        status, text = server.post("/query", ask, X_Tenant_ID=tenant)
        assert len(json.loads(text)) == 5000
        raw = json.dumps({"facts": facts[:2000]}).encode()
        connection = server.connect()
        headers = {"X-Tenant-ID": tenant, "Content-Type": "application/json"}
        parts = (raw[start : start + 7000] for start in range(0, len(raw), 7000))
        connection.request("POST", "/assert/facts", parts, headers, encode_chunked=True)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["updated"]) == (200, 2000)
        connection.close()
        head = f"GET /scopes HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: {tenant}\r\n\r\n".encode()
        with socket.create_connection(server.address, timeout=30) as sock:
            sock.sendall(head * 3 + head.replace(b"HTTP/1.1", b"HTTP/1.0"))
            answers = b"".join(iter(lambda: sock.recv(65536), b""))
        assert answers.count(b" 200 OK\r\n") == 4
        # An answer before the body: only the head is sent.
        size = Config().max_body_bytes + 1
        head = f"POST /assert/facts HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: {tenant}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {size}\r\n\r\n"
        with socket.create_connection(server.address, timeout=10) as sock:
            sock.sendall(head.encode())
            assert sock.recv(65536).startswith(b"HTTP/1.1 413 ")


def test_events_transactions_and_idempotency_keys_pass_workers(server) -> None:
    for index in (0, 1):
        tenant = tenants_of(index)[2]
        streams = []
        for _ in range(4):  # accepted by either worker
            connection = server.connect()
            connection.request("GET", "/memory/events", headers={"X-Tenant-ID": tenant})
            answer = connection.getresponse()
            assert answer.status == 200
            answer.readline()
            streams.append((connection, answer))
        _, _, id = call(server, "POST", "/tx/begin", X_Tenant_ID=tenant)
        transaction = {"X_Tenant_ID": tenant, "X_Transaction_ID": id.decode()}
        for number in range(3):
            body = {"predicate": "tx", "args": [number]}
            assert call(server, "POST", "/tell", body, **transaction)[0] == 200
        assert call(server, "POST", f"/tx/commit/{id.decode()}", X_Tenant_ID=tenant)[0] == 200
        for connection, answer in streams:
            lines = iter(answer.readline, b"")
            events = [json.loads(line[6:]) for line in _three(lines)]
            assert [event["atom"]["args"] for event in events] == [["0"], ["1"], ["2"]]
            connection.close()
        answers = [
            call(
                server,
                "POST",
                "/tell",
                {"predicate": "once", "args": ["a"], "metadata": {"n": 1}},
                X_Tenant_ID=tenant,
                Idempotency_Key="k",
            )
            for _ in range(4)
        ]
        assert [answer[1].get("idempotency-replayed") for answer in answers] == [
            None,
            "true",
            "true",
            "true",
        ]


def _three(lines: Iterator[bytes]) -> list[bytes]:
    found: list[bytes] = []
    for line in lines:
        if line.startswith(b"data: "):
            found.append(line)
            if len(found) == 3:
                break
    return found


def test_databases_are_the_same_in_all_workers(server) -> None:
    both = [tenants_of(0)[0], tenants_of(1)[0]]
    names = [f"d{number}" for number in range(3)]
    for name in names:
        assert call(server, "POST", "/admin/databases", {"name": name})[0] == 201
        for number in range(8):
            body = {"predicate": "p", "args": [number]}
            tenant = f"t{number}"
            assert (
                call(server, "POST", "/tell", body, X_Tenant_ID=tenant, X_Database=name)[0] == 200
            )
        created = call(server, "POST", f"/admin/databases/{name}/tenants", {"tenantId": "new"})
        again = call(server, "POST", f"/admin/databases/{name}/tenants", {"id": "new"})
        assert (created[0], again[0]) == (201, 200)
    rows = json.loads(call(server, "GET", "/admin/databases")[2])
    assert {
        row["name"]: (row["tenants"], row["facts"]) for row in rows if row["name"] in names
    } == dict.fromkeys(names, (9, 8))
    tenants = json.loads(call(server, "GET", "/admin/databases/d0/tenants")[2])
    assert tenants == ["new", *(f"t{number}" for number in range(8))]
    assert call(server, "DELETE", "/admin/databases/d0")[0] == 200
    assert call(server, "POST", "/admin/databases/d1/nuke", {})[0] == 200
    assert call(server, "DELETE", "/admin/databases/d2/tenants/t3")[0] == 200
    assert call(server, "POST", "/admin/databases/d2/tenants/t4/nuke", {})[0] == 200
    ask = {"predicate": "p", "args": ["?x"]}
    for tenant in [*both, *(f"t{number}" for number in range(8))]:
        statuses = [
            call(server, "POST", "/query", ask, X_Tenant_ID=tenant, X_Database=name)
            for name in names
        ]
        assert [answer[0] for answer in statuses] == [404, 200, 200]
        assert statuses[1][2] == b"[]"
    tenants = json.loads(call(server, "GET", "/admin/databases/d2/tenants")[2])
    assert "t3" not in tenants
    assert "t4" in tenants


def test_metrics_readiness_backup_and_snapshot_are_those_of_all_workers(server, tmp_path) -> None:
    text = call(server, "GET", "/metrics")[2].decode()
    assert re.findall(r'svc_shards\{worker="(.)"\} (\S+)', text) == [("0", "8.0"), ("1", "8.0")]
    assert text.count("# TYPE svc_facts_asserted_total") == 1
    assert json.loads(call(server, "GET", "/health/ready")[2])["status"] == "healthy"
    assert call(server, "POST", "/admin/snapshot", {})[0] == 200
    rows = json.loads(call(server, "GET", "/admin/databases")[2])
    (tmp_path / "backup").write_bytes(call(server, "GET", "/admin/backup")[2])
    info, kept = restore_file(tmp_path / "backup", str(tmp_path / "to"), Config(min_free_mb=0))
    assert len(info.logs) == SHARDS
    assert kept.facts == sum(row["facts"] for row in rows)


def test_keys_count_in_every_worker_at_once(tmp_path) -> None:
    secret = "x" * 40
    with Server(tmp_path, "--workers", "2", AUTH_ENABLED="true", BOOTSTRAP_TOKEN=secret) as server:
        body = {"token": secret, "name": "root"}
        made = json.loads(call(server, "POST", "/auth/bootstrap", body)[2])
        admin = {"Authorization": f"Bearer {made['key']}"}
        tenant = tenants_of(1)[0]
        body = {"name": "w", "role": "writer", "tenants": [tenant]}
        key = json.loads(call(server, "POST", "/auth/keys", body, **admin)[2])
        writer = {"Authorization": f"Bearer {key['key']}"}

        def statuses() -> set[int]:
            ask = {"predicate": "p", "args": ["?x"]}
            return {
                call(server, "POST", "/query", ask, X_Tenant_ID=tenant, **writer)[0]
                for _ in range(8)
            }

        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {}}
        message["params"] = {"name": "tell", "arguments": {"predicate": "p", "args": ["mcp"]}}
        connection = server.connect()  # no tenant header: the only tenant of the key
        connection.request(
            "POST",
            "/mcp",
            json.dumps(message),
            {"Content-Type": "application/json", "Accept": "application/json", **writer},
        )
        answer = connection.getresponse()
        assert json.loads(answer.read())["result"]["structuredContent"]["asserted"] == 1
        connection.close()
        assert statuses() == {200}
        assert call(server, "DELETE", f"/auth/keys/{key['id']}", **admin)[0] == 200
        assert statuses() == {401}
        assert server.stop() == 0


def test_a_killed_worker_comes_back_and_nothing_acknowledged_is_lost(tmp_path) -> None:
    """Writers of both workers go on while one worker after the other is killed."""
    victims, others = tenants_of(1, 2), tenants_of(0, 2)
    acknowledged: dict[str, list[int]] = {tenant: [] for tenant in (*victims, *others)}
    outcomes: list[tuple[str, int, Any]] = []
    with Server(tmp_path / "data", "--workers", "2", STORAGE_SHARDS=str(SHARDS)) as server:
        stop = threading.Event()

        def write(tenant: str) -> None:
            connection, number = server.connect(), 0
            while not stop.is_set():
                number += 1
                try:
                    body = {"predicate": "w", "args": [number]}
                    status, text = server.post("/tell", body, connection, X_Tenant_ID=tenant)
                except (OSError, http.client.HTTPException):  # the worker of this connection died
                    connection.close()
                    continue
                if status == 200:
                    acknowledged[tenant].append(number)
                else:
                    outcomes.append((tenant, status, json.loads(text)["details"]))
                    connection.close()
            connection.close()

        writers = [threading.Thread(target=write, args=(tenant,)) for tenant in acknowledged]
        for writer in writers:
            writer.start()
        for index in (1, 0, 1):
            counts = {tenant: len(done) for tenant, done in acknowledged.items()}
            until(
                lambda c=counts: all(len(acknowledged[t]) > c[t] + 5 for t in acknowledged),
                "every tenant is written to",
            )
            before = both(server)
            os.kill(before[index], signal.SIGKILL)
            until(
                lambda b=before: len(children(server)) == 2 and children(server) != b,
                "the worker is started again",
            )
        counts = {tenant: len(done) for tenant, done in acknowledged.items()}
        until(
            lambda: all(len(acknowledged[t]) > counts[t] + 5 for t in acknowledged),
            "every tenant is written to again",
        )
        stop.set()
        for writer in writers:
            writer.join()
        for tenant, numbers in acknowledged.items():
            ask = {"predicate": "w", "args": ["?x"]}
            rows = json.loads(server.post("/query", ask, X_Tenant_ID=tenant)[1])
            assert set(map(str, numbers)) <= {row["args"][0] for row in rows}
        assert all(status == 503 for _, status, _ in outcomes)
        assert {details["outcome"] for _, _, details in outcomes} <= {"unknown", "not_done"}
        assert server.stop() == 0
    assert check_storage(f"wal:{tmp_path / 'data'}", Config(min_free_mb=0)).shards == SHARDS


def test_a_goal_is_followed_through_the_death_of_workers(tmp_path) -> None:
    """Followers get every change once, in order, although each worker is killed in turn."""
    (tenant,) = tenants_of(1, 1)
    with Server(tmp_path / "data", "--workers", "2", STORAGE_SHARDS=str(SHARDS)) as server:
        body = {"goal": "p(?x)", "id": "g"}
        status, answer = server.post("/goals/subscribe", body, X_Tenant_ID=tenant)
        assert status == 200, answer
        since = json.loads(answer)["eventId"]

        def write(path: str, body: Any, tenant: str, **headers: str) -> tuple[int, bytes]:
            return server.post(path, body, X_Tenant_ID=tenant, **headers)

        with (
            GoalFollower(server.connect, tenant, "g", since) as one,
            GoalFollower(server.connect, tenant, "g", since) as other,
        ):
            with GoalWriter(write, tenant) as writer:
                for index in (1, 0, 1):
                    written, connections = writer.written, one.connections + other.connections
                    until(lambda w=written: writer.written > w + 5, "facts are written")
                    one.wait(lambda f: f.answers)
                    before = both(server)
                    os.kill(before[index], signal.SIGKILL)
                    until(
                        lambda b=before: len(children(server)) == 2 and children(server) != b,
                        "the worker is started again",
                    )
                    if index == 1:  # the owner: both streams end
                        until(
                            lambda c=connections: one.connections + other.connections >= c + 2,
                            "the streams are open again",
                        )
                written = writer.written
                until(lambda w=written: writer.written > w + 5, "facts are written")
            assert writer.refused == []
            for follower in (one, other):
                follower.wait(lambda f: f.answers == writer.truth)
        assert server.stop() == 0


@pytest.mark.slow
def test_workers_stop_when_the_supervisor_is_killed(tmp_path) -> None:
    with Server(tmp_path, "--workers", "2", STORAGE_SHARDS="4") as server:
        assert server.post("/tell", {"predicate": "p", "args": ["a"]})[0] == 200
        pids = children(server)
        server.kill()
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "workers stop")
    with Server(tmp_path, "--workers", "3") as server:  # another number of workers
        assert len(children(server)) == 3
        assert server.stop() == 0
    assert check_storage(f"wal:{tmp_path}", Config(min_free_mb=0)).shards == 4


def refused(*flags: str, **settings: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "kbserver.cli", "serve", "--port", "0", *flags]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "MIN_FREE_MB": "0", **settings},
    )
    return done.returncode, done.stderr


@pytest.mark.slow
def test_starts_that_cannot_work_say_why(tmp_path) -> None:
    with kbcore.open_kb(path=tmp_path / "one", config=Config(min_free_mb=0)) as kb:
        kb.tell("p", ["a"])
    for flags, settings, message in (
        (("--workers", "0"), {}, "WORKERS='0': "),
        (("--workers", "x"), {}, "WORKERS='x': "),
        (
            ("--workers", "2", "--storage-backend", "memory"),
            {},
            "STORAGE_BACKEND=memory is for one",
        ),
        (("--workers", "2"), {"REPLICATION_MODE": "LEADER"}, "which cannot be replicated"),
    ):
        status, text = refused("--storage-dir", str(tmp_path / "new"), *flags, **settings)
        assert status == 78, text
        assert message in text
    status, text = refused("--storage-dir", str(tmp_path / "one"), "--workers", "2")
    assert status == 78
    assert "has 1 shard, and each worker needs one" in text
    assert "kbcore storage copy FROM TO --shards 2" in text
    copy_storage(
        f"wal:{tmp_path / 'one'}", f"wal:{tmp_path / 'many'}", Config(min_free_mb=0), shards=16
    )
    with Server(tmp_path / "many", "--workers", "2") as server:
        ask = {"predicate": "p", "args": ["?x"]}
        assert len(json.loads(server.post("/query", ask, X_Tenant_ID="default")[1])) == 1


@pytest.mark.slow
def test_a_worker_that_cannot_run_stops_the_server_with_its_status(tmp_path) -> None:
    with Server(tmp_path, "--workers", "2") as server:
        pid = children(server)[1]
        for shard in (tmp_path / "shard-001").glob("wal-*"):
            shard.unlink()
        os.kill(pid, signal.SIGKILL)
        assert server.process.wait(DEADLINE_S) == 65
