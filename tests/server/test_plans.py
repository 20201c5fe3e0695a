"""`POST /explain` with `plan` and `analyze`: documented members, text, refusals."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import Client, Served, error_of, serve_in_memory

PLAN = {
    "goal",
    "scope",
    "analyzed",
    "constantsKnown",
    "answers",
    "ms",
    "rowsMade",
    "rowsRead",
    "external",
    "lookUps",
    "rounds",
    "table",
    "rules",
    "strata",
}
STRATUM = {"relations", "recursive", "rounds", "ms", "rows", "rules"}
VERSION = {"id", "text", "estimatedRows", "assumed", "rows", "rowsRead", "lookUps", "steps"}
STEP = {"operator", "text", "estimatedRows", "assumed", "rows"}
READ = {"atom", "relation", "adornment", "mask", "relationRows", "relationRowsWhenPlanned"}

RULES = """
    anc(?x, ?y) :- parent(?x, ?y).
    anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).
    tri(?x, ?y, ?z) :- parent(?x, ?y), parent(?y, ?z), parent(?z, ?x).
"""


@pytest.fixture
def family(client: Client) -> Client:
    client.post("/teach", {"text": RULES})
    for older, younger in ("ab", "bc", "cd", "ca"):
        client.tell("parent", older, younger)
    return client


def plans(client: Client, **body: Any) -> list[dict[str, Any]]:
    found = client.post("/explain", {"format": "json", **body})
    assert found.status_code == 200, found.get_json()
    assert found.content_type == "application/json"
    shown = found.get_json()
    assert list(shown) == ["goal", "plans"]
    made: list[dict[str, Any]] = shown["plans"]
    return made


@pytest.mark.parametrize("asked", [{"plan": True}, {"analyze": True}])
@pytest.mark.parametrize(
    "goal",
    ["anc(a, ?who)", "anc(?x, ?y)", "tri(?x, ?y, ?z)", "anc(?x, ?y), parent(?y, ?z), ?z != a"],
)
def test_members_match_the_reference_page(
    family: Client, goal: str, asked: dict[str, bool]
) -> None:
    (plan,) = plans(family, text=goal, **asked)
    assert set(plan) == PLAN | {"answer", "seed"}
    assert plan["goal"] == goal
    assert set(plan["table"]) == {"state", "counts"}
    assert set(plan["table"]["counts"]) == {"current", "continued", "stale", "missed"}
    assert all(set(rule) == {"id", "text", "rows", "rowsRead", "lookUps"} for rule in plan["rules"])
    operators = set()
    for stratum in plan["strata"]:
        assert set(stratum) == STRATUM
        for version in stratum["rules"]:
            assert set(version) == VERSION
            for step in version["steps"]:
                operators.add(step["operator"])
                reads = step["operator"] in ("scan", "probe", "member", "intersect")
                read = READ | {"estimatedPerLookUp"} if reads else set()
                assert set(step) - {"with"} == STEP | read
                assert ("with" in step) == (step["operator"] == "intersect")
                assert step.get("with", {}).keys() in (READ, set())
                assert (step["rows"] is None) == ("plan" in asked)
            assert version["steps"][-1]["operator"] == "emit"
    assert {"scan", "emit"} <= operators
    assert ("intersect" in operators) == goal.startswith("tri")


def test_a_goal_without_rules_is_a_lookup(family: Client) -> None:
    (plan,) = plans(family, predicate="parent", args=["c", "?who"], analyze=True)
    assert set(plan) == PLAN | {"lookUp"}
    assert (plan["answers"], plan["lookUp"], plan["strata"]) == (
        2,
        {"relation": "parent/2", "relationRows": 4},
        [],
    )


def test_analyze_reports_rows_that_add_up(family: Client) -> None:
    (plan,) = plans(family, predicate="anc", args=["?x", "?y"], analyze=True)
    assert plan["answers"] == len(family.ask("anc", "?x", "?y"))
    assert (
        sum(rule["rows"] for rule in plan["rules"])
        == plan["rowsMade"]
        == sum(s["rows"] for s in plan["strata"])
    )
    assert {rule["id"]: rule["text"] for rule in plan["rules"]} == {
        0: "(made by the compiler)",
        1: "anc(?x, ?y) :- parent(?x, ?y).",
        2: "anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).",
    }


def test_a_plan_runs_nothing(family: Client) -> None:
    (plan,) = plans(family, predicate="anc", args=["?x", "?y"], plan=True)
    assert plan["answers"] is plan["ms"] is plan["rowsMade"] is None
    assert plan["table"]["state"] == "none"
    family.ask("anc", "?x", "?y")
    (plan,) = plans(family, predicate="anc", args=["?x", "?y"], plan=True)
    assert plan["table"] == {
        "state": "current",
        "counts": {"current": 0, "continued": 0, "stale": 0, "missed": 1},
    }


def test_analyze_as_text(family: Client) -> None:
    told = family.post("/explain", {"predicate": "anc", "args": ["a", "?who"], "analyze": True})
    assert told.content_type == "text/plain; charset=utf-8"
    lines = told.data.decode().splitlines()
    assert lines[0] == "goal anc(a, ?who)"
    assert lines[1].startswith("4 answers in ")
    assert lines[2].startswith("goal table: none; ")
    explicit = family.post(
        "/explain", {"predicate": "anc", "args": ["a", "?who"], "analyze": True, "format": "text"}
    )
    assert explicit.data.decode().splitlines()[4:] == lines[4:]


def test_every_partition_has_a_plan(family: Client) -> None:
    family.tell("parent", "x", "y", scope="s")
    found = plans(family, text="anc(?x, ?y)", scope="*", analyze=True)
    assert [(plan["scope"], plan["answers"]) for plan in found] == [(None, 12), ("s", 1)]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"analyze": "yes"}, "analyze"),
        ({"analyze": 1}, "analyze"),
        ({"plan": []}, "plan"),
        ({"plan": True, "format": "xml"}, "format"),
        ({"plan": True, "format": 1}, "format"),
        ({"format": "json"}, "format"),
        ({"analyze": True, "asOf": "never"}, "asOf"),
        ({"analyze": True, "scope": "a b"}, "scope"),
        ({"analyze": True, "timeoutMs": 0}, "timeoutMs"),
    ],
)
def test_refusals(client: Client, body: dict[str, Any], field: str) -> None:
    error = error_of(
        client.post("/explain", {"predicate": "p", "args": ["?x"], **body}), 400, "VALIDATION_ERROR"
    )
    assert field in error["details"]["fields"]


def test_a_goal_over_budget_names_its_rule() -> None:
    with serve_in_memory(query_max_rows=5) as served:
        client = served.client
        client.post("/teach", {"text": RULES})
        client.post(
            "/assert/facts",
            {"facts": [{"predicate": "parent", "args": [n, n + 1]} for n in range(5)]},
        )
        goal = {"predicate": "anc", "args": ["?x", "?y"]}
        assert plans(client, **goal, plan=True)[0]["answers"] is None
        error = error_of(client.post("/explain", {**goal, "analyze": True}), 422, "BUDGET_EXCEEDED")
        assert error["details"]["limit"] == "derivedRows"
        assert error["details"]["rule"] == "anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z)."


def test_times_use_the_clock_of_the_runtime(served: Served) -> None:
    served.client.post("/teach", {"text": RULES})
    served.client.tell("parent", "a", "b")
    (plan,) = plans(served.client, text="anc(?x, ?y)", analyze=True)
    assert plan["ms"] == sum(stratum["ms"] for stratum in plan["strata"]) == 0.0  # it stands still
