"""Words that the full-text search derives: base forms of irregular words, and dates."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from kbcore import open_kb
from kbcore.search.dates import date_words, resolved_dates
from kbcore.search.irregular import BASE_FORMS
from kbcore.search.tokens import words

NOW = int(datetime(2026, 11, 25, 12, tzinfo=timezone.utc).timestamp() * 1000)
"""A Wednesday."""


def test_irregular_forms_are_their_base_form():
    assert words("She went home and bought two knives") == words("she goes home, buys two knife")
    assert words("gone") == words("go") == words("WENT")
    assert all(words(form) == words(base) for form, base in BASE_FORMS.items())
    assert len(BASE_FORMS) > 150


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2023-05-07", ["7", "may", "sunday"]),
        ("2023-05-17", ["may", "wednesday"]),
        ("2023-12-01T10:30:00Z", ["1", "december", "friday"]),
        ("2023-12-31T10:30:00.5+02:00", ["december", "sunday"]),
        ("2023-02-30", []),
        ("2023-05-07 is the day", []),
        ("may", []),
        ("", []),
    ],
)
def test_words_of_a_date(text, expected):
    assert date_words(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What did Ann do last May?", "2026"),
        ("in last December", "2025"),
        ("last November", "2025"),
        ("next May", "2027"),
        ("this may", "2026"),
        ("yesterday", "24 november 2026"),
        ("Where was she last Friday?", "20 november 2026"),
        ("last Wednesday", "18 november 2026"),
        ("next Wednesday", "2 december 2026"),
        ("this friday", "27 november 2026"),
        ("three weeks ago", "4 november 2026"),
        ("25 days ago", "31 october 2026"),
        ("a month ago", "october 2026"),
        ("11 months ago", "december 2025"),
        ("last year", "2025"),
        ("two years ago and today", "2024 25 november 2026"),
        ("who sings?", ""),
        ("the last of us", ""),
    ],
)
def test_dates_that_a_text_means(text, expected):
    assert resolved_dates(text, NOW) == expected


def test_a_question_finds_the_fact_of_the_day_it_means():
    with open_kb() as kb:
        for month in range(1, 13):
            kb.tell("met", ["ann", f"friend {month}", f"2019-{month:02}-14"])
        for question, month in (("Whom did Ann meet in May?", 5), ("meeting ann on 14 March", 3)):
            window = kb.context(query=question, max_facts=1)
            assert [entry.args[1] for entry in window.entries] == [f"friend {month}"]
