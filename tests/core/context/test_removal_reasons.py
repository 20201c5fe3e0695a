"""Reasons why entries leave a window, in the diff and in the text about changes."""

from __future__ import annotations

import pytest
from support.engines import HOUR, tell
from support.windows import X, goal, window

from kbcore.context.request import FACTS, WindowRequest
from kbcore.context.text.render import render_changes
from kbcore.errors import BudgetExceeded
from kbcore.operations import context_windows
from kbplanner.syntax.parser import parse_program, parse_rule


def reasons(kb, **changes):
    found = kb.context_diff("s", changes)
    return {one.entry.text: one.reason for one in found.removed}, render_changes(found, "natural")


def rule(kb, text):
    kb.assert_rules([parse_rule(text)])


def test_a_fact_that_was_retracted(kb):
    tell(kb, "likes", "ann", "tea")
    tell(kb, "likes", "ann", "milk", positive=False)
    window(kb, session="s")
    kb.retract_fact("likes", ("ann", "tea"))
    kb.retract_fact("likes", ("ann", "milk"), positive=False)
    assert reasons(kb) == (
        {"likes(ann, tea)": "retracted", "not likes(ann, milk)": "retracted"},
        "No longer true: ann likes tea (retracted); does not like milk (retracted).",
    )


@pytest.mark.parametrize("swept", [False, True])
def test_a_fact_that_expired(kb, clock, swept):
    tell(kb, "away", "ann", ttl=60_000)
    window(kb, session="s")
    clock.advance(60_000)
    if swept:
        kb.decay(0.0)
    found, text = reasons(kb)
    assert found == {"away(ann)": "expired"}
    assert text.startswith("No longer true: ann · away (ended, until ")


def test_a_fact_asserted_again_with_past_validity(kb, clock):
    tell(kb, "away", "ann")
    window(kb, session="s")
    clock.step(HOUR)
    tell(kb, "away", "ann", valid_from=1, valid_until=2)
    assert reasons(kb)[0] == {"away(ann)": "expired"}


def test_a_displaced_fact_is_not_reported_as_untrue(kb, clock):
    tell(kb, "likes", "ann", "tea")
    window(kb, session="s", max_facts=1)
    clock.step(10 * HOUR)
    tell(kb, "likes", "bob", "milk")
    assert reasons(kb) == ({"likes(ann, tea)": "not_selected"}, "New: bob likes milk.")


@pytest.mark.parametrize(
    "changes",
    [{"predicates": ("other",)}, {"scope": "s"}, {"goals": [goal("other", X)], "fill": "none"}],
    ids=lambda changes: next(iter(changes)),
)
def test_what_a_request_no_longer_asks_for_is_still_true(kb, changes):
    tell(kb, "parent", "ann", "bob")
    rule(kb, "child(?y, ?x) :- parent(?x, ?y).")
    window(kb, session="s", goals=[goal("child", X, "ann")])
    assert reasons(kb, **changes) == (
        {"child(bob, ann)": "not_selected", "parent(ann, bob)": "not_selected"},
        "",
    )


def test_summarised_facts_are_still_true(kb):
    for at in range(6):
        tell(kb, "saw", "ann", str(at))
    tell(kb, "saw", "eve", "0")
    window(kb, session="s")
    kb.consolidate()
    found, text = reasons(kb)
    assert set(found.values()) == {"superseded"}
    assert len(found) == 6
    assert "No longer true" not in text
    assert "Now in a summary: ann · saw: 0; saw: 1;" in text


def test_removed_facts_of_a_summary_are_no_longer_true(kb):
    for at in range(6):
        tell(kb, "saw", "ann", str(at))
    window(kb, session="s")
    kb.consolidate()
    kb.retract_fact("saw", ("ann", "3"))
    assert {text: why for text, why in reasons(kb)[0].items() if why != "superseded"} == {
        "saw(ann, 3)": "retracted"
    }


def test_a_fact_with_other_details_has_changed(kb, clock):
    tell(kb, "likes", "ann", "tea", confidence=0.5)
    window(kb, session="s")
    tell(kb, "likes", "ann", "tea", confidence=0.7)
    assert reasons(kb) == (
        {"likes(ann, tea)": "superseded"},
        "Changed: ann likes tea (confidence 0.7).",
    )


@pytest.mark.parametrize("kept", [False, True])
def test_a_fact_whose_opposite_is_asserted(kb, clock, kept):
    tell(kb, "likes", "ann", "tea")
    window(kb, session="s")
    clock.step(10 * HOUR)
    tell(kb, "likes", "ann", "tea", positive=False)
    if not kept:
        kb.retract_fact("likes", ("ann", "tea"), positive=True)
    found, text = reasons(kb)
    assert found == {"likes(ann, tea)": "contradicted"}
    assert text.splitlines()[-1] == "No longer true: ann likes tea (the opposite is known)."


def test_a_fact_that_wins_or_is_undecided_is_not_contradicted(kb, clock):
    tell(kb, "likes", "ann", "tea", positive=False)
    clock.step(10 * HOUR)
    tell(kb, "likes", "ann", "tea")
    tell(kb, "other", "a")
    window(kb, session="s", predicates=("likes",))
    assert reasons(kb, predicates=("other",))[0] == {"likes(ann, tea)": "not_selected"}
    window(kb, session="s", auto_resolve=False, predicates=("likes",))
    left, text = reasons(kb, predicates=("other",))
    assert left == {"likes(ann, tea)": "not_selected", "not likes(ann, tea)": "not_selected"}
    assert text == "New: a · other"


def test_a_contradicted_fact_that_is_retracted_was_retracted(kb):
    tell(kb, "likes", "ann", "tea")
    tell(kb, "likes", "ann", "tea", positive=False)
    window(kb, session="s")
    kb.retract_fact("likes", ("ann", "tea"), positive=True)
    assert reasons(kb)[0] == {"likes(ann, tea)": "retracted"}


def test_conclusions(kb, clock):
    rule(kb, "flies(?x) :- bird(?x).")
    rule(kb, 'free(?x) :- flies(?x), ?x != "dodo".')
    for name in ("kept", "gone", "denied"):
        tell(kb, "bird", name)
    tell(kb, "bird", "late", ttl=60_000)
    window(kb, session="s", goals=[goal("free", X)], fill="none")
    clock.step(HOUR)
    kb.retract_fact("bird", ("gone",))
    tell(kb, "flies", "denied", positive=False)
    tell(kb, "free", "denied", positive=False)
    found, text = reasons(kb)
    assert {one: why for one, why in found.items() if one.startswith("free")} == {
        "free(gone)": "retracted",
        "free(late)": "expired",
        "free(denied)": "contradicted",
    }
    assert "because" not in text[text.index("No longer true") :]
    assert reasons(kb, goals=[goal("bird", "nobody")])[0] == {
        "free(kept)": "not_selected",
        "bird(kept)": "not_selected",
    }


def test_an_absence_that_ends(kb):
    tell(kb, "other", "a")
    window(kb, session="s", goals=[goal("seen", "yeti", negated=True)])
    assert reasons(kb, goals=[goal("other", X)])[0] == {"not seen(yeti)": "not_selected"}
    window(kb, session="s", goals=[goal("seen", "yeti", negated=True)])
    tell(kb, "seen", "yeti")
    assert reasons(kb)[0] == {"not seen(yeti)": "contradicted"}


def test_facts_of_a_scope_that_was_dropped(kb):
    tell(kb, "p", "a", scope="x")
    tell(kb, "p", "b")
    window(kb, session="s", scope="*")
    kb.drop_scope("x")
    assert reasons(kb)[0] == {"p(a)": "retracted"}


def test_changes_as_facts_are_a_program_of_what_is_true(kb):
    tell(kb, "p", "old\n% line")
    tell(kb, "p", "b", confidence=0.5, scope="x")
    window(kb, session="s", scope="*")
    kb.retract_fact("p", ("old\n% line",))
    tell(kb, "p", "b", confidence=0.7, scope="x")
    tell(kb, "p", "new")
    found = kb.context_diff("s", {"format": FACTS})
    text = render_changes(found, found.format)
    assert text.splitlines() == [
        "% New",
        "% Base",
        "p(new).",
        "% Changed",
        "% Scope x",
        "p(b).  % confidence 0.7",
        "% Base",
        '% No longer true: p("old\\n% line").  % retracted',
    ]
    assert [str(one.atom.args[0]) for one in parse_program(text)] == ["new", "b"]


def test_changes_between_windows_have_reasons(kb):
    asked = WindowRequest(session="s", max_facts=1)
    kb.ingest("likes(ann, tea)", asked)
    kb.retract_fact("likes", ("ann", "tea"))
    done = kb.ingest("likes(bob, milk)", asked)
    assert [(one.key, one.reason) for one in done.changes.removed] == [
        ("likes/ann/tea", "retracted")
    ]


def test_a_diff_compares_windows_of_one_state(kb, monkeypatch):
    """Nothing can be written between the window of a turn and the reasons for what left it."""
    asked = WindowRequest(session="s")
    kb.ingest("likes(ann, tea)", asked)
    readers = []
    plain = context_windows.Reasons.of

    def of(self, entries):
        readers.append(kb._read_tenant().lock._readers)
        return plain(self, entries)

    monkeypatch.setattr(context_windows.Reasons, "of", of)
    kb.ingest("likes(bob, milk)", asked)
    assert readers == [1]


def test_a_session_keeps_its_window_when_the_reasons_cost_too_much(kb, monkeypatch):
    tell(kb, "p", "a")
    first = window(kb, session="s")
    tell(kb, "p", "b")

    def of(self, entries):
        raise BudgetExceeded("too many steps", "maxSteps", 1)

    with monkeypatch.context() as patched:
        patched.setattr(context_windows.Reasons, "of", of)
        with pytest.raises(BudgetExceeded):
            kb.context_diff("s", {})
    assert kb.context_diff("s", {}).previous == first.id
