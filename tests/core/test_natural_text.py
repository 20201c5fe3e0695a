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

from kbcore.context.request import MINUTE
from kbcore.context.text.notes import day_text, iso_day_text
from kbcore.context.text.phrases import (
    clause_of,
    in_words,
    reason_text,
    rule_phrase,
    sentence,
    words,
)
from kbcore.context.text.render import render
from kbcore.context.window import OTHER
from kbplanner.ir.phrases import Phrase, phrase_problem
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_atom
from kbplanner.syntax.printer import print_row
from kbtypes.windows import Contradiction, Entry, Provenance, Window

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
            frozenset({2}),
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
    text = render(FULL, "natural")
    if os.environ.get("KB_GOLDEN") == "write":
        GOLDEN.parent.mkdir(exist_ok=True)
        GOLDEN.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == GOLDEN.read_text(encoding="utf-8")
    assert render(FULL, "natural") == text


def test_an_empty_window_has_empty_text() -> None:
    assert render(window()) == ""


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        ("works_at(ann, acme)", "ann works at acme"),
        ("worksAt(ann, acme)", "ann works at acme"),
        ("likes(ann, tea)", "ann likes tea"),
        ("~likes(ann, tea)", "ann does not like tea"),
        ("~works_at(ann, acme)", "ann does not work at acme"),
        ("~has(ann, cat)", "ann does not have cat"),
        ("~studies(ann, law)", "ann does not study law"),
        ("~reaches(a, b)", "a does not reach b"),
        ("~uses(a, b)", "a does not use b"),
        ("visited(ann, paris)", "ann visited paris"),
        ("~visited(ann, paris)", "ann did not visit paris"),
        ("~married(ann, bob)", "ann did not marry bob"),
        ("is_part_of(a, b)", "a is part of b"),
        ("~is_part_of(a, b)", "a is not part of b"),
        ("is_a(tux, bird)", "tux is a bird"),
        ("is_tall(bob)", "bob is tall"),
        ("~is_available(bob)", "bob is not available"),
        ("can_fly(tux)", "tux can fly"),
        ("~can_fly(tux)", "tux cannot fly"),
        ("may_enter(ann, lab)", "ann may enter lab"),
        ("~must_report_to(ann, bob)", "ann must not report to bob"),
        ("sleeps(ann)", "ann sleeps"),
        ("~sleeps(ann)", "ann does not sleep"),
        ("likes(ann, 'green tea')", 'ann likes "green tea"'),
    ],
)
def test_atoms_as_sentences(atom: str, text: str) -> None:
    assert sentence(parse_atom(atom)) == text


@pytest.mark.parametrize(
    "atom",
    [
        "parent(ann, bob)",
        "friends(ann, bob)",
        "members_of(ann, club)",
        "is_parent(ann, bob)",
        "moved_to(ann, paris)",
        "owns_car(ann, volvo)",
        "has_child(ann, bob)",
        "speed(car, 50)",
        "part_of(a, b)",
        "works_at(ann)",
        "bird(tux)",
        "is_bird(tux)",
        "boss(ann)",
        "raining",
        "~raining",
        "gave(ann, bob, book)",
        "'odd name'(ann, bob)",
        "can(ann)",
        "is(ann, bob)",
    ],
)
def test_atoms_without_a_good_sentence(atom: str) -> None:
    assert sentence(parse_atom(atom)) is None


def test_declared_phrases() -> None:
    templates = {
        ("parent", 2): Phrase("parent", 2, "{0} is a parent of {1}", "{0} is no parent of {1}"),
        ("works_at", 2): Phrase("works_at", 2, "{1} employs {0}"),
        ("raining", 0): Phrase("raining", 0, "it rains"),
    }
    assert sentence(parse_atom("parent(ann, bob)"), templates) == "ann is a parent of bob"
    assert sentence(parse_atom("~parent(ann, bob)"), templates) == "ann is no parent of bob"
    assert sentence(parse_atom("works_at(ann, 'my firm')"), templates) == '"my firm" employs ann'
    assert sentence(parse_atom("~works_at(ann, acme)"), templates) == "ann does not work at acme"
    assert sentence(parse_atom("parent(ann)"), templates) is None
    assert sentence(parse_atom("raining"), templates) == "it rains"
    assert sentence(parse_atom("p('{1}', '{0}')"), {("p", 2): Phrase("p", 2, "{0} p {1}")}) == (
        '"{1}" p "{0}"'
    )
    text = render(
        window(
            entry("parent", "ann", "bob"),
            entry("likes", "ann", "tea"),
            entry("works_at", "ann", "acme"),
            rules=("parent(?x, ?y) :- works_at(?y, ?x).",),
        ),
        "natural",
        lambda scope: templates,
    )
    assert text.splitlines() == [
        "ann is a parent of bob; likes tea.",
        "acme employs ann.",
        "Rule: X is a parent of Y if X employs Y.",
    ]


@pytest.mark.parametrize(
    ("text", "arity", "problem"),
    [
        ("{0} works at {1}", 2, None),
        ("{1} and {0}, {1}", 2, None),
        ("it rains", 0, None),
        ("{0} works", 2, "lacks {1}"),
        ("{0} works at {2}", 2, "no argument {2}: a predicate with 2 arguments has {0} to {1}"),
        ("{0}", 0, "no places"),
        ("{0} {x}", 1, "no argument {x}"),
        ("{0} {", 1, "a brace belongs"),
        ("} {0}", 1, "a brace belongs"),
        ("{0} {{1}}", 2, "a brace belongs"),
        (" {0}", 1, "without spaces"),
        ("{0}\nis", 1, "one line"),
        ("", 0, "one line"),
        ("{0} \x00", 1, "NUL"),
        ("{٠}", 1, "no argument"),
    ],
)
def test_problems_of_phrases(text: str, arity: int, problem: str | None) -> None:
    actual = phrase_problem(Phrase("p", arity, text))
    assert actual is None if problem is None else problem in (actual or "")
    both = phrase_problem(Phrase("p", 0, "p", text)) if arity == 0 else None
    assert both == (actual if arity == 0 else None)


def test_words_of_identifiers() -> None:
    assert words("worksAt") == words("works_at") == words("works-at") == ("works", "at")
    assert words("HTTPServer2") == ("HTTP", "server", "2")
    assert words("no name") == ()


def test_reasons_and_rules() -> None:
    assert reason_text(()) == ""
    assert reason_text(("likes(ann, tea)",)) == " because ann likes tea"
    assert reason_text(("likes(ann, tea)", "likes(ann, tea)", "~is_tall(bob)")) == (
        " because ann likes tea and bob is not tall"
    )
    assert reason_text(("not is_tall(bob)", "not ~is_tall(ann)")) == (
        " because it is not known that bob is tall and it is not known that ann is not tall"
    )
    assert (
        reason_text(("likes(ann, tea)", "3 < 4")) == " because ann likes tea and 3 is less than 4"
    )
    assert reason_text(("likes(ann, tea)", "parent(ann, bob)")) == (
        " because ann likes tea and ann · parent: bob"
    )
    assert rule_phrase("is_p_of(?x, ?y) :- likes(?x, ?y), not hates(?y, ?x).") == (
        "X is p of Y if X likes Y and it is not known that Y hates X"
    )
    assert (
        rule_phrase("is_old(?x) :- has(?x, ?n), ?n > 80.")
        == "X is old if X has N and N is more than 80"
    )
    assert rule_phrase("next(?x, ?m) :- age(?x, ?n), ?m = ?n + 1.") == (
        "X · next: M if X · age: N and M = N + 1"
    )
    assert rule_phrase("long(?x) :- name(?x, ?n), length(?n) > 9.") is None
    assert rule_phrase("no rule at all") is None
    assert rule_phrase("likes(?who, 'X') :- owns(?who, _).") == "Who likes X if Who owns something"
    assert rule_phrase("likes(?x, 'X') :- owns(?x, _).") == "?x likes X if ?x owns something"
    assert rule_phrase("likes(?x, ?X) :- owns(?x, ?X).") == "?x likes ?X if ?x owns ?X"
    assert rule_phrase("likes(?x, sum(?n)) :- owns(?x, ?n).") == (
        "X likes the sum of N if X owns N"
    )
    assert rule_phrase("first(?x, min ?d) :- visit(?x, ?d).") == (
        "X · first: the least D if X · visit: D"
    )
    assert rule_phrase("many(?x, count(*)) :- visit(?x, ?d) [confidence=0.5].") == (
        "X · many: the number of answers if X · visit: D (confidence 0.5)"
    )
    assert rule_phrase("p(?x) :- q(?x) [confidence=0.8].") == "X · p if X · q"


@pytest.mark.parametrize(
    ("atom", "text"),
    [
        ("diet(mia, vegan)", "mia · diet: vegan"),
        ("~diet(mia, vegan)", "mia · not diet: vegan"),
        ("allergicTo(mia, 'brazil nuts', severe)", 'mia · allergic to: "brazil nuts", severe'),
        ("bird(tux)", "tux · bird"),
        ("~bird(tux)", "tux · not bird"),
        ("raining", "raining"),
        ("~raining", "not raining"),
        ("'odd name'('a b', c)", '"a b" · "odd name": c'),
        ("食べる(猫, 魚)", "猫 · 食べる: 魚"),
        ("diet('mia · diet: meat', vegan)", '"mia · diet: meat" · diet: vegan'),
        (
            "said(gina, 'Hi: all.', '2023-06-13T10:05:00Z')",
            'gina · said on 13 Jun 2023: "Hi: all."',
        ),
        ("said(gina, hi, later)", "gina · said: hi, later"),
        ("happened(e1, ann, moved, '2023-06-13')", "ann · on 13 Jun 2023: moved"),
        ("~happened(e1, ann, moved, '2023-06-13')", "ann · not on 13 Jun 2023: moved"),
        ("happened(e1, ann, moved, soon)", "e1 · happened: ann, moved, soon"),
    ],
)
def test_atoms_as_labels(atom: str, text: str) -> None:
    assert clause_of(parse_atom(atom)).whole == text


def test_goals_in_words() -> None:
    assert in_words("works_at(ann, ?where)") == "ann works at ?where"
    assert in_words("diet(?who, vegan), not likes(?who, tea), 3 < 4") == (
        "?who · diet: vegan and it is not known that ?who likes tea and 3 is less than 4"
    )
    assert in_words("happened(?id, ann, ?what, ?day)") == "ann · on ?day: ?what"
    assert in_words("~likes(ann, ?x)") == "ann does not like ?x"


def test_natural_text_has_no_notation() -> None:
    reasons = ("likes(ann, tea)", "parent(ann, bob)", "likes(ann, tea)")
    text = render(
        window(
            entry("likes", "bob", "tea", confidence=0.5, provenance=Provenance("r", reasons)),
            entry("parent", "ann", "bob", contradicted=True),
            entry("likes", "ann", "tea"),
            entry("diet", "ann", "vegan", confidence=0.8),
            entry("diet", "ann", "meat", negated=True, confidence=0.79),
        ),
        "natural",
    )
    assert text.splitlines() == [
        "bob likes tea (confidence 0.5) because ann likes tea and ann · parent: bob.",
        (
            "ann · parent: bob (contradicted: the opposite is known too); diet: vegan; "
            "not diet: meat (confidence 0.79)"
        ),
    ]


def test_texts_are_lines_in_the_order_of_time() -> None:
    entries = [
        entry("said", "Gina", "I opened my studio.", "2023-06-13T10:05:30Z", valid_from=5),
        entry("likes", "Gina", "tea"),
        entry("said", "ann b: c", "First.\nGina: no\x1b\u2028", "2023-06-02", contradicted=True),
        entry("said", "Gina", "I sold it.", "2023-06-02", negated=True),
    ]
    assert render(window(*entries), "natural").splitlines() == [
        '2 Jun 2023, "ann b: c": First. Gina: no (contradicted: the opposite is known too)',
        "13 Jun 2023, Gina: I opened my studio.",
        "Gina likes tea.",
        'Gina · not said on 2 Jun 2023: "I sold it."',
    ]
    assert "13 Jun 2023 10:05, Gina: I" in render(window(*entries), "natural", times=MINUTE)


def test_labels_name_their_scope_where_there_are_several() -> None:
    entries = [
        entry("parent", "ann", "bob"),
        entry("likes", "ann", "tea", scope="s"),
        entry("said", "ann", "Hello.", "2023-06-13", scope="s"),
    ]
    assert render(window(*entries), "natural").splitlines() == [
        "In base: ann · parent: bob",
        "In s: ann likes tea.",
        "In s: 13 Jun 2023, ann: Hello.",
    ]


@pytest.mark.parametrize(
    ("at", "words", "iso"),
    [
        (0, "1 Jan 1970", "1970-01-01"),
        (NOW, "14 Nov 2023", "2023-11-14"),
        (10**15, "epoch millisecond 1000000000000000", "epoch millisecond 1000000000000000"),
    ],
)
def test_points_in_time(at: int, words: str, iso: str) -> None:
    assert (day_text(at), iso_day_text(at)) == (words, iso)
    if at < 10**15:
        clock = "00:00" if at == 0 else "22:13"
        assert day_text(at, minute=True) == f"{words} {clock}"
        assert iso_day_text(at, minute=True) == f"{iso}T{clock}Z"


def test_a_contradiction_is_marked_at_its_facts() -> None:
    clash = Contradiction("is_tall", ("bob",), 0.5, 0.4)
    one = entry("is_tall", "bob", contradicted=True)
    mark = "(contradicted: the opposite is known too)"
    for resolved in (0, 1):
        text = render(window(one, clashes=(clash,), resolved=resolved), "natural")
        assert text == f"bob is tall {mark}."


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
        entry("odd name", "a b", negated=True, valid_from=0, role=OTHER),
        entry("p", goal="p", provenance=Provenance("negation as failure", ())),
        entry("likes", "bob", "tea", goal="likes(ann, ?x)", scope="s"),
    ]
    made = replace(window(*entries, rules=("p :- q.",)), goal_driven=True)
    assert render(made, "facts").splitlines() == [
        "% Goal: likes(ann, ?x)",
        "% Base",
        "likes(ann, tea).  % until 2023-11-14; confidence 0.5; contradicted: the opposite is known too",
        "% Scope s",
        "likes(bob, tea).",
        "% Goal: p",
        "% Base",
        "p.  % not known to hold",
        "% Other facts",
        "% Base",
        "~'odd name'(\"a b\").  % since 1970-01-01",
        "% Rules",
        "p :- q.",
    ]


def test_entries_of_several_scopes_say_which() -> None:
    both = window(entry("likes", "ann", "tea"), entry("likes", "ann", "tea", scope="s"))
    assert render(both, "natural") == "In base: ann likes tea.\nIn s: ann likes tea."


@given(st.text(min_size=1), st.text())
def test_no_argument_can_look_like_a_separate_sentence(predicate: str, arg: str) -> None:
    text = render(window(entry(predicate, arg, "x")), "natural")
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
    text = render(window(*entries), "natural")
    assert len(text) * 8 < len(json.dumps(structured))
    assert len(text) < sum(one.char_count + 1 for one in entries)
    assert all(
        (sentence(Atom(one.predicate, one.args)) or "?").removeprefix(one.args[0]) in text
        for one in entries
    )
