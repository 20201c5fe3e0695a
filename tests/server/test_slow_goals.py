"""The list of slow goals: what enters it, its bounds, and who may read it."""

from __future__ import annotations

import itertools

import pytest
from support.http import Client, make_runtime, serve_in_memory

from kbcore.operations.slow_log import LISTED_FOR_MS, MAX_LISTED


def goals(client: Client) -> list[dict]:
    response = client.get("/goals/slow")
    assert response.status_code == 200, response.get_json()
    return response.get_json()["goals"]


def slow_clock(clock, step: float = 0.02) -> None:
    """Let the monotonic clock advance by a step, in seconds, at each reading."""
    ticks = itertools.count()
    clock.monotonic = lambda: next(ticks) * step


def test_slow_goals_over_http():
    with serve_in_memory() as served:
        client = served.client
        client.tell("parent", "Ann Smith", "bob")
        client.post("/ask", {"text": "parent(?x, bob)"})
        assert goals(client) == []
        slow_clock(served.runtime.clock)
        client.post("/ask", {"text": 'parent("Ann Smith", ?y)'})
        client.post("/ask", {"text": 'parent("Ann Smith", ?y)'})
        client.post("/ask?proof=true", {"text": "parent(?x, bob)"})
        listed = goals(client)
        assert sorted((goal["goal"], goal["kind"], goal["count"]) for goal in listed) == [
            ('parent("Ann Smith", ?y)', "ask", 2),
            ("parent(?x, bob)", "prove", 1),
        ]
        assert all(goal["ms"] >= 10 and goal["outcome"] == "answered" for goal in listed)
        assert [goal["ms"] for goal in listed] == sorted((g["ms"] for g in listed), reverse=True)
        other = served.client.get("/goals/slow", {"X-Tenant-ID": "other"})
        assert other.get_json() == {"goals": []}


@pytest.fixture
def slow():
    runtime, _, clock = make_runtime()
    kb = runtime.open()
    kb.tell("p(a). q(?x) :- p(?x).")
    slow_clock(runtime.clock)
    yield kb, clock, runtime.clock
    runtime.close()


def test_the_list_is_bounded_and_keeps_the_slowest(slow):
    kb, _, running = slow
    for number in range(MAX_LISTED + 5):
        slow_clock(running, 0.02 + number / 1000)
        kb.ask(f"p(x{number})")
    listed = kb.slow_goals()
    assert len(listed) == MAX_LISTED
    assert {goal.goal for goal in listed} == {f"p(x{n})" for n in range(5, MAX_LISTED + 5)}


def test_goals_leave_the_list_after_an_hour(slow):
    kb, clock, _ = slow
    kb.ask("p(?x)")
    assert [goal.at for goal in kb.slow_goals()] == [clock.now_ms()]
    clock.advance(LISTED_FOR_MS)
    assert len(kb.slow_goals()) == 1
    clock.advance(1)
    assert kb.slow_goals() == []


def test_goals_of_a_transaction_are_listed_and_long_ones_cut(slow):
    kb, _, _ = slow
    with kb.transaction() as inside:
        inside.ask("p", ["n" * 600])
        (goal,) = inside.slow_goals()
    assert (len(goal.goal), goal.is_cut) == (500, True)
    assert kb.slow_goals() == [goal]
