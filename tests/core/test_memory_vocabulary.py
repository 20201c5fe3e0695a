"""The vocabulary `memory.kb`: its states, and each of its rules with a goal."""

from __future__ import annotations

from importlib.resources import files

import pytest
from support.engines import T0
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.embed import KnowledgeBase

EVENTS = """
happened(e1, mia, "ran a marathon", "2023-04-02").
happened(e2, mia, "ran a marathon", "2023-10-29").
happened(e3, mia, "adopted a dog", "2023-05-10").
happened(e4, leo, "ran a marathon", "2023-10-29").
prefers(mia, tea). prefers(leo, tea). prefers(leo, rum).
plans(mia, move, "2023-11-24"). plans(mia, retire, "2050-01-01"). plans(mia, past, "2020-01-01").
"""


@pytest.fixture
def memory():
    node = runtime(clock=ManualClock(T0))  # 2023-11-14T22:13:20Z
    with KnowledgeBase(node, "default") as kb:
        kb.tell((files("kbcore") / "memory.kb").read_text())
        kb.tell(EVENTS)
        yield kb


@pytest.mark.parametrize(
    ("goal", "answers"),
    [
        ('days_since(mia, "adopted a dog", ?n)', ["188"]),
        ("days_until(mia, move, ?n)", ["10"]),
        ("days_until(mia, past, ?n)", []),
        ('times(mia, "ran a marathon", ?n)', ["2"]),
        ('month_of(leo, "ran a marathon", ?m)', ["2023-10"]),
        ('year_of(mia, "adopted a dog", ?y)', ["2023"]),
        ("both_prefer(leo, mia, ?what)", ["tea"]),
        ("both_did(leo, mia, ?what)", ["ran a marathon"]),
        ('first_day(mia, "ran a marathon", ?day)', ["2023-04-02"]),
        ('latest_day(mia, "ran a marathon", ?day)', ["2023-10-29"]),
        ('next_after(mia, "adopted a dog", ?what)', ["ran a marathon"]),
        ("next_plan_day(mia, ?day)", ["2023-11-24"]),
        ('between(mia, "adopted a dog", "ran a marathon", ?n)', ["172"]),
    ],
)
def test_a_rule_answers_its_question(memory, goal, answers):
    assert [answer[-1] for answer in memory.ask(goal)] == answers


def test_a_new_value_of_a_state_ends_the_old_one(memory):
    memory.ingest("lives_in(mia, hamburg).")
    memory.ingest("lives_in(mia, berlin).")
    assert list(memory.ask("lives_in(mia, ?where)")) == [("mia", "berlin")]


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("How long was it between my first marathon and the dog?", True),
        ("How many days are there between my marathons?", True),
        ("On which day did I adopt the dog?", False),
        ("How many days until I move?", False),
    ],
)
def test_only_a_question_about_what_lies_between_gives_intervals(memory, question, is_asked):
    window = memory.context(query=question, asker="mia", format="natural")
    assert ("days of mia between" in window.text) is is_asked
    assert "!=" not in window.text
