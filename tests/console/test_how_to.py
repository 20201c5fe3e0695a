"""Changes that would make a goal true or false, in the playground."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from support.console import Console

ACCESS = """
member(ann, eng). member(bob, eng). grant(eng, plan). suspended(bob).
can_read(?who, ?doc) :- member(?who, ?group), grant(?group, ?doc), not suspended(?who).
"""


def test_a_refused_goal_says_what_would_allow_it(console: Console):
    console.load(ACCESS)
    page = console.open("playground", goal="can_read(zed, plan)")
    sentence = "It would be allowed if member(zed, eng)."
    expect(page.get_by_role("tabpanel", name="Why not")).to_contain_text(sentence)
    page.get_by_role("tab", name="How to").click()
    expect(page.get_by_role("tabpanel").get_by_role("listitem").first).to_contain_text(
        "add member(zed, eng)"
    )
    page = console.open("playground", goal="can_read(bob, plan)")
    sentence = "It would be allowed without suspended(bob)."
    expect(page.get_by_role("tabpanel", name="Why not")).to_contain_text(sentence)


def test_a_goal_that_only_lacks_itself_is_no_condition(console: Console):
    console.load(ACCESS)
    page = console.open("playground", goal="can_raed(?who, ?doc)")
    panel = page.get_by_role("tabpanel", name="Why not")
    expect(panel).to_contain_text("Did you mean can_read/2?")
    page.wait_for_load_state("networkidle")
    expect(panel).not_to_contain_text("It would")


def test_what_would_make_the_selected_answer_false(console: Console):
    console.load(ACCESS)
    page = console.open("playground", goal="can_read(?who, plan)", tab="howto")
    panel = page.get_by_role("tabpanel", name="How to")
    expect(panel).to_contain_text("can_read(ann, plan) would be false after one of these changes.")
    proposals = panel.locator("ol > li").all_inner_texts()
    assert [text.split() for text in proposals] == [
        ["remove", "grant(eng,", "plan)"],
        ["remove", "member(ann,", "eng)"],
        ["add", "suspended(ann)"],
    ]


def test_a_goal_that_no_change_makes_true(console: Console):
    console.load(ACCESS)
    page = console.open("playground", goal="can_read(zed, plan), 1 > 2", tab="howto")
    expect(page.get_by_role("tabpanel")).to_contain_text("No change of at most 3 facts makes")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_how_to_has_no_violations_of_accessibility(
    new_console: Callable[..., Console], scheme: str, width: int
):
    console = new_console(color_scheme=scheme, viewport={"width": width, "height": 800})
    console.load(ACCESS)
    for tab in ("whynot", "howto"):
        page = console.open("playground", goal="can_read(zed, plan)", tab=tab)
        expect(page.get_by_role("tabpanel")).to_contain_text("member(zed, eng)")
        assert console.violations() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_changes_that_differ_in_their_constants_only_are_one(console: Console):
    console.load(ACCESS)
    page = console.open("playground", goal="owns(?who, ?doc)", tab="howto")
    panel = page.get_by_role("tabpanel", name="How to")
    expect(panel.locator("ol > li")).to_have_count(1)
    expect(panel).to_contain_text("owns(?x, ?y)")
    expect(panel).to_contain_text("for example with ?x = ann, bob; ?y = ann, bob, eng, plan")
