"""Context windows as natural text. `KB_GOLDEN=write` rewrites the golden file for review."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbcore.context.text.drafts import moment_text
from kbcore.context.text.phrases import premise, rule_phrase, sentence, words
from kbcore.context.text.render import render
from kbcore.context.window import Contradiction, Entry, Provenance, Window
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_atom
from kbplanner.syntax.printer import print_row

NOW = 1_700_000_000_000
GOLDEN = Path(__file__).parent / "golden" / "window.txt"


def entry(predicate: str, *args: str, negated: bool = False, **more: Any) -> Entry:
    settings: dict[str, Any] = {
        "scope": None,
        "salience": 0.5,
        "category": "asserted",
        "created_at": NOW,
    }
    text = print_row(predicate, args, negated)
    return Entry(predicate, args, negated, text=text, **{**settings, **more})


def window(
    *entries: Entry,
    rules: tuple[str, ...] = (),
    clashes: tuple[Contradiction, ...] = (),
    resolved: int = 0,
) -> Window:
    fields: dict[str, Any] = {
        "id": "ctx-0",
        "entries": entries,
        "rules": rules,
        "available": 0,
        "savings": 0,
        "contradictions": clashes,
        "contradictions_found": len(clashes),
        "resolved": resolved,
        "buckets": {},
        "goal_driven": False,
        "generation": 1,
        "generated_at": NOW,
    }
    return Window(
        **{name: value for name, value in fields.items() if name in Window.__dataclass_fields__}
    )


FULL = window(
    entry("works_at", "ann", "acme", valid_from=NOW - 86_400_000, valid_until=NOW + 3_600_000),
    entry("likes", "ann", "tea", confidence=0.8),
    entry("likes", "ann", "coffee", negated=True),
    entry(
        "mayEnter",
        "ann",
        "lab 3",
        category="inferred",
        created_at=0,
        provenance=Provenance(
            "mayEnter(?p, ?r) :- works_at(?p, ?f), owns(?f, ?r).",
            ("works_at(ann, acme)", 'owns(acme, "lab 3")', "not barred(ann)"),
        ),
    ),
    entry("parent", "bob", "ann"),
    entry("is_tall", "bob", contradicted=True),
    entry("is_tall", "bob", negated=True, contradicted=True),
    entry("raining"),
    entry("meeting", "monday", "ann", "bob"),
    rules=(
        "mayEnter(?p, ?r) :- works_at(?p, ?f), owns(?f, ?r), not barred(?p).",
        "adult(?x) :- age(?x, ?n), ?n >= 18.",
    ),
    clashes=(Contradiction("is_tall", ("bob",), 0.5, 0.4),),
)


def test_the_golden_window() -> None:
    text = render(FULL)
    if os.environ.get("KB_GOLDEN") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == GOLDEN.read_text(encoding="utf-8")
    assert render(FULL) == text


def test_an_empty_window_has_empty_text() -> None:
    assert render(window()) == ""


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        ("works_at(ann, acme)", "ann works at acme"),
        ("worksAt(ann, acme)", "ann works at acme"),
        ("likes(ann, tea)", "ann likes tea"),
        ("~likes(ann, tea)", "it is false that ann likes tea"),
        ("part_of(a, b)", "a is part of b"),
        ("~part_of(a, b)", "a is not part of b"),
        ("parent(ann, bob)", "parent(ann, bob)"),
        ("~parent(ann, bob)", "it is false that parent(ann, bob)"),
        ("bird(tux)", "tux is bird"),
        ("can_fly(tux)", "tux can fly"),
        ("~can_fly(tux)", "tux can not fly"),
        ("sleeps(ann)", "ann sleeps"),
        ("boss(ann)", "ann is boss"),
        ("raining", "it holds: raining"),
        ("~raining", "it does not hold: raining"),
        ("gave(ann, bob, book)", "gave(ann, bob, book)"),
        ("likes(ann, 'green tea')", 'ann likes "green tea"'),
        ("'odd name'(ann, bob)", "'odd name'(ann, bob)"),
    ],
)
def test_atoms_as_sentences(atom: str, text: str) -> None:
    assert sentence(parse_atom(atom)) == text


def test_words_of_identifiers() -> None:
    assert words("worksAt") == words("works_at") == words("works-at") == ("works", "at")
    assert words("HTTPServer2") == ("HTTP", "server", "2")
    assert words("no name") == ()


def test_premises_and_rules() -> None:
    assert premise("likes(ann, tea)") == "ann likes tea"
    assert premise("not bird(tux)") == premise("~bird(tux)") == "tux is not bird"
    assert premise("3 < 4") == "3 < 4"
    assert rule_phrase("p_of(?x, ?y) :- likes(?x, ?y), not hates(?y, ?x).") == (
        "?x is p of ?y if ?x likes ?y and it is not known that ?y hates ?x"
    )
    assert rule_phrase("no rule at all") == "no rule at all"


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (0, "1970-01-01"),
        (NOW, "2023-11-14T22:13:20Z"),
        (60_000, "1970-01-01T00:01Z"),
        (1, "1970-01-01T00:00:00.001Z"),
        (10**15, "epoch millisecond 1000000000000000"),
    ],
)
def test_points_in_time(at: int, text: str) -> None:
    assert moment_text(at) == text


def test_an_open_contradiction_has_a_line_a_resolved_one_only_a_mark() -> None:
    clash = Contradiction("is_tall", ("bob",), 0.5, 0.4)
    one = entry("is_tall", "bob", contradicted=True)
    assert "bob is tall (contradicted: the opposite is known too)." in render(
        window(one, clashes=(clash,), resolved=1)
    )
    assert "Contradiction" not in render(window(one, clashes=(clash,), resolved=1))
    assert "Contradiction, unresolved: both that bob is tall and the opposite." in render(
        window(one, clashes=(clash,))
    )


def test_facts_have_notes_in_comments_and_headings_for_goals() -> None:
    entries = [
        entry(
            "likes",
            "ann",
            "tea",
            goal="likes(ann, ?x)",
            confidence=0.5,
            valid_until=NOW + 1000,
            contradicted=True,
        ),
        entry("odd name", "a b", negated=True, valid_from=0),
        entry("p", goal="p", provenance=Provenance("negation as failure", ())),
        entry("likes", "bob", "tea", goal="likes(ann, ?x)", scope="s"),
    ]
    made = replace(window(*entries, rules=("p :- q.",)), goal_driven=True)
    assert render(made, "facts").splitlines() == [
        "% Goal: likes(ann, ?x)",
        "% Base",
        "likes(ann, tea).  % until 2023-11-14T22:13:21Z; confidence 0.5; contradicted: the opposite is known too",
        "% Scope s",
        "likes(bob, tea).",
        "% Other facts",
        "% Base",
        "not 'odd name'(\"a b\").  % since 1970-01-01",
        "% Goal: p",
        "% Base",
        "p.  % because negation as failure",
        "% Rules",
        "p :- q.",
    ]


def test_entries_of_several_scopes_say_which() -> None:
    assert render(
        window(entry("likes", "ann", "tea"), entry("likes", "ann", "tea", scope="s"))
    ) == ("In base: ann likes tea.\nIn s: ann likes tea.")


@given(st.text(min_size=1), st.text())
def test_no_argument_can_look_like_a_separate_sentence(predicate: str, arg: str) -> None:
    text = render(window(entry(predicate, arg, "x")))
    assert "\n" not in text
    assert len(text.splitlines()) == 1


def test_natural_is_shorter_than_structured() -> None:
    entries = [entry("works_at", f"person{i % 7}", f"firm{i}") for i in range(50)]
    structured = [
        {
            "predicate": one.predicate,
            "args": one.args,
            "negated": one.negated,
            "scope": None,
            "salience": one.salience,
            "category": one.category,
            "charCount": one.char_count,
            "provenance": None,
            "createdAt": one.created_at,
            "validFrom": one.created_at,
            "validUntil": None,
            "metadata": {},
        }
        for one in entries
    ]
    text = render(window(*entries))
    assert len(text) * 8 < len(json.dumps(structured))
    assert len(text) < sum(one.char_count + 1 for one in entries)
    assert all(
        sentence(Atom(one.predicate, one.args)).removeprefix(one.args[0]) in text for one in entries
    )
