"""kill -9 under load: what was acknowledged is there after the restart, whole; what was refused is not."""

from __future__ import annotations

import http.client
import json
import random
import threading

import pytest
from support.servers import Server

WORKERS = 8


def load(server, worker, round_number, acknowledged, sent, enough):
    """Tell facts one by one and in bulk until the server is gone."""
    connection = server.connect()
    try:
        for n in range(100_000):
            name = f"{round_number}-{worker}-{n}"
            if n % 7 == 6:
                names = [f"{name}-{i}" for i in range(20)]
                body = {"facts": [{"predicate": "bulk", "args": [one, name]} for one in names]}
                sent.append(("bulk", name))
                status, _ = server.post("/assert/facts", body, connection)
                entry = ("bulk", name)
            else:
                sent.append(("fact", name))
                status, _ = server.post("/tell", {"predicate": "fact", "args": [name]}, connection)
                entry = ("fact", name)
            assert status == 200
            acknowledged.append(entry)
            if len(acknowledged) > 60:
                enough.set()
    except (OSError, http.client.HTTPException):
        pass  # the server was killed: what this worker had in flight may be there or not
    finally:
        connection.close()


def present(server):
    facts = {row["args"][0] for row in json.loads(server.post("/query", {"predicate": "fact", "args": ["?x"]})[1])}
    bulks: dict[str, int] = {}
    for row in json.loads(server.post("/query", {"predicate": "bulk", "args": ["?x", "?y"]})[1]):
        bulks[row["args"][1]] = bulks.get(row["args"][1], 0) + 1
    return facts, bulks


def kill_rounds(folder, rounds, seed):
    chance = random.Random(seed)
    acknowledged: list[tuple[str, str]] = []
    sent: list[tuple[str, str]] = []
    for round_number in range(rounds):
        with Server(folder) as server:
            if acknowledged:
                check(server, acknowledged, sent)
            enough = threading.Event()
            own: list[tuple[str, str]] = []
            threads = [
                threading.Thread(target=load, args=(server, worker, round_number, own, sent, enough))
                for worker in range(WORKERS)
            ]
            for thread in threads:
                thread.start()
            assert enough.wait(60)
            target = len(own) + chance.randrange(40)
            while len(own) < target:
                enough.wait(0.001)
            server.kill()
            for thread in threads:
                thread.join(60)
            acknowledged.extend(own)
    with Server(folder) as server:
        check(server, acknowledged, sent)
        assert server.stop() == 0
    return len(acknowledged)


def check(server, acknowledged, sent):
    facts, bulks = present(server)
    assert [name for kind, name in acknowledged if kind == "fact" and name not in facts] == []
    assert [name for kind, name in acknowledged if kind == "bulk" and name not in bulks] == []
    assert set(bulks.values()) <= {20}, "half a bulk is there"
    assert facts <= {name for kind, name in sent if kind == "fact"}


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path):
    assert kill_rounds(tmp_path, rounds=3, seed=1) > 180


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_by_a_hundred_kills(tmp_path):
    assert kill_rounds(tmp_path, rounds=100, seed=2) > 6000


def test_a_rule_and_its_conclusions_survive(tmp_path):
    rule = {"text": "ancestor(?x, ?y) :- parent(?x, ?y).\nancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."}
    with Server(tmp_path) as server:
        assert server.post("/teach", rule)[0] == 200
        for pair in (("ann", "bob"), ("bob", "cid")):
            assert server.post("/tell", {"predicate": "parent", "args": pair})[0] == 200
        server.kill()
    with Server(tmp_path) as server:
        rows = json.loads(server.post("/ask", {"predicate": "ancestor", "args": ["ann", "?x"]})[1])
        assert [row["args"][1] for row in rows] == ["bob", "cid"]
