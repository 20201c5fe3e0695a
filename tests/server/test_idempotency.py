"""Idempotency keys: a repeated write is executed once, also after kill -9."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.http import Served, serve_in_memory
from support.servers import Server

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.durable.records import decode_changes, encode_changes, stamp
from kbcore.durable.request_key import carrying_out
from kbcore.errors import NotReady
from kbcore.node.opening import open_runtime
from kbcore.state.changes import ChangeSet, Delta, NoteAnswer
from kbcore.state.facts import Fact
from kbcore.state.idempotency import (
    ANSWER_BYTES,
    KEPT_BYTES,
    KEPT_KEYS,
    KEPT_MS,
    AnsweredRequests,
    IdempotentAnswer,
    Outcome,
    RequestKey,
)


@pytest.fixture
def served() -> Iterator[Served]:
    with serve_in_memory() as found:
        yield found


def keyed(served: Served, path: str, body: Any, key: str = "k1", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return served.client.post(path, body, {"Idempotency-Key": key, **named})


P = {"predicate": "p", "args": ["a"]}


def test_a_repeated_write_is_executed_once(served: Served) -> None:
    first = keyed(served, "/tell", P)
    served.client.post("/forget", P)
    again = keyed(served, "/tell", P)
    assert (
        (first.status_code, first.text)
        == (again.status_code, again.text)
        == (200, "Fact Asserted: p(a)")
    )
    assert again.headers["Idempotency-Replayed"] == "true"
    assert "Idempotency-Replayed" not in first.headers
    assert first.headers["Content-Type"] == again.headers["Content-Type"]
    assert first.headers["X-Request-ID"] != again.headers["X-Request-ID"]
    assert served.client.ask("p", "?x") == [], "a fact retracted in between stays retracted"


def test_the_headers_of_the_answer_are_replayed(served: Served) -> None:
    served.client.tell("p", "a")
    first = keyed(served, "/retract", P)
    again = keyed(served, "/retract", P)
    assert first.headers["X-Retracted-Count"] == again.headers["X-Retracted-Count"] == "1"


def test_json_answers_are_replayed_byte_for_byte(served: Served) -> None:
    first = keyed(served, "/assert/facts", {"facts": [P]})
    served.clock.advance(1000)
    again = keyed(served, "/assert/facts", {"facts": [P]})
    assert first.data == again.data
    assert again.get_json()["asserted"] == 1


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/tell", {"predicate": "p", "args": ["b"]}, {}),
        ("/assert/fact", P, {}),
        ("/tell", P, {"Prefer": "handling=strict"}),
    ],
)
def test_a_key_belongs_to_one_request(
    served: Served, path: str, body: Any, headers: dict[str, str]
) -> None:
    assert keyed(served, "/tell", P).status_code == 200
    answer = keyed(served, path, body, **headers)
    assert answer.status_code == 409
    assert answer.get_json()["details"] == {"reason": "key_reused"}
    assert served.client.ask("p", "?x") == [["a"]]


def test_tenants_and_databases_have_keys_of_their_own(served: Served) -> None:
    served.runtime.admin().create_database("d")
    for headers in ({}, {"X_Tenant_ID": "u"}, {"X_Database": "d"}):
        assert "Idempotency-Replayed" not in keyed(served, "/tell", P, **headers).headers


def test_a_refused_request_may_be_tried_again(served: Served) -> None:
    assert keyed(served, "/tell", {"predicate": "p", "args": ["?x"]}).status_code == 400
    answer = keyed(served, "/tell", P)
    assert answer.status_code == 200
    assert "Idempotency-Replayed" not in answer.headers


@pytest.mark.parametrize("key", ["", " ", "a" * 256, "é", "\x7f"])
def test_a_key_is_visible_ascii(served: Served, key: str) -> None:
    environ = {"HTTP_IDEMPOTENCY_KEY": key}
    answer = served.client.flask.post(
        "/tell", json=P, headers={"X-Tenant-ID": "t"}, environ_base=environ
    )
    assert answer.status_code == 400
    assert answer.get_json()["details"] == {"header": "Idempotency-Key"}
    assert served.client.ask("p", "?x") == []


def test_reads_are_not_replayed(served: Served) -> None:
    served.client.tell("p", "a")
    assert len(keyed(served, "/ask", {"predicate": "p", "args": ["?x"]}).get_json()) == 1
    served.client.tell("p", "b")
    assert len(keyed(served, "/ask", {"predicate": "p", "args": ["?x"]}).get_json()) == 2


def test_the_commit_of_a_transaction_may_be_repeated(served: Served) -> None:
    transaction = keyed(served, "/tx/begin", None, "begin").text
    assert keyed(served, "/tx/begin", None, "begin").text == transaction
    assert keyed(served, "/tell", P, "in", X_Transaction_ID=transaction).status_code == 200
    first = keyed(served, f"/tx/commit/{transaction}", None, "end")
    again = keyed(served, f"/tx/commit/{transaction}", None, "end")
    assert (
        (first.status_code, first.text)
        == (again.status_code, again.text)
        == (200, f"Committed {transaction}")
    )


def test_a_concurrent_repetition_is_a_conflict(served: Served) -> None:
    entered, go = threading.Event(), threading.Event()
    found = []

    def slow(committed: Any) -> None:
        entered.set()
        assert go.wait(20)

    end = served.runtime.feed.subscribe(slow)
    thread = threading.Thread(target=lambda: found.append(keyed(served, "/tell", P)))
    thread.start()
    assert entered.wait(20)
    end()
    answer = keyed(served, "/tell", P)
    go.set()
    thread.join()
    assert answer.status_code == 409
    assert answer.get_json()["details"]["reason"] == "in_flight"
    assert answer.headers["Retry-After"] == "1"
    assert found[0].status_code == 200
    assert keyed(served, "/tell", P).headers["Idempotency-Replayed"] == "true"


def test_storing_an_answer_keeps_the_generation(served: Served) -> None:
    keyed(served, "/tell", P)
    tenant = served.runtime.find_tenant("default", "t")
    assert tenant is not None
    assert tenant.generation == 1


def test_keys_expire_after_a_day(served: Served) -> None:
    keyed(served, "/tell", P)
    served.clock.advance(KEPT_MS)
    assert "Idempotency-Replayed" not in keyed(served, "/tell", P).headers


FACTS = {"facts": [{"predicate": "p", "args": [str(n)]} for n in range(5)]}
TAUGHT = {"text": "q(?x) :- p(?x). p(0). p(9)."}
EPISODE = {"speaker": "ann", "text": "hello"}
FORK = {"sourceScope": None, "targetScope": "s"}

MADE_AGAIN = [
    ("/tell", P),
    ("/assert/facts", FACTS),
    ("/assert/rule", TAUGHT),
    ("/memory/priority", {**P, "priority": 0.25}),
]
"""Writes whose answers are made again from the request and its outcome."""


@pytest.mark.parametrize(("path", "body"), MADE_AGAIN)
def test_the_outcome_is_in_the_record_of_the_change(served: Served, path: str, body: Any) -> None:
    served.client.tell("p", "a")
    before = served.runtime.log("default", "t").status().head
    first = keyed(served, path, body)
    assert first.status_code == 200
    assert served.runtime.log("default", "t").status().head == before + 1
    served.clock.advance(1000)
    served.client.post("/forget", P)
    again = keyed(served, path, body)
    assert (again.status_code, again.data) == (first.status_code, first.data)
    assert again.headers["Content-Type"] == first.headers["Content-Type"]
    assert again.headers["X-Commit-Seq"] == first.headers["X-Commit-Seq"] == str(before + 1)
    assert again.headers["Idempotency-Replayed"] == "true"


@contextmanager
def no_answer_is_stored(served: Served) -> Iterator[None]:
    """Lose the second record of each keyed write, as a kill between the two does."""
    commit = served.runtime.commit

    def without_answers(changes: ChangeSet) -> Delta:
        if isinstance(changes.changes[0], NoteAnswer):
            raise NotReady("stopped here")
        return commit(changes)

    served.runtime.commit = without_answers  # type: ignore[method-assign]
    try:
        yield
    finally:
        served.runtime.commit = commit  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("path", "body"), [*MADE_AGAIN, ("/scope/fork", FORK), ("/episodes", EPISODE), ("/retract", P)]
)
def test_a_write_whose_answer_was_not_stored_has_a_definite_answer(
    served: Served, path: str, body: Any
) -> None:
    served.client.tell("p", "a")
    with no_answer_is_stored(served):
        first = keyed(served, path, body)
    seq = served.runtime.log("default", "t").status().head
    again = keyed(served, path, body)
    assert again.status_code == first.status_code
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.headers["X-Commit-Seq"] == str(seq)
    if path in ("/scope/fork", "/episodes"):
        assert again.get_json() == {"replayed": True, "seq": seq}
    else:
        assert again.data == first.data
    if path == "/retract":
        assert again.headers["X-Retracted-Count"] == "1"
    assert served.runtime.log("default", "t").status().head == seq, "it is not executed again"


def test_a_large_answer_is_replaced_by_the_number_of_its_change(served: Served) -> None:
    served.client.post(
        "/assert/facts",
        {"facts": [{"predicate": "wide", "args": ["x" * 500 + str(n)]} for n in range(200)]},
    )
    first = keyed(served, "/retract/pattern", {"predicate": "wide"})
    assert len(first.data) > ANSWER_BYTES
    again = keyed(served, "/retract/pattern", {"predicate": "wide"})
    assert (again.status_code, again.get_json()) == (200, {"replayed": True, "seq": 2})
    assert again.headers["Idempotency-Replayed"] == "true"


def test_a_request_from_an_older_snapshot_has_no_number(served: Served) -> None:
    keyed(served, "/tell", P)
    tenant = served.runtime.find_tenant("default", "t")
    assert tenant is not None
    [[key, digest, at, answer, _]] = tenant.answered.all()
    tenant.answered.restore([[key, digest, at, answer]])
    again = keyed(served, "/tell", P)
    assert (again.status_code, again.get_json()) == (200, {"replayed": True, "seq": None})


def test_keys_are_limited_by_number_size_and_age() -> None:
    known = AnsweredRequests()
    for n in range(KEPT_KEYS + 5):
        known.note(RequestKey(str(n), "d"), 1000)
    assert known.get("4", 1000) is None
    assert known.get("5", 1000) is not None
    large = IdempotentAnswer(200, (), "x" * (KEPT_BYTES // 2))
    for n in range(4):
        known.note(RequestKey(f"large{n}", "d"), 1000, large)
    assert len(known.all()) <= 2
    known.note(RequestKey("late", "d"), 1000 + KEPT_MS)
    assert [entry[0] for entry in known.all()] == ["late"]


@examples(50)
@given(
    st.text("abc", min_size=1),
    st.one_of(
        st.none(),
        st.builds(IdempotentAnswer, st.integers(200, 299), st.just((("A", "b"),)), st.text()),
    ),
)
def test_answers_survive_the_log_and_a_snapshot(key: str, answer: IdempotentAnswer | None) -> None:
    request = RequestKey(key, "d")
    changes = ChangeSet("db", "t", (NoteAnswer(request, answer),), request=request)
    assert decode_changes(1, 4, stamp(encode_changes(changes), 7)) == (7, changes)
    known, restored = AnsweredRequests(), AnsweredRequests()
    known.note(request, 7, answer)
    restored.restore(json.loads(json.dumps(known.all())))
    assert restored.get(key, 7) == known.get(key, 7)


def test_answers_survive_a_restart_with_and_without_a_snapshot(tmp_path: Any) -> None:
    for snapshot in (False, True):
        config = Config(storage_dir=str(tmp_path / str(snapshot)))
        with open_runtime(config, clock=ManualClock()) as runtime:
            with carrying_out("default", "t", RequestKey("k", "d")):
                runtime.knowledge_base("default", "t").assert_facts([Fact("p", ("a",))])
                runtime.knowledge_base("default", "t").retract_fact("p", ["a"])
            runtime.commit(
                ChangeSet(
                    "default",
                    "t",
                    (NoteAnswer(RequestKey("k", "d"), IdempotentAnswer(200, (), "yes")),),
                )
            )
            if snapshot:
                runtime.snapshot()
        with open_runtime(config, clock=ManualClock()) as runtime:
            tenant = runtime.find_tenant("default", "t")
            assert tenant is not None
            found = tenant.answered.get("k", runtime.clock.now_ms())
            assert found is not None
            assert found.answer == IdempotentAnswer(200, (), "yes")
            assert found.outcome == Outcome(2, found.outcome.at, 1, 0, 1)  # type: ignore[union-attr]


def test_a_key_is_honoured_after_kill_and_restart(tmp_path: Any) -> None:
    """Whatever was acknowledged, or only carried out, before the kill is not carried out again
    after it.

    What was under way has a definite answer: executed before, or now.
    """
    done = threading.Event()
    sent: list[int] = []
    answered: list[int] = []

    def write(server: Server) -> None:
        connection = server.connect()
        try:
            for n in range(10_000):
                body = {"predicate": "p", "args": [str(n)]}
                sent.append(n)
                assert server.post("/tell", body, connection, Idempotency_Key=f"k{n}") == (
                    200,
                    b"Fact Asserted: p(%d)" % n,
                )
                answered.append(n)
                if n == 50:
                    done.set()
        except (OSError, http.client.HTTPException):
            pass  # killed
        finally:
            connection.close()

    with Server(tmp_path) as server:
        writer = threading.Thread(target=write, args=(server,))
        writer.start()
        assert done.wait(30)
        server.kill()
        writer.join()
    with Server(tmp_path) as server:
        server.post("/retract/pattern", {"predicate": "p", "args": ["?x"]})
        for n in sent:
            body = {"predicate": "p", "args": [str(n)]}
            assert server.post("/tell", body, Idempotency_Key=f"k{n}") == (
                200,
                b"Fact Asserted: p(%d)" % n,
            )
        stored = json.loads(server.post("/query", {"predicate": "p", "args": ["?x"]})[1])
        assert {int(row["args"][0]) for row in stored} <= set(sent) - set(answered)


def test_an_answer_from_before_a_purge_is_not_stored_after_it(served: Served) -> None:
    kb = served.runtime.knowledge_base("default", "t")
    kb.assert_facts([Fact("knows", ("ann", "bob")), Fact("knows", ("ann", "cid"))])
    commit = served.runtime.commit

    def purge_first(changes: ChangeSet) -> Delta:
        if isinstance(changes.changes[0], NoteAnswer) and changes.check is not None:
            served.runtime.commit = commit  # type: ignore[method-assign]
            # In a thread: a purge of this thread would belong to the request with the key.
            purge = threading.Thread(target=lambda: served.runtime.open("t").purge(subject="ann"))
            purge.start()
            purge.join()
        return commit(changes)

    served.runtime.commit = purge_first  # type: ignore[method-assign]
    body = {"predicate": "knows", "args": ["ann", "bob"]}
    assert keyed(served, "/retract", body, "k").status_code == 200
    again = keyed(served, "/retract", body, "k")
    assert (again.status_code, again.text) == (200, "Retracted: knows(ann, bob)")
    assert again.headers["X-Retracted-Count"] == "1"
    assert "X-Cascaded-Count" not in again.headers, "it was in the answer that is not stored"
