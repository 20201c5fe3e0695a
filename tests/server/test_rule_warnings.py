"""Warnings that depend on more than one rule: from the commands, in the header, and in tool
results.
"""

from __future__ import annotations

import pytest
from support.commands import kbcore
from support.servers import Server

from kbcore import open_kb

TEXT = """\
parent(ann, bob).
p(?x) :- parnet(?x, _).
q(?x) :- parent(?x).
win(?x) :- parent(?x, ?y), not win(?y).
n(?y) :- n(?x), ?y = ?x + 1.
late(?x) :- after(?x).
after(z).
"""
WELL_FOUNDED = "(answers follow the well-founded semantics, includeUndefined shows what is neither true nor false)"
ENDLESS = "(bound it, for instance with ?x < 100, or goals may meet their budget)"
PLACED = [
    "2:10: warning: no facts or rules for parnet/2 (did you mean parent/2?)",
    "3:10: warning: parent has 1 argument here and 2 elsewhere (predicates of different arity are different predicates)",
    f"4:1: warning: recursion through negation: win/1 {WELL_FOUNDED}",
    f"5:1: warning: n/1 recurses through a computed value and may not end {ENDLESS}",
]


@pytest.fixture(params=["server", "folder"])
def where(request, tmp_path):
    if request.param == "folder":
        yield ("--storage-dir", str(tmp_path / "kb"))
    else:
        with Server(tmp_path / "kb") as server:
            yield ("--url", f"http://127.0.0.1:{server.address[1]}")


def test_commands_print_warnings_with_positions(where, tmp_path):
    file = tmp_path / "rules.kb"
    file.write_text(TEXT, encoding="utf-8")
    placed = [f"{file}:{line}" for line in PLACED]
    for command in ("load", "run"):
        failed = kbcore(command, *where, "--strict", str(file), expect=1).stderr.splitlines()
        assert failed[:4] == placed
        assert "4 warnings, treated as errors by --strict; nothing was stored" in failed[4]
        assert kbcore("ask", *where, "parent(?x, ?y)", expect=1).stdout == ""
    for command in ("load", "run"):
        assert kbcore(command, *where, str(file)).stderr.splitlines() == placed
    taught = kbcore("teach", *where, "r(?x) :- parnet(?x, _)", "s(?x) :- r(?x)")
    assert (
        taught.stderr
        == "rules:1:10: warning: no facts or rules for parnet/2 (did you mean parent/2?)\n"
    )


def test_strict_checks_all_files_first(where, tmp_path):
    first, second = tmp_path / "first.kb", tmp_path / "second.kb"
    facts = "".join(f"edge(a{n}, a{n + 1}).\n" for n in range(6000))
    first.write_text("p(?x) :- later(?x).\n" + facts, encoding="utf-8")
    second.write_text(
        facts.replace("edge", "link") + "later(?x) :- edge(?x, _).\nq(?x) :- nothing(?x).\n",
        encoding="utf-8",
    )
    failed = kbcore("load", *where, "--strict", "--quiet", str(first), str(second), expect=1)
    assert (
        failed.stderr.splitlines()[0]
        == f"{second}:6002:10: warning: no facts or rules for nothing/1"
    )
    assert "1 warning, treated as errors by --strict; nothing was stored" in failed.stderr
    assert kbcore("ask", *where, "edge(a1, ?x)", expect=1).stdout == ""
    second.write_text("later(?x) :- edge(?x, _).\n", encoding="utf-8")
    assert kbcore("load", *where, "--strict", "--quiet", str(first), str(second)).stderr == ""
    assert kbcore("ask", *where, "p(a1)").stdout == "p(a1)\n"


def test_rules_in_json_lines_have_line_positions(tmp_path):
    file = tmp_path / "rules.jsonl"
    rule = '{"head": {"predicate": "p", "args": ["?x"]}, "body": [{"predicate": "q", "args": ["?x", "?y"]}]}'
    file.write_text('{"predicate": "a", "args": ["b"]}\n' + rule + "\n", encoding="utf-8")
    with open_kb() as kb:
        shown = [warning.display("f") for warning in kb.load(file).warnings]
    assert shown == [
        'f:2:1: warning: the variable ?y is used once (write _ for "any", or ?_y to keep the name)',
        "f:2:1: warning: no facts or rules for q/2",
    ]


def test_load_warns_about_predicates_that_stay_undefined():
    with open_kb() as kb:
        kb.teach("@named: stored(?x) :- base(?x).")
        text = (
            "p(?x) :- stored(?x), late(?x).\n"
            + "".join(f"e(a{n}).\n" for n in range(6000))
            + "late(a1).\n"
        )
        assert kb.load(text).warnings == ()
        assert [w.display("f") for w in kb.load("base(?x) :- e(?x), not stored(?x).").warnings] == [
            f"f:1:1: warning: recursion through negation: base/1, stored/1 {WELL_FOUNDED}"
        ]


def test_the_header_has_the_new_warnings(client):
    client.tell("parent", "ann", "bob")
    header = client.post("/teach", {"text": "p(?x) :- parnet(?x, ?y)."}).headers["X-Rule-Warnings"]
    assert header == (
        'the variable ?y is used once (write _ for "any", or ?_y to keep the name); '
        "no facts or rules for parnet/2 (did you mean parent/2?)"
    )
    assert (
        "X-Rule-Warnings"
        not in client.post("/teach", {"text": "p(?x) :- q(?x). q(?x) :- parent(?x, _)."}).headers
    )


def test_a_text_to_execute_may_define_a_predicate_later(client):
    done = client.post(
        "/execute", {"command": "p(?x) :- q(?x). ?- p(?x). q(a). r(?x) :- s(?x). ?- p(?x)."}
    )
    assert done.get_json()["warnings"] == ["no facts or rules for s/1"]
    assert "X-Unknown-Predicates" not in done.headers
    asked = client.post(
        "/execute",
        {"command": "likes(ann, tea). ?- lykes(?x, ?y). ?- likes(?x, ?y). ?- likes(bob, ?x)."},
    )
    assert asked.headers["X-Unknown-Predicates"] == "lykes/2 (did you mean likes/2?)"


def test_run_reports_unknown_predicates(where, tmp_path):
    file = tmp_path / "ask.kb"
    file.write_text("likes(ann, tea).\n?- lykes(?x, ?y).\n?- likes(?x, ?y).\n", encoding="utf-8")
    done = kbcore("run", *where, str(file))
    assert done.stderr == "kbcore: no fact or rule for lykes/2 (did you mean likes/2?)\n"


def test_tool_results_have_the_warnings(client):
    arguments = {"text": "p(?x) :- q(?x, ?y)."}
    message = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "teach", "arguments": arguments},
    }
    answer = client.post("/mcp", message, headers={"Accept": "application/json"}).get_json()
    assert answer["result"]["structuredContent"]["warnings"] == [
        'the variable ?y is used once (write _ for "any", or ?_y to keep the name)',
        "no facts or rules for q/2",
    ]
