"""The answers of a predicate with a requirement are those that withTrust gives its level."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from property.test_views import LEVELS, RULES, facts, some_labels
from support.examples import examples

import kbcore
from kbplanner.syntax.parser import parse_goal

DECLARED = "@levels trust: web < tool < user. @groups team: hr, eng, ops."
OWN = ("go(?x) :- alone(?x), not e(?x, b).", "go(?x) :- r(?x, ?x).", "go(b) :- many(?n), ?n > 2.")


def levels(rows: list[Any]) -> dict[tuple[str, ...], str]:
    return {tuple(row["args"]): row["trust"] for row in rows}


@examples(60)
@given(
    st.lists(st.tuples(facts, some_labels), max_size=12),
    st.lists(st.tuples(st.sampled_from(RULES), some_labels), max_size=5),
    st.lists(st.sampled_from(OWN), min_size=1, unique=True),
    st.sampled_from(LEVELS),
    st.sampled_from(LEVELS),
)
def test_answers_have_the_level(
    some_facts: list[tuple[str, Any]],
    rules: list[tuple[str, Any]],
    own: list[str],
    level: str,
    seen: str,
) -> None:
    with kbcore.open_kb() as kb, kbcore.open_kb() as free:
        for each in (kb, free):
            each.teach(DECLARED)
            for text, labels in (*some_facts, *rules):
                each.viewed(labels=labels or None).tell(text)
            each.teach(" ".join(own))
        kb.teach(f"@requires go(?x) trust >= {level}.")
        higher = max(level, seen, key=LEVELS.index)
        expected = sorted(map(tuple, free.viewed({"trust": higher}).ask("go(?x)")))
        view = kb.viewed({"trust": seen})
        assert sorted(map(tuple, view.ask("go(?x)"))) == expected
        assert len(view.prove("go(?x)")) == len(expected)
        goal = parse_goal("go(?x)").literal
        trusted = view.kb.with_trust(goal)
        assert sorted(tuple(row["args"]) for row in trusted) == expected
        plain = free.viewed({"trust": higher}).kb.with_trust(goal)
        assert levels(trusted) == levels(plain)
        for value in "abc":
            why = view.why_not(f"go({value})")
            assert why.holds == ((value,) in expected)
            below = [
                each
                for each in LEVELS[LEVELS.index(seen) : LEVELS.index(higher)]
                if free.viewed({"trust": each}).ask(f"go({value})")
            ]
            reason = (
                f"go({value}) follows at level {below[-1]}; {level} is required" if below else None
            )
            assert why.falls_short == (None if why.holds else reason)
