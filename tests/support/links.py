"""A leader and a follower in one process, connected by a link with faults."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace

from kbcore.errors import BadShipment
from kbcore.replication.leader import LogCursor
from support.runtimes import runtime

TOKEN = "a secret of all nodes"

LINK_FAULTS = ("lost", "late", "again", "cut", "damaged", "short")


def node(folder, mode="LEADER", **settings):
    settings = {"sweep_interval_ms": 0, "wal_segment_mb": 1, **settings}
    if mode == "FOLLOWER":
        settings["leader_url"] = "http://leader.test:9300"
    settings.setdefault("replication_token", TOKEN.replace(" ", "-"))
    return runtime(folder, replication_mode=mode, **settings)


class Link:
    """Implements `LogSource` on a leader in this process; `fault` is what befalls the next
    answer.
    """

    def __init__(self, leader, name="f"):
        self.leader = leader
        self.name = name
        self.fault = ""
        self.last = None
        self.down = False

    def read(self, cursor: LogCursor, wait_ms, max_bytes):
        fault, self.fault = self.fault, ""
        if self.down or fault == "lost":
            raise BadShipment("no answer")
        answer = self.leader.replication.leader.ship(
            self.name, cursor, 0.0, 300 if fault == "short" else max_bytes
        )
        previous, self.last = self.last, answer
        if fault == "late":
            raise BadShipment("the answer came too late")
        if fault == "again" and previous is not None:
            return previous
        if fault == "cut":
            return replace(answer, data=answer.data[: len(answer.data) * 2 // 3])
        if fault == "damaged" and answer.data:
            place = len(answer.data) // 2
            return replace(
                answer,
                data=answer.data[:place]
                + bytes([answer.data[place] ^ 4])
                + answer.data[place + 1 :],
            )
        return answer

    @contextmanager
    def snapshot(self):
        fault, self.fault = self.fault, ""
        if self.down or fault == "lost":
            raise BadShipment("no answer")
        _, pieces = self.leader.replication.leader.snapshot(self.name)
        data = b"".join(pieces)
        if fault in ("cut", "late"):
            data = data[: len(data) * 2 // 3]
        if fault == "damaged":
            data = (
                data[: len(data) // 2]
                + bytes([data[len(data) // 2] ^ 4])
                + data[len(data) // 2 + 1 :]
            )
        yield iter([data[start : start + 1000] for start in range(0, len(data), 1000)])

    def close(self):
        pass


def following(folder, link, **settings):
    """A follower of a link, not started: its steps are taken by the test."""
    made = node(folder, "FOLLOWER", **settings)
    made.replication.follow(link, start=False)
    return made


def catch_up(follower, steps=20):
    for _ in range(steps):
        follower.replication.follower.step()
        standing = follower.replication.follower.standing
        if (
            not standing.trouble
            and standing.as_of is not None
            and follower.log_head() >= standing.head
        ):
            return
    raise AssertionError(follower.replication.describe())
