"""Synchronous replication between real processes: what is acknowledged is on two disks."""

from __future__ import annotations

import http.client
import json
import threading
from contextlib import closing

from support.replicas import follower, get, leader, numbers, standing, until

SYNC = {"REPLICATION_SYNC": "1", "REPLICATION_SYNC_TIMEOUT_MS": "500"}


def url(server):
    return "http://{}:{}".format(*server.address)


def tell(server, n, **headers):
    status, body = server.post("/tell", {"predicate": "n", "args": [str(n)]}, **headers)
    return status, body if status == 200 else json.loads(body)


def in_sync(server):
    return [each["name"] for each in standing(server)["followers"] if each["inSync"]]


class Writers:
    """Threads that write numbers of their own, until a write fails."""

    def __init__(self, server, count=4, keyed=False):
        self.sent = []
        self._keyed = keyed
        self.acknowledged = [[] for _ in range(count)]
        self.failures = []
        self._server = server
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(count)]
        for thread in self._threads:
            thread.start()

    def _run(self, own):
        with closing(self._server.connect()) as connection:
            for n in range(1_000_000):
                number = n * len(self.acknowledged) + own
                body = {"predicate": "n", "args": [str(number)]}
                headers = {"Idempotency_Key": f"k{number}"} if self._keyed else {}
                self.sent.append(number)
                try:
                    status, answer = self._server.post("/tell", body, connection, **headers)
                except (OSError, http.client.HTTPException):
                    return
                if status != 200:
                    self.failures.append((status, answer))
                    return
                self.acknowledged[own].append(number)

    def join(self):
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        return {number for numbers in self.acknowledged for number in numbers}


def test_a_lost_leader_takes_no_acknowledged_write_with_it(tmp_path):
    first = leader(tmp_path / "one", **SYNC)
    second = follower(tmp_path / "two", url(first), **SYNC)
    try:
        until(lambda: in_sync(first))
        writers = Writers(first)
        until(lambda: sum(map(len, writers.acknowledged)) > 100)
        visible = numbers(first)
        first.kill()
        acknowledged = writers.join()
        assert not writers.failures
        status, body = second.post("/admin/promote", {"force": True})
        assert status == 200, body
        assert numbers(second) >= acknowledged | visible
        with follower(tmp_path / "one", url(second), **SYNC) as third:
            until(lambda: tell(second, -1)[0] == 200)
            until(lambda: numbers(third) == numbers(second))
            assert in_sync(second) == ["follower"]
    finally:
        first.kill()
        second.kill()


def test_a_keyed_write_in_flight_has_a_definite_answer_from_the_new_leader(tmp_path):
    first = leader(tmp_path / "one", **SYNC)
    second = follower(tmp_path / "two", url(first), **SYNC)
    try:
        until(lambda: in_sync(first))
        writers = Writers(first, count=8, keyed=True)
        until(lambda: sum(map(len, writers.acknowledged)) > 100)
        first.kill()
        acknowledged = writers.join()
        assert second.post("/admin/promote", {"force": True})[0] == 200
        known = numbers(second)
        with follower(tmp_path / "one", url(second), **SYNC):
            until(lambda: in_sync(second))
            assert sorted(writers.sent) != sorted(acknowledged), "something was in flight"
            for number in writers.sent:
                answer = tell(second, number, Idempotency_Key=f"k{number}")
                assert answer == (200, b"Fact Asserted: n(%d)" % number)
            assert numbers(second) == set(writers.sent) >= known >= acknowledged
    finally:
        first.kill()
        second.kill()


def test_without_a_follower_writes_are_refused_and_reads_go_on(tmp_path):
    with leader(tmp_path / "one", **SYNC) as first:
        status, answer = tell(first, 1)
        assert (status, answer["details"]["outcome"]) == (503, "not_done")
        second = follower(tmp_path / "two", url(first), REPLICATION_NAME="b", **SYNC)
        until(lambda: tell(first, 1)[0] == 200)
        assert in_sync(first) == ["b"]
        second.kill()
        status, answer = tell(first, 2, Idempotency_Key="two")
        assert (status, answer["details"]["outcome"]) == (503, "unknown")
        status, answer = tell(first, 2, Idempotency_Key="two")
        assert (status, answer["details"]["outcome"]) == (503, "unknown")
        status, answer = tell(first, 3)
        assert (status, answer["details"]["outcome"]) == (503, "not_done")
        assert numbers(first) == {1}
        checks = json.loads(get(first, "/health/ready")[1])
        assert (checks["status"], checks["writable"]) == ("degraded", False)
        assert b"svc_replication_in_sync_followers 0" in get(first, "/metrics")[1]
        with follower(tmp_path / "two", url(first), REPLICATION_NAME="b", **SYNC) as second:
            until(lambda: tell(first, 4)[0] == 200)
            until(lambda: numbers(first) == numbers(second) == {1, 2, 4})
            status, answer = tell(first, 2, Idempotency_Key="two")
            assert (status, answer) == (200, b"Fact Asserted: n(2)")
            checks = json.loads(get(first, "/health/ready")[1])
            assert (checks["status"], checks["writable"]) == ("healthy", True)
            writers = Writers(first)
            until(lambda: sum(map(len, writers.acknowledged)) > 50)
            assert first.stop() == 0
            acknowledged = writers.join()
            assert {json.loads(body)["code"] for _, body in writers.failures} <= {"NOT_READY"}
            assert numbers(second) >= acknowledged
