"""Lists, ranges and parts of texts in rules, over HTTP."""

from __future__ import annotations

from support.http import Client, error_of

RULES = """
tag(?x, ?tag) :- labels(?x, ?text), split(?text, ",", ?part), ?tag = trim(?part).
warm(?x) :- tag(?x, ?tag), member(?tag, [red, "deep orange"]).
cold(?x) :- labels(?x, _), not warm(?x).
hour(?x, ?h) :- open(?x, ?from, ?to), range(?from, ?to, ?h).
free(?x, ?h) :- hour(?x, ?h), not booked(?x, ?h).
reach(?x) :- member(?x, [start]).
reach(?y) :- reach(?x), links(?x, ?all), split(?all, " ", ?y).
tags(?x, count(?t)) :- tag(?x, ?t).
"""
FACTS = """
labels(a, "red, green,,red"). labels(b, "blue").
open(r, 8, 11). open(s, 9, 9). open(t, nine, 10). booked(r, 9).
links(start, "a b"). links(b, "c start"). links(c, "c").
"""


def taught(client: Client) -> Client:
    assert client.post("/teach", {"text": RULES + FACTS}).status_code == 200
    return client


def test_answers_for_free_and_bound_goals(client: Client) -> None:
    taught(client)
    assert client.ask("tag", "?x", "?t") == [["a", ""], ["a", "green"], ["a", "red"], ["b", "blue"]]
    assert client.ask("tag", "a", "red") == [["a", "red"]]
    assert client.ask("tag", "?x", "green") == [["a", "green"]]
    assert client.ask("warm", "?x") == [["a"]]
    assert client.ask("cold", "?x") == [["b"]]
    assert client.ask("free", "?x", "?h") == [["r", "8"], ["r", "10"]]
    assert client.ask("free", "r", "9") == []
    assert client.ask("reach", "?x") == [["a"], ["b"], ["c"], ["start"]]
    assert client.ask("reach", "c") == [["c"]]
    assert client.ask("tags", "?x", "?n") == [["a", "3"], ["b", "1"]]
    rows = client.post("/ask", {"text": "open(?x, ?f, ?t), range(?f, ?t, ?h), ?h > 9"}).get_json()
    assert [row["bindings"]["?h"] for row in rows] == ["10"]


def test_the_json_form(client: Client) -> None:
    rule = {
        "head": {"predicate": "some", "args": ["?h"]},
        "body": [
            {"builtin": "range", "args": [0, "?n + 1", "?h"]},
            {"predicate": "n", "args": ["?n"]},
            {"builtin": "member", "args": ["?h", [2, "?n", "x y"]]},
            {"builtin": "split", "args": ["a-b", "-", "?h"], "negated": True},
        ],
    }
    response = client.post("/teach", rule)
    text = 'some(?h) :- range(0, ?n + 1, ?h), n(?n), member(?h, [2, ?n, "x y"]), not split(a-b, -, ?h).'
    assert response.text == "Rule Asserted: " + text.replace("split(a-b, -,", 'split(a-b, "-",')
    client.post("/teach", {"text": "n(4)."})
    assert client.ask("some", "?h") == [["2"], ["4"]]
    (stored,) = client.get("/rules").get_json()["rules"]
    again = client.post("/teach", {"head": stored["head"], "body": stored["body"]})
    assert again.status_code == 200
    assert len(client.get("/rules").get_json()["rules"]) == 1
    for args, message in (
        (["?h"], "member takes 2 arguments, found 1"),
        (["?h", "a"], "must be an array"),
        (["?h", []], "must have 1 to 64 elements"),
    ):
        rule["body"][2]["args"] = args
        assert message in error_of(client.post("/teach", rule), 400, "VALIDATION_ERROR")["message"]


def test_proofs_and_plans_and_why_not(client: Client) -> None:
    taught(client)
    goal = {"predicate": "free", "args": ["r", "10"], "withProof": True}
    hour = client.post("/ask", goal).get_json()[0]["proof"]["step"]["bodyProofs"][0]
    (test,) = (node for node in hour["step"]["bodyProofs"] if node["step"]["type"] == "builtin")
    assert test["step"]["text"] == "range(8, 11, 10)"
    assert (test["goal"]["predicate"], test["goal"]["args"]) == ("range", ["8", "11", "10"])
    goal = {"predicate": "warm", "args": ["a"], "withProof": True, "proofFormat": "dag"}
    nodes = client.post("/ask", goal).get_json()[0]["proof"]["nodes"].values()
    texts = {node["text"] for node in nodes if node["kind"] == "builtin"}
    assert 'member(red, [red, "deep orange"])' in texts
    plan = client.post("/explain", {"predicate": "hour", "args": ["r", "?h"], "plan": True})
    assert "generate ?h = range" in plan.get_data(as_text=True)
    why = {"predicate": "hour", "args": ["s", "?h"], "whyNot": True}
    (candidate,) = client.post("/explain", why).get_json()["candidates"]
    assert candidate["missing"] == {
        "builtin": "range",
        "args": ["9", "9", "?h"],
        "negated": False,
        "text": "range(9, 9, ?h)",
    }
    why = {"predicate": "warm", "args": ["b"], "whyNot": True}
    (candidate,) = client.post("/explain", why).get_json()["candidates"]
    assert candidate["missing"]["args"] == ["blue", ["red", "deep orange"]]


def test_a_retraction_counts_generated_conclusions(client: Client) -> None:
    taught(client)
    wanted = {"Prefer": "return=representation"}
    atom = {"predicate": "open", "args": ["r", 8, 11]}
    reply = client.post("/retract", atom, wanted).get_json()
    assert reply["cascaded"] == 5  # hours 8, 9 and 10, of which 8 and 10 are free
    atom = {"predicate": "links", "args": ["start", "a b"]}
    reply = client.post("/retract", atom, wanted).get_json()
    assert sorted(row["args"][0] for row in reply["cascadedAtoms"]) == ["a", "b", "c"]
    assert client.ask("reach", "?x") == [["start"]]


def test_a_huge_range_ends_at_the_limits(client: Client) -> None:
    client.post(
        "/teach",
        {"text": "n(?x) :- range(0, 1000000000, ?x). big(?x) :- n(?x), ?x > 999999990000000."},
    )
    for predicate in ("n", "big"):
        response = client.post("/ask", {"predicate": predicate, "args": ["?x"], "timeoutMs": 500})
        assert error_of(response, 422, "BUDGET_EXCEEDED")["details"]["limit"] in (
            "timeMs",
            "memoryBytes",
            "rows",
        )
    assert client.ask("n", "999999999") == [["999999999"]]
