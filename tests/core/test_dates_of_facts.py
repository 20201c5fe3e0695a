"""A question that names a date finds the facts first that are valid since that day."""

from __future__ import annotations

import pytest

from kbcore import open_kb

MET = {
    "bob": "2024-11-02",
    "cleo": "2024-11-13",
    "dan": "2026-03-13",
    "eve": "2025-11-13",
    "finn": "2025-12-25",
    "gina": "2023-01-01",
}


@pytest.fixture
def kb():
    with open_kb() as kb:
        for who, day in MET.items():
            kb.tell("met", ["mia", who], valid_from=day)
        kb.tell("met", ["mia", "hugo"])
        yield kb


def found(kb, question, count=20):
    window = kb.context(query=question, max_facts=count)
    return [entry.args[1] for entry in window.entries]


@pytest.mark.parametrize(
    ("question", "who"),
    [
        ("Who met mia on 13 November 2025?", {"eve"}),
        ("Who met mia in November 2024?", {"bob", "cleo"}),
        ("Whom has mia met in November?", {"bob", "cleo", "eve"}),
        ("met mia on a Friday in March", {"dan"}),
        ("Who met mia in 2023?", {"gina"}),
    ],
)
def test_a_date_in_a_question(kb, question, who):
    assert set(found(kb, question, len(who))) == who


def test_a_number_without_a_month_is_no_date(kb):
    assert found(kb, "met mia 13") == found(kb, "met mia")


def test_a_word_that_the_fact_has_anyway_counts_once(kb):
    kb.tell("saw", ["mia", "the november fog of 2025"], valid_from="2025-11-13")
    kb.tell("saw", ["mia", "the november rain of 2025"], valid_from="2020-01-01")
    window = kb.context(query="saw mia november 2025", explain=True, predicates=["saw"])
    relevances = [entry.why["relevance"] for entry in window.entries]
    assert relevances[0] == pytest.approx(relevances[1])
