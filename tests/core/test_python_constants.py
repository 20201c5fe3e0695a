"""Values of Python as arguments of facts."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from uuid import UUID

import pytest

import kbcore
from kbcore.errors import InvalidInput

LONG = 28857836529306024611912


@pytest.fixture
def kb():
    with kbcore.open_kb() as kb:
        yield kb


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (date(2026, 5, 1), "2026-05-01"),
        (datetime(2026, 5, 1, 10, tzinfo=timezone.utc), "2026-05-01T10:00:00+00:00"),
        (Decimal("1E+3"), "1000"),
        (Decimal("10.50"), "10.50"),
        (UUID(int=7), "00000000-0000-0000-0000-000000000007"),
        (LONG, str(LONG)),
    ],
)
def test_values_with_a_standard_text(kb, value, text):
    kb.tell("p", [value])
    kb.tell_many("q", [(value,)])
    assert list(kb.query("p", ["?x"])) == list(kb.query("q", ["?x"])) == [(text,)]
    assert kb.query("p", [value]).count() == 1


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "null"),
        (object(), "a value of type object"),
        (Decimal("NaN"), "a value of type Decimal"),
    ],
)
def test_other_values_are_refused_with_their_type(kb, value, kind):
    with pytest.raises(InvalidInput, match=f"not {kind}"):
        kb.tell("p", [value])


def test_whole_numbers_come_back_exactly(kb):
    kb.tell_many("n", [(LONG,), (2**63 - 1,), ("007",), ("1.5",), ("1e999",)])
    kb.teach("top(max(?x)) :- n(?x). best(max ?x) :- n(?x). sum(sum(?x)) :- n(?x).")
    assert set(kb.query("n", ["?x"], values="python")) == {
        (LONG,),
        (2**63 - 1,),
        ("007",),
        (1.5,),
        ("1e999",),
    }
    assert list(kb.ask("top", ["?x"])) == list(kb.ask("best", ["?x"])) == [(str(LONG),)]
    assert list(kb.ask("sum", ["?x"])) == []
    answers = kb.ask("n(?x), ?y = ?x + 0", values="python")
    assert set(answers) == {(2**63 - 1, 2**63 - 1), (1.5, 1.5)}
