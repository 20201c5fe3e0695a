"""`POST /execute`, `execute()` and `kbcore run`: statements in order, all or nothing."""

from __future__ import annotations

import pytest
from click.testing import CliRunner
from support.http import ROW_KEYS, Client, Served, error_of

import kbcore
from kbcore.errors import BudgetExceeded, Conflict, InvalidInput
from kbcore.reason.budget import RequestLimits
from kbserver.cli import cli

TEXT = """
parent(ann, bob).
?- parent(ann, ?who).
parent(ann, cid).
older(?x, ?y) :- parent(?x, ?y).
?- older(ann, ?who).
?- older(?x, bob), not older(?x, zoe).
?- parent(zoe, ?who).
"""

TOLD = """Fact Asserted: parent(ann, bob)
?- parent(ann, ?who).
   parent(ann, bob)
Fact Asserted: parent(ann, cid)
Rule Asserted: older(?x, ?y) :- parent(?x, ?y).
?- older(ann, ?who).
   older(ann, bob)
   older(ann, cid)
?- older(?x, bob), not older(?x, zoe).
   ?x = ann
?- parent(zoe, ?who).
   no"""


def execute(client: Client, text: str, headers=None, **more):
    return client.post("/execute", {"command": text, **more}, headers)


def test_statements_are_executed_in_order(client: Client):
    found = execute(client, TEXT).get_json()
    assert found["result"] == TOLD
    assert [(one["question"], one["bindings"]) for one in found["answers"]] == [
        (0, {"?who": "bob"}),
        (1, {"?who": "bob"}),
        (1, {"?who": "cid"}),
        (2, {"?x": "ann"}),
    ]
    assert list(found["answers"][0]) == ["question", "bindings", *ROW_KEYS]
    assert [one["answers"] for one in found["questions"]] == [1, 2, 1, 0]
    assert found["asserted"] == 2
    assert client.ask("older", "ann", "?x") == [["ann", "bob"], ["ann", "cid"]]


def test_a_text_is_one_log_record(served: Served):
    before = len(served.store.records)
    execute(served.client, TEXT)
    assert len(served.store.records) == before + 1


@pytest.mark.parametrize("wrong", ["q(a", "q(?x).", "q(?x) :- r(?y).", 'q(a) [scope="a b"].'])
def test_an_error_changes_nothing(served: Served, wrong: str):
    before = len(served.store.records)
    error_of(execute(served.client, f"p(a).\n?- p(a).\n{wrong}"), 400, "VALIDATION_ERROR")
    assert served.client.ask("p", "?x") == []
    assert len(served.store.records) == before


def test_an_error_has_line_and_column(client: Client):
    found = error_of(execute(client, "p(a).\n  q(b"), 400, "VALIDATION_ERROR")
    assert (found["details"]["errors"][0]["line"], found["details"]["errors"][0]["column"] > 1) == (
        2,
        True,
    )


@pytest.mark.parametrize(
    "body",
    [{}, {"command": 7}, {"command": "p(a).", "scope": "*"}, {"command": "p(a).", "timeoutMs": 0}],
)
def test_bad_bodies(client: Client, body):
    error_of(client.post("/execute", body), 400, "VALIDATION_ERROR")


def test_a_query_over_its_budget_changes_nothing(served: Served):
    text = "n(0).\nn(?y) :- n(?x), ?y = ?x + 1.\n?- n(?x).\nn(1)."
    error_of(execute(served.client, text, maxRows=1000), 422, "BUDGET_EXCEEDED")
    assert served.client.get("/rules").get_json() == {"rules": []}
    assert served.client.post("/query", {"predicate": "n", "args": ["?x"]}).get_json() == []
    assert served.client.post("/tx/begin", {}).status_code == 200


def test_the_scope_applies_to_statements_without_one(client: Client):
    execute(client, "p(a). p(b) [scope=other]. ?- p(?x).", scope="draft")
    assert client.ask("p", "?x", scope="draft") == [["a"]]
    assert client.ask("p", "?x", scope="other") == [["b"]]
    assert client.ask("p", "?x") == []


def test_a_transaction_stages_the_text(client: Client):
    inside = {"X-Transaction-ID": client.post("/tx/begin", {}).text}
    assert execute(client, "p(a). ?- p(?x).", inside).get_json()["answers"][0]["args"] == ["a"]
    assert client.ask("p", "?x") == []
    assert client.post(f"/tx/commit/{inside['X-Transaction-ID']}", {}).status_code == 200
    assert client.ask("p", "?x") == [["a"]]
    error_of(execute(client, "p(b).", inside), 409, "CONFLICT")
    error_of(execute(client, "p(b).", {"X-Transaction-ID": "none"}), 404, "NOT_FOUND")


def test_an_empty_text_does_nothing(client: Client):
    found = execute(client, "% nothing\n").get_json()
    assert (found["result"], found["answers"], found["questions"]) == ("", [], [])


def test_embedded():
    with kbcore.open_kb() as kb:
        assert kb.execute(TEXT).text == TOLD
        with pytest.raises(InvalidInput):
            kb.execute("p(a). ?- p(")
        with pytest.raises(BudgetExceeded):
            kb.kb.execute(
                "m(0). m(?y) :- m(?x), ?y = ?x + 1. ?- m(?x).",
                request_limits=RequestLimits(rows=100),
            )
        with kb.transaction() as inside:
            assert inside.execute("q(a). ?- q(?x).").answers[0]["args"] == ["a"]
            assert list(kb.ask("q(?x)")) == []
        assert list(kb.ask("q(?x)")) == [("a",)]


def test_retries_after_concurrent_changes_are_limited(served: Served, monkeypatch):
    kb = served.runtime.knowledge_base("default", "t")
    kb.execute("p(a).")
    real, tries = type(kb).infer, []

    def infer(self, literal, options):
        found = real(self, literal, options)
        tries.append(1)
        if len(tries) < limit:
            served.client.tell("p", f"other{len(tries)}")
        return found

    monkeypatch.setattr("kbcore.operations.queries.Queries.infer", infer)
    limit = 2
    kb.execute("?- p(?x). q(b).")
    assert len(tries) == 2
    tries.clear()
    limit = 99
    with pytest.raises(Conflict):
        kb.execute("?- p(?x). q(c).")
    assert len(tries) == 3


def test_from_the_command_line(tmp_path):
    file = tmp_path / "family.kb"
    file.write_text(TEXT, encoding="utf-8")
    folder = ["--storage-dir", str(tmp_path / "data")]
    done = CliRunner().invoke(cli, ["run", str(file), *folder])
    assert (done.exit_code, done.output.strip()) == (0, TOLD)
    again = CliRunner().invoke(cli, ["run", "-", *folder], input="?- parent(ann, bob).")
    assert again.output == "?- parent(ann, bob).\n   parent(ann, bob)\n"
    wrong = CliRunner().invoke(cli, ["run", "-", *folder], input="p(a). q(")
    assert wrong.exit_code == 1
    assert wrong.output.startswith("<stdin>:1:8: error[K008]: ")


COMMANDS = """ASSERT parent(ann, bob);
ASSERT parent(ann, cid).
FORALL ?x, ?y { child(?y, ?x) <- parent(?x, ?y), ?x != zed };
ASSERT FORALL ?x, ?y { offspring(?y, ?x) <- parent(?x, ?y) };
INFER child(?who, ann);
QUERY child(?who, ann);
QUERY parent(ann, ?who);
RETRACT parent(ann, bob);
RETRACT parent(ann, bob);
INFER child(?who, ann) % the last command needs no end"""

DONE = """Fact Asserted: parent(ann, bob)
Fact Asserted: parent(ann, cid)
Rule Asserted: child(?y, ?x) :- parent(?x, ?y), ?x != zed.
Rule Asserted: offspring(?y, ?x) :- parent(?x, ?y).
?- child(?who, ann).
   child(bob, ann)
   child(cid, ann)
QUERY child(?who, ann).
   no
QUERY parent(ann, ?who).
   parent(ann, bob)
   parent(ann, cid)
Retracted: parent(ann, bob)
Nothing to retract: parent(ann, bob)
?- child(?who, ann).
   child(cid, ann)"""


def test_commands_are_executed_in_order(client: Client):
    answer = execute(client, COMMANDS).get_json()
    assert answer["result"] == DONE
    assert (answer["asserted"], answer["retracted"], len(answer["rules"])) == (2, 1, 2)
    assert [one["goal"] for one in answer["questions"]] == [
        "child(?who, ann)",
        "child(?who, ann)",
        "parent(ann, ?who)",
        "child(?who, ann)",
    ]
    assert [one["bindings"]["?who"] for one in answer["answers"]] == [
        "bob",
        "cid",
        "bob",
        "cid",
        "cid",
    ]


def test_commands_are_one_change(served: Served):
    before = len(served.store.records)
    execute(served.client, COMMANDS)
    assert len(served.store.records) == before + 1
    execute(served.client, "ASSERT p(a); RETRACT parent(ann, cid); ASSERT q(?x);")
    assert len(served.store.records) == before + 1
    assert served.client.ask("parent", "ann", "?x") == [["ann", "cid"]]
    assert execute(served.client, "RETRACT parent(ann, cid)").get_json()["retracted"] == 1


def test_commands_and_the_rule_language_mix(client: Client):
    text = 'p(a). ASSERT p("x; y"); ?- p(?x).\nRETRACT ~p(a); ASSERT(a). # a fact\nINFER p(?x).'
    assert execute(client, text).status_code == 200
    assert client.ask("ASSERT", "?x") == [["a"]]
    assert client.ask("p", "?x") == [["a"], ["x; y"]]  # ~p(a) was not stored, p(a) stays
    assert client.post("/execute", {"command": "RETRACT p(a);", "scope": "s"}).status_code == 200
    assert client.ask("p", "a") == [["a"]]


@pytest.mark.parametrize(
    ("text", "line", "column", "message"),
    [
        ("p(a).\n  ASSERT FORALL ?x {\n q(?x) <- r(?x };", 3, 12, 'this "(" is never closed'),
        ("ASSERT FORALL ?x { q(?x) <- r(?x);", 1, 33, 'expected "}" at the end of the rule'),
        ("ASSERT FORALL ?x { q(?x) };", 1, 18, 'expected "<-" between the head and the body'),
        ("ASSERT FORALL ?x, { q(?x) <- r(?x) };", 1, 19, 'expected a variable before "{"'),
        ("ASSERT FORALL x { q(?x) <- r(?x) };", 1, 15, "expected variables"),
        ("ASSERT FORALL ?x q(?x);", 1, 15, "FORALL needs variables and a rule in braces"),
        ("FORALL ?x { q(?x) };", 1, 11, 'expected "<-" between the head and the body'),
        ("p(a). FORALL ?x q(?x);", 1, 14, "FORALL needs variables and a rule in braces"),
        ("FORALL p(a);", 1, 8, 'expected ":-" or "." after an atom'),
        ("ASSERT p(?x);", 1, 10, "a fact has no variables"),
        ("\nQUERY p(?x), q(?x);", 2, 1, "QUERY takes one atom"),
        ("QUERY not p(a);", 1, 1, "QUERY takes an atom without `not`"),
        ("p(a).\nRETRACT p(?x);", 2, 1, "a variable names no single fact"),
        ("RETRACT ?x > 1;", 1, 1, "RETRACT takes one atom"),
        ("assert p(a);", 1, 8, 'expected ":-" or "." after an atom'),
    ],
)
def test_an_error_in_a_command_has_its_place_in_the_text(
    served: Served, text: str, line: int, column: int, message: str
):
    before = len(served.store.records)
    answer = error_of(execute(served.client, text), 400, "VALIDATION_ERROR")
    (error,) = answer["details"]["errors"]
    assert (error["line"], error["column"]) == (line, column)
    assert error["message"].startswith(message)
    assert error["source"] == text.split("\n")[line - 1]
    assert len(served.store.records) == before
