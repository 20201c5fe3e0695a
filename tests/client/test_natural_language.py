"""Natural language through the client, with a stand-in for the model."""

from __future__ import annotations

import pytest
from support.stand_in import StandIn

from kbcore import Config
from kbcore_client import connect

TEXT = "Ann works at Acme. Ann likes tea."


@pytest.fixture
def kb():
    with StandIn() as model, connect("memory:", config=Config(**model.settings())) as opened:
        yield opened


def test_facts_of_a_text_are_extracted_and_stored(kb):
    seen = kb.extract(TEXT)
    assert [(fact["predicate"], fact["args"]) for fact in seen.facts] == [
        ("works_at", ["Ann", "Acme"]),
        ("likes", ["Ann", "tea"]),
    ]
    assert (seen.asserted, seen.truncated, seen.model) == (0, False, "stand-in")
    stored = kb.extract(f"{TEXT} Everyone who works at Acme likes cake.", store=True, rules=True)
    assert (stored.asserted, len(stored.rules)) == (2, 1)
    assert kb.ask("likes(Ann, ?what)") == [("Ann", "cake"), ("Ann", "tea")]


def test_a_question_is_answered_from_facts(kb):
    kb.extract(TEXT, store=True)
    answer = kb.synthesize("Where does Ann work?")
    assert (answer.answer, answer.confidence) == ("Ann works at Acme.", 0.9)
    assert [step["fact"] for step in answer.derivation] == ["works_at(Ann, Acme)"]
    assert answer.queries == ["works_at(Ann, ?x)"]
    assert kb.synthesize("Who sells rockets?").confidence == 0
