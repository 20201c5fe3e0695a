"""`kbcore bulk`: rules over Parquet files, and what is said about files and rules that do not
fit.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import signal
import subprocess
import sys

import pytest
from support import bulk
from support.commands import kbcore

CLOSURE = "reach(?x, ?y) :- edge(?x, ?y).\nreach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).\n"


@pytest.fixture
def place(tmp_path):
    """A folder with rules and the facts of a chain of 20 nodes, in integer columns."""
    (tmp_path / "facts").mkdir()
    (tmp_path / "rules.kb").write_text(CLOSURE)
    query = "SELECT i AS source, i + 1 AS target FROM range(19) AS t(i)"
    bulk.write(tmp_path / "facts" / "edge.parquet", query)
    return tmp_path


def run(place, goal, *more, expect=0):
    paths = ("--facts", str(place / "facts"), "--out", str(place / "out"))
    return kbcore(
        "bulk", "run", str(place / "rules.kb"), *paths, "--goal", goal, *more, expect=expect
    )


def test_the_answers_of_a_goal_are_a_file_with_all_its_arguments(place):
    output = run(place, "reach(?from, ?to)").stdout
    assert f"{place / 'out' / 'reach.parquet'}: 190 answers from 19 facts in 19 rounds" in output
    expected = {(str(a), str(b)) for a in range(20) for b in range(a + 1, 20)}
    assert set(bulk.read(place / "out" / "reach.parquet")) == expected
    assert [path.name for path in (place / "out").iterdir()] == ["reach.parquet"]


def test_constants_and_repeated_variables_of_the_goal_hold_in_the_answers(place):
    run(place, "reach(17, ?x)")
    assert set(bulk.read(place / "out" / "reach.parquet")) == {("17", "18"), ("17", "19")}
    (place / "out" / "reach.parquet").unlink()
    with (place / "rules.kb").open("a") as rules:
        rules.write("edge(5, 3).\n")
    run(place, "reach(?x, ?x)")
    assert set(bulk.read(place / "out" / "reach.parquet")) == {(n, n) for n in "345"}


def test_a_folder_of_files_is_one_predicate_and_answers_can_be_facts(place):
    (place / "facts" / "edge").mkdir()
    (place / "facts" / "edge.parquet").rename(place / "facts" / "edge" / "1.parquet")
    bulk.write(place / "facts" / "edge" / "2.parquet", "SELECT 'a b' AS x, '0' AS y")
    run(place, "reach('a b', ?x)")
    assert len(bulk.read(place / "out" / "reach.parquet")) == 20
    (place / "rules.kb").write_text("n(count(*)) :- reach(_, ?x).")
    completed = kbcore(
        "bulk",
        "run",
        str(place / "rules.kb"),
        "--goal",
        "n(?n)",
        "--facts",
        str(place / "out"),
        "--out",
        str(place / "more"),
    )
    assert "1 answer from 20 facts" in completed.stdout
    assert bulk.read(place / "more" / "n.parquet") == [("20",)]


def test_explicit_negatives_have_a_file_of_their_own(place):
    (place / "rules.kb").write_text(
        "open(?x) :- edge(?x, ?y), not closed(?x). closed(?x) :- shut(?x)."
    )
    bulk.write(place / "facts" / "shut.parquet", "SELECT i FROM range(10) AS t(i)")
    bulk.write(place / "facts" / "~closed.parquet", "SELECT '3' AS i")
    run(place, "open(?x)")
    assert {row[0] for row in bulk.read(place / "out" / "open.parquet")} == {
        "3",
        *map(str, range(10, 19)),
    }


@pytest.mark.parametrize(
    ("rules", "goal", "said"),
    [
        ("win(?x) :- edge(?x, ?y), not win(?y).", "win(?x)", "rules.kb:1: recursion through negation: win/1 "),
        ("p(?x) :- edge(?x, ?y, ?z).", "p(?x)", "with 3 arguments, but the file has 2 columns"),
        ("p(?x) :- edge(?x, _), edge(?x).", "p(?x)", "facts of one number of arguments"),
        ("edge(a, b) [ttl=10].", "edge(?x, ?y)", "rules.kb:1: a bulk run has neither scopes nor times"),
        ("p(?x, ?z) :- edge(?x, ?y).", "p(?x, ?y)", "rules.kb:1: "),
        ("p(?x) :- edge(?x, ?y", "p(?x)", "rules.kb:1:"),
        (CLOSURE, "reach(?x, ?y), edge(?x, ?y)", "a goal here is a single atom"),
        (CLOSURE, "not reach(?x, ?y)", "an atom without `not`"),
        (CLOSURE, "reach(?x", "--goal:1:"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_is_refused_at_once(place, rules, goal, said):
    (place / "rules.kb").write_text(rules)
    error = run(place, goal, expect=1).stderr
    assert said in error
    assert not (place / "out").exists() or not list((place / "out").iterdir())


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT 1.5 AS x, 2 AS y", "column 1 (x) has the type DECIMAL(2,1)"),
        ("SELECT NULL::VARCHAR AS x, 2 AS y", "1 row with NULL"),
    ],
)
def test_columns_that_are_no_constants_are_refused(place, query, said):
    bulk.write(place / "facts" / "edge.parquet", query)
    assert said in run(place, "reach(?x, ?y)", expect=1).stderr


def test_a_file_that_is_no_parquet_is_named(place):
    (place / "facts" / "edge.parquet").write_text("1,2\n")
    error = run(place, "reach(?x, ?y)", expect=1).stderr
    assert "edge.parquet is not a Parquet file" in error
    assert "Traceback" not in error


def test_goals_in_the_file_are_left_out_with_a_warning(place):
    with (place / "rules.kb").open("a") as rules:
        rules.write("?- reach(?x, 3).")
    done = run(place, "reach(3, ?x)")
    assert "rules.kb:3: the goal is not evaluated; state it with --goal" in done.stderr
    assert "16 answers" in done.stdout


def test_missing_facts_endless_rules_and_existing_answers_are_reported(place):
    with (place / "rules.kb").open("a") as rules:
        rules.write(
            "n(?y) :- n(?x), ?y = ?x + 1. n(?x) :- start(?x). start(1).\np(?x) :- egde(?x, _)."
        )
    warning = f"no facts for egde/2 in {place / 'facts'}: the relation is empty"
    assert warning in run(place, "p(?x)").stderr
    assert "no facts for reach/1 in " in run(place, "reach(?x)").stderr
    ended = run(place, "n(?x)", "--max-rows", "50", expect=1).stderr
    assert "the run may not end" in ended
    assert "derivedRows of 50" in ended
    assert "p.parquet exists" in run(place, "p(?x)", expect=1).stderr


def test_a_stopped_run_is_resumed_with_the_same_inputs_only(place):
    stopped = run(place, "reach(?x, ?y)", "--max-rows", "100", expect=1).stderr
    assert "the same command with --resume continues" in stopped
    assert [path.name for path in (place / "out").iterdir()] == [".bulk-reach"]
    progress = json.loads((place / "out" / ".bulk-reach" / "progress.json").read_text())
    assert progress["round_"] > 0
    with (place / "rules.kb").open("a") as rules:
        rules.write("reach(?x, ?x) :- edge(?x, _).")
    error = run(place, "reach(?x, ?y)", "--resume", expect=1).stderr
    assert "was started with a different input (rules)" in error
    (place / "rules.kb").write_text(CLOSURE)
    error = run(place, "reach(0, ?y)", "--resume", expect=1).stderr
    assert "a different input (goal)" in error
    done = run(place, "reach(?x, ?y)", "--resume").stdout
    assert "190 answers from 19 facts in 19 rounds" in done
    assert len(set(bulk.read(place / "out" / "reach.parquet"))) == 190
    assert [path.name for path in (place / "out").iterdir()] == ["reach.parquet"]


def test_a_killed_run_is_resumed(place):
    """The process dies between two rounds, with the database open."""
    script = """
import os, signal, sys
from pathlib import Path
from kbcore.bulk.job import plan_job, read_goal, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbplugins.bulk_duckdb import DuckDBDatabase
place = Path(sys.argv[1])
rules = read_rules((place / "rules.kb").read_text(), "rules")
job = plan_job(rules, read_goal("reach(?x, ?y)"), place / "facts")
die = lambda title, round_, rows: round_ == 7 and os.kill(os.getpid(), signal.SIGKILL)
run_job(job, DuckDBDatabase(), place / "out", RunOptions(report=die))
"""
    killed = subprocess.run([sys.executable, "-c", script, str(place)], timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    edges, spare = place / "facts" / "edge.parquet", place / "edge.parquet"
    edges.rename(spare)
    bulk.write(edges, "SELECT i AS x, i + 2 AS y FROM range(19) AS t(i)")
    error = run(place, "reach(?x, ?y)", "--resume", expect=1).stderr
    assert "a different input (facts)" in error
    spare.rename(edges)
    assert (
        "190 answers from 19 facts in 19 rounds" in run(place, "reach(?x, ?y)", "--resume").stdout
    )


def test_there_is_a_run_to_resume_and_one_at_a_time(place):
    assert "nothing to resume" in run(place, "reach(?x, ?y)", "--resume", expect=1).stderr
    (place / "out" / ".bulk-reach").mkdir(parents=True)
    with (place / "out" / ".bulk-reach" / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert "another run of this goal uses" in run(place, "reach(?x, ?y)", expect=1).stderr
    assert "190 answers" in run(place, "reach(?x, ?y)").stdout


def test_settings_are_those_of_the_database(place):
    error = run(place, "reach(?x, ?y)", "--set", "thraeds=1", expect=78).stderr
    assert "DuckDB does not start" in error
    assert "190 answers" in run(place, "reach(?x, ?y)", "--set", "threads=1").stdout


def test_options_are_checked_before_the_run(place):
    error = run(place, "reach(?x, ?y)", "--set", "threads", expect=2).stderr
    assert "--set 'threads' is not NAME=VALUE" in error
    error = run(place, "reach(?x, ?y)", "--memory-limit", "lots", expect=2).stderr
    assert "--memory-limit 'lots' is not a size" in error
    error = run(place, "reach(?x, ?y)", "--engine", "spork", expect=2).stderr
    assert "--engine 'spork': no plugin offers it; choose from: duckdb, spark" in error


def test_without_its_packages_the_command_says_what_to_install(place, monkeypatch):
    monkeypatch.setitem(sys.modules, "duckdb", None)
    error = run(place, "reach(?x, ?y)", expect=78).stderr
    assert "pip install duckdb sqlglot" in error
    importlib.import_module("kbplugins.bulk_duckdb")


def test_explain_prints_the_sql_of_every_clause(place):
    printed = kbcore("bulk", "explain", str(place / "rules.kb"), "--goal", "reach(?x, ?y)").stdout
    assert "-- stratum 1, recursive: r1_reach" in printed
    assert "kb_round = $round" in printed
    assert printed.count("SELECT") >= 3


def test_a_closure_beyond_its_memory_limit_spills_to_disk(place):
    query = "SELECT i AS x, (i + 1) % 600 AS y FROM range(600) AS t(i)"
    bulk.write(place / "facts" / "edge.parquet", query)
    output = run(place, "reach(?x, ?y)", "--memory-limit", "100MB").stdout
    assert "360,000 answers from 600 facts" in output
