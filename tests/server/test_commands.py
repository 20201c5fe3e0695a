"""Commands against a running server and on a storage folder."""

from __future__ import annotations

import json
import sqlite3

from support.commands import kbcore


def test_tell_teach_ask_load(where, tmp_path):
    assert kbcore("tell", *where, "parent(ann, bob)", 'parent(bob, "C D").').stdout == "2 stored\n"
    assert kbcore("tell", *where, "parent(ann, bob)").stdout == "0 stored, 1 already known\n"
    taught = kbcore(
        "teach", *where, "anc(?x,?y) :- parent(?x,?y)", "anc(?x,?z) :- parent(?x,?y), anc(?y,?z)."
    ).stdout
    assert taught == "anc(?x, ?y) :- parent(?x, ?y).\nanc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).\n"
    assert kbcore("ask", *where, "anc(ann, ?who)").stdout == 'anc(ann, "C D")\nanc(ann, bob)\n'
    assert kbcore("ask", *where, "anc(zoe, ?who)", expect=1).stdout == ""
    assert kbcore("ask", *where, "not anc(bob, ann)").stdout == "not anc(bob, ann)\n"
    file = tmp_path / "more.kb"
    file.write_text(
        "".join(f"edge(a{n}, a{n + 1}).\n" for n in range(6000)) + "?- anc(ann, bob).\n",
        encoding="utf-8",
    )
    assert "6,000 facts, 0 rules" in kbcore("load", *where, str(file)).stdout
    assert kbcore("ask", *where, "edge(a5999, ?x)").stdout == "edge(a5999, a6000)\n"


def test_whynot(where):
    kbcore("tell", *where, "parent(ann, bob)", "parent(bob, carl) [confidence=0.5]", "shy(bob)")
    kbcore(
        "teach", *where, "anc(?x,?y) :- parent(?x,?y)", "anc(?x,?z) :- parent(?x,?y), anc(?y,?z)."
    )
    kbcore("teach", *where, "seen(?x) :- parent(ann, ?x), not shy(?x).")
    shown = kbcore("whynot", *where, "--limit", "1", "--depth", "2", "anc(ann, zoe)").stdout
    assert shown == (
        "anc(ann, zoe) does not hold.\n"
        "1. Rule anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).\n"
        "   holds: parent(ann, bob)\n"
        "   missing: anc(bob, zoe)\n"
        "   because: Rule anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).\n"
        "      holds: parent(bob, carl)\n"
        "      missing: anc(carl, zoe)\n"
    )
    shown = kbcore("whynot", *where, "seen(bob), parent(bob, ?x)").stdout
    assert shown.endswith("1. The goal\n   missing: seen(bob)\n")
    shown = kbcore("whynot", *where, "seen(?x)").stdout
    assert shown.endswith("missing: not shy(bob), because shy(bob) holds\n")
    result = json.loads(kbcore("whynot", *where, "--json", "seen(?x)").stdout)
    assert result["candidates"][0]["blockedBy"]["text"] == "shy(bob)"
    assert kbcore("whynot", *where, "anc(ann, carl)").stdout == "anc(ann, carl) holds.\n"
    weak = kbcore("whynot", *where, "--min-confidence", "0.9", "anc(ann, carl)").stdout
    assert weak.endswith("missing: 0.5 >= 0.9, where confidence is 0.5\n")
    unknown = kbcore("whynot", *where, "ank(ann, carl)")
    assert "did you mean anc/2?" in unknown.stdout
    assert "no fact or rule for ank/2" in unknown.stderr


def test_sql(where):
    kbcore("tell", *where, "shared(memo, staff)", "shared(plan, board)", "member(ann, staff)")
    kbcore("tell", *where, "~in(ann, board)")
    kbcore("teach", *where, "in(?who, ?group) :- member(?who, ?group).")
    kbcore("teach", *where, "can_read(?who, ?doc) :- document(?doc, ?who).")
    kbcore("teach", *where, "can_read(?who, ?doc) :- shared(?doc, ?group), in(?who, ?group).")
    table = ("--table", "documents=document(id, owner)", "--dialect", "sqlite")
    condition = kbcore("sql", *where, "can_read(ann, ?doc)", *table).stdout
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE documents (id TEXT, owner TEXT)")
        rows = [("memo", "bob"), ("plan", "bob"), ("notes", "ann")]
        db.executemany("INSERT INTO documents VALUES (?, ?)", rows)
        page = db.execute(f"SELECT id FROM documents WHERE {condition} ORDER BY id LIMIT 5")
        assert page.fetchall() == [("memo",), ("notes",)]
    assert "owner" in kbcore("sql", *where, "can_read(bob, ?doc)", *table).stdout  # in no group
    kbcore("teach", *where, "twice(?doc) :- document(?doc, ?who), ?y = ?who + 1, ?y > 2.")
    refused = kbcore("sql", *where, "twice(?doc)", *table, expect=1).stderr
    assert "the rule twice(?doc) :- document(?doc, ?who)" in refused
    assert "computes +" in refused
    assert "goal:1:2: error" in kbcore("sql", *where, "p(?x", *table, expect=1).stderr
    misspelled = kbcore("sql", *where, "can_reed(ann, ?doc)", *table)
    assert misspelled.stdout == "FALSE\n"
    assert "no fact or rule for can_reed/2 (did you mean can_read/2?)" in misspelled.stderr
    unknown = kbcore("sql", *where, "twice(?doc)", *table, "--dialect", "mysql", expect=2).stderr
    assert "duckdb, postgres, sqlite" in unknown


def test_explain(where):
    kbcore("tell", *where, "parent(ann, bob)", "parent(bob, carl)")
    kbcore(
        "teach", *where, "anc(?x,?y) :- parent(?x,?y)", "anc(?x,?z) :- parent(?x,?y), anc(?y,?z)."
    )
    told = kbcore("explain", *where, "anc(ann, carl)").stdout
    assert told == (
        "anc(ann, carl)  by anc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).\n"
        "  parent(ann, bob)  stored\n"
        "  anc(bob, carl)  by anc(?x, ?y) :- parent(?x, ?y).\n"
        "    parent(bob, carl)  stored\n"
    )
    assert "cut here" in kbcore("explain", *where, "--nodes", "3", "anc(ann, carl)").stdout
    several = kbcore("explain", *where, "anc(?x, carl), not parent(?x, carl)").stdout
    assert several.startswith("?x = ann\n  anc(ann, carl)  by")
    assert kbcore("explain", *where, "anc(zoe, ?x)").stdout.startswith("No answer")
    plan = kbcore("explain", *where, "--plan", "anc(ann, ?who)").stdout
    assert (
        "probe parent/2 full (=?x, ?y)  [mask bf; about 1.0 per look-up, 1.0 in total; size 2]"
        in plan
    )
    analysis = kbcore("explain", *where, "--analyze", "anc(ann, ?who)").stdout
    assert "2 answers in " in analysis
    assert (
        "probe parent/2 full (=?x, ?y)  [mask bf; about 1.0 per look-up, 1.0 in total; found 1; size 2]"
        in analysis
    )
    found = json.loads(kbcore("explain", *where, "--analyze", "--json", "anc(ann, ?who)").stdout)
    assert (found["goal"], found["plans"][0]["answers"]) == ("anc(ann, ?who)", 2)
    assert (
        json.loads(kbcore("explain", *where, "--json", "anc(ann, ?who)").stdout)["plans"][0][
            "answers"
        ]
        is None
    )


def test_mistakes_are_one_clear_line(where, tmp_path):
    wrong = tmp_path / "wrong.kb"
    wrong.write_text("p(a).\np(b) p(c).\n", encoding="utf-8")
    said = kbcore("load", *where, str(wrong), expect=1).stderr
    assert said.startswith(f"{wrong}:2:6: error[K001]: ")
    assert "    2 | p(b) p(c).\n      |      ^\n" in said
    assert said.endswith("kbcore: 1 error (0 facts and 0 rules were stored before)\n")
    assert (
        "is not bound by a positive atom"
        in kbcore("teach", *where, "p(?x) :- q(?y)", expect=1).stderr
    )
    assert kbcore("ask", *where, "?- p(a, ", expect=1).stderr.splitlines()[1] == "    1 | ?- p(a,"
    assert "use `kbcore ask`" in kbcore("tell", *where, "p(a)", "?- p(a)", expect=1).stderr
    two = kbcore("tell", *where, "p(a)", "q(b", "r(c", expect=1).stderr
    assert two.startswith("statements:2:2: error[K008]: ")
    assert two.endswith("kbcore: 2 errors; nothing was stored\n")
    for name in ("tell", "teach"):
        said = kbcore(name, *where, str(wrong), expect=2).stderr
        assert said == f"kbcore: '{wrong}' is a file; `kbcore load {wrong}` stores its content\n"
    assert kbcore("query", *where, "p(a)", expect=1).stdout == ""
    odd = tmp_path / "facts.txt"
    odd.write_text("", encoding="utf-8")
    assert "must end in" in kbcore("load", *where, str(odd), expect=1).stderr


def test_an_unreachable_server_is_reported():
    output = kbcore("ask", "--url", "http://127.0.0.1:1", "p(?x)", expect=69).stderr
    assert output.startswith("kbcore: no answer from http://127.0.0.1:1")


def test_scopes(where):
    kbcore("tell", *where, "parent(ann, bob)", "parent(bob, cid)", "age(ann, 30)")
    assert kbcore("scope", "fork", "what-if", *where).stdout == "3 facts copied\n"
    assert "exists" in kbcore("scope", "fork", "what-if", *where, expect=1).stderr
    assert kbcore("scope", "fork", "what-if", "--overwrite", *where).stdout == "3 facts copied\n"
    kbcore(
        "tell", *where, "--scope", "what-if", "parent(cid, dan)", "age(ann, 30) [confidence=0.5]"
    )
    assert kbcore("scope", "diff", "--to", "what-if", *where).stdout == (
        "- age(ann, 30)\n+ age(ann, 30) [confidence=0.5]\n+ parent(cid, dan)\n"
    )
    assert (
        "1 conflict"
        in kbcore("scope", "merge", "what-if", "--strategy", "REJECT", *where, expect=1).stderr
    )
    assert (
        kbcore("scope", "merge", "what-if", *where).stdout
        == "2 facts merged, 1 conflict resolved\n"
    )
    assert kbcore("scope", "list", *where).stdout == "what-if\n"
    assert kbcore("scope", "delete", "what-if", "--yes", *where).stdout == "4 facts deleted\n"
    assert (
        "does not exist" in kbcore("scope", "delete", "what-if", "--yes", *where, expect=1).stderr
    )
    assert kbcore("ask", *where, "parent(cid, ?x)").stdout == "parent(cid, dan)\n"


def test_administration(own_target):
    kbcore("tell", *own_target, "p(a)")
    kbcore("admin", "create-database", "d:1", *own_target)
    kbcore("admin", "create-tenant", "d:1", "t", *own_target)
    kbcore("admin", "create-tenant", "d:1", "t", *own_target)
    assert (
        kbcore("admin", "databases", *own_target).stdout
        == "d:1  1 tenant, 0 facts\ndefault  1 tenant, 1 fact\n"
    )
    assert kbcore("admin", "tenants", "d:1", *own_target).stdout == "t\n"
    kbcore("admin", "nuke-tenant", "default", "default", "--yes", *own_target)
    assert kbcore("admin", "databases", *own_target).stdout.endswith("default  1 tenant, 0 facts\n")
    kbcore("admin", "nuke-database", "d:1", "--yes", *own_target)
    kbcore("admin", "delete-tenant", "d:1", "t", "--yes", *own_target)
    kbcore("admin", "delete-database", "d:1", "--yes", *own_target)
    assert (
        "cannot be deleted"
        in kbcore("admin", "delete-database", "default", "--yes", *own_target, expect=1).stderr
    )
    assert kbcore(
        "admin", "delete-tenant", "default", "default", *own_target, expect=1
    ).stderr.startswith("This deletes all data.")
    assert kbcore("admin", "tenants", *own_target).stdout == "default\n"


def test_memory(where):
    def found(*args):
        return json.loads(kbcore("memory", *args, "--json", *where).stdout)

    kbcore(
        "tell",
        *where,
        *(f"saw(ann, x{n}) [confidence=0.05]" for n in range(5)),
        "saw(bob, y)",
        "~saw(bob, z)",
    )
    assert kbcore("memory", "priority", "saw(bob, y)", "1", *where).stdout == ""
    assert (
        "no such fact" in kbcore("memory", "priority", "saw(bob, z)", "1", *where, expect=1).stderr
    )
    assert "variable" in kbcore("memory", "priority", "saw(bob, ?x)", "1", *where, expect=1).stderr
    best = kbcore("memory", "salient", "--limit", "2", *where).stdout.splitlines()
    assert [line.split("  ")[1] for line in best] == ["saw(bob, y)", "~saw(bob, z)"]
    assert [row["args"] for row in found("salient", "saw(bob, ?x)")] == [["bob", "y"], ["bob", "z"]]
    assert len(found("salient", "--predicate", "saw")) == 7
    assert len(found("salient", "--min", "0.5")) == 2
    assert (
        "not both"
        in kbcore("memory", "salient", "p(a)", "--predicate", "p", *where, expect=2).stderr
    )
    told = kbcore("memory", "consolidate", "--dry-run", *where).stdout
    assert told == "+ saw_consolidated(ann, 5)\ndry run: 5 facts summarized, 0 summaries removed\n"
    assert found("consolidate", "--predicate", "heard")["factsConsolidated"] == 0
    summed = found("consolidate")
    assert (summed["factsConsolidated"], summed["newFacts"][0]["args"]) == (5, ["ann", "5"])
    members = {"factsConsolidated", "newFacts", "summariesRemoved", "timestamp"}
    assert set(summed) == members
    dry = kbcore("memory", "decay", "--threshold", "0.2", "--dry-run", *where).stdout.splitlines()
    assert dry[0].startswith("- saw(ann, x0)  [faded, salience 0.0")
    assert dry[-1] == "dry run: 0 expired, 5 of low salience"
    went = found("decay", "--yes", "--threshold", "0.2")
    assert (went["expiredCount"], went["evictedCount"], len(went["removedAtoms"])) == (0, 5, 5)
    assert (
        kbcore("memory", "decay", "-y", "--threshold", "0.2", *where).stdout
        == "0 expired, 0 of low salience\n"
    )
    assert (
        kbcore("memory", "recall", "saw(?x, ?y)", "2999-01-01T00:00:00Z", *where).stdout
        == "saw(bob, y)\n"
    )
    assert [row["truthVal"] for row in found("recall", "~saw(?x, ?y)", "2999-01-01T00:00:00Z")] == [
        False
    ]
    assert found("recall", "saw(?x, ?y)", "1000") == []
    assert (
        "ISO 8601"
        in kbcore("memory", "recall", "saw(?x, ?y)", "yesterday", *where, expect=2).stderr
    )


def test_an_unknown_predicate_is_reported(where):
    kbcore("tell", *where, "likes(ann, tea)")
    sentence = "kbcore: no fact or rule for lykes/2 (did you mean likes/2?)\n"
    asked = kbcore("ask", *where, "lykes(?x, ?y)", expect=1)
    assert (asked.stdout, asked.stderr) == ("", sentence)
    assert kbcore("explain", *where, "lykes(?x, ?y), likes(?x, ?y)").stderr == sentence
    assert (
        "for likes/1 (did you mean likes/2?)"
        in kbcore("ask", *where, "likes(ann)", expect=1).stderr
    )
    assert kbcore("ask", *where, "likes(zoe, ?y)", expect=1).stderr == ""


def test_rule_warnings_are_errors_with_strict(where, tmp_path):
    file = tmp_path / "rules.kb"
    file.write_text("q(a, b).\np(?x) :- q(?x, ?y).\n", encoding="utf-8")
    warning = (
        '2:16: warning: the variable ?y is used once (write _ for "any", or ?_y to keep the name)'
    )
    for command in ("load", "run"):
        failed = kbcore(command, *where, "--strict", str(file), expect=1)
        assert failed.stderr.startswith(f"{file}:{warning}\n")
        assert "1 warning, treated as errors by --strict" in failed.stderr
        assert kbcore("ask", *where, "p(?x)", expect=1).stdout == ""
    for command in ("load", "run"):
        assert kbcore(command, *where, str(file)).stderr == f"{file}:{warning}\n"
    assert kbcore("ask", *where, "p(?x)").stdout == "p(a)\n"
    rule = "r(?x) :- q(?x, ?y)"
    assert "1 warning," in kbcore("teach", *where, "--strict", rule, expect=1).stderr
    assert kbcore("teach", *where, rule).stderr == f"rules:1:{warning.partition(':')[2]}\n"


def test_load_reports_if_the_first_csv_row_is_a_header(where, tmp_path):
    file = tmp_path / "people.csv"
    file.write_text("name,age\nann,41\n", encoding="utf-8")
    loaded = kbcore("load", *where, "--predicate", "age", str(file))
    assert "1 fact, 0 rules" in loaded.stdout
    assert (
        loaded.stderr
        == f"{file}: line 1 is a header and was skipped: name, age (--header no if this is wrong)\n"
    )
    loaded = kbcore("load", *where, "--predicate", "age", "--header", "no", str(file))
    assert ("1 fact, 0 rules, 1 fact already known" in loaded.stdout, loaded.stderr) == (True, "")
    file.write_text("ann,bob\nann,bob,cid\n", encoding="utf-8")
    failed = kbcore("load", *where, "--predicate", "age", str(file), expect=1)
    assert f"{file}:2: error[K048]: 3 arguments, but line 1 has 2\n" in failed.stderr
    file.write_text("ann,bob\n", encoding="utf-8")
    noted = kbcore("load", *where, "--predicate", "knows", str(file)).stderr
    assert (
        noted
        == f"{file}: no header detected, line 1 was loaded as a fact: ann, bob (--header yes if this is wrong)\n"
    )


def test_previews_change_nothing(where):
    kbcore("tell", *where, "parent(ann, bob)", "parent(bob, cid)", "person(bob)")
    kbcore(
        *("teach", *where, "grand(?x,?z) :- parent(?x,?y), parent(?y,?z)"),
        "orphan(?x) :- person(?x), not parent(_, ?x)",
    )
    assert kbcore("tell", *where, "--preview", "parent(cid, dee)").stdout == (
        "+ parent(cid, dee)\n+ grand(bob, dee)\n2 would become true, 0 false; nothing was changed\n"
    )
    assert kbcore("forget", *where, "--preview", "parent(ann, ?x)").stdout == (
        "+ orphan(bob)\n- parent(ann, bob)\n- grand(ann, cid)\n"
        "1 would become true, 2 false; nothing was changed\n"
    )
    win = "win(?x) :- move(?x,?y), not win(?y)"
    taught = kbcore("teach", *where, "--preview", win, "move(a, b)", "move(b, a)")
    assert taught.stdout == (
        "+ move(a, b)\n+ move(b, a)\n? win(a)\n? win(b)\n"
        "2 would become true, 0 false, 2 undefined; nothing was changed\n"
    )
    warned = kbcore("teach", *where, "--preview", "x(?x) :- persn(?x)")
    assert "no facts or rules for persn/1" in warned.stderr
    kbcore("teach", *where, "--preview", "--strict", "x(?x) :- persn(?x)", expect=1)
    assert "is never closed" in kbcore("forget", *where, "--preview", "p(a", expect=1).stderr
    assert "no rule 'r9'" in kbcore("forget", *where, "--preview", "--rule", "r9", expect=1).stderr
    many = "".join(f"q(a{n}). " for n in range(101))
    assert kbcore("tell", *where, "--preview", many).stdout.endswith(
        "101 would become true, 0 false (1 not shown); nothing was changed\n"
    )
    assert (
        kbcore("query", *where, "parent(?x, ?y)").stdout == "parent(ann, bob)\nparent(bob, cid)\n"
    )
    assert "no fact or rule for q/1" in kbcore("query", *where, "q(?x)", expect=1).stderr
