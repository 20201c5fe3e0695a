"""Bulk runs on Spark: the contract of engines, random programs, kills of executors and of runs."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import Phase, assume, given, settings
from hypothesis import strategies as st
from sqlglot import exp
from support import bulk, naive, programs, values

from kbcore.bulk.job import plan_job, read_goal, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbcore.errors import BudgetExceeded, ConfigError, EngineFault, InvalidInput
from kbcore.plug.conformance import BulkEngineConformance
from kbcore.plug.ports import BulkOptions
from kbplanner.ir.values.comparison import test as compare
from kbplanner.ir.values.numbers import is_number, number
from kbplugins.bulk_spark import SparkDatabase
from kbplugins.bulk_sql.values import SPARK, number_columns, value_key, value_order

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("pyspark") is None and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason="pyspark is not installed",
)

CHAIN = """
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
"""

NUMBERS = (
    "-0",
    "-0.0",
    "0",
    "1_0",
    "+1",
    "1f",
    "01",
    "1e5",
    "1E+5",
    "1e999",
    "-1e999",
    "1e-999",
    ".5",
    "5.",
    "inf",
    "nan",
    "NaN",
    "Infinity",
    "0x1",
    "1.0",
    "1",
    "\u0661",
    " 1",
    "1 ",
    "1\n",
    "",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "9007199254740993",
    "9007199254740992",
    "9223372036854774784",
    "1d",
    "1e16",
    "10000000000000001",
    "true",
)


@pytest.fixture(scope="module", autouse=True)
def session():
    """Keep one Spark running for all tests of this file."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    running = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    running.sparkContext.pythonExec = sys.executable
    yield running
    running.stop()


class TestSpark(BulkEngineConformance):
    def make_database(self):
        return SparkDatabase()

    def read(self, path):
        return bulk.read(path)

    @pytest.mark.slow
    def test_values_are_those_of_the_language(self, folder, tmp_path):
        super().test_values_are_those_of_the_language(folder, tmp_path)


def check(rules, facts, goal):
    compiled = bulk.rule_set(rules)
    try:
        model = naive.model(rules, facts, most=2000)
        answers = bulk.answers(compiled, facts, goal, SparkDatabase(), max_rows=20_000)
    except (naive.TooLarge, BudgetExceeded):
        assume(False)
    assert answers == naive.answers(model, goal)


random_programs = (bulk.random_rules, st.lists(programs.facts(), max_size=14), programs.goals())


@settings(max_examples=2, deadline=None, derandomize=True, phases=[Phase.generate])
@given(*random_programs)
def test_a_bulk_run_has_the_answers_of_the_model(rules, facts, goal):
    check(rules, facts, goal)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(*random_programs)
def test_many_bulk_runs_have_the_answers_of_the_model(rules, facts, goal):
    check(rules, facts, goal)


TEXTS = [*NUMBERS, *values.ODD]


def test_values_in_spark_are_the_values_of_the_language(session):
    database = session.newSession()
    database.conf.set("spark.sql.ansi.enabled", "false")
    database.createDataFrame([(text,) for text in TEXTS], "text STRING").createOrReplaceTempView(
        "texts"
    )
    columns = ", ".join(map(SPARK.text, number_columns(exp.column("text", table="v"), SPARK)))
    table = f"(SELECT text, {columns} FROM texts AS v)"
    tests = [exp.EQ(this=value_key("a"), expression=value_key("b"))]
    tests += [value_order(op, "a", "b") for op in ("<", "<=", ">", ">=")]
    query = ", ".join(map(SPARK.text, tests))
    rows = database.sql(
        f"SELECT a.text, b.text, a.whole, a.real, {query} FROM {table} AS a, {table} AS b"
    ).collect()
    assert len(rows) == len(TEXTS) ** 2
    for left, right, whole, real, same, *orders in rows:
        value = number(left)
        assert whole == (value if isinstance(value, int) else None), left
        if value is None:
            assert real == (float("inf") if is_number(left) else None), left
        else:
            assert real == float(value), left
        assert same == compare(0, left, right), (left, right)
        assert orders == [compare(op, left, right) for op in range(4, 8)], (left, right)


def test_files_of_facts_are_read_and_checked(tmp_path):
    (tmp_path / "edge").mkdir()
    bulk.write(tmp_path / "edge" / "1.parquet", "SELECT 1::UBIGINT AS X, 'b' AS x_2")
    bulk.write(tmp_path / "edge" / "2.parquet", "SELECT 'b' AS a, -3::TINYINT AS b")
    goal = read_goal("reach(?x, ?X)")
    job = plan_job(read_rules(CHAIN, "chain"), goal, tmp_path)
    result = run_job(job, SparkDatabase(), tmp_path / "out")
    assert set(bulk.read(result.path)) == {("1", "b"), ("b", "-3"), ("1", "-3")}
    assert result.path == tmp_path / "out" / "reach"
    assert all(path.suffix == ".parquet" for path in result.path.iterdir())
    with pytest.raises(InvalidInput, match="reach exists"):
        run_job(job, SparkDatabase(), tmp_path / "out")
    for query, problem in (
        ("SELECT 1.5 AS x, 'a' AS y", r"column 1 \(x\) has the type decimal"),
        ("SELECT NULL::TEXT AS x, 'a' AS y", "1 row with NULL"),
        ("SELECT 'a' AS x", "with 2 arguments, but the file has 1 column"),
    ):
        bulk.write(tmp_path / "edge" / "2.parquet", query)
        with pytest.raises(InvalidInput, match=problem):
            run_job(job, SparkDatabase(), tmp_path / "other")
    assert list((tmp_path / "other").iterdir()) == []


def test_a_round_with_lost_files_is_noticed(tmp_path):
    job = plan_job(
        read_rules(CHAIN + "edge(a, b). edge(b, c).", "chain"), read_goal("reach(?x, ?y)")
    )
    data = tmp_path / "out" / ".bulk-reach" / "data"

    def lose(title, round_, rows):
        if round_ == 1:
            for path in data.glob("*_reach/kb_round=0/*.parquet"):
                path.unlink()

    with pytest.raises(EngineFault, match=r"Spark: |rounds before"):
        run_job(job, SparkDatabase(), tmp_path / "out", RunOptions(report=lose))


def test_a_running_spark_takes_no_settings_of_its_start(tmp_path):
    for options in (
        BulkOptions(str(tmp_path), "2GB"),
        BulkOptions(str(tmp_path), None, {"spark.x": "1"}),
    ):
        with pytest.raises(ConfigError, match="Spark runs in this process already"):
            SparkDatabase().open(options)


def test_without_its_packages_the_engine_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match="pip install pyspark sqlglot"):
        SparkDatabase().open(BulkOptions(str(tmp_path)))


RUN = """
import os, signal, sys
from pathlib import Path
from kbcore.bulk.job import plan_job, read_goal, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbplugins.bulk_spark import SparkDatabase

action, master, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
text = (folder / "rules.kb").read_text()
job = plan_job(read_rules(text, "rules.kb"), read_goal("reach(?x, ?y)"), folder)

def ancestors(pid):
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        yield pid

def executors():
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if b"CoarseGrainedExecutorBackend" in (path / "cmdline").read_bytes():
                if os.getpid() in ancestors(int(path.name)):
                    yield int(path.name)
        except OSError:  # the process has ended
            continue

killed = []
def report(title, round_, rows):
    print(title, round_, rows, flush=True)
    if round_ == 3 and action == "kill-executor" and not killed:
        killed.append(next(executors()))
        os.kill(killed[0], signal.SIGKILL)
    if round_ == 3 and action == "kill-run":
        os.kill(os.getpid(), signal.SIGKILL)

settings = {"spark.master": master, "spark.driver.host": "127.0.0.1", "spark.executor.memory": "1g"}
options = RunOptions(settings=settings, resume=action == "resume", report=report)
result = run_job(job, SparkDatabase(), folder / "out", options)
print("done", result.answers, result.rounds, len(killed))
"""


def run(folder: Path, action: str, master: str) -> subprocess.CompletedProcess[str]:
    """Run the closure of a chain of 12 nodes in a process of its own."""
    if action != "resume":
        folder.joinpath("rules.kb").write_text(CHAIN)
        bulk.write(folder / "edge.parquet", "SELECT i AS x, i + 1 AS y FROM range(11) AS t(i)")
    return subprocess.run(
        [sys.executable, "-c", RUN, action, master, str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.slow
def test_a_lost_executor_costs_no_answer(tmp_path):
    done = run(tmp_path, "kill-executor", "local-cluster[2,1,1024]")
    assert done.stdout.splitlines()[-1] == "done 66 11 1", done.stderr[-2000:]


@pytest.mark.slow
def test_a_killed_run_continues_after_its_last_round(tmp_path):
    killed = run(tmp_path, "kill-run", "local[2]")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-2000:]
    done = run(tmp_path, "resume", "local[2]")
    assert done.stdout.splitlines()[-1] == "done 66 11 0", done.stderr[-2000:]
    assert done.stdout.splitlines()[0].split()[1] == "3"
    assert len(set(bulk.read(tmp_path / "out" / "reach"))) == 66
