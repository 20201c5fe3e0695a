"""Previews over HTTP: what a change would make true, false or undefined, and that nothing is
stored.
"""

from __future__ import annotations

import pytest
from support.http import Client, Served, error_of, serve_in_memory

RULES = """
grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).
@orphan: orphan(?x) :- person(?x), not parent(_, ?x).
"""


@pytest.fixture
def family(client: Client) -> Client:
    assert client.post("/teach", {"text": RULES}).status_code == 200
    for name in ("ann", "bob", "cid"):
        client.tell("person", name)
    client.tell("parent", "ann", "bob")
    client.tell("parent", "bob", "cid")
    return client


def preview(client: Client, **body: object) -> dict:
    response = client.post("/preview", body)
    assert response.status_code == 200, response.get_json()
    return response.get_json()


def texts(changes: list[dict]) -> list[str]:
    return [change["text"] for change in changes]


def test_what_becomes_true(family: Client) -> None:
    answer = preview(family, tell="parent(cid, dee).")
    assert answer == {
        "becomesTrue": [
            {
                "predicate": "parent",
                "args": ["cid", "dee"],
                "negated": False,
                "scope": None,
                "text": "parent(cid, dee)",
                "stored": True,
                "was": "false",
            },
            {
                "predicate": "grandparent",
                "args": ["bob", "dee"],
                "negated": False,
                "scope": None,
                "text": "grandparent(bob, dee)",
                "stored": False,
                "was": "false",
            },
        ],
        "becomesFalse": [],
        "becomesUndefined": [],
        "counts": {"becomesTrue": 2, "becomesFalse": 0, "becomesUndefined": 0},
        "byPredicate": [
            {
                "predicate": name,
                "arity": 2,
                "negated": False,
                "scope": None,
                "becomesTrue": 1,
                "becomesFalse": 0,
                "becomesUndefined": 0,
            }
            for name in ("parent", "grandparent")
        ],
        "warnings": [],
        "truncated": False,
    }


@pytest.mark.parametrize(
    "forget",
    [
        "parent(ann, bob)",
        ["parent(ann, ?x)"],
        [{"predicate": "parent", "args": ["ann", None]}],
        [{"text": "parent(ann, bob)"}],
    ],
)
def test_what_falls_before_a_retraction_is_confirmed(family: Client, forget: object) -> None:
    answer = preview(family, forget=forget)
    assert texts(answer["becomesFalse"]) == ["parent(ann, bob)", "grandparent(ann, cid)"]
    assert [change["stored"] for change in answer["becomesFalse"]] == [True, False]
    assert [(change["text"], change["was"]) for change in answer["becomesTrue"]] == [
        ("orphan(bob)", "false")
    ]


def test_an_edit_is_a_retraction_and_an_assertion(family: Client) -> None:
    answer = preview(
        family, forget=["parent(bob, cid)"], tell=[{"predicate": "parent", "args": ["ann", "cid"]}]
    )
    assert texts(answer["becomesTrue"]) == ["parent(ann, cid)"]
    assert texts(answer["becomesFalse"]) == ["parent(bob, cid)", "grandparent(ann, cid)"]


def test_a_rule_is_replaced(family: Client) -> None:
    rule = "@orphan: orphan(?x) :- person(?x), not parent(?x, _)."
    error_of(family.post("/preview", {"teach": rule}), 409, "CONFLICT")
    answer = preview(family, forgetRules=["orphan"], teach=rule)
    assert texts(answer["becomesTrue"]) == ["orphan(cid)"]
    assert texts(answer["becomesFalse"]) == ["orphan(ann)"]
    gone = preview(family, forgetRules="grandparent(?a, ?c) :- parent(?a, ?b), parent(?b, ?c).")
    assert texts(gone["becomesFalse"]) == ["grandparent(ann, cid)"]
    error_of(family.post("/preview", {"forgetRules": ["none"]}), 404, "NOT_FOUND")


def test_undefined_conclusions_have_their_own_list(client: Client) -> None:
    client.post("/teach", {"text": "win(?x) :- move(?x, ?y), not win(?y). move(a, b)."})
    answer = preview(client, tell="move(b, a).")
    assert [(change["text"], change["was"]) for change in answer["becomesUndefined"]] == [
        ("win(a)", "true"),
        ("win(b)", "false"),
    ]
    assert texts(answer["becomesTrue"]) == ["move(b, a)"]
    client.tell("move", "b", "a")
    answer = preview(client, forget=["move(a, b)"])
    assert [(change["text"], change["was"]) for change in answer["becomesTrue"]] == [
        ("win(b)", "undefined")
    ]
    assert [(change["text"], change["was"]) for change in answer["becomesFalse"]] == [
        ("move(a, b)", "true"),
        ("win(a)", "undefined"),
    ]


def test_scopes(family: Client) -> None:
    family.tell("person", "eve", scope="s")
    answer = preview(family, tell="parent(x, eve).", scope="s")
    assert [(change["text"], change["scope"]) for change in answer["becomesFalse"]] == [
        ("orphan(eve)", "s")
    ]
    everywhere = preview(family, teach="known(?x) :- person(?x).")
    assert [(row["scope"], row["becomesTrue"]) for row in everywhere["byPredicate"]] == [
        (None, 3),
        ("s", 1),
    ]
    assert preview(family, teach="known(?x) :- person(?x).", scope="s")["counts"] == {
        "becomesTrue": 1,
        "becomesFalse": 0,
        "becomesUndefined": 0,
    }


def test_lists_are_limited_and_counts_are_not(family: Client) -> None:
    answer = preview(family, teach="known(?x) :- person(?x).", limit=2)
    assert texts(answer["becomesTrue"]) == ["known(ann)", "known(bob)"]
    assert answer["counts"]["becomesTrue"] == answer["byPredicate"][0]["becomesTrue"] == 3
    assert preview(family, teach="known(?x) :- person(?x).", limit=0)["becomesTrue"] == []


def test_warnings_are_those_of_teaching(family: Client) -> None:
    rule = "known(?x) :- persn(?x)."
    (warning,) = preview(family, teach=rule)["warnings"]
    assert warning.startswith("no facts or rules for persn/1")


def test_nothing_is_stored_and_nothing_reported(family: Client, served: Served) -> None:
    def state() -> list:
        tenant = served.runtime.read_tenant("default", "t")
        return [
            *(family.get(path).get_json() for path in ("/predicates", "/rules", "/scopes")),
            family.post("/query", {"predicate": "parent", "args": ["?x", "?y"]}).get_json(),
            (tenant.generation, tenant.version, tenant.plan_version, tenant.seq),
            len(served.store.records),
        ]

    before = state()
    commits: list = []
    unsubscribe = served.runtime.feed.subscribe(commits.append, "default", "t")
    preview(
        family,
        tell="parent(zed, ann). person(new).",
        teach="fresh(?x) :- person(?x).",
        forget=["parent(ann, bob)"],
        forgetRules=["orphan"],
    )
    assert state() == before
    assert commits == []
    unsubscribe()
    assert family.ask("parent", "?x", "?y") == [["ann", "bob"], ["bob", "cid"]]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "tell"),
        ({"scope": "s"}, "tell"),
        ({"tell": 5}, "tell"),
        ({"tell": [5]}, "tell[0]"),
        ({"tell": [{"predicate": "p"}]}, "tell[0].args"),
        ({"tell": [{"predicate": "p", "args": ["?x"]}]}, "tell[0].args[0]"),
        ({"tell": "?- p(?x)."}, "tell"),
        ({"teach": ""}, "teach"),
        ({"forget": [{"args": ["a"]}]}, "forget[0].predicate"),
        ({"forget": ["p(a, "]}, "forget[0]"),
        ({"forgetRules": 5}, "forgetRules"),
        ({"forgetRules": [5]}, "forgetRules"),
        ({"tell": "p(a).", "limit": -1}, "limit"),
        ({"tell": "p(a).", "limit": 1001}, "limit"),
        ({"tell": "p(a).", "scope": "*"}, "scope"),
    ],
)
def test_refusals_name_the_field(client: Client, body: dict, field: str) -> None:
    error = error_of(client.post("/preview", body), 400, "VALIDATION_ERROR")
    assert field in error["details"]["fields"]


@pytest.mark.parametrize(
    "text", ["p(?x) :- q(?y).", "p(?x :- q(?x).\nr(", "p(count(?x)) :- p(?x)."]
)
def test_invalid_rules_have_the_diagnostics_of_teaching(client: Client, text: str) -> None:
    taught, previewed = (
        client.post("/teach", {"text": text}),
        client.post("/preview", {"teach": text}),
    )
    assert taught.status_code == previewed.status_code == 400
    assert previewed.get_json() == taught.get_json()


def test_a_preview_is_no_part_of_a_transaction(client: Client) -> None:
    inside = {"X-Transaction-ID": client.post("/tx/begin").text}
    error_of(client.post("/preview", {"tell": "p(a)."}, inside), 400, "VALIDATION_ERROR")


def test_the_budget_ends_a_preview() -> None:
    with serve_in_memory() as served:
        client = served.client
        client.post("/teach", {"text": "n(0). n(?y) :- n(?x), ?x < 1000000, ?y = ?x + 1."})
        answer = preview(client, tell=["m(0)"], teach="m(?y) :- n(?y).", maxRows=1000)
        assert answer["truncated"] is True
        assert answer["counts"]["becomesTrue"] == 0
