"""Bulk runs on DuckDB: the programs of other tests, values that databases treat otherwise,
cancelling.
"""

from __future__ import annotations

import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import bulk, programs
from support.examples import examples

from kbcore.bulk.job import plan_job, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import Cancelled, ConfigError, InvalidInput
from kbcore.plug.conformance import BulkEngineConformance
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import BulkOptions
from kbplanner.compile.aggregates import fold
from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.ir.program import dependencies
from kbplanner.ir.schema import BEST, RelationSchema
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_atom, parse_program, parse_rule
from kbplanner.syntax.statements import FactStatement, GoalStatement, RuleStatement
from kbplugins.bulk_duckdb import DuckDBDatabase
from kbplugins.tables.parquet import ParquetTables

NOW = 1_767_225_600_000  # 2026-01-01
ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "planner" / "golden" / "passes"


def sources():
    """Programs with goals: those of the passes' golden files, each once, and those of the docs."""
    texts = {}
    for path in sorted(GOLDEN.glob("*.kb")):
        for part in re.split(r"^(?=# )", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            text = part.partition("---\n")[0]
            texts.setdefault(text.partition("\n")[2], f"{path.stem}: {part.splitlines()[0][2:]}")
    for path in sorted((ROOT / "docs" / "examples").glob("*.kb")):
        texts[path.read_text(encoding="utf-8")] = path.stem
    return [pytest.param(text, id=name) for text, name in texts.items()]


def first_refusal(rules, goal):
    """Return what the message about a part of the language that bulk runs do not have says."""
    schema = RelationSchema(goal.predicate, goal.arity, goal.positive)
    needed = dependencies(rules.clauses(frozenset()), [rules.conclusions(schema)])
    if any(relation.role in BEST for relation in needed):
        return "the best value of a group"
    return None


@pytest.mark.parametrize("text", sources())
def test_programs_of_other_tests_have_the_answers_of_the_engine(text):
    statements = parse_program(text)
    rules = RuleSet([s.rule for s in statements if isinstance(s, RuleStatement)])
    facts = [s.atom for s in statements if isinstance(s, FactStatement)]
    constants = [*sorted(rules.constants)[:3], "a", "b", "c", "1", "2", "10"]
    draw = random.Random(text)
    for schema in sorted(rules.reads, key=str):
        rows = [draw.choices(constants, k=schema.arity) for _ in range(10)]
        facts += [Atom(schema.predicate, tuple(row), schema.positive) for row in rows]
    world = programs.World(Engine(), rules)
    world.tell(facts)
    for goal in (s for s in statements if isinstance(s, GoalStatement) and len(s.body) == 1):
        atom = goal.literal.atom
        negative = rules.needed_components(
            frozenset(), [RelationSchema(atom.predicate, atom.arity, atom.positive)]
        )
        if negative:
            with pytest.raises(InvalidInput, match="recursion through negation"):
                bulk.answers(rules, facts, atom)
        elif refused := first_refusal(rules, atom):
            with pytest.raises(InvalidInput, match=refused):
                bulk.answers(rules, facts, atom)
        else:
            answers = bulk.answers(rules, facts, atom, clock=ManualClock(NOW))
            assert answers == world.ask(atom, now=NOW)


numbers = st.one_of(
    st.integers(-(1 << 63), (1 << 64)).map(str),
    st.integers(-9, 9).map(str),
    st.floats(-1e18, 1e18, allow_nan=False).map(repr),
    st.sampled_from(
        ["1.0", "0.1", "0.2", "1e5", "1e16", "1e-7", "1e999", "-0.0", "1_0", "a", "", "01"]
    ),
)


@pytest.mark.parametrize(
    ("goal", "answers"), [("p(a, a)", set()), ("p(a, b)", {("a", "b")}), ("p(b, b)", set())]
)
def test_a_goal_restricts_the_run_by_fewer_constants_than_it_has(goal, answers):
    """The first argument of every p is a, so that the compiler binds only the second one."""
    texts = ("p(?x, ?z) :- p(?x, ?y), p(?y, ?z).", "p(a, ?x) :- e(?x, ?x).")
    rules = RuleSet([parse_rule(text) for text in texts])
    assert bulk.answers(rules, [parse_atom("e(b, b)")], parse_atom(goal)) == answers


@examples(30)
@given(st.lists(numbers, min_size=1, max_size=8, unique=True))
def test_aggregates_have_the_values_and_the_text_of_the_engine(texts):
    for function in ("count", "min", "max", "sum", "avg"):
        rule = f"v({function}(?x)) :- n(?x)."
        rules = RuleSet([parse_program(rule)[0].rule])
        rows = bulk.answers(rules, [Atom("n", (text,)) for text in texts], parse_atom("v(?x)"))
        expected, _ = fold(function, texts)
        values = [row[0] for row in rows]
        if expected is None or not values:
            assert values == ([] if expected is None else [expected])
        elif values != [expected]:
            assert function in ("sum", "avg")
            assert any(char in "".join(texts) for char in ".e") or max(map(len, texts)) > 18
            scale = max(
                abs(float(text))
                for text in texts
                if re.fullmatch(r"-?[0-9].*", text) and "_" not in text
            )
            assert float(values[0]) == pytest.approx(float(expected), rel=1e-9, abs=scale * 1e-12)


def test_computed_numbers_have_the_text_of_the_language():
    text = """
    v(?y) :- n(?x), ?y = ?x * 1.0.
    w(?y) :- n(?x), ?y = ?x / 3.
    u(?y) :- t(?x), ?y = upper(?x).
    same(?x, ?y) :- n(?x), n(?y), ?x = ?y.
    """
    facts = (
        "n('10'). n('1e16'). n('0.00001'). n('1_0'). n('1f'). n('10.0'). t('ß'). t('ŉ'). t('ab')."
    )
    rules = RuleSet([s.rule for s in parse_program(text)])
    atoms = [s.atom for s in parse_program(facts)]

    def values(goal):
        return {row[0] for row in bulk.answers(rules, atoms, parse_atom(goal))}

    assert values("v(?y)") == {"10", "1e+16", "1e-05"}
    assert values("w(?y)") == {"3.3333333333333335", "3333333333333333.5", "3.3333333333333337e-06"}
    assert values("u(?y)") == {"ß", "ŉ", "AB"}
    assert values("same('10', ?y)") == {"10"}
    assert bulk.answers(rules, atoms, parse_atom("same('10', ?y)")) == {
        ("10", "10"),
        ("10", "10.0"),
    }


def test_a_run_can_be_cancelled_from_another_thread(tmp_path):
    text = "n(0). n(?y) :- n(?x), ?y = ?x + 1."
    job = plan_job(read_rules(text, "rules.kb"), parse_atom("n(?x)"))
    runs = []

    class Watched(DuckDBDatabase):
        def open(self, options):
            runs.append(super().open(options))
            return runs[-1]

    rounds = threading.Event()

    raised = []

    def work():
        try:
            run_job(job, Watched(), tmp_path / "out", RunOptions(report=lambda *_: rounds.set()))
        except Cancelled as error:
            raised.append(error)

    worker = threading.Thread(target=work)
    worker.start()
    assert rounds.wait(60)
    runs[0].cancel()
    worker.join(60)
    assert len(raised) == 1
    runs[0].cancel()
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".bulk-n"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Raise KeyboardInterrupt for SIGINT: processes that a shell starts in the background ignore
    it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_while_a_statement_runs_is_a_keyboard_interrupt(tmp_path):
    facts = " ".join(f"e({number})." for number in range(3000))
    text = f"p(?x, ?y, ?z) :- e(?x), e(?y), e(?z), ?x < ?y, ?y < ?z. {facts}"
    job = plan_job(read_rules(text, "rules.kb"), parse_atom("p(?x, ?y, ?z)"))
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    # With several threads, DuckDB 2.0 waits for tasks that run for more than a minute.
    options = RunOptions("200MB", settings={"threads": "1"})
    with pytest.raises(KeyboardInterrupt):
        run_job(job, DuckDBDatabase(), tmp_path / "out", options)
    assert [path.name for path in (tmp_path / "out").iterdir()] in ([], [".bulk-p"])


def test_a_limit_without_sense_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="DuckDB does not start"):
        DuckDBDatabase().open(BulkOptions(str(tmp_path), "many"))
    job = plan_job(read_rules("p(?x) :- e(?x). e(a).", "rules.kb"), parse_atom("p(?x)"))
    with pytest.raises(ConfigError, match="the memory limit is too small"):
        run_job(job, DuckDBDatabase(), tmp_path / "out", RunOptions("1KB"))


class TestDuckDB(BulkEngineConformance):
    def make_database(self):
        return DuckDBDatabase()

    def read(self, path):
        return bulk.read(path)


class Offering:
    """A plugin that offers a database under a name."""

    def __init__(self, name):
        self.name = name

    @hookimpl
    def kb_bulk_engines(self):
        return {self.name: DuckDBDatabase()}

    @hookimpl
    def kb_table_formats(self):
        return {self.name: ParquetTables()}


def test_plugins_offer_databases_by_name():
    plugins = Plugins(Config(storage_backend="memory"), [Offering("mine")])
    assert set(plugins.bulk_databases()) == {"duckdb", "mine", "spark"}
    assert set(plugins.table_formats()) == {"arrow", "parquet", "mine"}


def test_a_name_of_a_database_belongs_to_one_plugin():
    with pytest.raises(ConfigError, match="duckdb"):
        Plugins(Config(storage_backend="memory"), [Offering("duckdb")]).bulk_databases()
