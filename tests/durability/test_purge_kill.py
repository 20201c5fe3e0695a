"""kill -9 during a purge: it can be repeated, ends with no byte of the text left, and loses nothing
else.
"""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path

import pytest
from support.runtimes import runtime
from support.servers import Server

from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget
from kbplanner.ir.terms import Variable

SECRET = "zebulon"
X = Variable("x")


def tell(server: Server, round_number: int) -> None:
    text = f"{SECRET} said {round_number}"
    body = {"speaker": SECRET, "text": text, "at": round_number}
    status, answer = server.post("/episodes", body)
    assert status in (200, 201)
    evidence = [{"episode": json.loads(answer)["id"]}]
    facts = [
        {"predicate": "likes", "args": [SECRET, str(round_number)], "evidence": evidence},
        {"predicate": "kept", "args": [str(round_number)]},
        *({"predicate": "filler", "args": [f"{round_number}-{i}"]} for i in range(500)),
    ]
    assert server.post("/assert/facts", {"facts": facts})[0] == 200


def begin_purge(server: Server) -> socket.socket:
    """Send a purge, and do not wait for its answer."""
    body = json.dumps({"subject": SECRET}).encode()
    head = (
        f"POST /memory/purge HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: t\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    connection = socket.create_connection(server.address)
    connection.sendall(head.encode() + body)
    return connection


def holds_secret(folder: Path) -> list[str]:
    return [
        path.name
        for path in folder.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    ]


def purge_rounds(folder: Path, rounds: int, seed: int, **settings: str) -> int:
    """Kill a server during purges; return how often the purge was cut short."""
    chance = random.Random(seed)
    cut_short = 0
    for round_number in range(rounds):
        with Server(folder, **settings) as server:
            tell(server, round_number)
            with begin_purge(server):
                for _ in range(chance.randrange(40)):
                    server.post("/ask", {"predicate": "kept", "args": ["?x"]})
                server.kill()
        with Server(folder, **settings) as server:
            status, answer = server.post("/memory/purge", {"subject": SECRET})
            assert status == 200, answer
            outcome = json.loads(answer)
            cut_short += outcome["factCount"] > 0
            assert outcome["erased"] is True
            assert holds_secret(folder) == []
            kept = json.loads(server.post("/ask", {"predicate": "kept", "args": ["?x"]})[1])
            assert len(kept) == round_number + 1
            filler = {"predicate": "filler", "op": "COUNT"}
            counted = json.loads(server.post("/aggregate", filler)[1])["result"]
            assert counted == 500 * (round_number + 1)
            server.kill()
    return cut_short


def test_a_purge_survives_kills(tmp_path: Path) -> None:
    purge_rounds(tmp_path, rounds=4, seed=1)


@pytest.mark.crash
@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_a_purge_survives_fifty_kills(tmp_path: Path, backend: str) -> None:
    assert purge_rounds(tmp_path, rounds=50, seed=2, STORAGE_BACKEND=backend) < 50


@pytest.mark.parametrize("backend", ["wal", "sqlite"])
def test_the_next_start_ends_a_purge_that_was_cut_short(tmp_path: Path, backend: str) -> None:
    with runtime(tmp_path, storage_backend=backend) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("likes", (SECRET,)), Fact("likes", ("ann",))])
        kb.purge(PurgeTarget(subject=SECRET), wait=False)
        # Like a kill: no snapshot at the stop.
        node.system.committer.bytes = 0
        node.system.snapshots._at_bytes = 0
    with runtime(tmp_path, storage_backend=backend) as node:
        node.system.keep()
        kb = node.knowledge_base()
        assert [state.erased for state in kb.purges()] == [True]
        assert holds_secret(tmp_path) == []
        assert [row["args"] for row in kb.query_rows("likes", (X,))] == [["ann"]]
    with runtime(tmp_path, storage_backend=backend) as node:
        tenant = node.find_tenant("default", "default")
        assert tenant is not None
        assert (tenant.engine.find(SECRET), tenant.engine.find("ann") > 0) == (0, True)
