"""Replication between real processes: killed on both sides, cut off, truncated, diverged,
promoted.
"""

import json
import random
import time
from statistics import median

import pytest
from support.replicas import (
    TOKEN,
    Proxy,
    Reader,
    Writer,
    caught_up,
    follower,
    get,
    leader,
    numbers,
    standing,
    until,
)

CONVERGES = 5.0
"""Seconds in which a follower has everything once it can reach its leader again."""


def url(server):
    return "http://{}:{}".format(*server.address)


def kills(tmp_path, rounds, seed, seconds=60.0):
    """Kill one side or the other, drawn by lot, under load, again and again, but begin no round
    after `seconds`.
    """
    rng, begun = random.Random(seed), time.monotonic()
    first = leader(tmp_path / "leader")
    port = first.address[1]
    second = follower(tmp_path / "follower", url(first))
    writer, reader = Writer(first, 0.002), Reader(second)
    killed, times = {"leader": 0, "follower": 0}, []
    try:
        while sum(killed.values()) < rounds and time.monotonic() - begun < seconds:
            before = writer.acknowledged
            until(lambda at=before: writer.acknowledged > at + 5, 30)
            if rng.random() < 0.5:
                killed["leader"] += 1
                first.kill()
                first = leader(tmp_path / "leader", port)
                writer.server = first
            else:
                killed["follower"] += 1
                second.kill()
                second = follower(tmp_path / "follower", url(first))
                reader.server = second
            times.append(caught_up(second, first))
        writer.stop()
        times.append(caught_up(second, first))
        reader.stop()
        there = numbers(first)
        lost = set(range(writer.acknowledged)) - there
        took, rate = time.monotonic() - begun, writer.acknowledged / (time.monotonic() - begun)
        print(
            f"{sum(killed.values())} kills {killed} in {took:.0f} s under {rate:.0f} writes/s: {writer.acknowledged}"
            f" acknowledged, {len(lost)} lost, {reader.reads} reads; converged after {median(times):.2f} s (median),"
            f" {max(times):.2f} s (most)"
        )
        assert not lost, f"acknowledged writes are lost: {sorted(lost)[:10]}"
        assert numbers(second) == there
        assert reader.reads > 0
        assert standing(second)["leader"]["divergences"] == 0
        assert max(times) <= CONVERGES
        return killed
    finally:
        writer._stop = reader._stop = True
        first.kill()
        second.kill()


def test_kills_on_both_sides(tmp_path):
    assert sum(kills(tmp_path, 3, 1).values()) == 3


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("seed", [2, 3, 4, 5])
def test_many_kills_on_both_sides(tmp_path, seed):
    """Two hundred in all; a slow machine comes to fewer before the time is up, and says to how
    many.
    """
    assert min(kills(tmp_path, 50, seed, 200.0).values()) > 0


def test_a_follower_catches_up_after_the_network_recovers(tmp_path):
    """Under writes, whether connections were refused or held, and for however long."""
    times = []
    with leader(tmp_path / "leader") as first:
        proxy = Proxy(first.address)
        with follower(tmp_path / "follower", proxy.url) as second:
            until(lambda: get(second, "/health/ready")[0] == 200)
            writer, reader = Writer(first, 0.002), Reader(second)
            try:
                for fault, tries in ((proxy.cut, 1), (proxy.hold, 1), (proxy.cut, 5)):
                    fault()
                    before, sent = (
                        writer.acknowledged,
                        standing(first)["head"],
                    )  # what may be on its way is not beyond
                    until(lambda at=before: writer.acknowledged > at + 200, 60)
                    silent = 500 * tries
                    until(lambda ms=silent: standing(second)["leader"]["lastContactMs"] > ms, 60)
                    assert standing(second)["head"] <= sent < standing(first)["head"] - 100, (
                        "it was not cut off"
                    )
                    proxy.heal()
                    times.append(caught_up(second, first))
                writer.stop()
                times.append(caught_up(second, first))
                reader.stop()
                assert numbers(second) == numbers(first) == set(range(writer.acknowledged))
                assert standing(second)["leader"]["bootstraps"] == 1
                assert standing(second)["leader"]["divergences"] == 0
            finally:
                writer._stop = reader._stop = True
        proxy.close()
    print("converged after", ", ".join(f"{seconds:.2f} s" for seconds in times))
    assert max(times) <= CONVERGES


def test_a_broken_network_and_a_stalled_one(tmp_path):
    with leader(tmp_path / "leader") as first:
        proxy = Proxy(first.address)
        with follower(tmp_path / "follower", proxy.url, READY_STALE_S="1") as second:
            first.post("/tell", {"predicate": "n", "args": ["0"]})
            until(lambda: numbers(second) == {0})
            assert until(lambda: get(second, "/health/ready")[0] == 200)
            proxy.cut()
            first.post("/tell", {"predicate": "n", "args": ["1"]})
            assert until(lambda: get(second, "/health/ready")[0] == 503), (
                "it is stale for longer than it may be"
            )
            _, body, headers = get(second, "/health/ready")
            assert "does not answer" in body.decode()
            assert int(headers["X-Replication-Lag-Ms"]) > 1000
            assert numbers(second) == {0}, "what was there is still read"
            proxy.heal()
            until(lambda: numbers(second) == {0, 1})
            proxy.hold()
            first.post("/tell", {"predicate": "n", "args": ["2"]})
            assert until(lambda: int(get(second, "/health")[2]["X-Replication-Lag-Ms"]) > 800)
            proxy.cut()
            proxy.heal()
            until(lambda: numbers(second) == {0, 1, 2})
            assert until(lambda: get(second, "/health/ready")[0] == 200)
        proxy.close()


def test_a_follower_behind_the_log_fetches_the_state(tmp_path):
    settings = {"WAL_RETAIN_MB": "0", "WAL_SEGMENT_MB": "1"}
    with leader(tmp_path / "leader", **settings) as first:
        port = first.address[1]
        second = follower(tmp_path / "follower", url(first))
        for n in range(3):
            first.post("/tell", {"predicate": "n", "args": [str(n)]})
        caught_up(second, first)
        assert standing(second)["leader"]["bootstraps"] == 1
        second.kill()
        for n in range(3, 8):
            first.post("/tell", {"predicate": "n", "args": [str(n)]})
            rows = [{"predicate": "wide", "args": [f"{n}-{i}", "." * 300]} for i in range(4000)]
            assert first.post("/assert/facts", {"facts": rows})[0] == 200
            assert first.post("/admin/snapshot", {})[0] == 200
        assert len(list((tmp_path / "leader").glob("wal-*"))) < 4
        first.kill()
        first = leader(tmp_path / "leader", port, **settings)
        with first, follower(tmp_path / "follower", url(first)) as second:
            until(lambda: numbers(second) == set(range(8)))
            assert standing(second)["leader"]["bootstraps"] == 1
            first.post("/tell", {"predicate": "n", "args": ["8"]})
            until(lambda: numbers(second) == set(range(9)))
            second.kill()
        with first, follower(tmp_path / "follower", url(first)) as second:
            assert numbers(second) == set(range(9)), "the state that was fetched is durable"


def test_a_follower_disconnected_for_too_long_fetches_the_state(tmp_path):
    """Both sides run on; what the follower has serves reads until the new state is there, and
    nothing goes back.
    """
    settings = {"WAL_RETAIN_MB": "0", "WAL_SEGMENT_MB": "1"}
    with leader(tmp_path / "leader", **settings) as first:
        proxy = Proxy(first.address)
        with follower(tmp_path / "follower", proxy.url) as second:
            for n in range(3):
                first.post("/tell", {"predicate": "n", "args": [str(n)]})
            until(lambda: numbers(second) == {0, 1, 2})
            cursor = standing(second)["head"]
            proxy.cut()
            reader = Reader(second)
            try:
                for n in range(3, 8):
                    first.post("/tell", {"predicate": "n", "args": [str(n)]})
                    rows = [
                        {"predicate": "wide", "args": [f"{n}-{i}", "." * 300]} for i in range(4000)
                    ]
                    assert first.post("/assert/facts", {"facts": rows})[0] == 200
                    assert first.post("/admin/snapshot", {})[0] == 200
                kept = min(int(path.name[4:-4]) for path in (tmp_path / "leader").glob("wal-*"))
                assert kept > cursor + 1, "the leader still has what comes next"
                assert standing(second)["leader"]["bootstraps"] == 1
                proxy.heal()
                took = caught_up(second, first)
                reader.stop()
                assert reader.reads > 0
            finally:
                reader._stop = True
            assert standing(second)["leader"]["bootstraps"] == 2
            assert standing(second)["leader"]["divergences"] == 0
            assert numbers(second) == set(range(8))
            assert first.post("/tell", {"predicate": "n", "args": ["8"]})[0] == 200
            until(lambda: numbers(second) == set(range(9)))
        proxy.close()
    print(f"converged after {took:.2f} s")
    assert took <= CONVERGES


def test_promotion_procedure(tmp_path):
    """The leader dies, its follower is promoted, and a node that returns as a leader or a follower
    gets its role.
    """
    first = leader(tmp_path / "first")
    port = first.address[1]
    with follower(tmp_path / "second", url(first)) as second:
        for n in range(5):
            first.post("/tell", {"predicate": "n", "args": [str(n)]})
        caught_up(second, first)
        assert second.post("/admin/promote", {})[0] == 409, "the leader lives"
        first.kill()
        until(lambda: "does not answer" in get(second, "/health/ready")[1].decode())
        status, body = second.post("/admin/promote", {})
        assert (status, json.loads(body)["epoch"]) == (200, 2)
        assert second.post("/tell", {"predicate": "n", "args": ["5"]})[0] == 200
        assert standing(second)["role"] == "LEADER"
        # The old leader has gone on alone, and now comes to follow: its own writes give way to the
        # later term.
        first = leader(tmp_path / "first", port)
        first.post("/tell", {"predicate": "n", "args": ["99"]})
        # A follower of the new leader that is pointed at the old one refuses it.
        with follower(tmp_path / "third", url(second)) as third:
            until(lambda: numbers(third) == set(range(6)))
        with follower(tmp_path / "third", url(first)) as third:
            assert until(lambda: "old" in get(third, "/health/ready")[1].decode())
            assert get(third, "/health/ready")[0] == 503
            assert numbers(third) == set(range(6))
        first.kill()
        with follower(tmp_path / "first", url(second)) as old:
            until(lambda: numbers(old) == set(range(6)))
            assert standing(old)["epoch"] == 2
            second.post("/tell", {"predicate": "n", "args": ["6"]})
            until(lambda: numbers(old) == set(range(7)))


def test_a_diverged_log_of_the_same_term_is_not_deleted(tmp_path):
    with leader(tmp_path / "leader") as first:
        first.post("/tell", {"predicate": "n", "args": ["0"]})
        with leader(tmp_path / "other") as other:
            for n in range(3):
                other.post("/tell", {"predicate": "n", "args": [str(10 + n)]})
        with follower(tmp_path / "other", url(first)) as astray:
            assert until(lambda: "another log" in get(astray, "/health/ready")[1].decode())
            assert numbers(astray) == {10, 11, 12}
            assert get(astray, "/health/ready")[0] == 503


@pytest.mark.parametrize(("leads", "follows"), [("sqlite", "wal"), ("wal", "sqlite")])
def test_any_storage_can_follow_any_other(tmp_path, leads, follows):
    first = leader(tmp_path / "leader", STORAGE_BACKEND=leads)
    port = first.address[1]
    second = follower(tmp_path / "follower", url(first), STORAGE_BACKEND=follows)
    try:
        for n in range(4):
            first.post("/tell", {"predicate": "n", "args": [str(n)]})
        caught_up(second, first)
        first.post("/admin/snapshot", {})
        second.kill()
        first.kill()
        first = leader(tmp_path / "leader", port, STORAGE_BACKEND=leads)
        first.post("/tell", {"predicate": "n", "args": ["4"]})
        second = follower(tmp_path / "follower", url(first), STORAGE_BACKEND=follows)
        until(lambda: numbers(second) == set(range(5)))
        until(lambda: standing(second)["leader"]["head"] == 5)
        assert standing(second)["leader"]["divergences"] == 0
        assert standing(second)["leader"]["bootstraps"] == 0
    finally:
        first.kill()
        second.kill()


def test_a_node_without_the_token_is_refused(tmp_path):
    with leader(tmp_path / "leader") as first:
        for path in ("/replication/log", "/replication/snapshot", "/replication/status"):
            assert get(first, path)[0] == 401
            assert get(first, path, Authorization="Bearer wrong")[0] == 403
        assert get(first, "/replication/status", Authorization=f"Bearer {TOKEN}")[0] == 200
