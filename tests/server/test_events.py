"""Event streams: content, resuming, slow readers, load."""

from __future__ import annotations

import functools
import itertools
import json
import re
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from support.http import Served, serve_in_memory
from support.servers import Server

from kbcore.errors import BudgetExceeded
from kbcore.events.events import Place, Wanted
from kbcore.events.feed import Committed
from kbcore.state.changes import AssertFacts, Change, ChangeSet, Delta, PurgeMemory
from kbcore.state.facts import Fact
from kbserver.events.ring import Behind, Ring


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory(events_buffer=50, events_max_streams=3) as found:
        yield found
        found.app.extensions["kbcore.events"].close()


def tell(served: Served, *names: str) -> None:
    for name in names:
        served.client.tell("p", name)


def opened(served: Served, query: str = "", **headers: str) -> Any:
    named = {
        "X-Tenant-ID": "t",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    response = served.client.flask.get("/memory/events" + query, headers=named, buffered=False)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "text/event-stream"
    assert response.headers["Cache-Control"] == "no-store"
    return response


def events(text: bytes) -> list[dict[str, Any]]:
    return [
        json.loads(line[6:]) for line in text.decode().splitlines() if line.startswith("data: ")
    ]


def names(found: list[dict[str, Any]]) -> list[str]:
    return [event["atom"]["args"][0] if "atom" in event else event["type"] for event in found]


def parts(response: Any) -> Iterator[bytes]:
    return iter(response.response)


def last_id(text: bytes) -> str:
    return [line[4:] for line in text.decode().splitlines() if line.startswith("id: ")][-1]


def test_a_stream_starts_with_its_position(served: Served) -> None:
    tell(served, "before")
    with opened(served) as response:
        stream = parts(response)
        hello = next(stream)
        assert hello.startswith(b"retry: 3000\n")
        tell(served, "a", "b")
        text = next(stream)
        assert names(events(text)) == ["a", "b"]
        assert text.startswith(b"event: fact_asserted\nid: ")
        assert events(text)[0]["eventId"] in text.decode().split("data:")[0]
    with opened(served, Last_Event_ID=last_id(hello)) as again:
        stream = parts(again)
        next(stream)
        assert names(events(next(stream))) == ["a", "b"]


def test_a_stream_is_resumed_in_the_middle_of_a_change_set(served: Served) -> None:
    with opened(served) as response:
        stream = parts(response)
        next(stream)
        facts = [{"predicate": "p", "args": [name]} for name in "abcd"]
        assert served.client.post("/assert/facts", {"facts": facts}).status_code == 200
        tell(served, "e")
        found = events(next(stream))
    for place, event in enumerate(found):
        for way in ({"query": f"?since={event['eventId']}"}, {"Last_Event_ID": event["eventId"]}):
            with opened(served, **way) as again:
                stream = parts(again)
                assert b"events_lost" not in next(stream)
                tell(served, "end")
                assert names(events(next(stream)))[: 4 - place] == list("abcde")[place + 1 :]


def test_a_stream_can_start_at_a_time(served: Served) -> None:
    with opened(served) as response:
        stream = parts(response)
        next(stream)
        served.clock.advance(1000)
        tell(served, "a")
        served.clock.advance(1000)
        tell(served, "b")
        at = [event["timestamp"] for event in events(next(stream))]
    with opened(served, f"?since={at[1]}") as response:
        stream = parts(response)
        assert events(next(stream)) == []
        assert names(events(next(stream))) == ["b"]
    with opened(served, "?since=2001-01-01T00:00:00Z") as response:
        stream = parts(response)
        assert events(next(stream)) == []
        assert b"\nid: " in next(stream)  # all of the log up to what is in memory
        assert names(events(next(stream))) == ["a", "b"]


@pytest.mark.parametrize("since", ["00000000.3.0", "{log}.999999"])
def test_an_id_of_another_log_or_of_the_future_is_unknown(served: Served, since: str) -> None:
    with opened(served) as response:
        log = last_id(next(parts(response))).split(".")[0]
    with opened(served, "?since=" + since.replace("{log}", log)) as response:
        assert [event["reason"] for event in events(next(parts(response)))] == ["unknown_id"]


def test_a_slow_reader_is_dropped(served: Served) -> None:
    with opened(served) as response, opened(served) as other:
        slow, quick = parts(response), parts(other)
        place = last_id(next(slow))
        next(quick)
        seen = []
        for n in range(60):
            tell(served, str(n))
            seen += names(events(next(quick)))
        assert seen == [str(n) for n in range(60)]
        assert [event["reason"] for event in events(next(slow))] == ["too_slow"]
        assert next(slow, None) is None
    with opened(served, Last_Event_ID=place) as response:
        stream = parts(response)
        assert events(next(stream)) == []
        seen = []
        while len(seen) < 60:  # more than the buffer holds: ten from the log, then those in memory
            seen += names(events(next(stream)))
        assert seen == [str(n) for n in range(60)]


def test_a_change_set_larger_than_the_buffer_is_stored(served: Served) -> None:
    with opened(served) as response:
        stream = parts(response)
        next(stream)
        facts = [{"predicate": "p", "args": [str(n)]} for n in range(500)]
        assert served.client.post("/assert/facts", {"facts": facts}).status_code == 200
        found: list[str] = []
        while len(found) < 500:
            found += names(events(next(stream)))
        assert found == [str(n) for n in range(500)]


def test_streams_per_tenant_are_limited(served: Served) -> None:
    hub = served.app.extensions["kbcore.events"]
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(opened(served))
        refused = served.client.get("/memory/events")
        assert refused.status_code == 429
        assert refused.get_json()["details"]["limit"] == "EVENTS_MAX_STREAMS"
        assert int(refused.headers["Retry-After"]) >= 1
        assert len(hub) == 3
    assert len(hub) == 0
    with opened(served):
        assert len(hub) == 1


def test_streams_end_when_the_server_stops(served: Served) -> None:
    with opened(served) as response:
        stream = parts(response)
        next(stream)
        served.app.extensions["kbcore.events"].close()
        assert next(stream, None) is None
    assert served.client.get("/memory/events").status_code == 503


def test_tenants_get_their_own_events_only(served: Served) -> None:
    with opened(served, X_Tenant_ID="u") as response:
        stream = parts(response)
        next(stream)
        tell(served, "a")
        served.client.post(
            "/tell", {"predicate": "p", "args": ["mine"]}, headers={"X-Tenant-ID": "u"}
        )
        assert names(events(next(stream))) == ["mine"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("?events=", "events"),
        ("?events=fact_told", "events"),
        ("?events=fact_asserted,", "events"),
        ("?predicate=", "predicate"),
        ("?scope=a/b", "scope"),
        ("?since=yesterday", "since"),
        ("?since=99999999999999999999", "since"),
    ],
)
def test_invalid_parameters_are_named(served: Served, query: str, field: str) -> None:
    answer = served.client.get("/memory/events" + query)
    assert answer.status_code == 400
    assert list(answer.get_json()["details"]["fields"]) == [field]


def test_no_tenant_no_transaction_and_no_unknown_database(served: Served) -> None:
    assert served.client.flask.get("/memory/events").status_code == 400
    assert served.client.get("/memory/events", {"X-Transaction-ID": "x"}).status_code == 400
    assert served.client.get("/memory/events", {"X-Database": "none"}).status_code == 404
    assert (
        served.client.flask.head("/memory/events", headers={"X-Tenant-ID": "t"}).status_code == 200
    )


def test_a_ring_drops_the_oldest_change_sets() -> None:
    ring = Ring("0" * 8, 10, 1 << 20)
    reader = ring.newest()
    assert ring.read(reader, Wanted()) == b""
    ring.begin(5, 1000)
    with pytest.raises(Behind):
        ring.after(Place(ring.log, 4))
    assert ring.after(Place(ring.log, 5)) == reader


def committed(seq: int, *changes: Change) -> Committed:
    return Committed("default", "t", seq, seq, ChangeSet("default", "t", changes), Delta(seq, seq))


def test_events_up_to_a_purge_are_forgotten() -> None:
    ring = Ring("0" * 8, 10, 1 << 20)
    told = AssertFacts((Fact("p", ("zebulon",)),))
    reader = ring.newest()
    for seq, change in enumerate((told, PurgeMemory("purge-1", "subject"), told), 1):
        ring.add(committed(seq, change))
    ring.forget_purges()
    with pytest.raises(Behind):
        ring.read(reader, Wanted())
    with pytest.raises(Behind):
        ring.after(Place(ring.log, 1))
    assert ring.place(ring.oldest()) == Place(ring.log, 2)
    ring.forget_purges()
    assert ring.place(ring.oldest()) == Place(ring.log, 2)


def test_streams_cannot_resume_before_a_purge_that_is_old(served: Served) -> None:
    with opened(served) as response:
        begun = last_id(next(parts(response)))
        tell(served, "zebulon")
        served.client.post("/memory/purge", {"subject": "zebulon"})
        hub = served.app.extensions["kbcore.events"]
        hub._sweep()
        with opened(served, Last_Event_ID=begun) as again:
            assert b"zebulon" in next(parts(again)) + next(parts(again))
        served.clock.advance(60_000)
        hub._sweep()
        with opened(served, Last_Event_ID=begun) as again:
            stream = parts(again)
            first = next(stream) + next(stream)
        assert b"events_lost" in first
        assert b"zebulon" not in first


class Listener:
    """A raw subscriber of a real server."""

    def __init__(self, server: Server, query: str = "", tenant: str = "t") -> None:
        self.sock = socket.socket()
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.sock.settimeout(20)
        self.sock.connect((server.address[0], int(server.address[1])))
        self.sock.sendall(
            f"GET /memory/events{query} HTTP/1.1\r\nHost: localhost\r\nX-Tenant-ID: {tenant}\r\n\r\n".encode()
        )
        self.text = b""

    def until(self, mark: bytes) -> bytes:
        """Read on until a text comes, or the end."""
        while mark not in self.text:
            part = self.sock.recv(65536)
            if not part:
                break
            self.text += part
        return self.text

    def close(self) -> None:
        self.sock.close()


def test_two_hundred_streams_and_one_that_does_not_read(tmp_path: Any) -> None:
    """All hear everything in order; the one that does not read slows no write, and is let go of."""
    with Server(tmp_path, EVENTS_BUFFER="300") as server, ExitStack() as stack:
        deaf, follower = Listener(server, "?predicate=large"), Listener(server, "?predicate=large")
        listeners = [deaf, follower, *(Listener(server, "?predicate=small") for _ in range(220))]
        for listener in listeners:
            stack.callback(listener.close)
            listener.until(b"kbcore events")
        connection = stack.enter_context(closing(server.connect()))
        slowest = 0.0
        pad = "x" * 2000
        for n in range(30):
            facts = [{"predicate": "large", "args": [f"{n}-{i}", pad]} for i in range(20)]
            facts.append({"predicate": "small", "args": [str(n)]})
            began = time.monotonic()
            assert server.post("/assert/facts", {"facts": facts}, connection)[0] == 200
            slowest = max(slowest, time.monotonic() - began)
            follower.until(f'"{n}-19"'.encode())
        for listener in listeners[2:]:
            listener.until(b'"args":["29"]')
            assert re.findall(rb'"args":\["(\d+)"\]', listener.text) == [
                b"%d" % n for n in range(30)
            ]
        assert slowest < 5
        assert b"too_slow" in deaf.until(b"too_slow")
        assert server.stop() == 0


def unchunked(text: bytes) -> bytes:
    head, _, rest = text.partition(b"\r\n\r\n")
    assert b"chunked" in head
    whole = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        whole, rest = whole + rest[: int(size, 16)], rest[int(size, 16) + 2 :]
    return whole


def test_a_stream_goes_on_after_kill_and_restart(tmp_path: Any) -> None:
    with Server(tmp_path) as server:
        listener = Listener(server)
        listener.until(b"kbcore events")
        server.post("/tell", {"predicate": "p", "args": ["a"]})
        place = last_id(listener.until(b'"atom"').split(b"\ndata")[0])
        server.kill()
        listener.close()
    with Server(tmp_path) as server:
        listener = Listener(server, f"?since={place}")
        assert b"events_lost" not in listener.until(b"kbcore events"), (
            "nothing was committed in between"
        )
        server.post("/tell", {"predicate": "p", "args": ["b"]})
        assert b'"args":["b"]' in listener.until(b'"atom"')
        listener.close()
        server.post("/tell", {"predicate": "p", "args": ["c"]})
        assert server.stop() == 0
    with Server(tmp_path) as server:
        listener = Listener(server, f"?since={place}")
        text = listener.until(b'"args":["c"]')  # committed before this start: from the log
        assert names(events(text.partition(b"\r\n\r\n")[2])) == ["b", "c"]
        listener.close()


def test_clients_that_return_to_a_new_buffer_read_the_log_once(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = served.app.extensions["kbcore.events"]
    with opened(served) as response:
        place = last_id(next(parts(response)))
    tell(served, "a")
    facts = [{"predicate": "q", "args": [str(n)]} for n in range(4)]
    served.client.post("/assert/facts", {"facts": facts})
    served.client.post("/retract", {"predicate": "p", "args": ["a"]})
    tell(served, "b", "b")
    hub.renew()  # as after a start: what is in memory begins here
    reads = []
    logged_changes = hub.logged_changes
    monkeypatch.setattr(
        hub, "logged_changes", lambda *args: reads.append(args) or logged_changes(*args)
    )

    def shown(query: str, place: str) -> list[tuple[str, str]]:
        with opened(served, query, Last_Event_ID=place) as response:
            stream, text = parts(response), b""
            tell(served, "live")
            while b'"args":["live"]' not in text:
                text += next(stream)
        rows = [(event["type"], event["atom"]["args"][0]) for event in events(text)]
        return rows[: rows.index(("fact_asserted", "live"))]

    told = [("fact_asserted", name) for name in "a0123"]
    whole = [*told, ("fact_retracted", "a"), *[("fact_asserted", "b")] * 2]
    assert shown("", place) == whole
    assert shown("", place) == whole
    assert shown("?predicate=p", place) == [row for row in whole if row[1] in "ab"]
    second = Place.read(place)
    assert second is not None
    assert shown("", f"{second.log}.{second.seq + 2}.1") == whole[3:]
    assert len(reads) == 1


def test_a_log_that_is_read_within_a_change_set(served: Served) -> None:
    hub = served.app.extensions["kbcore.events"]
    facts = [{"predicate": "q", "args": [str(n)]} for n in range(4)]
    with opened(served) as response:
        stream = parts(response)
        next(stream)
        served.client.post("/assert/facts", {"facts": facts})
        seen = events(next(stream))
    hub.renew()
    with opened(served, Last_Event_ID=seen[1]["eventId"]) as response:
        stream = parts(response)
        assert events(next(stream)) == []
        assert events(next(stream)) == seen[2:]


def test_a_budget_that_ends_within_the_log_ends_the_stream_where_it_is(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = served.app.extensions["kbcore.events"]
    with opened(served) as response:
        place = last_id(next(parts(response)))
    tell(served, "a", "b", "c")
    hub.renew()
    logged_changes = hub.logged_changes

    def ends(count: int, *args: Any) -> Iterator[Committed]:
        yield from itertools.islice(logged_changes(*args), count)
        raise BudgetExceeded("too long", "timeoutMs", 1)

    monkeypatch.setattr(hub, "logged_changes", functools.partial(ends, 2))
    with opened(served, Last_Event_ID=place) as response:
        texts = list(parts(response))
    assert names([event for text in texts for event in events(text)]) == ["a", "b"]
    monkeypatch.setattr(hub, "logged_changes", functools.partial(ends, 0))
    with opened(served, Last_Event_ID=last_id(texts[-1])) as response:
        stream = parts(response)
        assert events(next(stream)) == []
        assert [event["reason"] for event in events(next(stream))] == ["not_kept"]


def test_the_command_prints_a_line_for_each_event(tmp_path: Any) -> None:
    with Server(tmp_path) as server:
        url = "http://{}:{}".format(*server.address)
        command = [sys.executable, "-m", "kbserver.cli", "events", "--url", url, "--tenant", "t"]
        first = Listener(server)
        place = last_id(unchunked(first.until(b"\n\n\r\n")))
        server.post("/tell", {"predicate": "p", "args": ["a"]})
        server.post("/tell", {"predicate": "q", "args": ["b"]})
        done = subprocess.run(
            [*command, "--since", place, "--predicate", "q*", "--count", "1"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert json.loads(done.stdout)["atom"]["args"] == ["b"]
        wrong = subprocess.run(
            [*command, "--events", "x"], capture_output=True, text=True, timeout=60
        )
        assert wrong.returncode == 1
        assert "is not one of" in wrong.stderr
        first.close()


def resident(server: Server) -> int:
    """Bytes of memory the server holds now."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) << 10


@pytest.mark.slow
def test_a_thousand_streams_cost_little_more_than_their_sockets(tmp_path: Any) -> None:
    """Each hears every event; memory for a stream is bounded, and writes are about as quick as
    without.
    """
    with Server(tmp_path) as server, ExitStack() as stack:
        connection = stack.enter_context(closing(server.connect()))

        def writes(count: int) -> float:
            times = []
            for n in range(count):
                began = time.monotonic()
                assert (
                    server.post("/tell", {"predicate": "p", "args": [str(n)]}, connection)[0] == 200
                )
                times.append((time.monotonic() - began) * 1000)
            return statistics.median(times)

        alone = writes(200)
        before = resident(server)
        listeners = []
        for _ in range(1000):
            listeners.append(listener := Listener(server, "?predicate=p"))
            stack.callback(listener.close)
        for listener in listeners:
            listener.until(b"kbcore events")
        each = (resident(server) - before) / 1000
        heard = threading.Thread(
            target=lambda: [listener.until(b'"args":["199"]') for listener in listeners]
        )
        heard.start()
        together = writes(200)
        heard.join(60)
        assert not heard.is_alive()
        print(
            f"\n{each / 1024:.0f} KiB a stream; a write {alone:.2f} ms alone, {together:.2f} ms with 1,000 streams"
        )
        for listener in listeners:
            assert re.findall(rb'"args":\["(\d+)"\]', listener.text) == [
                b"%d" % n for n in range(200)
            ]
        assert each < 64 * 1024
        refused = Listener(server)
        assert b" 429 " in refused.until(b"\r\n\r\n")
        refused.close()
        assert server.stop() == 0
