"""`kbcore tell, teach, ask, load`: against a running server and on a folder."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.servers import Server


def kbcore(*args, expect=0):
    done = subprocess.run(
        [sys.executable, "-m", "kbserver.cli", *args], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == expect, done.stderr
    return done


@pytest.fixture(params=["server", "folder"])
def where(request, tmp_path):
    if request.param == "folder":
        yield ("--storage-dir", str(tmp_path / "kb"))
    else:
        with Server(tmp_path / "kb") as server:
            yield ("--url", f"http://127.0.0.1:{server.address[1]}")


def test_tell_teach_ask_load(where, tmp_path):
    assert kbcore("tell", *where, "parent(ann, bob)", 'parent(bob, "C D").').stdout == "2 stored\n"
    assert kbcore("tell", *where, "parent(ann, bob)").stdout == "0 stored, 1 known before\n"
    taught = kbcore("teach", *where, "anc(?x,?y) :- parent(?x,?y)", "anc(?x,?z) :- parent(?x,?y), anc(?y,?z).").stdout
    assert taught == "anc(?x, ?y) :- parent(?x, ?y).\nanc(?x, ?z) :- parent(?x, ?y), anc(?y, ?z).\n"
    assert kbcore("ask", *where, "anc(ann, ?who)").stdout == 'anc(ann, "C D")\nanc(ann, bob)\n'
    assert kbcore("ask", *where, "anc(nobody, ?who)", expect=1).stdout == ""
    assert kbcore("ask", *where, "not anc(bob, ann)").stdout == "not anc(bob, ann)\n"
    file = tmp_path / "more.kb"
    file.write_text("".join(f"edge(a{n}, a{n + 1}).\n" for n in range(6000)) + "?- anc(ann, bob).\n", encoding="utf-8")
    assert "6000 facts, 0 rules" in kbcore("load", *where, str(file)).stdout
    assert kbcore("ask", *where, "edge(a5999, ?x)").stdout == "edge(a5999, a6000)\n"


def test_explain(where):
    kbcore("tell", *where, "parent(ann, bob)", "parent(bob, carl)")
    kbcore("teach", *where, "anc(?x,?y) :- parent(?x,?y)", "anc(?x,?z) :- parent(?x,?y), anc(?y,?z).")
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
    assert "probe parent/2 full (=?x, ?y)  [mask bf, about 1.0 a look-up, 2 rows]" in plan


def test_mistakes_are_one_clear_line(where, tmp_path):
    wrong = tmp_path / "wrong.kb"
    wrong.write_text("p(a).\np(b) p(c).\n", encoding="utf-8")
    said = kbcore("load", *where, str(wrong), expect=1).stderr
    assert "wrong.kb: line 2, column 6" in said
    assert "(0 facts and 0 rules were stored before)" in said
    assert "gets its values nowhere" in kbcore("teach", *where, "p(?x) :- q(?y)", expect=1).stderr
    assert "Traceback" not in kbcore("ask", *where, "p(", expect=1).stderr
    assert "use teach for rules" in kbcore("tell", *where, "p(?x) :- q(?x)", expect=1).stderr
    odd = tmp_path / "facts.txt"
    odd.write_text("", encoding="utf-8")
    assert "must end in" in kbcore("load", *where, str(odd), expect=1).stderr


def test_no_server_is_said_plainly():
    said = kbcore("ask", "--url", "http://127.0.0.1:1", "p(?x)", expect=1).stderr
    assert said.startswith("kbcore: no answer from http://127.0.0.1:1")
