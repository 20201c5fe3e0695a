"""The window composer: text, budget, reasons, and the changes of a session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect
from support.console import SAMPLE, Console, rows_of

GOAL = "ancestor(ann, ?who)"


def window_of(console: Console, **request: Any) -> Any:
    """Return the window that the server gives for the same request."""
    body = {
        "goals": [GOAL],
        "explain": True,
        "citations": True,
        "compat": False,
        "format": "natural",
        **request,
    }
    return console.post("/memory/context", body)


def test_a_window_is_composed_from_the_form(console: Console):
    console.load(SAMPLE)
    page = console.open("window")
    page.get_by_role("button", name="Add goals").click()
    console.type_text("Goal 1", GOAL)
    console.type_text("Goal 2", "likes(bob, ?what)")
    page.get_by_label("Question").fill("tea")
    page.get_by_label("Facts at most").fill("50")
    page.get_by_label("Tokens at most").fill("200")
    page.get_by_role("button", name="Compose").click()
    text = page.get_by_label("Text for the prompt", exact=True).and_(page.locator("pre"))
    expect(text).to_contain_text("bob likes tea")
    window = window_of(
        console, goals=[GOAL, "likes(bob, ?what)"], query="tea", maxFacts=50, maxTokens=200
    )
    assert text.inner_text() == window["formattedText"]
    expect(page.get_by_text(f"About {window['tokenEstimate']} of 200 tokens.")).to_be_visible()
    expect(page.get_by_role("tab", name=f"Entries ({len(window['entries'])})")).to_be_visible()
    bars = page.get_by_role("region", name="Budget").get_by_role("listitem").all_inner_texts()
    sizes = [line for line in bars if line.startswith("for a goal")]
    characters = sum(e["charCount"] for e in window["entries"] if e["category"] == "goal_relevant")
    assert f"{characters} characters" in sizes[0]


def test_the_address_reproduces_the_window(console: Console):
    console.load(SAMPLE)
    page = console.open("window")
    page.get_by_role("button", name="Add goals").click()
    console.type_text("Goal 1", GOAL)
    page.get_by_label("Format").select_option("facts")
    page.get_by_label("Facts at most").fill("4")
    page.get_by_role("button", name="Compose").click()
    expect(page.get_by_role("tab", name="Entries (4)")).to_be_visible()
    page.get_by_role("tab", name="Left out").click()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("textbox", name="Goal 1")).to_have_text(GOAL)
    expect(page.get_by_label("Format")).to_have_value("facts")
    expect(page.get_by_role("tab", name="Left out")).to_have_attribute("aria-selected", "true")
    text = window_of(console, format="facts", maxFacts=4)["formattedText"]
    assert page.locator("pre").first.inner_text() == text


def test_an_entry_says_why_it_is_in_the_window(console: Console):
    console.load(SAMPLE)
    page = console.open("window", goals=GOAL)
    facts = [row[0] for row in rows_of(page, "Entries")]
    page.get_by_role("table", name="Entries").get_by_text("ancestor(ann, cleo)").first.click()
    why = page.get_by_role("region", name="Why is ancestor(ann, cleo) here?")
    expect(why).to_contain_text(f"answer of {GOAL}")
    expect(why).to_contain_text("parent(ann, bob)")
    page.get_by_role("table", name="Entries").focus()
    page.keyboard.press("Home")
    expect(page.get_by_role("heading", name=f"Why is {facts[0]} here?")).to_be_visible()
    why = page.get_by_role("region", name=f"Why is {facts[0]} here?")
    why.get_by_role("link", name="Open").click()
    expect(page.get_by_role("tree", name="Proof")).to_contain_text(facts[0])


def test_what_was_left_out_and_why(console: Console):
    console.load(SAMPLE)
    page = console.open("window", goals=f"{GOAL}\nancestor(dan, ann)", maxFacts="2", tab="cut")
    cut = window_of(console, goals=[GOAL, "ancestor(dan, ann)"], maxFacts=2)["cut"]
    goal = page.get_by_role("region", name=f"Goal {GOAL}")
    expect(goal).to_contain_text(f"{cut['goals'][0]['whole']} in the window")
    expect(goal).to_contain_text("the limit of facts")
    failed = page.get_by_role("region", name="Goal ancestor(dan, ann)")
    expect(failed).to_contain_text("no answers")
    for partial in cut["goals"][1]["partial"]:
        expect(failed).to_contain_text(partial["rule"])
    page = console.open("window", maxTokens="5", tab="cut")
    expect(page.get_by_role("region", name="Examples of facts left out")).to_contain_text(
        "the limit of tokens"
    )


def test_a_session_shows_the_changes_since_its_last_window(console: Console):
    console.load(SAMPLE)
    page = console.open("window", goals=GOAL, session="chat", tab="changes", maxTokens="500")
    expect(page.get_by_text("This is the first window of session chat.")).to_be_visible()
    console.load("parent(dan, eve).")
    console.post("/forget", {"predicate": "parent", "args": ["ann", "bob"]})
    console.load("parent(ann, bert). parent(bert, cleo).")
    page.get_by_label("Tokens at most").fill("")
    page.get_by_role("button", name="Compose").click()
    changes = page.get_by_role("list", name="Changed entries")
    expect(changes.get_by_text("parent(dan, eve)", exact=True)).to_be_visible()
    removed = changes.get_by_role("listitem").filter(has_text="parent(ann, bob)")
    expect(removed).to_contain_text("removed")
    expect(removed).to_contain_text("no longer true: retracted")
    expect(page.get_by_label("Changes as text for the prompt", exact=True).last).to_contain_text(
        "No longer true: ann · parent: bob"
    )
    page.reload()
    expect(changes.get_by_text("parent(dan, eve)", exact=True)).to_be_visible()
    page.get_by_role("button", name="Compose").click()
    expect(page.get_by_text("0 added, 0 removed")).to_be_visible()
    console.load("parent(eve, fay).")
    page.reload()
    expect(changes.get_by_text("parent(eve, fay)", exact=True)).to_be_visible()
    page.get_by_role("button", name="Compose").click()
    expect(page.get_by_text("0 added, 0 removed")).to_be_visible()
    page.get_by_role("button", name="End session").click()
    expect(page.get_by_text("The session has ended")).to_be_visible()
    page.get_by_role("button", name="Compose").click()
    expect(page.get_by_text("This is the first window of session chat.")).to_be_visible()


def test_the_text_is_copied(new_console: Callable[..., Console]):
    console = new_console(permissions=["clipboard-read", "clipboard-write"])
    console.load(SAMPLE)
    page = console.open("window", goals=GOAL, format="structured")
    page.get_by_role("button", name="Copy", exact=True).click()
    expect(page.get_by_text("Copied")).to_be_visible()
    copied = page.evaluate("async () => JSON.parse(await navigator.clipboard.readText())")
    expected = window_of(console)["entries"]
    assert [entry["args"] for entry in copied] == [entry["args"] for entry in expected]


def test_a_mistake_in_a_goal_names_the_goal(console: Console):
    console.load(SAMPLE)
    console.expected_statuses.add(400)
    page = console.open("window", goals=f"{GOAL}\nancestor(ann, ")
    expect(page.get_by_role("alert")).to_contain_text("Goal 2 has a mistake.")


def test_an_empty_tenant_leads_to_the_examples(console: Console):
    page = console.open("window")
    expect(page.get_by_role("link", name="Load an example")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_a_window_by_keyboard_alone(console: Console):
    console.load(SAMPLE)
    page = console.open("window")
    add = page.get_by_role("button", name="Add goals")
    for _ in range(40):
        page.keyboard.press("Tab")
        if add.evaluate("element => document.activeElement === element"):
            break
    page.keyboard.press("Enter")
    editor = page.get_by_role("textbox", name="Goal 1")
    for _ in range(40):
        page.keyboard.press("Tab")
        if editor.evaluate("element => element.getRootNode().activeElement === element"):
            break
    page.keyboard.insert_text(GOAL)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("tab", name="Entries (6)")).to_be_visible()
    table = page.get_by_role("table", name="Entries")
    for _ in range(20):
        page.keyboard.press("Tab")
        if table.evaluate("element => document.activeElement === element"):
            break
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("heading", name="Why is")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(
    new_console: Callable[..., Console], scheme: str, width: int
):
    console = new_console(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
    )
    console.load(SAMPLE)
    goals = f"{GOAL}\nancestor(dan, ann)"
    page = console.open("window", goals=goals, why="ancestor(ann, bob)", session="s")
    expect(page.get_by_role("heading", name="Why is ancestor(ann, bob) here?")).to_be_visible()
    assert console.violations() == []
    page = console.open("window", maxTokens="5", tab="cut", session="s")
    expect(page.get_by_role("table")).to_be_visible()
    assert console.violations() == []
    page.get_by_role("tab", name="Changes").click()
    expect(page.get_by_role("list", name="Changed entries")).to_be_visible()
    assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
