"""Scopes: fork, compare, merge with the conflicts side by side, delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from support.console import SAMPLE, Console, rows_of
from support.servers import Server


def load_conflicts(console: Console) -> None:
    """Store facts and a scope "draft" with a new fact, one that is gone, and two in conflict."""
    console.load(
        "likes(bob, tea) [confidence=0.8]. likes(bob, milk). likes(ann, tea). parent(a, b)."
    )
    console.post("/scope/fork", {"targetScope": "draft"})
    draft = {"scope": "draft"}
    console.post("/tell", {"text": "likes(bob, tea)", "confidence": 0.3, **draft})
    console.post("/retract", {"text": "likes(bob, milk)", **draft})
    console.post("/tell", {"text": "~likes(bob, milk)", **draft})
    console.post("/retract", {"text": "likes(ann, tea)", **draft})
    console.post("/tell", {"text": "likes(cleo, juice)", **draft})


def test_a_scope_is_forked_shown_and_deleted(console: Console):
    console.load(SAMPLE)
    page = console.open("scopes")
    page.get_by_role("button", name="Fork the base").click()
    page.get_by_role("textbox", name="Name of the new scope").fill("draft")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Forked the base to draft: 4 facts copied.")).to_be_visible()
    page.get_by_role("button", name="Show draft on all screens").click()
    expect(page.get_by_role("button", name="Scope draft")).to_be_visible()
    page.get_by_role("button", name="Delete draft").click()
    dialog = page.get_by_role("dialog", name="Delete draft")
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("button", name="Delete draft")).to_be_focused()
    page.keyboard.press("Enter")
    dialog.get_by_role("button", name="Delete").click()
    expect(page.get_by_text("Deleted draft.")).to_be_visible()
    expect(page.get_by_role("list", name="Scopes").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("button", name="Scope base")).to_be_visible()


def test_conflicts_are_side_by_side_and_the_merge_is_what_was_shown(console: Console):
    load_conflicts(console)
    page = console.open("scopes")
    page.get_by_role("button", name="Compare draft with the base").click()
    summary = "1 only in draft, 1 only in the base, 2 in conflict, 1 equal."
    expect(page.get_by_text(summary)).to_be_visible()
    assert rows_of(page, "Conflicts") == [
        [
            "likes(bob, tea) · confidence 0.3",
            "likes(bob, tea) · confidence 0.8",
            "likes(bob, tea) · confidence 0.3",
        ],
        ["~likes(bob, milk)", "likes(bob, milk)", "~likes(bob, milk)"],
    ]
    page.get_by_role("combobox", name="Conflicts").select_option("The target wins")
    page.reload()
    expect(page.get_by_text(summary)).to_be_visible()
    assert [row[2] for row in rows_of(page, "Conflicts")] == [
        "likes(bob, tea) · confidence 0.8",
        "likes(bob, milk)",
    ]
    page.get_by_role("button", name="Merge draft into the base").click()
    page.get_by_role("dialog").get_by_role("button", name="Merge").click()
    expect(page.get_by_text("Merged draft into the base")).to_be_visible()
    rows = console.post("/query", {"text": "likes(?x, ?y)"})
    assert [(row["args"], row["negated"], row["confidence"]) for row in rows] == [
        (["ann", "tea"], False, None),
        (["bob", "milk"], False, None),
        (["bob", "tea"], False, 0.8),
        (["cleo", "juice"], False, None),
    ]


@pytest.mark.parametrize("strategy", ["SOURCE_WINS", "KEEP_BOTH"])
def test_the_column_after_the_merge_is_what_the_merge_stores(console: Console, strategy: str):
    load_conflicts(console)
    page = console.open("scopes", source="draft", strategy=strategy)
    shown = [row[2] for row in rows_of(page, "Conflicts")]
    page.get_by_role("button", name="Merge draft into the base").click()
    page.get_by_role("dialog").get_by_role("button", name="Merge").click()
    expect(page.get_by_text("Merged draft into the base")).to_be_visible()
    [tea] = console.post("/query", {"text": "likes(bob, tea)"})
    assert f"confidence {tea['confidence']}" in shown[0]
    milk = console.post("/query", {"predicate": "likes", "args": ["bob", "milk"]})
    texts = {("~" if row["negated"] else "") + "likes(bob, milk)" for row in milk}
    assert set(shown[1].split("; ")) == texts


def test_a_rejected_merge_is_explained_and_changes_nothing(console: Console):
    load_conflicts(console)
    console.expected_statuses.add(409)
    page = console.open("scopes", source="draft", strategy="REJECT")
    page.get_by_role("button", name="Merge draft into the base").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Merge").click()
    expect(dialog.get_by_role("alert")).to_contain_text("2 conflicts; nothing was merged")
    assert console.post("/query", {"text": "likes(cleo, ?what)"}) == []


def test_fork_and_compare_by_keyboard(console: Console):
    console.load(SAMPLE)
    page = console.open("scopes")
    page.get_by_role("button", name="Fork the base").focus()
    page.keyboard.press("Enter")
    page.keyboard.type("draft")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="Delete draft")).to_be_visible()
    expect(page.get_by_role("button", name="Fork the base")).to_be_focused()
    for _ in range(3):  # the fork, its "Show", its "Compare"
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("0 in conflict, 4 equal.")).to_be_visible()


def test_a_tenant_without_facts_has_only_the_base(console: Console):
    page = console.open("scopes")
    expect(page.get_by_text("There are no scopes yet besides the base.")).to_be_visible()


def test_a_reader_is_not_offered_a_fork(
    new_console: Callable[..., Console], keyed_server: Server, keys: dict[str, str]
):
    console = new_console(on=keyed_server)
    console.expected_statuses |= {403}
    page = console.open("scopes")
    page.get_by_label("API key").fill(keys["reader"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("list", name="Scopes").get_by_role("listitem")).to_have_count(1)
    expect(page.get_by_role("button", name="Key reader")).to_be_visible()
    expect(page.get_by_role("button", name="Fork the base")).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_violations_of_accessibility(
    new_console: Callable[..., Console], scheme: str, width: int
):
    console = new_console(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
    )
    load_conflicts(console)
    page = console.open("scopes", source="draft")
    expect(page.get_by_role("table", name="Conflicts")).to_be_visible()
    assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for button in ("Fork the base", "Delete draft", "Merge draft into the base"):
        page.get_by_role("button", name=button).click()
        assert console.violations() == []
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
