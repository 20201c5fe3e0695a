"""Conflict strategies for many facts of one request: the same as one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore import open_kb
from kbcore.errors import Conflict
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Variable

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


ROWS = st.lists(st.tuples(NAMES, st.sampled_from("xyz")), min_size=1, max_size=5)
STORED = st.lists(st.tuples(NAMES, st.sampled_from("xyz"), st.booleans()), max_size=5)


def stored_rows(kb, predicate, arity, scope=None):
    variables = [Variable(f"x{number}") for number in range(arity)]
    return kb.kb.query_rows(predicate, variables, scope=scope)


def stored_cities(kb):
    return sorted((row["args"], row["negated"]) for row in stored_rows(kb, "city", 2))


@examples(60)
@given(STORED, ROWS, st.sampled_from(["KEEP_BOTH", "REJECT", "NEWEST_WINS", "CONFIDENCE"]))
def test_rows_in_bulk_are_stored_as_the_same_facts_are(stored, rows, conflict):
    with open_kb() as bulk, open_kb() as single:
        refused = {}
        for kb in (bulk, single):
            kb.teach("@key city(?who, _).")
            for name, city, positive in stored:
                kb.tell("city", [name, city], negated=not positive)
            try:
                if kb is bulk:
                    kb.tell_many("city", rows, conflict=conflict)
                else:
                    kb.kb.assert_facts([Fact("city", row) for row in rows], conflict=conflict)
            except Conflict as error:
                refused[kb] = error.details["reason"]
        assert stored_cities(bulk) == stored_cities(single)
        assert refused.get(bulk) == refused.get(single)


FACTS = st.builds(
    Fact,
    st.sampled_from("pq"),
    st.sampled_from([("a",), ("b",), ("a", "b")]),
    st.booleans(),
    st.sampled_from([None, "s"]),
    ttl=st.sampled_from([None, 10**9]),
    valid_from=st.sampled_from([None, 1000]),
    valid_until=st.sampled_from([None, 1 << 45]),
    confidence=st.sampled_from([None, 0.25, 0.75]),
    metadata=st.sampled_from([{}, {"source": "x"}, {"source": "y", "line": 2}]),
)


def described(kb):
    rows = [
        row
        for predicate in "pq"
        for arity in (1, 2)
        for scope in (None, "s")
        for row in stored_rows(kb, predicate, arity, scope)
    ]
    left_out = {"createdAt", "validFrom", "validUntil"}  # with times of the clock
    return sorted(
        repr(
            [
                row["validUntil"] if row["ttl"] is None else "",
                *((name, value) for name, value in row.items() if name not in left_out),
            ]
        )
        for row in rows
    )


@examples(80)
@given(st.lists(FACTS, max_size=12))
def test_facts_together_have_the_details_that_they_have_one_by_one(facts):
    with open_kb() as one, open_kb() as many:
        for fact in facts:
            one.kb.assert_facts([fact])
        many.kb.assert_facts(facts)
        assert described(many) == described(one)


def test_what_is_left_of_a_value_does_not_replace_its_later_interval():
    statements = ["x) [validFrom=3000]", "y) [validFrom=1000]", "y) [validFrom=2000]"]
    statements += ["y) [validFrom=3000]", "x) [validFrom=1000]"]
    with open_kb() as one, open_kb() as many:
        for kb in (one, many):
            kb.teach("@key city(?who, _).")
        for text in statements:
            one.tell(f"city(bob, {text}.", conflict="NEWEST_WINS")
        many.tell(" ".join(f"city(bob, {text}." for text in statements), conflict="NEWEST_WINS")
        assert list(many.ask("city(bob, ?x)")) == [("bob", "y")]
        assert believed(many) == believed(one)
