"""Several goals of one `POST /ask`, answered from one state."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.agents import Agent
from support.http import Client, Served, error_of, serve_in_memory

from kbcore import Config, hookimpl, open_runtime
from kbcore.operations.tenant_kb import TenantKB
from kbplanner.ir.terms import Literal
from kbserver.app import create_app
from kbserver.http.request import CURRENT
from kbserver.schemas.reason import MAX_QUESTIONS

FAMILY = (
    "parent(ann, bob). parent(bob, cid). age(bob, 7)."
    "ancestor(?x, ?y) :- parent(?x, ?y)."
    "ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."
)
GOALS: list[Any] = [
    "ancestor(ann, ?x)",
    {"predicate": "parent", "args": ["ann", "?y"]},
    "parent(?x, ?y), parent(?y, ?z)",
    {"text": "nothing(?x)"},
    "not parent(ann, zed)",
    {"predicate": "parent", "args": ["ann", "zed"], "negated": True},
]


@pytest.fixture
def family(served: Served) -> Client:
    assert served.client.post("/teach", {"text": FAMILY}).status_code == 200
    return served.client


def alone(client: Client, goal: Any, **options: Any) -> Any:
    body = {"text": goal} if isinstance(goal, str) else goal
    return client.post("/ask", {**body, **options}).get_json()


@pytest.mark.parametrize("path", ["/ask", "/infer"])
@pytest.mark.parametrize("options", [{}, {"limit": 1}, {"scope": "*"}])
def test_each_answer_is_that_of_the_goal_alone(
    family: Client, path: str, options: dict[str, Any]
) -> None:
    answer = family.post(path, {"goals": GOALS, **options})
    assert answer.get_json() == [alone(family, goal, **options) for goal in GOALS]
    assert answer.headers["X-Unknown-Predicates"] == "nothing/1"


def test_proofs_of_several_goals(family: Client) -> None:
    goals = ["ancestor(ann, ?x)", "parent(ann, ?x)"]
    options = {"withProof": True, "proofFormat": "dag"}
    answers = family.post("/ask", {"goals": goals, **options}).get_json()
    assert answers == [alone(family, goal, **options) for goal in goals]


def test_no_goals_have_no_answers(family: Client) -> None:
    assert family.post("/ask", {"goals": []}).get_json() == []


@pytest.mark.parametrize(
    ("goal", "field"),
    [
        ("p(", "goals[1]"),
        ({"text": "p("}, "goals[1].text"),
        ("?x > 2", "goals[1]"),
        ("parent(?x, ?y), ?z > 2", "goals[1]"),
        (3, "goals[1]"),
        (None, "goals[1]"),
        ({"predicate": "p"}, "goals[1].args"),
        ({"predicate": "p", "args": [[]]}, "goals[1].args[0]"),
        ({"text": 5}, "goals[1].text"),
    ],
)
def test_a_bad_goal_is_named_and_none_is_answered(family: Client, goal: Any, field: str) -> None:
    body = {"goals": ["ancestor(ann, ?x)", goal]}
    details = error_of(family.post("/ask", body), 400, "VALIDATION_ERROR")["details"]
    assert field in details["fields"]


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"text": "p(a)"}, "text"),
        ({"predicate": "p", "args": []}, "predicate"),
        ({"negated": True}, "negated"),
        ({"truthVal": False}, "truthVal"),
        ({"polarity": "negative"}, "polarity"),
        ({"goals": "p(a)"}, "goals"),
        ({"goals": ["p(a)"] * (MAX_QUESTIONS + 1)}, "goals"),
    ],
)
def test_bodies_that_are_refused(family: Client, more: dict[str, Any], field: str) -> None:
    body = {"goals": ["p(a)"], **more}
    details = error_of(family.post("/ask", body), 400, "VALIDATION_ERROR")["details"]
    assert field in details["fields"]


def test_as_many_goals_as_the_limit_allows(family: Client) -> None:
    answers = family.post("/ask", {"goals": ["parent(ann, bob)"] * MAX_QUESTIONS}).get_json()
    assert len(answers) == MAX_QUESTIONS
    assert all(len(answer) == 1 for answer in answers)


@pytest.mark.parametrize("query", ["?limit=1", "?limit=1&cursor="])
def test_several_goals_have_no_pages(family: Client, query: str) -> None:
    error_of(family.post(f"/ask{query}", {"goals": GOALS}), 400, "VALIDATION_ERROR")


def test_several_goals_have_no_columns(family: Client) -> None:
    arrow = {"Accept": "application/vnd.apache.arrow.stream"}
    answer = family.flask.post("/ask", json={"goals": GOALS}, headers={"X-Tenant-ID": "t", **arrow})
    assert "goals" in error_of(answer, 400, "VALIDATION_ERROR")["details"]["fields"]


def test_unknown_keys_of_goals_are_named(family: Client) -> None:
    goal = {"predicate": "parent", "args": ["ann", "?x"], "scoep": "s"}
    answer = family.post("/ask", {"goals": [goal]})
    assert answer.headers["X-Ignored-Fields"] == "goals[0].scoep"


CHAIN = " ".join(f"edge({n}, {n + 1})." for n in range(30)) + (
    " path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- path(?x, ?y), edge(?y, ?z)."
)


@pytest.mark.parametrize(
    ("limit", "most"), [("maxAnswers", 45), ("maxRows", 150), ("maxSteps", 500)]
)
def test_limits_hold_for_all_goals_together(served: Served, limit: str, most: int) -> None:
    served.client.post("/teach", {"text": CHAIN})
    goals = ["path(0, ?x)", "path(1, ?x)", "path(?x, 30)", "path(?x, 29)", "path(?x, 28)"]
    for goal in goals:
        with serve_in_memory() as other:  # its goal tables are empty
            other.client.post("/teach", {"text": CHAIN})
            assert other.client.post("/ask", {"text": goal, limit: most}).status_code == 200
    error = error_of(
        served.client.post("/ask", {"goals": goals, limit: most}), 422, "BUDGET_EXCEEDED"
    )
    assert error["details"]["value"] == most


def test_the_deadline_is_that_of_all_goals(served: Served) -> None:
    served.client.post("/teach", {"text": FAMILY})
    one = {"goals": ["ancestor(ann, ?x)"], "timeoutMs": 1000}
    turns: list[None] = []
    served.runtime.yield_now = lambda: turns.append(None)
    assert served.client.post("/ask", one).status_code == 200  # compiles the plan
    turns.clear()
    assert served.client.post("/ask", one).status_code == 200
    turn_ms = 900 // max(len(turns), 1)
    served.runtime.yield_now = lambda: served.clock.advance(turn_ms)
    assert served.client.post("/ask", one).status_code == 200
    many = {"goals": ["ancestor(ann, ?x)"] * 5, "timeoutMs": 1000}
    error = error_of(served.client.post("/ask", many), 422, "BUDGET_EXCEEDED")
    assert error["details"]["limit"] == "timeMs"


def test_no_write_comes_between_two_goals(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write that arrives while the first goal is answered waits for the last one."""
    client, writers = served.client, []
    client.post("/teach", {"text": FAMILY})
    answer_one = TenantKB.infer_json

    def with_write(self: TenantKB, *args: Any, **options: Any) -> list[bytes]:
        parts = answer_one(self, *args, **options)
        if not writers:
            request = CURRENT.set(None)
            write = {"predicate": "parent", "args": ["ann", "dan"]}
            writers.append(threading.Thread(target=client.post, args=("/tell", write)))
            CURRENT.reset(request)
            writers[0].start()
            lock = self._services.read_tenant(self.database, self.tenant).lock
            while not lock._writers_waiting:
                threading.Event().wait(0.001)
        return parts

    monkeypatch.setattr(TenantKB, "infer_json", with_write)
    first, second = client.post("/ask", {"goals": ["parent(ann, ?x)"] * 2}).get_json()
    writers[0].join()
    assert [row["args"] for row in first] == [row["args"] for row in second] == [["ann", "bob"]]
    assert len(alone(client, "parent(ann, ?x)")) == 2


def test_goals_in_a_transaction_see_its_writes(family: Client) -> None:
    number = family.post("/tx/begin").get_data(as_text=True)
    headers = {"X-Tenant-ID": "t", "X-Transaction-ID": number}
    fact = {"predicate": "parent", "args": ["cid", "dan"]}
    family.flask.post("/tell", json=fact, headers=headers)
    goals = ["ancestor(ann, dan)", "ancestor(cid, dan)", "nothing(?x)"]
    inside = family.flask.post("/ask", json={"goals": goals}, headers=headers)
    assert [len(rows) for rows in inside.get_json()] == [1, 1, 0]
    assert inside.headers["X-Unknown-Predicates"] == "nothing/1"
    outside = family.post("/ask", {"goals": goals}).get_json()
    assert [len(rows) for rows in outside] == [0, 0, 0]


class Watcher:
    """A plugin that notes which goals were answered."""

    def __init__(self) -> None:
        self.goals: list[str] = []

    @hookimpl
    def kb_goal_answered(self, goal: Any) -> None:
        atoms = [item.atom for item in goal if isinstance(item, Literal)]
        self.goals.append(", ".join(atom.predicate for atom in atoms))


def test_plugins_learn_of_each_goal() -> None:
    watcher = Watcher()
    with open_runtime(Config(storage_backend="memory"), plugins=[watcher]) as runtime:
        client = Client(create_app(runtime).test_client())
        assert client.post("/ask", {"goals": ["p(?x)", "q(?x), r(?x)"]}).status_code == 200
        assert watcher.goals == ["p", "q, r"]
        client.post("/ask", {"goals": ["p(?x)", "q(?x), ?y > 2"]})
        assert watcher.goals == ["p", "q, r", "p", "q"]


def test_the_tool_answers_several_goals(family: Client) -> None:
    agent = Agent(family)
    arguments = {"goals": ["parent(?x, ?y)", "nothing(?x)"], "limit": 1}
    call = {"name": "ask", "arguments": arguments}
    result = agent.legacy("tools/call", call, X_Tenant_ID="t")["result"]["structuredContent"]
    assert [(each["count"], each["truncated"]) for each in result["results"]] == [
        (1, True),
        (0, False),
    ]
    assert (result["count"], result["truncated"]) == (2, True)
    assert result["unknownPredicates"][0]["name"] == "nothing"
