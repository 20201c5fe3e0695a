"""Many answers stay in their goal table until they are read, as of the time of the goal."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore import Config, open_kb
from kbcore.columns.symbol_answers import CHUNK
from kbplanner.engine import engine
from kbplanner.evaluate import answers as reading
from kbplanner.evaluate.deferred import FIRST
from kbplanner.evaluate.evaluate import GoalRun

RULES = """
tc(?x, ?y) :- edge(?x, ?y).
tc(?x, ?z) :- edge(?x, ?y), tc(?y, ?z).
apart(?x, ?y) :- node(?x), node(?y), not tc(?x, ?y).
"""
GOALS = ["tc(?x, ?y)", "apart(?x, ?y)", "tc(?x, ?y), node(?x)", "tc(?x, ?x)", "tc(n1, ?y)"]
NODES = [f"n{number}" for number in range(6)]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch):
    monkeypatch.setattr(reading, "MIN_DEFERRED", 1)
    monkeypatch.setattr(engine, "SCRATCH_SYMBOLS", 2)  # only one answer is copied at once


@pytest.fixture
def reads(monkeypatch):
    """Return a list to which each table that is read as a whole is added."""
    read, calls = GoalRun.read_rows, []

    def noted(self):
        calls.append(self)
        return read(self)

    monkeypatch.setattr(GoalRun, "read_rows", noted)
    return calls


@pytest.fixture
def kb():
    with open_kb() as kb:
        kb.tell_many("edge", [(f"a{number}", f"a{number + 1}") for number in range(60)])
        kb.teach(RULES)
        yield kb


PAIRS = 60 * 61 // 2


def test_counting_reads_no_answer(kb, reads):
    for _ in range(3):
        answers = kb.ask("tc(?x, ?y)")
        assert (answers.count(), len(answers), bool(answers)) == (PAIRS, PAIRS, True)
    assert not reads


def test_the_first_answers_are_searched_for_once(kb, reads, monkeypatch):
    read, searches = GoalRun.read_first_rows, []

    def noted(self, count):
        searches.append(count)
        return read(self, count)

    monkeypatch.setattr(GoalRun, "read_first_rows", noted)
    answers, every = kb.ask("tc(?x, ?y)"), kb.ask("tc(?x, ?y)", limit=PAIRS)
    assert [answers[index] for index in range(FIRST)] == every[:FIRST]
    assert (searches, reads) == ([FIRST], [])


def test_the_first_answers_are_read_without_the_others(kb, reads):
    answers = kb.ask("tc(?x, ?y)")
    assert answers[:2] == [("a0", "a1"), ("a0", "a10")]
    assert answers[1] == ("a0", "a10")
    assert "more]" in repr(answers)
    assert not reads
    everything = list(answers)
    assert len(reads) == 1
    assert everything == sorted(everything)
    assert len(set(everything)) == PAIRS
    assert answers[CHUNK + 5] == everything[CHUNK + 5]
    assert answers[:2] == everything[:2]
    assert len(reads) == 1


@pytest.mark.parametrize("change", ["tell", "retract", "rule", "unlearn", "ask in between"])
def test_a_change_does_not_change_the_answers(kb, change):
    expected = list(kb.ask("tc(?x, ?y)"))
    answers = kb.ask("tc(?x, ?y)")
    if change == "tell":
        kb.tell("edge(a60, a61)")
    elif change == "retract":
        kb.retract("edge", ["a3", "a4"])
    elif change == "rule":
        kb.teach("tc(?y, ?x) :- edge(?x, ?y).")
    elif change == "unlearn":
        for rule in kb.rules():
            kb.retract_rule(rule.id)
    else:
        kb.tell("edge(a60, a61)")
        assert len(kb.ask("tc(?x, ?y)")) == PAIRS + 61
    after = kb.ask("tc(?x, ?y)")
    assert len(after) != PAIRS
    assert list(answers) == expected
    assert len(list(after)) == len(after)


def test_the_table_stays_for_the_next_goal_after_its_reader_is_gone(kb):
    def counts():
        reasoner = kb.kb._services.reasoner(kb.kb._read_tenant())
        return reasoner.tables.counts.current

    assert len(kb.ask("tc(?x, ?y)")) == PAIRS
    gc.collect()
    before = counts()
    assert len(kb.ask("tc(?x, ?y)")) == PAIRS
    assert counts() == before + 1


def test_answers_outlive_their_table():
    with open_kb(config=Config(goal_table_mb=0)) as kb:
        kb.tell_many("edge", [("a", "b"), ("b", "c")])
        kb.teach(RULES)
        first, second = kb.ask("tc(?x, ?y)"), kb.ask("tc(?x, ?y)")
        expected = [("a", "b"), ("a", "c"), ("b", "c")]
        assert list(first) == list(second) == expected
        third = kb.ask("tc(?x, ?y)")
        kb.admin().nuke_tenant("default", "default")
        assert list(third) == expected


def test_threads_that_read_one_set(kb, reads):
    answers = kb.ask("tc(?x, ?y)")
    with ThreadPoolExecutor(4) as pool:
        lists = list(pool.map(lambda _: list(answers), range(8)))
    assert len({tuple(each) for each in lists}) == 1
    assert len(lists[0]) == PAIRS
    assert len(reads) == 1


STEPS = st.one_of(
    st.tuples(st.just("tell"), st.sampled_from(NODES), st.sampled_from(NODES)),
    st.tuples(st.just("retract"), st.sampled_from(NODES), st.sampled_from(NODES)),
    st.tuples(st.just("ask"), st.sampled_from(GOALS)),
    st.tuples(st.just("read"), st.integers(0, 20)),
    st.tuples(st.just("drop"), st.integers(0, 20)),
)


@given(st.lists(STEPS, max_size=25))
def test_any_order_of_goals_reads_and_changes(steps):
    with open_kb() as kb:
        kb.tell_many("node", [(name,) for name in NODES])
        kb.tell_many("edge", [("n0", "n1"), ("n1", "n2"), ("n2", "n0")])
        kb.teach(RULES)
        held = []
        for kind, *args in steps:
            if kind == "tell":
                kb.tell("edge", args)
            elif kind == "retract":
                kb.retract("edge", args)
            elif kind == "ask":
                expected = kb.ask(args[0], limit=1000)  # a limit copies the answers at once
                held.append((kb.ask(args[0]), list(expected)))
            elif held:
                answers, expected = held[args[0] % len(held)]
                if kind == "drop":
                    held.remove((answers, expected))
                else:
                    assert answers[:3] == expected[:3]
                    assert list(answers) == expected
        for answers, expected in held:
            assert len(answers) == len(expected)
            assert list(answers) == expected
