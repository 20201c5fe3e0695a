"""kill -9 under load: acknowledged writes survive completely, and refused ones do not appear."""

from __future__ import annotations

import json

import pytest
from support.kill_writers import check_upkeep, kill_rounds, upkeep
from support.servers import Server


def test_nothing_acknowledged_is_lost_by_a_kill(tmp_path):
    assert kill_rounds(tmp_path, rounds=3, seed=1) > 180


@pytest.mark.crash
def test_nothing_acknowledged_is_lost_by_a_hundred_kills(tmp_path):
    assert kill_rounds(tmp_path, rounds=100, seed=2) > 6000


def test_a_rule_and_its_conclusions_survive(tmp_path):
    rule = {
        "text": "ancestor(?x, ?y) :- parent(?x, ?y).\nancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."
    }
    with Server(tmp_path) as server:
        assert server.post("/teach", rule)[0] == 200
        for pair in (("ann", "bob"), ("bob", "cid")):
            assert server.post("/tell", {"predicate": "parent", "args": pair})[0] == 200
        server.kill()
    with Server(tmp_path) as server:
        rows = json.loads(server.post("/ask", {"predicate": "ancestor", "args": ["ann", "?x"]})[1])
        assert [row["args"][1] for row in rows] == ["bob", "cid"]


def test_scopes_that_were_forked_merged_and_deleted_survive(tmp_path):
    def look(server):
        query = {"predicate": "p", "args": ["?x"], "scope": "*"}
        rows = json.loads(server.post("/query", query)[1])
        return send(server, "GET", "/scopes")[1], [
            (row["args"], row["scope"], row["createdAt"]) for row in rows
        ]

    def send(server, method, path):
        connection = server.connect()
        try:
            connection.request(method, path, headers={"X-Tenant-ID": "t"})
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    with Server(tmp_path) as server:
        assert (
            server.post(
                "/assert/facts", {"facts": [{"predicate": "p", "args": [n]} for n in range(50)]}
            )[0]
            == 200
        )
        for name in ("a", "b", "gone"):
            assert server.post("/scope/fork", {"targetScope": name})[0] == 200
        assert server.post("/tell", {"predicate": "p", "args": ["new"], "scope": "a"})[0] == 200
        assert server.post("/scope/merge", {"sourceScope": "a"})[0] == 200
        assert send(server, "DELETE", "/scope/gone")[0] == 200
        before = look(server)
        server.kill()
    with Server(tmp_path) as server:
        assert look(server) == before
        assert json.loads(before[0]) == {"scopes": ["a", "b"], "count": 2}
        assert len(before[1]) == 51 + 51 + 50


def test_scopes_evictions_and_transactions_are_whole_after_kills(tmp_path):
    assert kill_rounds(tmp_path, rounds=3, seed=3, load=upkeep, check=check_upkeep) > 120


@pytest.mark.crash
def test_scopes_evictions_and_transactions_are_whole_after_fifty_kills(tmp_path):
    assert kill_rounds(tmp_path, rounds=50, seed=4, load=upkeep, check=check_upkeep) > 2000
