"""Routes that store and retract facts."""

from __future__ import annotations

from typing import Any

import pytest
from support.http import NOW, ROW_KEYS, Client, Served, error_of


def rows(client: Client, predicate: str, *args: str, **more: Any) -> list[dict[str, Any]]:
    response = client.post("/query", {"predicate": predicate, "args": list(args), **more})
    assert response.status_code == 200, response.text
    found: list[dict[str, Any]] = response.get_json()
    return found


def test_a_fact_with_everything(client: Client) -> None:
    fact = {
        "predicate": "p",
        "args": ["a", "b"],
        "truthVal": True,
        "negated": False,
        "scope": "s",
        "ttl": 10**9,
        "validFrom": "2023-11-14T22:13:20Z",
        "validUntil": "2023-11-15T00:00:00.5+01:00",
        "createdAt": None,
        "metadata": {"source": {"page": 3}},
        "confidence": 0.25,
    }
    assert client.post("/tell", fact).text == "Fact Asserted: p(a, b)"
    (row,) = rows(client, "p", "?x", "?y", scope="s")
    assert list(row) == [*ROW_KEYS, "truthVal"]
    assert row == {
        "predicate": "p",
        "args": ["a", "b"],
        "negated": False,
        "scope": "s",
        "metadata": {"source": {"page": 3}},
        "createdAt": NOW,
        "validFrom": NOW,
        "validUntil": 1_700_002_800_500,
        "ttl": 10**9,
        "confidence": 0.25,
        "truthVal": True,
    }


def test_nulls_are_absent(client: Client) -> None:
    nothing = dict.fromkeys(
        ("negated", "truthVal", "scope", "ttl", "validFrom", "validUntil", "confidence", "metadata")
    )
    client.tell("p", "a", **nothing)
    (row,) = rows(client, "p", "?x")
    assert row["metadata"] == {}
    assert row["scope"] is None


@pytest.mark.parametrize(
    ("given", "negated"),
    [
        ({}, False),
        ({"negated": True}, True),
        ({"negated": False}, False),
        ({"truthVal": False}, True),
        ({"truthVal": True}, False),
        ({"negated": True, "truthVal": True}, True),
        ({"negated": False, "truthVal": False}, True),
    ],
)
def test_the_sign_of_a_fact(client: Client, given: dict[str, bool], negated: bool) -> None:
    client.tell("p", "a", **given)
    (row,) = rows(client, "p", "a")
    assert (row["negated"], row["truthVal"]) == (negated, not negated)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("predicate", ""),
        ("predicate", 5),
        ("predicate", None),
        ("predicate", "p" * 256),
        ("args", "a"),
        ("args", None),
        ("args", {"0": "a"}),
        ("args", ["a"] * 65),
        ("negated", "yes"),
        ("negated", 1),
        ("truthVal", []),
        ("scope", "*"),
        ("scope", ""),
        ("scope", "a b"),
        ("scope", ".."),
        ("scope", "x" * 129),
        ("scope", 7),
        ("ttl", 0),
        ("ttl", -5),
        ("ttl", 1.5),
        ("ttl", "1000"),
        ("ttl", True),
        ("ttl", 10**30),
        ("validFrom", "2026-1-1"),
        ("validFrom", "2026-01-01T24:30:00"),
        ("validFrom", "2026-13-01T00:00:00Z"),
        ("validFrom", "2026-01-01T25:00:00Z"),
        ("validFrom", "2026-01-01T00:00:00+24:00"),
        ("validFrom", "now"),
        ("validFrom", True),
        ("validFrom", 10**17),
        ("validUntil", 1.5),
        ("validUntil", []),
        ("confidence", 1.01),
        ("confidence", -0.1),
        ("confidence", "0.5"),
        ("confidence", True),
        ("metadata", []),
        ("metadata", "x"),
        ("metadata", {"x": "y" * 32_768}),
        ("metadata", {"x": 2**64}),
        ("conflictStrategy", 5),
        ("conflictStrategy", "WHATEVER"),
        ("conflictStrategy", ["REJECT"]),
        ("conflictStrategy", {}),
    ],
)
def test_a_bad_field_is_named(client: Client, field: str, value: Any) -> None:
    body = {"predicate": "p", "args": ["a"], field: value}
    error = error_of(client.post("/tell", body), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == [field]
    assert field in error["message"]
    assert client.get("/predicates?scope=*").get_json()["totalFacts"] == 0


@pytest.mark.parametrize("value", [None, [], {}, ["a"], "x" * 65_537])
def test_a_bad_argument_is_named(client: Client, value: Any) -> None:
    error = error_of(
        client.post("/tell", {"predicate": "p", "args": ["a", value]}), 400, "VALIDATION_ERROR"
    )
    assert list(error["details"]["fields"]) == ["args[1]"]


@pytest.mark.parametrize("field", ["predicate", "args"])
def test_nul_is_refused_in_every_field(client: Client, field: str) -> None:
    error = error_of(
        client.post("/tell", {"predicate": "p", "args": [], field: ["a\0"]}),
        400,
        "VALIDATION_ERROR",
    )
    assert "NUL" in error["message"]


@pytest.mark.parametrize("variable", ["?x", "?"])
def test_variables_in_a_fact_are_refused(client: Client, variable: str) -> None:
    error = error_of(
        client.post("/tell", {"predicate": "p", "args": ["a", variable]}), 400, "VALIDATION_ERROR"
    )
    assert "args[1]" in error["details"]["fields"]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (30, "30"),
        (30.0, "30"),
        (1.5, "1.5"),
        ("007", "007"),
        ("30.0", "30.0"),
        (True, "true"),
        (False, "false"),
        (12345678901234567890123, "12345678901234567890123"),
        (" a ", " a "),
        ("", ""),
        ("ä, (b)", "ä, (b)"),
    ],
)
def test_arguments_become_text(client: Client, given: Any, kept: str) -> None:
    assert (
        client.post("/tell", {"predicate": "p", "args": [given]}).text
        == f"Fact Asserted: p({kept})"
    )
    assert rows(client, "p", "?x")[0]["args"] == [kept]


def test_the_same_fact_again(client: Client, served: Served) -> None:
    client.tell("p", "a", confidence=0.5)
    served.clock.advance(1000)
    client.tell("p", "a", metadata={"b": 1})
    (row,) = rows(client, "p", "a")
    assert (row["createdAt"], row["confidence"], row["metadata"]) == (NOW, None, {"b": 1})


def test_conflict_strategies(client: Client) -> None:
    client.tell("p", "a")
    opposite = {"predicate": "p", "args": ["a"], "negated": True}
    error_of(client.post("/tell", {**opposite, "conflictStrategy": "REJECT"}), 409, "CONFLICT")
    client.tell("p", "a", negated=True)
    assert [row["negated"] for row in rows(client, "p", "a")] == [False, True]
    client.tell("p", "a", conflictStrategy="NEWEST_WINS")
    assert [row["negated"] for row in rows(client, "p", "a")] == [False]


def test_unknown_keys(client: Client) -> None:
    body = {"predicate": "p", "args": ["a"], "colour": "red"}
    assert client.post("/tell", body).status_code == 200
    error = error_of(
        client.post("/tell", body, {"Prefer": "handling=strict"}), 400, "VALIDATION_ERROR"
    )
    assert list(error["details"]["fields"]) == ["colour"]
    error = error_of(
        client.post("/assert/facts", {"facts": [body]}, {"Prefer": "wait=1, handling=Strict"}),
        400,
        "VALIDATION_ERROR",
    )
    assert list(error["details"]["fields"]) == ["facts[0].colour"]


def test_bulk(client: Client, served: Served) -> None:
    client.tell("p", "a")
    body = {"facts": [{"predicate": "p", "args": [x], "ttl": 5} for x in ("a", "b", "c")]}
    assert client.post("/assert/facts", body).get_json() == {
        "asserted": 2,
        "updated": 1,
        "failed": 0,
        "errors": [],
        "timestamp": NOW,
    }
    assert len(rows(client, "p", "?x")) == 3
    served.clock.advance(5)
    assert rows(client, "p", "?x") == []
    assert client.post("/assert/facts", {"facts": []}).get_json()["asserted"] == 0


def test_bulk_is_all_or_nothing(client: Client) -> None:
    good = {"predicate": "p", "args": ["a"]}
    bad = [
        {"predicate": "p"},
        {"predicate": "p", "args": ["a", None]},
        "p(a)",
        {**good, "ttl": 0},
        {**good, "args": ["?x"]},
    ]
    error = error_of(client.post("/assert/facts", {"facts": [good, *bad]}), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == [
        "facts[1].args",
        "facts[2].args[1]",
        "facts[3]",
        "facts[4].ttl",
        "facts[5].args[0]",
    ]
    assert rows(client, "p", "?x") == []
    many = error_of(client.post("/assert/facts", {"facts": [{}] * 1000}), 400, "VALIDATION_ERROR")
    assert len(many["details"]["fields"]) < 30


def test_a_long_body_yields_to_other_requests(served: Served) -> None:
    turns: list[int] = []
    served.runtime.yield_now = lambda: turns.append(1)
    body = {"facts": [{"predicate": "p", "args": [number]} for number in range(2500)]}
    assert served.client.post("/assert/facts", body).get_json()["asserted"] == 2500
    assert len(turns) >= 2


@pytest.mark.parametrize("facts", [None, {}, "x", 5])
def test_bulk_needs_an_array(client: Client, facts: Any) -> None:
    error = error_of(client.post("/assert/facts", {"facts": facts}), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == ["facts"]
    error_of(client.post("/assert/facts", {}), 400, "VALIDATION_ERROR")


def test_retract_cascades(client: Client) -> None:
    client.tell("p", "a")
    client.post("/teach", {"text": "q(?x) :- p(?x). r(?x) :- q(?x)."})
    response = client.post("/retract", {"predicate": "p", "args": ["a"]})
    assert response.text == "Retracted: p(a)"
    assert response.content_type == "text/plain; charset=utf-8"
    assert response.headers["X-Retracted-Count"] == "1"
    assert response.headers["X-Cascaded-Count"] == "2"
    assert "X-Still-Derivable" not in response.headers
    assert client.ask("r", "?x") == []


def test_retractions_without_a_count(client: Client) -> None:
    client.post("/teach", {"text": "q(?x) :- p(?x). r(?x) :- q(?x), not s(?x)."})
    body = {"predicate": "p", "args": ["a"], "count": False}
    counts = {"cascaded", "cascadedAtoms", "newlyDerivable"}
    headers = {"Prefer": "return=representation"}
    for count in (False, True):
        client.tell("p", "a")
        response = client.post("/retract", {**body, "count": count}, headers=headers)
        answer = response.get_json()
        assert (answer["retracted"], answer["truncated"]) == (1, False)
        assert ("X-Cascaded-Count" in response.headers) is count
        assert counts & answer.keys() == (counts if count else set())
        assert answer.get("counted", True) is count
        assert client.ask("r", "?x") == []
    client.tell("p", "a")
    answer = client.post("/retract/pattern", {**body, "args": ["?x"]}).get_json()
    assert list(answer) == ["retracted", "atoms", "counted"]
    assert (answer["retracted"], answer["counted"]) == (1, False)
    assert client.ask("r", "?x") == []
    error_of(client.post("/retract", {**body, "count": "no"}), 400, "VALIDATION_ERROR")


def test_retract_of_a_fact_that_is_still_derivable(client: Client) -> None:
    client.tell("p", "a")
    client.tell("q", "a")
    client.post("/teach", {"text": "q(?x) :- p(?x)."})
    response = client.post(
        "/forget", {"predicate": "q", "args": ["a"]}, {"Prefer": "return=representation"}
    )
    assert response.headers["X-Still-Derivable"] == "true"
    assert response.headers["Preference-Applied"] == "return=representation"
    assert response.get_json() == {
        "retracted": 1,
        "cascaded": 0,
        "cascadedAtoms": [],
        "newlyDerivable": 0,
        "stillDerivable": True,
        "truncated": False,
    }


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({}, []),
        ({"negated": False}, [True]),
        ({"negated": True}, [False]),
        ({"truthVal": False}, [False]),
    ],
)
def test_signs_of_a_retraction(client: Client, given: dict[str, bool], left: list[bool]) -> None:
    for path, args in (("/retract", ["a"]), ("/retract/pattern", [None])):
        client.tell("p", "a")
        client.tell("p", "a", negated=True)
        assert client.post(path, {"predicate": "p", "args": args, **given}).status_code == 200
        assert [row["negated"] for row in rows(client, "p", "a")] == left


def test_retract_is_idempotent_and_keeps_to_its_scope(client: Client) -> None:
    client.tell("p", "a", scope="s")
    response = client.post("/retract", {"predicate": "p", "args": ["a"]})
    assert (response.status_code, response.headers["X-Retracted-Count"]) == (200, "0")
    assert response.text == "Nothing to retract: p(a)"
    assert (
        client.post("/retract", {"predicate": "p", "args": ["a"], "scope": "s"}).headers[
            "X-Retracted-Count"
        ]
        == "1"
    )
    error_of(
        client.post("/retract", {"predicate": "p", "args": ["a"], "scope": "*"}),
        400,
        "VALIDATION_ERROR",
    )


def test_retract_of_a_variable_points_to_the_pattern_route(client: Client) -> None:
    error = error_of(
        client.post("/retract", {"predicate": "p", "args": ["a", "?x"]}), 400, "VALIDATION_ERROR"
    )
    assert "/retract/pattern" in error["details"]["fields"]["args[1]"][0]


def test_retract_pattern(client: Client) -> None:
    for pair in (("a", "a"), ("a", "b"), ("b", "b")):
        client.tell("p", *pair)
    found = client.post("/retract/pattern", {"predicate": "p", "args": ["?x", "?x"]}).get_json()
    assert [row["args"] for row in found["atoms"]] == [["a", "a"], ["b", "b"]]
    assert list(found) == ["retracted", "atoms", "cascaded"]
    assert list(found["atoms"][0]) == ROW_KEYS
    assert (
        client.post("/retract/pattern", {"predicate": "p", "args": [None, "?"]}).get_json()[
            "retracted"
        ]
        == 1
    )
    assert (
        client.post("/retract/pattern", {"predicate": "p", "args": [None, "?"]}).get_json()[
            "retracted"
        ]
        == 0
    )


def test_retract_pattern_without_args_empties_the_predicate(served: Served) -> None:
    client = served.client
    for args in ([], ["a"], ["a", "b"]):
        client.post("/tell", {"predicate": "p", "args": args})
    client.tell("p", "c", negated=True)
    client.tell("p", "a", scope="s")
    client.tell("other", "a")
    before = len(served.store.records)
    negative = client.post("/retract/pattern", {"predicate": "p", "negated": True}).get_json()
    assert [row["args"] for row in negative["atoms"]] == [["c"]]
    answer = client.post("/retract/pattern", {"predicate": "p"}).get_json()
    assert sorted(row["args"] for row in answer["atoms"]) == [[], ["a"], ["a", "b"]]
    assert len(served.store.records) == before + 2
    assert client.post("/retract/pattern", {"predicate": "p"}).get_json()["retracted"] == 0
    assert client.ask("p", "?x", scope="s") == client.ask("other", "?x") == [["a"]]


def test_retract_pattern_without_args_in_a_transaction(client: Client) -> None:
    client.tell("p", "a")
    id = client.post("/tx/begin").text
    within = {"X-Tenant-ID": "t", "X-Transaction-ID": id}
    client.post("/tell", {"predicate": "p", "args": ["a", "b"]}, within)
    answer = client.post("/retract/pattern", {"predicate": "p"}, within).get_json()
    assert sorted(row["args"] for row in answer["atoms"]) == [["a"], ["a", "b"]]
    assert client.ask("p", "?x") == [["a"]]
    assert client.post(f"/tx/commit/{id}").status_code == 200
    assert client.ask("p", "?x") == []


@pytest.mark.parametrize(
    "body", [{}, {"args": ["a"]}, {"predicate": "p(a)"}, {"predicate": ""}, {"predicate": 3}]
)
def test_retract_pattern_needs_a_predicate(client: Client, body: Any) -> None:
    client.tell("p", "a")
    error = error_of(client.post("/retract/pattern", body), 400, "VALIDATION_ERROR")
    assert list(error["details"]["fields"]) == ["predicate"]
    assert client.ask("p", "?x") == [["a"]]


def test_a_bulk_of_bare_facts_is_stored_like_any_other(client):
    bare = [{"predicate": "b", "args": ["x", str(i % 3)]} for i in range(5)] + [
        {"predicate": "c", "args": ["y"]}
    ]
    found = client.post("/assert/facts", {"facts": bare}).get_json()
    assert (found["asserted"], found["updated"], found["failed"], found["errors"]) == (4, 2, 0, [])
    assert client.ask("b", "x", "?n") == [["x", "0"], ["x", "1"], ["x", "2"]]
    variable, no_name = (
        {"predicate": "b", "args": ["?v"]},
        {"predicate": "b(x)", "args": ["a", "b"]},
    )
    for odd, place in ((variable, "args[0]"), (no_name, "predicate")):
        answer = client.post("/assert/facts", {"facts": [*bare, odd]})
        assert answer.status_code == 400
        assert f"facts[6].{place}" in answer.get_json()["details"]["fields"]
    mixed = [
        {"predicate": "b", "args": ["x", 7]},
        {"predicate": "on", "args": []},
        {"predicate": "c", "args": ["é"]},
    ]
    assert client.post("/assert/facts", {"facts": mixed}).get_json()["asserted"] == 3
    assert client.ask("b", "x", "7") == [["x", "7"]]


@pytest.mark.parametrize(("path", "field"), [("/teach", "text"), ("/execute", "command")])
def test_metadata_is_an_annotation_of_a_text(client, path, field):
    text = """p(a) [metadata='{"source": {"page": 3}}', confidence=0.5]."""
    assert client.post(path, {field: text}).status_code == 200
    (row,) = client.post("/query", {"predicate": "p", "args": ["?x"]}).get_json()
    assert (row["metadata"], row["confidence"]) == ({"source": {"page": 3}}, 0.5)
    refused = client.post(path, {field: "p(b) [metadata='[1]']."})
    assert refused.status_code == 400
    (error,) = refused.get_json()["details"]["errors"]
    assert (error["column"], error["code"]) == (16, "bad-annotation")
