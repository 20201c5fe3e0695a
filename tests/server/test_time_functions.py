"""Functions and conditions of time in rules, over HTTP."""

from __future__ import annotations

from support.http import Client, error_of

FACTS = """
due(i1, "2026-04-28"). paid(i1, "2026-05-01T12:00+02:00").
due(i2, "2026-05-01T10:00+02:00"). paid(i2, "2026-05-01T08:00Z").
due(i3, soon). paid(i3, "2026-05-01").
"""
RULES = """
late(?i, ?days) :- due(?i, ?due), paid(?i, ?when), before(?due, ?when), ?days = days_between(?due, ?when).
punctual(?i) :- due(?i, ?due), paid(?i, ?when), not after(?when, ?due).
"""


def test_conditions_compare_by_time(client: Client) -> None:
    assert client.post("/teach", {"text": FACTS + RULES}).status_code == 200
    assert client.ask("late", "?i", "?d") == [["i1", "3.4166666666666665"]]
    assert client.ask("late", "i1", "?d") == [["i1", "3.4166666666666665"]]
    assert client.ask("late", "i2", "?d") == []
    assert client.ask("punctual", "?i") == [["i2"]]  # i3 has no due time: neither late nor punctual
    goal = {"text": 'due(?i, ?d), before(?d, "2026-05-01T08:00:01Z")'}
    rows = client.post("/ask", goal).get_json()
    assert {row["bindings"]["?i"] for row in rows} == {"i1", "i2"}


def test_conditions_in_json_and_their_mistakes(client: Client) -> None:
    rule = {
        "head": {"predicate": "open", "args": ["?i"]},
        "body": [
            {"predicate": "due", "args": ["?i", "?d"]},
            {"builtin": "before", "args": ["?d", "add_days(?d, 1)"]},
            {"builtin": "after", "args": ["2026-04-30", "?d"], "negated": True},
            {"builtin": "year", "args": ["?d", 2026]},
        ],
    }
    response = client.post("/teach", rule)
    assert response.text == (
        'Rule Asserted: open(?i) :- due(?i, ?d), before(?d, add_days(?d, 1)), not after("2026-04-30", ?d), '
        "2026 = year(?d)."
    )
    client.post("/teach", {"text": FACTS})
    assert client.ask("open", "?i") == [["i2"]]
    (stored,) = client.get("/rules").get_json()["rules"]
    assert (
        client.post("/teach", {"head": stored["head"], "body": stored["body"]}).status_code == 200
    )
    assert len(client.get("/rules").get_json()["rules"]) == 1
    rule["body"][1] = {"builtin": "before", "args": ["?d"]}
    assert error_of(client.post("/teach", rule), 400, "VALIDATION_ERROR")["message"] == (
        "body[1].args: before takes 2 arguments, found 1"
    )


def test_intervals_and_names_of_rules(client: Client) -> None:
    text = """
    shift(ann, "2026-05-01T06:00Z", "2026-05-01T14:00Z"). shift(bob, "2026-05-01T12:00Z", "..").
    shift(cid, "2026-05-01T14:00Z", "2026-05-01T15:00+01:00"). shift(dan, "..", "2026-05-01T06:00Z").
    overlaps(?a, ?b) :- shift(?a, ?f, ?t), shift(?b, ?from, ?to), overlaps(?f, ?t, ?from, ?to).
    meets(?a, ?b) :- shift(?a, ?f, ?t), shift(?b, ?from, ?to), meets(?f, ?t, ?from, ?to).
    """
    assert client.post("/teach", {"text": text}).status_code == 200
    assert client.ask("overlaps", "?a", "?b") == [["ann", "bob"]]
    assert client.ask("meets", "dan", "?b") == [["dan", "ann"]]
    refused = client.post("/teach", {"text": "overlaps(?a, ?b, ?c, ?d) :- p(?a, ?b, ?c, ?d)."})
    assert "is a builtin" in error_of(refused, 400, "VALIDATION_ERROR")["message"]
    rule = {
        "head": {"predicate": "overlaps", "args": ["?a", "?b", "?c", "?d"]},
        "body": [{"predicate": "p", "args": ["?a", "?b", "?c", "?d"]}],
    }
    assert client.post("/teach", rule).text == (
        "Rule Asserted: 'overlaps'(?a, ?b, ?c, ?d) :- p(?a, ?b, ?c, ?d)."
    )


def test_proofs_show_the_instants(client: Client) -> None:
    client.post("/teach", {"text": FACTS + RULES})
    goal = {"predicate": "late", "args": ["i1", "?d"], "withProof": True}
    proof = client.post("/ask", goal).get_json()[0]["proof"]
    tests = [node for node in proof["step"]["bodyProofs"] if node["step"]["type"] == "builtin"]
    assert tests[0]["step"]["text"] == 'before("2026-04-28", "2026-05-01T12:00+02:00")'
    assert tests[0]["goal"]["predicate"] == "before"
    assert tests[0]["goal"]["args"] == ["2026-04-28", "2026-05-01T12:00+02:00"]
    goal = {"predicate": "punctual", "args": ["i2"], "withProof": True, "proofFormat": "dag"}
    nodes = client.post("/ask", goal).get_json()[0]["proof"]["nodes"].values()
    (test,) = (node for node in nodes if node["kind"] == "builtin")
    assert test["text"] == 'not after("2026-05-01T08:00Z", "2026-05-01T10:00+02:00")'
    assert test["fact"] == {
        "predicate": "after",
        "args": ["2026-05-01T08:00Z", "2026-05-01T10:00+02:00"],
        "negated": True,
    }


def test_why_not_names_the_condition(client: Client) -> None:
    client.post("/teach", {"text": FACTS + RULES})
    goal = {"predicate": "late", "args": ["i2", "?d"], "whyNot": True}
    (candidate,) = client.post("/explain", goal).get_json()["candidates"]
    assert candidate["missing"]["builtin"] == "before"
    goal = {"predicate": "late", "args": ["?i", "?d"], "plan": True}
    assert "before" in client.post("/explain", goal).get_data(as_text=True)


def test_a_retraction_counts_what_depended_on_a_time(client: Client) -> None:
    client.post("/teach", {"text": FACTS + RULES})
    atom = {"predicate": "paid", "args": ["i1", "2026-05-01T12:00+02:00"]}
    reply = client.post("/retract", atom, {"Prefer": "return=representation"}).get_json()
    assert (reply["cascaded"], reply["newlyDerivable"]) == (1, 0)
    assert client.ask("late", "?i", "?d") == []
    client.post("/teach", {"text": 'paid(i1, "2026-04-27").'})
    assert client.ask("punctual", "?i") == [["i1"], ["i2"]]
    assert client.ask("late", "?i", "?d") == []
