"""Reading commands: formats, limits and counts; and the commands for what is stored."""

from __future__ import annotations

import csv
import io
import json

import pytest
from support.commands import kbcore
from support.servers import Server

import kbcore as library
from kbcore.language.dump import DUMP_FORMATS
from kbcore.language.dumped_sets import END, HEAD


def test_answers_as_table_csv_json_count(where):
    kbcore("tell", *where, "age(ann, 41)", 'age("Bo, \\"B\\"", 7) [confidence=0.5]', "old(ann)")
    ask = ("ask", "age(?who, ?years)", *where)
    assert kbcore(*ask).stdout == 'age("Bo, \\"B\\"", 7)\nage(ann, 41)\n'
    assert kbcore(*ask, "--table").stdout == (
        'who      years\n-------  -----\nBo, "B"      7\nann         41\n'
    )
    rows = list(csv.reader(io.StringIO(kbcore(*ask, "--csv").stdout)))
    assert rows == [["who", "years"], ['Bo, "B"', "7"], ["ann", "41"]]
    (first,) = json.loads(kbcore(*ask, "--json", "--limit", "1").stdout)
    assert first["bindings"] == {"?who": 'Bo, "B"', "?years": "7"}
    assert (first["predicate"], first["confidence"]) == ("age", 0.5)
    assert kbcore(*ask, "--count").stdout == "2\n"
    assert kbcore("ask", "age(zoe, ?x)", *where, "--count", expect=1).stdout == "0\n"
    assert kbcore("ask", "age(zoe, ?x)", *where, "--json", expect=1).stdout == "[]\n"
    assert kbcore("ask", "age(?x, 41).", *where, "--csv").stdout == "x\nann\n"
    assert kbcore("ask", "age(ann, 41)", *where, "--table").stdout == (
        "answer\n------------\nage(ann, 41)\n"
    )


def test_goals_of_several_literals(where):
    kbcore("tell", *where, "parent(ann, bob)", "parent(bob, cid)", "age(cid, 7)", "age(bob, 40)")
    goal = "?- parent(?x, ?y), age(?y, ?n), ?n < 18."
    assert kbcore("ask", goal, *where).stdout == "?x = bob, ?y = cid, ?n = 7\n"
    assert kbcore("ask", goal, *where, "--csv").stdout == "x,y,n\nbob,cid,7\n"
    assert json.loads(kbcore("ask", goal, *where, "--json").stdout) == [
        {"bindings": {"?x": "bob", "?y": "cid", "?n": "7"}}
    ]
    assert kbcore("ask", "parent(ann, bob), age(bob, ?_)", *where).stdout == "yes\n"
    assert kbcore("ask", "parent(ann, ?x), age(?x, 1)", *where, expect=1).stdout == ""
    wrong = kbcore("ask", "?-  parent(?x, ?y), age(?y", *where, expect=1).stderr
    assert wrong.startswith("goal:1:24: error[K008]: ")
    assert "    1 | ?-  parent(?x, ?y), age(?y" in wrong
    assert "one literal" in kbcore("ask", "p(?x), q(?x)", "--scope", "*", *where, expect=1).stderr


def test_values_that_cannot_be_computed_are_said(where):
    kbcore("teach", *where, "n(9223372036854775807). n(5). p(?y) :- n(?x), ?y = ?x + 1.")
    done = kbcore("ask", "p(?x)", *where)
    assert done.stdout == "p(6)\n"
    assert done.stderr.startswith(
        "kbcore: 1 value could not be computed, because of a division by zero,"
    )
    assert kbcore("ask", "n(?x)", *where).stderr == ""


def test_tell_and_teach_take_facts_and_rules(where):
    both = ("p(a)", "q(?x) :- p(?x)  % a comment")
    assert kbcore("tell", *where, *both).stdout == "1 stored\nq(?x) :- p(?x).\n"
    assert kbcore("teach", *where, "p(b)", "r(?x) :- q(?x)").stdout == "1 stored\nr(?x) :- q(?x).\n"
    assert kbcore("ask", "r(?x)", *where, "--count").stdout == "2\n"
    strict = kbcore("tell", *where, "--strict", "p(c)", "s(?x) :- p(?x), p(?y)", expect=1).stderr
    assert strict.startswith("statements:2:1: warning: ")
    assert kbcore("ask", "p(c)", *where, expect=1).stdout == ""


def test_query_lists_stored_facts_only(where):
    kbcore("tell", *where, "p(a)", "~p(b)", "q(?x) :- p(?x)", "p(c) [scope=s, confidence=0.25]")
    assert kbcore("query", "p(?x)", *where).stdout == "p(a)\nnot p(b)\n"
    assert kbcore("query", "~p(?x)", *where).stdout == "not p(b)\n"
    assert kbcore("query", "q(?x)", *where, expect=1).stdout == ""
    assert kbcore("query", "q(?x, 'b, c')", "--csv", *where, expect=1).stdout == "x,arg2\n"
    assert kbcore("query", "zero", "--json", *where, expect=1).stdout == "[]\n"
    everything = kbcore("query", "p(?item)", "--scope", "*", "--csv", *where).stdout
    assert everything == "item,negated,scope,confidence\na,,,\nb,true,,\nc,,s,0.25\n"
    assert kbcore("query", "p(?x)", "--limit", "1", "--count", *where).stdout == "1\n"


def test_predicates_and_rules(where):
    kbcore("tell", *where, "p(a)", "p(b)", "@named: q(?x) :- p(?x)", "r(?x) :- q(?x) [scope=s]")
    assert kbcore("predicates", *where).stdout == "p/1  2 facts, 0 rules\nq/1  0 facts, 1 rule\n"
    output = kbcore("predicates", "--csv", *where).stdout
    assert output == "predicate,arity,facts,rules\np,1,2,0\nq,1,0,1\n"
    assert len(kbcore("rules", *where).stdout.splitlines()) == 2
    rows = json.loads(kbcore("rules", "--json", *where).stdout)
    assert {row["scope"] for row in rows} == {None, "s"}
    assert kbcore("rules", "--count", "--scope", "t", *where).stdout == "1\n"


def test_forget(where):
    kbcore("tell", *where, "p(a)", "p(b)", "p(c)", "~p(d)", "@r: q(?x) :- p(?x)")
    assert kbcore("forget", "p(a)", *where).stdout == "1 retracted, 1 conclusion no longer holds\n"
    assert kbcore("forget", "p(zoe)", "nothing(?x)", *where).stdout == "0 retracted\n"
    assert "Rule Retracted" in kbcore("forget", "--rule", "r", *where).stdout
    assert kbcore("forget", "p(?x)", *where).stdout == "3 retracted\n"
    assert kbcore("query", "p(?x)", *where, expect=1).stdout == ""
    assert "--rule ID" in kbcore("forget", "q(?x) :- p(?x)", *where, expect=1).stderr
    assert kbcore("forget", "p(", *where, expect=1).stderr.startswith("fact:1:2: error[")
    assert "FACTS" in kbcore("forget", *where, expect=2).stderr


def test_context_prints_the_text_of_a_prompt(where):
    kbcore("tell", *where, "parent(ann, bob)", "likes(ann, tea)", "anc(?x, ?y) :- parent(?x, ?y)")
    goal = ("context", "--goal", "anc(ann, ?x)", *where)
    text = kbcore(*goal).stdout
    assert "anc(ann, bob)" in text
    assert "likes" not in text
    window = json.loads(kbcore(*goal, "--json").stdout)
    assert window["formattedText"].rstrip("\n") == text.rstrip("\n")
    assert "ann likes tea" in kbcore("context", "--format", "natural", *where).stdout
    wrong = kbcore("context", "--goal", "p(", *where, expect=1).stderr
    assert wrong.startswith("goal:1:2: error[K008]: ")
    empty = kbcore("context", "--goal", "likes(zoe, ?x)", *where)
    assert (empty.stdout, empty.stderr.splitlines()[-1]) == ("", "kbcore: no fact was selected")
    assert "entries" in window
    assert "facts" not in window


def test_status(own_target):
    kbcore("tell", *own_target, "p(a)", "q(?x) :- p(?x)", "p(b) [scope=s]")
    report = json.loads(kbcore("status", "--json", *own_target).stdout)
    assert (report["status"], report["facts"], report["rules"], report["scopes"]) == (
        "healthy",
        1,
        1,
        1,
    )
    assert ("version" in report) == (own_target[0] == "--url")
    assert "facts       1\n" in kbcore("status", *own_target).stdout


def test_deletions_ask_first(where):
    kbcore("tell", *where, "p(a) [scope=s]", "q(b) [validFrom=0, validUntil=1000]")
    asked = kbcore("scope", "delete", "s", *where, expect=1).stderr
    assert asked.startswith("This deletes scope s with its facts and rules. Continue? [y/N]: ")
    assert asked.endswith("kbcore: nothing was changed; scripts answer the question with --yes\n")
    assert "--yes" in kbcore("memory", "decay", *where, expect=1).stderr
    assert kbcore("scope", "list", *where).stdout == "s\n"
    dry = kbcore("memory", "decay", "--dry-run", *where).stdout
    assert dry.endswith("dry run: 1 expired, 0 of low salience\n")
    assert kbcore("memory", "decay", "--yes", *where).stdout.endswith(
        "1 expired, 0 of low salience\n"
    )


STATEMENTS = """
parent(ann, bob). parent(bob, "Zoë K."). ~parent(ann, cy). raining. ~snowing.
'is member of'(ann, "007", 7, -1.5, "", "?x", "a\\"b\\\\c\\nd").
seen(cat) [confidence=0.25, scope=draft, metadata='{"source": "it\\'s", "n": [1, null]}'].
seen(cat) [confidence=0.5].
licence(dora) [validFrom="2025-01-01T00:00:00Z", validUntil="2999-01-01T00:00:00Z"].
@adult: adult(?x) :- age(?x, ?n), ?n >= 18 [confidence=0.5, scope=draft].
total(?x, count(*)) :- parent(?x, ?y).
@phrase parent/2 "{0} is a parent of {1}" "{0} is no parent of {1}".
@phrase seen/1 "{0} was seen" [scope=draft].
"""


def contents(folder):
    """The facts without the times of their creation, and the rules."""
    with library.open_kb(path=folder) as kb:
        facts, rules, phrases, _ = kb.kb.contents()
        rows = []
        for row in facts:
            created = row.pop("createdAt")
            rows.append({**row, "validFrom": row["validFrom"] != created and row["validFrom"]})
        return rows, [(rule.id, rule.scope, rule.text) for rule in (*rules, *phrases)]


@pytest.mark.parametrize("dump_format", DUMP_FORMATS)
def test_a_dump_loads_to_an_equal_base(where, dump_format, tmp_path):
    source, file = tmp_path / "statements.kb", tmp_path / f"dump.{dump_format}"
    source.write_text(STATEMENTS, encoding="utf-8")
    kbcore("load", *where, "--quiet", str(source))
    assert kbcore("dump", *where, str(file)).stderr == f"kbcore: {file}: 13 statements\n"
    printed = kbcore("dump", *where, "--format", dump_format).stdout
    assert printed == file.read_text(encoding="utf-8")
    for folder, given in (("original", source), ("copy", file)):
        kbcore("load", "--quiet", "--storage-dir", str(tmp_path / folder), str(given))
    assert contents(tmp_path / "copy") == contents(tmp_path / "original")
    nowhere = kbcore("dump", *where, str(tmp_path / "no" / "x.kb"), expect=1).stderr
    assert nowhere == f"kbcore: {tmp_path / 'no' / 'x.kb'}: no such file or directory\n"
    drafts = kbcore("dump", *where, "--scope", "draft").stdout.splitlines()
    assert len(drafts) == 3
    assert not [*tmp_path.glob("*.part")]


@pytest.mark.parametrize("dump_format", DUMP_FORMATS)
def test_a_dump_keeps_rule_sets(where, dump_format, tmp_path):
    source, file, other = (tmp_path / name for name in ("a.kb", f"dump.{dump_format}", "b.kb"))
    text = "@module access.\n@strict.\n@input level(who: text, n: number).\nlevel(ann, 3).\n"
    source.write_text(text + "may(?x) :- level(?x, ?n), ?n >= 3.\n", encoding="utf-8")
    kbcore("deploy", *where, str(source))
    source.write_text(text + "may(?x) :- level(?x, ?n), ?n >= 2.\n", encoding="utf-8")
    kbcore("deploy", *where, "--message", "lower", "--revision", "r7", str(source))
    kbcore("tell", *where, "level(ann, 3)", "also(?x) :- may(?x)")
    kbcore("dump", *where, str(file))
    copy = ("--storage-dir", str(tmp_path / "copy"))
    loaded = kbcore("load", *copy, str(file)).stdout
    assert loaded.startswith(f"{file}: 1 fact, 3 rules, 1 fact already known")
    with library.open_kb(path=tmp_path / "copy") as kb:
        (version,) = kb.rule_set_versions("access")
        assert (version.version, version.message, version.revision) == (2, "lower", "r7")
        contents = kb.rule_set("access")
        assert contents.by_hand == ["level(ann, 3)."]
        assert [each.declaration.is_strict for each in kb.inputs()] == [True]
        assert kb.ask("also(?x)") == [("ann",)]
    other.write_text("p(a).", encoding="utf-8")
    kbcore("deploy", *copy, "--as", "access", str(other))
    refused = kbcore("load", *copy, str(file), expect=1).stderr
    assert "the rule set 'access' has version 3 with other contents" in refused


def test_a_damaged_rule_set_of_a_dump_is_refused_with_its_line(tmp_path):
    file, copy = tmp_path / "a.kb", ("--storage-dir", str(tmp_path / "copy"))
    head = f'{HEAD}{{"name":"a","version":1}}'
    for text, problem in (
        (f"p(a).\n{head}\nq(a).\n", f"{file}:2: error[K048]: the rule set has no line '{END}'"),
        (f"\n{HEAD}{{\n{END}\n", f"{file}:2: "),
        (
            f'{HEAD}{{"name":"a"}}\n{END}\n',
            f"{file}:1: error[K048]: ruleSet.version: must be a whole number from 1",
        ),
        (f"p(a).\n{head}\nq(a).\nq(.\n{END}\n", f"{file}:4:"),
        (f"{head}\nq(a).\n{END}\np(.\n", f"{file}:4:"),
    ):
        file.write_text(text, encoding="utf-8")
        assert problem in kbcore("load", *copy, str(file), expect=1).stderr, text


def test_a_dump_of_several_pages_is_complete(tmp_path, monkeypatch):
    monkeypatch.setattr("kbserver.cli.shared.pages.PAGE_ROWS", 10)
    with Server(tmp_path / "kb") as server:
        where = ("--url", f"http://127.0.0.1:{server.address[1]}")
        file = tmp_path / "edges.csv"
        file.write_text("".join(f"a{n},b\n" for n in range(35)), encoding="utf-8")
        kbcore("load", *where, "--predicate", "edge", str(file))
        lines = kbcore("dump", *where).stdout.splitlines()
    assert sorted(lines) == sorted(f"edge(a{n}, b)." for n in range(35))
