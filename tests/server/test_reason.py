"""Routes that answer goals."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, ROW_KEYS, Client, Served, error_of

from kbserver.answers import as_json


def test_infer_with_rules(client: Client) -> None:
    client.post(
        "/teach",
        {"text": "anc(?x, ?y) :- parent(?x, ?y). anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z)."},
    )
    client.tell("parent", "ann", "bob", confidence=0.5)
    client.tell("parent", "bob", "cy")
    for path in ("/infer", "/ask"):
        found = client.post(path, {"predicate": "anc", "args": ["ann", "?who"]}).get_json()
        assert [row["args"] for row in found] == [["ann", "bob"], ["ann", "cy"]]
        assert list(found[0]) == ROW_KEYS
        assert [found[0][key] for key in ROW_KEYS[:6]] == [
            "anc",
            ["ann", "bob"],
            False,
            None,
            {},
            None,
        ]


def test_goals_under_negation(client: Client) -> None:
    client.tell("p", "a")
    client.tell("p", "b", negated=True)
    assert client.ask("p", "a") == [["a"]]
    assert client.ask("p", "a", negated=True) == []
    assert client.ask("p", "b", negated=True) == [["b"]]
    assert client.ask("p", "b", truthVal=False) == [["b"]]


def test_limit_offset_and_confidence(client: Client) -> None:
    for number in range(5):
        client.tell("p", number, confidence=number / 4)
    assert client.ask("p", "?x", limit=2) == [["0"], ["1"]]
    assert client.ask("p", "?x", limit=2, offset=3) == [["3"], ["4"]]
    assert client.ask("p", "?x", minConfidence=0.6) == [["3"], ["4"]]


@pytest.mark.parametrize("path", ["/infer", "/query"])
def test_as_of(client: Client, served: Served, path: str) -> None:
    client.tell("p", "a", validFrom=NOW, validUntil=NOW + 1000)
    served.clock.advance(5000)
    goal = {"predicate": "p", "args": ["?x"]}
    assert client.post(path, goal).get_json() == []
    assert len(client.post(path, {**goal, "asOf": NOW + 500}).get_json()) == 1
    assert len(client.post(path, {**goal, "asOf": "2023-11-14T22:13:20.999Z"}).get_json()) == 1
    assert client.post(path, {**goal, "asOf": NOW - 1}).get_json() == []


def test_scopes(client: Client) -> None:
    client.tell("p", "base")
    client.tell("p", "one", scope="s1")
    client.tell("p", "two", scope="s2")
    assert client.ask("p", "?x") == [["base"]]
    assert client.ask("p", "?x", scope=None) == [["base"]]
    assert client.ask("p", "?x", scope="s1") == [["one"]]
    assert client.ask("p", "?x", scope="unknown") == []
    found = client.post("/query", {"predicate": "p", "args": ["?x"], "scope": "*"}).get_json()
    assert {(row["args"][0], row["scope"]) for row in found} == {
        ("base", None),
        ("one", "s1"),
        ("two", "s2"),
    }
    error_of(
        client.post("/query", {"predicate": "p", "args": ["?x"], "scope": "no way"}),
        400,
        "VALIDATION_ERROR",
    )


def test_proofs_are_requested_in_the_body_or_the_query(client: Client) -> None:
    client.tell("p", "a")
    goal = {"predicate": "p", "args": ["a"]}
    for response in (
        client.post("/ask", {**goal, "withProof": True}),
        client.post("/infer?proof=true", goal),
    ):
        (found,) = response.get_json()
        assert found["result"] == found["proof"]["goal"] == found["proof"]["step"]["fact"]
        assert found["proof"]["step"]["type"] == "fact_match"
    for field, value in (
        ("proofFormat", "xml"),
        ("proofNodes", 0),
        ("proofDepth", 1.5),
        ("proofNodes", 100_001),
    ):
        error = error_of(
            client.post("/ask", {**goal, "withProof": True, field: value}), 400, "VALIDATION_ERROR"
        )
        assert list(error["details"]["fields"]) == [field]
    assert (
        client.post("/ask", {**goal, "withProof": False, "includeUndefined": True}).status_code
        == 200
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("limit", 0),
        ("limit", "5"),
        ("limit", 1.5),
        ("limit", True),
        ("offset", -1),
        ("minConfidence", 2),
        ("asOf", "yesterday"),
        ("timeoutMs", 0),
        ("withProof", "yes"),
        ("scope", "a/b"),
        ("negated", "no"),
    ],
)
def test_a_bad_field_is_named(client: Client, field: str, value: Any) -> None:
    body = {"predicate": "p", "args": ["?x"], field: value}
    error = error_of(client.post("/infer", body), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == [field]


@pytest.mark.parametrize("path", ["/infer", "/ask", "/query", "/retract", "/tell"])
def test_predicate_and_args_are_required(client: Client, path: str) -> None:
    error = error_of(client.post(path, {}), 400, "VALIDATION_ERROR")
    assert set(error["details"]["fields"]) == {"predicate", "args"}


def test_query_applies_no_rules_and_shows_both_signs(client: Client) -> None:
    client.post("/teach", {"text": "p(?x) :- q(?x)."})
    client.tell("q", "derived")
    client.tell("p", "yes")
    client.tell("p", "no", truthVal=False)
    found = client.post("/query", {"predicate": "p", "args": ["?x"]}).get_json()
    assert [(row["args"], row["truthVal"], row["negated"]) for row in found] == [
        (["yes"], True, False),
        (["no"], False, True),
    ]
    for given, args in (
        ({"negated": True}, ["no"]),
        ({"truthVal": True}, ["yes"]),
        ({"limit": 1}, ["yes"]),
    ):
        found = client.post("/query", {"predicate": "p", "args": ["?x"], **given}).get_json()
        assert [row["args"] for row in found] == [args]


def test_aggregates(client: Client, served: Served) -> None:
    for name, age in (("a", 30), ("b", 40), ("c", "50.5")):
        client.tell("age", name, age)

    def ask(**more: Any) -> Any:
        response = client.post("/aggregate", {"predicate": "age", **more})
        assert response.status_code == 200, response.text
        return response.get_json()

    assert ask(op="COUNT") == {
        "result": 3,
        "op": "COUNT",
        "operation": "COUNT",
        "predicate": "age",
        "matchedFacts": 3,
        "timestamp": NOW,
    }
    assert ask(operation="sum", argIndex=1)["result"] == 120.5
    assert ask(op="Min", argIndex=1)["result"] == 30
    assert ask(op="MAX", argIndex=1)["result"] == 50.5
    assert ask(op="AVG", argIndex=1, args=[None, "?y"])["result"] == pytest.approx(120.5 / 3)
    assert ask(op="COUNT", args=["a", None])["result"] == 1
    assert ask(op="SUM", argIndex=1, scope="empty")["result"] == 0
    assert ask(op="AVG", argIndex=1, scope="empty")["result"] is None
    error_of(
        client.post("/aggregate", {"predicate": "age", "op": "SUM", "argIndex": 0}),
        400,
        "VALIDATION_ERROR",
    )
    assert ask(op="SUM", argIndex=0, skipNonNumeric=True)["result"] == 0


def test_a_number_of_many_digits_can_be_answered(served: Served) -> None:
    with served.app.app_context():
        assert as_json({"result": 2**70}).data == b'{"result":1180591620717411303424}'


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"predicate": "p"}, "op"),
        ({"predicate": "p", "op": "MEDIAN"}, "op"),
        ({"predicate": "p", "op": 5}, "op"),
        ({"predicate": "p", "op": "SUM"}, "argIndex"),
        ({"predicate": "p", "op": "SUM", "argIndex": -1}, "argIndex"),
        ({"predicate": "p", "op": "SUM", "argIndex": "0"}, "argIndex"),
        ({"predicate": "p", "op": "SUM", "argIndex": 5}, "argIndex"),
        ({"op": "COUNT"}, "predicate"),
        ({"predicate": "p", "op": "COUNT", "args": "x"}, "args"),
    ],
)
def test_a_bad_aggregate_is_explained(client: Client, body: dict[str, Any], field: str) -> None:
    client.tell("p", 1)
    error = error_of(client.post("/aggregate", body), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == [field]


def test_predicates(client: Client) -> None:
    client.tell("b", "x", "y")
    client.tell("b", "x")
    client.tell("a", "x", scope="s")
    client.post("/teach", {"text": "c(?x) :- b(?x)."})
    found = client.get("/predicates").get_json()
    assert found == {
        "predicates": [
            {"predicate": "b", "arity": 1, "factCount": 1, "ruleCount": 0, "hasRules": False},
            {"predicate": "b", "arity": 2, "factCount": 1, "ruleCount": 0, "hasRules": False},
            {"predicate": "c", "arity": 1, "factCount": 0, "ruleCount": 1, "hasRules": True},
        ],
        "totalPredicates": 3,
        "totalFacts": 2,
        "totalRules": 1,
    }
    assert client.get("/predicates?scope=*").get_json()["totalFacts"] == 3
    error_of(client.get("/predicates?scope=a/b"), 400, "VALIDATION_ERROR")
    assert client.get("/predicates", {"X-Tenant-ID": "unknown"}).get_json()["totalPredicates"] == 0


def test_conclusions_inherit_confidence_and_validity(client: Client) -> None:
    client.post("/teach", {"text": "r(?x) :- p(?x), q(?x). r(?x) :- s(?x)."})
    client.post("/teach", {"text": "drive(?x) :- licensed(?x), duty(?x), not ill(?x)."})
    for name, confidence in (("p", 0.9), ("q", 0.6), ("s", 0.7)):
        client.tell(name, "a", confidence=confidence)
    client.tell("licensed", "d", validUntil=NOW + 1000)
    client.tell("duty", "d", validFrom=NOW - 500, validUntil=NOW + 2000)

    def ask(name: str, **more: Any) -> list[tuple[Any, ...]]:
        rows = client.post("/infer", {"predicate": name, "args": ["?x"], **more}).get_json()
        return [(r["confidence"], r["validFrom"], r["validUntil"], r["metadata"]) for r in rows]

    assert ask("r") == [(0.7, None, None, {})]
    assert ask("r", minConfidence=0.7) == [(0.7, None, None, {})]
    assert ask("r", minConfidence=0.71) == []
    assert ask("drive") == [(None, NOW - 500, NOW + 1000, {"nonMonotonic": True})]
    assert ask("drive", asOf=NOW + 1000) == []


def test_contradictions_are_marked(client: Client) -> None:
    client.post("/teach", {"text": "~p(?x) :- bad(?x)."})
    client.tell("p", "a")
    client.tell("p", "b")
    client.tell("bad", "a")
    for sign in (False, True):
        rows = client.post("/ask", {"predicate": "p", "args": ["?x"], "negated": sign}).get_json()
        marked = {row["args"][0]: row["metadata"] for row in rows}
        assert marked == {"a": {"contradicted": True}} | ({} if sign else {"b": {}})


def test_answers_that_depend_on_absence_are_marked(client: Client) -> None:
    client.post(
        "/teach",
        {"text": "ok(?x) :- user(?x), not banned(?x). fine(?x) :- ok(?x). fine(?x) :- vip(?x)."},
    )
    client.tell("user", "a")
    client.tell("user", "b")

    def marked(name: str, **more: Any) -> dict[str, bool]:
        rows = client.post("/infer", {"predicate": name, "args": ["?x"], **more}).get_json()
        return {row["args"][0]: row["metadata"].get("nonMonotonic", False) for row in rows}

    assert marked("ok") == marked("fine") == marked("ok", scope="*") == {"a": True, "b": True}
    assert marked("user") == {"a": False, "b": False}
    client.tell("vip", "b")
    assert marked("fine") == {"a": True, "b": False}
    client.tell("ok", "a")
    assert marked("ok") == {"a": False, "b": True}
    assert marked("fine") == {"a": False, "b": False}
    client.tell("banned", "a", negated=True)
    assert marked("ok") == {"a": False, "b": True}


def test_games_have_three_outcomes(client: Client) -> None:
    told = client.post(
        "/teach",
        {"text": "win(?x) :- move(?x, ?y), not win(?y). draw(?x) :- move(?x, ?x), not win(?x)."},
    )
    assert told.status_code == 200
    assert "recursion through negation: win/1" in told.headers["X-Rule-Warnings"]
    for move in ("ab", "bc", "dd"):
        client.tell("move", *move)
    assert client.ask("win", "?x") == [["b"]]
    assert client.ask("win", "?x", includeUndefined=False) == [["b"]]
    rows = client.post(
        "/infer", {"predicate": "win", "args": ["?x"], "includeUndefined": True}
    ).get_json()
    assert [(row["args"], row["metadata"].get("truth")) for row in rows] == [
        (["b"], None),
        (["d"], "undefined"),
    ]
    assert list(rows[1]) == ROW_KEYS
    assert client.ask("draw", "?x") == []
    assert client.ask("draw", "?x", includeUndefined=True) == [["d"]]
    assert client.ask("win", "?x", includeUndefined=True, limit=1) == [["b"]]
    assert client.ask("win", "?x", includeUndefined=True, limit=1, offset=1) == [["d"]]
    for position, certain, more in (("a", [["a"]], [["a"]]), ("b", [], []), ("d", [], [["d"]])):
        assert client.ask("win", position, negated=True) == certain
        assert client.ask("win", position, negated=True, includeUndefined=True) == more
    client.tell("move", "d", "c")
    assert client.ask("win", "?x", includeUndefined=True) == [["b"], ["d"]]
    proved = client.post(
        "/infer", {"predicate": "win", "args": ["b"], "withProof": True}
    ).get_json()
    assert "negation_as_failure" in str(proved)
    for path, more in (("/infer", {"withProof": True}), ("/explain", {})):
        refused = client.post(
            path, {"predicate": "win", "args": ["?x"], "includeUndefined": True, **more}
        )
        error_of(refused, 400, "VALIDATION_ERROR")
    assert (
        client.post(
            "/infer", {"predicate": "win", "args": ["?x"], "includeUndefined": "yes"}
        ).status_code
        == 400
    )


def test_a_rule_that_closes_a_cycle_is_warned_about(client: Client) -> None:
    rules = [
        "p(?x) :- d(?x), not q(?x).",
        "q(?x) :- d(?x), not p(?x).",
        "r(?x) :- d(?x), not p(?x).",
    ]
    warned = []
    for rule in rules:
        head, _, body = rule[:-1].partition(" :- ")
        assert body
        answer = client.post("/teach", {"text": f"{head} :- {body}."})
        warned.append(
            "recursion through negation: p/1, q/1" in answer.headers.get("X-Rule-Warnings", "")
        )
    assert warned == [False, True, False]
    client.tell("d", "a")
    assert client.ask("r", "?x", includeUndefined=True) == [["a"]]
