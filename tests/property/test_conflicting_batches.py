"""Conflict strategies for many facts of one request: the same as one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore import open_kb

NAMES = st.sampled_from(["ann", "bob"])
TOLD = st.tuples(NAMES, st.sampled_from("xyz"), st.booleans(), st.integers(1, 6))


def texts(told):
    return [
        f"{'' if positive else '~'}city({name}, {city}) [validFrom={day * 1000}]"
        for name, city, positive, day in told
    ]


def believed(kb):
    days = range(500, 7500, 1000)
    return [sorted(kb.ask("city(?who, ?where)", as_of=day)) for day in days]


@examples(60)
@given(st.lists(TOLD, max_size=8))
def test_facts_together_are_facts_one_by_one(told):
    with open_kb() as one, open_kb() as many:
        for kb in (one, many):
            kb.teach("@key city(?who, _).")
        for text in texts(told):
            one.tell(text, conflict="NEWEST_WINS")
        if told:
            many.tell(" . ".join(texts(told)) + " .", conflict="NEWEST_WINS")
        assert believed(many) == believed(one)
