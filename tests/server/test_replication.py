"""Routes between nodes, and the effects of replication on other routes."""

from __future__ import annotations

import json

import httpx
import pytest
from support.links import TOKEN, Link, catch_up, following, node

from kbcore.config import Config
from kbcore.errors import BadShipment
from kbcore.offline.rescue import restore_file
from kbcore.replication.leader import LogCursor
from kbcore.replication.wire_format import Unpacking, unframed
from kbcore.state.changes import AssertFacts, ChangeSet
from kbcore.state.facts import Fact
from kbserver.app import create_app
from kbserver.operations import operation_at
from kbserver.replication.log_client import HTTPLogSource

SECRET = {"Authorization": "Bearer " + TOKEN.replace(" ", "-")}
TENANT = {"X-Tenant-ID": "t"}


@pytest.fixture
def leader(tmp_path):
    with node(tmp_path / "leader") as made:
        yield made


@pytest.fixture
def follower(tmp_path, leader):
    with following(tmp_path / "follower", Link(leader)) as made:
        tell(leader, "a")
        catch_up(made)
        yield made


def tell(runtime, *names):
    for name in names:
        runtime.commit(ChangeSet("default", "t", (AssertFacts((Fact("p", (name,)),)),)))


def ask(runtime, query="", **headers):
    return (
        create_app(runtime)
        .test_client()
        .get("/replication/" + query, headers={**SECRET, **headers})
    )


def cursor(runtime, after=0, **more):
    status = runtime.log_status()
    asked = {
        "log_id": status.log_id,
        "epoch": status.epoch,
        "from": after + 1,
        "wait_ms": 0,
        **more,
    }
    return "log?" + "&".join(
        f"{name}={value}" for name, value in asked.items() if value is not None
    )


def test_records_are_sent_unchanged_and_none_is_204(leader):
    tell(leader, "a", "b")
    answer = ask(leader, cursor(leader))
    assert answer.status_code == 200
    assert [record.seq for record in unframed(answer.data, leader.log_id())] == [1, 2]
    assert answer.headers["X-Head-Seq"] == "2"
    assert ask(leader, cursor(leader, 2)).status_code == 204
    assert len([*unframed(ask(leader, cursor(leader, max_bytes=1)).data, leader.log_id())]) == 1


def test_a_snapshot_is_sent_completely(leader):
    tell(leader, "a")
    empty = Unpacking(1 << 20)
    assert [*empty.feed(ask(leader, "snapshot").data)] == []
    assert (empty.whole, empty.seed.seq) == (True, 0)
    leader.snapshot()
    answer = ask(leader, "snapshot")
    assert answer.headers["X-Snapshot-Seq"] == "1"
    reading = Unpacking(1 << 20)
    assert [*reading.feed(answer.data)]
    assert (reading.whole, reading.seed.seq, reading.seed.log_id) == (True, 1, leader.log_id())


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"log_id": "x"}, "log_id"),
        ({"log_id": None}, "log_id"),
        ({"epoch": "-1"}, "epoch"),
        ({"from": "0"}, "from"),
        ({"from": "one"}, "from"),
        ({"prev_crc": "12"}, "prev_crc"),
        ({"wait_ms": "20001"}, "wait_ms"),
        ({"max_bytes": "0"}, "max_bytes"),
        ({"follower": "a b"}, "follower"),
    ],
)
def test_invalid_parameters_are_named(leader, change, field):
    answer = ask(leader, cursor(leader, **change))
    assert (answer.status_code, answer.json["code"]) == (400, "VALIDATION_ERROR")
    assert field in answer.json["message"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"log_id": "ab" * 16}, "log_id"),
        ({"epoch": 2}, "epoch"),
        ({"from": 5}, "ahead"),
        ({"from": 3, "prev_crc": "00000000"}, "record"),
    ],
)
def test_another_log_is_a_conflict(leader, change, reason):
    tell(leader, "a", "b")
    answer = ask(leader, cursor(leader, **change))
    assert (answer.status_code, answer.json["code"]) == (409, "CONFLICT")
    assert answer.json["details"]["reason"] == reason


def test_truncated_records_answer_410(leader):
    rows = tuple(Fact("wide", (str(n), "." * 500)) for n in range(4000))
    for _ in range(3):
        leader.commit(ChangeSet("default", "t", (AssertFacts(rows),)))
        leader.snapshot()
    answer = ask(leader, cursor(leader))
    assert (answer.status_code, answer.json["code"]) == (410, "LOG_TRUNCATED")
    assert answer.json["details"]["first"] > 1


def test_requests_without_the_token_are_refused(leader, tmp_path):
    for query in ("log", "snapshot", "status"):
        assert ask(leader, query, Authorization="").status_code == 401
        assert ask(leader, query, Authorization="Bearer nonsense").status_code == 403
    assert ask(leader, "status").json["role"] == "LEADER"
    with node(tmp_path / "alone", "none") as alone:
        assert ask(alone, "status").status_code == 404


def test_without_a_token_an_unlimited_key_may_follow(tmp_path):
    """`REPLICATION_MODE=LEADER` needs no other setting: its log is then as open as its backup."""
    with node(tmp_path / "open", replication_token="") as leader:
        tell(leader, "a")
        client = create_app(leader).test_client()
        assert client.get("/admin/backup").status_code == 200
        (record,) = unframed(client.get(f"/replication/{cursor(leader)}").data, leader.log_id())
        assert record.seq == 1
        for query in ("snapshot", "status"):
            assert client.get(f"/replication/{query}").status_code == 200
    for more in ({"api_key": "a-key-of-this-node"}, {"auth_enabled": True}):
        with node(tmp_path / "shut", replication_token="", **more) as leader:
            client = create_app(leader).test_client()
            for query in ("log", "snapshot", "status"):
                assert client.get(f"/replication/{query}").status_code == 401
            if "api_key" in more:
                key = {"Authorization": "Bearer a-key-of-this-node"}
                assert client.get("/replication/status", headers=key).json["role"] == "LEADER"


@pytest.mark.parametrize("token", ["", "a-secret-of-all-nodes"])
def test_a_follower_without_a_token_sends_none(leader, token):
    seen = []

    def answer(request):
        seen.append(request.headers.get("Authorization"))
        return httpx.Response(401, json={"code": "UNAUTHORIZED", "message": "no", "details": None})

    config = Config(leader_url="http://leader.test:9300", replication_token=token)
    with pytest.raises(BadShipment):
        HTTPLogSource(config, httpx.MockTransport(answer)).read(
            LogCursor("ab" * 16, 1, 0, None), 0, 1 << 20
        )
    assert seen == [f"Bearer {token}" if token else None]


def test_a_follower_is_no_leader(follower):
    assert ask(follower, cursor(follower)).status_code == 409
    assert ask(follower, "status").json["leader"]["lagRecords"] == 0


def test_every_write_is_refused_and_names_the_leader(follower):
    app = create_app(follower)
    client, refused = app.test_client(), 0
    before = follower.log_head()
    for rule in app.url_map.iter_rules():
        declared = operation_at(max(rule.methods - {"OPTIONS", "HEAD"}), rule.rule)
        if declared is None or not declared.writes or rule.rule in ("/execute", "/extract"):
            continue
        if declared.dry_runs:  # the body says whether it writes
            continue
        path = rule.rule
        for name in rule.arguments:
            path = path.replace(f"<{name}>", "x")
        for method in rule.methods - {"HEAD", "OPTIONS"}:
            answer = client.open(path, method=method, json={}, headers=TENANT)
            assert (answer.status_code, answer.json["code"]) == (409, "FOLLOWER_READ_ONLY"), path
            assert answer.json["details"] == {"leader": "http://leader.test:9300"}
            refused += 1
    assert refused > 25
    answer = client.post("/execute", json={"command": "q(a)."}, headers=TENANT)
    assert (answer.status_code, answer.json["code"]) == (409, "FOLLOWER_READ_ONLY")
    assert client.post("/execute", json={"command": "?- p(?x)."}, headers=TENANT).status_code == 200
    answer = client.put("/rulesets/x", json={"text": "q(?x) :- p(?x)."}, headers=TENANT)
    assert (answer.status_code, answer.json["code"]) == (409, "FOLLOWER_READ_ONLY")
    body = {"text": "q(?x) :- p(?x).", "dryRun": True}
    answer = client.put("/rulesets/x", json=body, headers=TENANT)
    assert (answer.status_code, len(answer.json["added"])) == (200, 1)
    assert follower.log_head() == before


def test_the_fast_path_refuses_writes_too(follower):
    answer = (
        create_app(follower)
        .test_client()
        .post("/tell", json={"predicate": "p", "args": ["b"]}, headers=TENANT)
    )
    assert (answer.status_code, answer.json["details"]) == (
        409,
        {"leader": "http://leader.test:9300"},
    )


def test_log_positions_in_headers(leader, follower):
    writes, reads = create_app(leader).test_client(), create_app(follower).test_client()
    answer = writes.post("/tell", json={"predicate": "p", "args": ["b"]}, headers=TENANT)
    seq = answer.headers["X-Commit-Seq"]
    assert int(seq) == leader.log_head()
    asked = {"predicate": "p", "args": ["?x"]}
    assert "X-Commit-Seq" not in writes.post("/query", json=asked, headers=TENANT).headers
    catch_up(follower)
    answer = reads.post("/query", json=asked, headers={**TENANT, "X-Min-Seq": seq})
    assert [row["args"] for row in answer.json] == [["a"], ["b"]]
    assert int(answer.headers["X-Replication-Lag-Ms"]) >= 0
    for bad in ("x", "-1", "1" * 20):
        answer = reads.post("/query", json=asked, headers={**TENANT, "X-Min-Seq": bad})
        assert (answer.status_code, answer.json["details"]) == (400, {"header": "X-Min-Seq"})


def test_promotion_over_http(follower):
    client = create_app(follower).test_client()
    refused = client.post("/admin/promote", json={})
    assert (refused.status_code, refused.json["details"]["reason"]) == (409, "leader alive")
    assert client.post("/admin/promote", json={"force": "yes"}).status_code == 400
    answer = client.post("/admin/promote", json={"force": True})
    assert answer.json == {"promoted": True, "logId": follower.log_id(), "epoch": 2, "seq": 1}
    assert (
        client.post("/tell", json={"predicate": "p", "args": ["b"]}, headers=TENANT).status_code
        == 200
    )
    assert client.post("/admin/promote", json={}).status_code == 409
    assert json.loads(client.get("/health/ready").data)["writable"] is True


def test_a_follower_and_a_backup_have_the_rule_sets(leader, follower, tmp_path):
    client, path = create_app(leader).test_client(), "/rulesets/access"
    for text in ("q(?x) :- p(?x). r(a).", "q(?x) :- p(?x), ?x != b. r(a). r(b)."):
        answer = client.put(path, json={"text": text, "message": "m"}, headers=TENANT)
        assert answer.status_code == 200
    client.post("/tell", json={"predicate": "r", "args": ["a"]}, headers=TENANT)
    catch_up(follower)

    def seen(runtime):
        reader = create_app(runtime).test_client()
        return [reader.get(each, headers=TENANT).json for each in (path, f"{path}/versions")]

    expected = seen(leader)
    assert (expected[0]["version"], expected[0]["byHand"]) == (2, ["r(a)."])
    assert [each["version"] for each in expected[1]["versions"]] == [2, 1]
    assert seen(follower) == expected
    file = create_app(leader).test_client().get("/admin/backup").data
    (tmp_path / "backup").write_bytes(file)
    restore_file(tmp_path / "backup", str(tmp_path / "restored"), Config(min_free_mb=0))
    with node(tmp_path / "restored") as restored:
        assert seen(restored) == expected


def test_finished_waiters_are_forgotten(leader):
    assert not leader.replication.leader.synced._waiting
    ask(leader, cursor(leader, 0, wait_ms=1))
    assert not leader.replication.leader.synced._waiting
