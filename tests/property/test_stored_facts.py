"""Pages of stored facts against a naive filter of all facts, between writes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.engines import T0
from support.examples import examples
from support.runtimes import runtime_on

from kbcore.clock import ManualClock
from kbcore.reason import stored_facts
from kbcore.reason.budget import Notes
from kbcore.reason.options import FactOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Variable
from kbplanner.ir.values.numbers import number

NAMES = ("ann", "Anna", "BANANA", "straße", "STRASSE", "10", "9", "1e1", "", "İstanbul")
TEXTS = ("", "an", "AN", "ss", "1", "zzz", "i", "anna")
PATTERNS = (("?x", "?y"), ("?x", "?x"), ("ann", "?y"), ("?x", "10"), ("new", "?y"))
TTL = 1000

fact = st.tuples(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)),
    st.booleans(),
    st.sampled_from([None, "s"]),
)
write = st.tuples(st.sampled_from(["tell", "tell", "limited", "retract", "later"]), fact)
search = st.tuples(
    st.sampled_from(PATTERNS),
    st.sampled_from(TEXTS),
    st.sampled_from([None, "s", "*"]),
    st.sampled_from([None, True, False]),
    st.integers(1, 7),
)


def rank(args):
    return [(1, 0, name) if (value := number(name)) is None else (0, value, name) for name in args]


def matches(pattern, args):
    bound = {}
    return all(
        bound.setdefault(part, value) == value if part[:1] == "?" else part == value
        for part, value in zip(pattern, args, strict=True)
    )


def naive(facts, now, pattern, text, scope, positive):
    """The rows that match, in answer order, from all facts and their ends."""
    selected = [
        (place, not sign, args)
        for (args, sign, place), end in facts.items()
        if now < end and scope in ("*", place) and positive in (None, sign)
        if matches(pattern, args) and any(text.casefold() in name.casefold() for name in args)
    ]
    return sorted(selected, key=lambda row: (row[0] or "", row[1], rank(row[2])))


def atom_of(pattern):
    return Atom("p", tuple(Variable(part[1:]) if part[:1] == "?" else part for part in pattern))


@pytest.mark.parametrize("engine", ["c", "python"])
@pytest.mark.parametrize("min_cached_rows", [0, 1_000_000])
@examples(60)
@given(st.lists(st.one_of(write, write, search), min_size=5, max_size=25), search)
def test_the_pages_are_the_facts_that_match(engine, min_cached_rows, steps, last):
    clock, facts = ManualClock(T0), {}
    with pytest.MonkeyPatch.context() as patch, runtime_on(engine, clock=clock) as node:
        patch.setattr(stored_facts, "MIN_CACHED_ROWS", min_cached_rows)
        kb = node.knowledge_base()
        for step in [*steps, last]:
            if len(step) == 2:
                name, key = step
                args, sign, scope = key
                stored = facts.get(key, 0) > clock.now_ms()
                if name == "later":
                    clock.advance(TTL // 2)
                elif name == "retract":
                    kb.retract_fact("p", args, positive=sign, scope=scope)
                    facts.pop(key, None)
                elif not stored:
                    ttl = TTL if name == "limited" else None
                    kb.assert_facts([Fact("p", args, sign, scope=scope, ttl=ttl)])
                    facts[key] = clock.now_ms() + (ttl or 1 << 60)
                continue
            pattern, text, scope, positive, size = step
            expected = naive(facts, clock.now_ms(), pattern, text, scope, positive)
            for as_of in (None, clock.now_ms()):
                rows, total, offset = [], None, 0
                while total is None or offset < total:
                    notes = Notes()
                    options = FactOptions(scope, size, offset, as_of, text)
                    page = kb.query_page(atom_of(pattern), options, positive=positive, notes=notes)
                    assert len(page) == min(size, max(notes.total - offset, 0))
                    assert total in (None, notes.total)
                    total, offset = notes.total, offset + size
                    rows += page
                assert total == len(expected)
                assert [(row["scope"], row["negated"], tuple(row["args"])) for row in rows] == (
                    expected
                )
            whole = kb.query_page(
                atom_of(pattern), FactOptions(scope, contains=text, offset=1), positive=positive
            )
            assert [tuple(row["args"]) for row in whole] == [row[2] for row in expected[1:]]
