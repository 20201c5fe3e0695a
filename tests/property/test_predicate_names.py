"""A predicate can have any name: reserved words, names of builtins, operators, in every
interface.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.agents import Agent
from support.http import NOW, Client, serve_in_memory

import kbcore
from kbcore.durable.records import decode_rule, encode_rule
from kbcore.state.rulebook import stored_rule
from kbplanner.ir.operators import AGGREGATES, COMPARISONS, FUNCTIONS, RESERVED
from kbplanner.ir.terms import Atom, Comparison, Literal, Rule, Variable
from kbplanner.syntax.jsonform import rule_from_json
from kbplanner.syntax.jsonwriter import rule_to_json
from kbplanner.syntax.parser import parse_rule
from kbplanner.syntax.printer import print_item, print_row

WORDS = (
    "not",
    "naf",
    "true",
    "false",
    "_",
    ":-",
    "~",
    "@",
    "ASSERT",
    "FORALL",
    "INFER",
    "QUERY",
    "RETRACT",
    "goal",
    "*",
)
NAMES = sorted(
    {
        *RESERVED,
        *FUNCTIONS,
        *AGGREGATES,
        *FUNCTIONS,
        *WORDS,
        "a b",
        "it's",
        '"',
        "a/b",
        "%",
        "日本",
        "p__bf",
    }
)
ARGS = ["a", "b"]
X, Y = Variable("x"), Variable("y")


def quoted(name: str, *args: Any) -> str:
    return print_item(Literal(Atom(name, args)))


def body_atom(name: str, *args: str) -> dict[str, Any]:
    found = {"predicate": name, "args": list(args)}
    return {**found, "builtin": False} if name in COMPARISONS else found


def rules_of(name: str) -> list[dict[str, Any]]:
    """Rules that derive `name` from `q`, and `h` and `n` from `name` and its absence."""
    return [
        {"head": {"predicate": name, "args": ["?x"]}, "body": [{"predicate": "q", "args": ["?x"]}]},
        {"head": {"predicate": "h", "args": ["?x", "?y"]}, "body": [body_atom(name, "?x", "?y")]},
        {
            "head": {"predicate": "n", "args": ["?x"]},
            "body": [
                {"predicate": "q", "args": ["?x"]},
                {**body_atom(name, "?x", "b"), "negated": True},
            ],
        },
    ]


def args_of(client: Client, path: str, body: dict[str, Any]) -> list[list[str]]:
    response = client.post(path, body)
    assert response.status_code == 200, response.text
    return [row["args"] for row in response.get_json()]


def ok(
    client: Client, path: str, body: dict[str, Any], headers: dict[str, str] | None = None
) -> Any:
    response = client.post(path, body, headers)
    assert response.status_code == 200, response.text
    return response


@pytest.mark.parametrize("name", NAMES)
def test_over_http(name: str) -> None:
    atom = {"predicate": name, "args": ARGS}
    goal = {"predicate": name, "args": ["?x", "?y"]}
    with serve_in_memory() as served:
        client = served.client
        assert ok(client, "/tell", atom).text == f"Fact Asserted: {name}(a, b)"
        assert (
            ok(
                client, "/assert/facts", {"facts": [atom, {"text": quoted(name, "c", "d")}]}
            ).get_json()["asserted"]
            == 1
        )
        assert ok(client, "/tell", {"text": quoted(name, "a", "b")}).status_code == 200
        client.tell("q", "a")
        client.tell("q", "z")
        for rule in rules_of(name):
            ok(client, "/teach", rule)
        transaction = {"X-Transaction-ID": client.post("/tx/begin", {}).text}
        ok(client, "/tell", {"predicate": name, "args": ["e", "f"]}, transaction)
        assert len(ok(client, "/ask", goal, transaction).get_json()) == 3
        ok(client, "/forget", {"predicate": name, "args": ["e", "f"]}, transaction)
        assert client.post(f"/tx/commit/{transaction['X-Transaction-ID']}", {}).status_code == 200
        two = [["a", "b"], ["c", "d"]]
        for path in ("/ask", "/infer", "/query"):
            assert args_of(client, path, goal) == two
            assert args_of(client, path, {"text": quoted(name, X, Y)}) == two
        assert args_of(client, "/ask", {"predicate": "h", "args": ["?x", "?y"]}) == two
        assert args_of(client, "/ask", {"predicate": name, "args": ["?x"]}) == [["a"], ["z"]]
        assert args_of(client, "/ask", {"predicate": "n", "args": ["?x"]}) == [["z"]]
        assert len(ok(client, "/ask", {**goal, "withProof": True}).get_json()) == 2
        assert print_row(name, ARGS, False) in ok(client, "/explain", goal).text
        assert len(args_of(client, "/memory/recall", {**goal, "timestamp": NOW})) == 2
        assert (
            ok(client, "/aggregate", {"predicate": name, "op": "COUNT"}).get_json()["result"] == 2
        )
        for each in (goal, quoted(name, X, Y)):
            window = ok(client, "/memory/context", {"goals": [each]}).get_json()
            assert [entry["args"] for entry in window["entries"] if entry["predicate"] == name][
                :2
            ] == two
        shown = client.get("/rules").get_json()["rules"]
        for rule in shown:
            for body in ({"text": rule["text"]}, {"head": rule["head"], "body": rule["body"]}):
                again = client.post("/teach", body, {"X-Tenant-ID": "copy"})
                assert again.text == f"Rule Asserted: {rule['text']}"
        copied = client.get("/rules", {"X-Tenant-ID": "copy"}).get_json()["rules"]
        assert [(rule["text"], rule["body"]) for rule in copied] == [
            (rule["text"], rule["body"]) for rule in shown
        ]
        executed = ok(client, "/execute", {"command": f"?- {quoted(name, X, Y)}."}).get_json()
        assert [answer["args"] for answer in executed["answers"]] == two
        assert ok(client, "/forget", atom).headers["X-Retracted-Count"] == "1"
        assert ok(client, "/retract/pattern", goal).get_json()["retracted"] == 1
        agent = Agent(client)
        assert agent.call("tell", **atom)["structuredContent"]["asserted"] == 1
        assert agent.call("bulk_assert", facts=[atom])["structuredContent"]["updated"] == 1
        assert agent.call("ask", **goal)["structuredContent"]["count"] == 1
        assert agent.call("query", text=quoted(name, X, Y))["structuredContent"]["count"] == 1
        assert agent.call("forget", **atom)["structuredContent"]["retracted"] == 1


@pytest.mark.parametrize("reopen", ["log", "snapshot"])
def test_embedded_and_reopened(tmp_path: Path, reopen: str) -> None:
    folder = tmp_path / "kb"
    csv, lines, text = tmp_path / "facts.csv", tmp_path / "facts.jsonl", tmp_path / "facts.kb"
    lines.write_text(
        "\n".join(json.dumps({"predicate": name, "args": ["j", "l"]}) for name in NAMES)
    )
    text.write_text("\n".join(f"{quoted(name, 't', 'x')}." for name in NAMES))
    with kbcore.open_kb(path=folder) as kb:
        for name in NAMES:
            kb.tell(name, ARGS)
            kb.tell_many(name, [("m", "1"), ("m", "2")])
            kb.tell(quoted(name, "one"))
            kb.teach(
                f"{quoted(name, X)} :- q(?x).\nh({X}) :- {quoted(name, X, Y)}, contains(?y, b)."
            )
            csv.write_text("c,v\n")
            kb.load(csv, predicate=name)
        kb.load(lines)
        kb.load(text)
        kb.tell("q", ["two"])
        if reopen == "log":
            kb._runtime.system.committer.bytes = 0  # no snapshot at this stop
    with kbcore.open_kb(path=folder) as kb:
        assert kb.ask("h(?x)") == [("a",)]
        for name in NAMES:
            found = [("a", "b"), ("c", "v"), ("j", "l"), ("m", "1"), ("m", "2"), ("t", "x")]
            assert kb.ask(name, ["?x", "?y"]) == found, name
            assert kb.query(quoted(name, X, Y)) == found
            assert kb.ask(quoted(name, X)) == [("one",), ("two",)]
            assert kb.retract(name, ["a", "b"]).retracted == 1
            assert kb.retract(name, ["?x", "?y"]).retracted == 5


names = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0()"), min_size=1, max_size=6
).filter(lambda name: not name.startswith("?"))


@given(st.sampled_from(NAMES) | names, st.sampled_from(NAMES) | names, st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_rule_is_the_same_in_text_in_json_and_in_the_log(
    head: str, name: str, positive: bool, negated: bool
) -> None:
    test = Comparison("contains", X, "a", negated)
    body = (Literal(Atom("q", (X,))), Literal(Atom(name, (X, "b"), positive), negated), test)
    rule = Rule(Atom(head, (X,), positive), body)
    assert rule_from_json(json.loads(json.dumps(rule_to_json(rule)))) == rule
    assert decode_rule(json.loads(json.dumps(encode_rule(stored_rule(rule))))).rule == rule


def test_rules_of_earlier_logs_keep_their_meaning() -> None:
    """Earlier versions wrote rules as text as well, with builtins unquoted, and let any character
    into a name.
    """
    found = decode_rule(
        {
            "text": 'p(?x) :- q(?x), contains(?x, "a b"), not starts_with(?x, c), ?n = length(?x), ?n > 3.'
        }
    ).rule
    assert [type(item) for item in found.body] == [Literal, *[Comparison] * 4]
    assert found == parse_rule(
        'p(?x) :- q(?x), contains(?x, "a b"), not starts_with(?x, c), ?n = length(?x), ?n > 3.'
    )
    old = decode_rule(
        {"text": "before(?x, ?y) :- after(?y, ?x), range(?x), not starts(?x, ?y, a, b)."}
    )
    assert old.rule.head == Atom("before", (X, Y))
    assert old.rule.body == (
        Literal(Atom("after", (Y, X))),
        Literal(Atom("range", (X,))),
        Literal(Atom("starts", (X, Y, "a", "b")), negated=True),
    )
    assert decode_rule(encode_rule(old)) == old
    assert decode_rule({"text": "'p(x)'(?x) :- '?q'(?x)."}).rule.head == Atom("p(x)", (X,))
