"""The memory screen: conversations, timeline, contradictions; correct, forget and undo."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from support.console import Console
from support.remembered import remember
from support.servers import Server


@pytest.fixture
def mia(console: Console) -> Console:
    return remembering(console)


def remembering(console: Console) -> Console:
    """Store the memory of two users: Mia is the tenant of the test."""

    def post(tenant: str, path: str, body: Any) -> Any:
        return console.post(path, body, **{"X-Tenant-ID": tenant})

    remember(post, mia=console.tenant, ben=f"{console.tenant}-ben")
    return console


def fact_button(page: Page, text: str) -> Any:
    return page.get_by_role("list", name="Believed from").get_by_role("button", name=text)


def test_messages_are_beside_what_is_believed_from_them(mia: Console):
    page = mia.open("memory")
    expect(page.get_by_text("20 messages")).to_be_visible()
    beliefs = page.get_by_role("list", name="Believed from “Hi, I am Mia.").get_by_role("listitem")
    assert beliefs.all_inner_texts() == [
        "mia lives in Hamburg\nuntil 13 Nov 2026",
        "mia works as restorer of charts\ncorrected: was works_as(mia, restorer)",
    ]
    headings = page.get_by_role("heading", level=2).all_inner_texts()
    assert headings == [
        "2 Mar 2026 · session spring",
        "19 Jul 2026 · session summer",
        "13 Nov 2026 · session autumn",
    ]
    page.get_by_label("Session").select_option("summer")
    expect(page.get_by_text("6 messages")).to_be_visible()


def test_a_fact_and_its_passage_lead_to_each_other(mia: Console):
    page = mia.open("memory")
    passage = page.get_by_role("button", name="I moved to Berlin", exact=True)
    fact = fact_button(page, "mia lives in Berlin")
    fact.click()
    expect(passage).to_have_attribute("aria-pressed", "true")
    card = page.get_by_role("region", name="About lives_in(mia, Berlin)")
    expect(card).to_contain_text("since 13 Nov 2026")
    expect(card).to_contain_text("Said by Mia on 13 Nov 2026, 09:00 UTC: “I moved to Berlin”")
    page.get_by_role("button", name="Vegan by now").focus()
    page.keyboard.press("Enter")
    expect(fact_button(page, "mia diet vegan")).to_have_attribute("aria-expanded", "true")
    card = page.get_by_role("region", name="About diet(mia, vegan)")
    card.get_by_role("link", name="Timeline").click()
    expect(page.get_by_role("list", name="Values")).to_contain_text("mia diet vegan")


def test_the_timeline_of_a_mistyped_name_says_that_nothing_matches(mia: Console):
    page = mia.open("memory", part="timeline", about="lives_on(mia, ?where)")
    expect(page.get_by_text("No fact has ever matched lives_on(mia, ?where).")).to_be_visible()


def test_the_timeline_of_a_value_says_when_and_who(mia: Console):
    page = mia.open("memory", part="timeline", about="lives_in(mia, ?where)")
    values = page.get_by_role("list", name="Values").get_by_role("listitem")
    expect(values).to_have_count(2)
    expect(values.nth(0)).to_contain_text("2 Mar 2026 – 13 Nov 2026 · Mia: “I live in Hamburg”")
    expect(values.nth(1)).to_contain_text("since 13 Nov 2026 · Mia: “I moved to Berlin”")
    widths = [each.bounding_box() for each in page.locator(".bar-of").all()]
    assert all(box is not None for box in widths)
    first, second = widths
    assert first is not None
    assert second is not None
    assert first["width"] > 5 * second["width"]
    assert abs(first["x"] + first["width"] - second["x"]) < 2


def test_a_predicate_is_chosen_and_its_corrections_are_listed(mia: Console):
    page = mia.open("memory", part="timeline")
    page.get_by_role("button", name="works_as", exact=True).click()
    values = page.get_by_role("list", name="Values")
    expect(values).to_contain_text("corrected")
    changes = page.get_by_role("list", name="Changes")
    expect(changes).to_contain_text("Mia said what she restores")


def test_a_change_is_undone_after_a_look(mia: Console):
    page = mia.open("memory", part="timeline", about="lives_in(mia, ?where)")
    page.get_by_role("button", name="Undo … change").first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("will be removed: lives_in(mia, Berlin)")
    expect(dialog).to_contain_text("will be as before: lives_in(mia, Hamburg)")
    dialog.get_by_role("button", name="Undo").click()
    expect(page.get_by_text("Undone: 1 retracted, 1 restored.")).to_be_visible()
    rows = mia.post("/query", {"text": "lives_in(mia, ?where)"})
    assert [(row["args"][1], row["validUntil"]) for row in rows] == [("Hamburg", None)]


def test_a_fact_is_corrected_with_a_preview_and_a_reason(mia: Console):
    page = mia.open("memory")
    fact_button(page, "mia owns pixel").click()
    page.get_by_role("button", name="Correct …").click()
    dialog = page.get_by_role("dialog", name="Correct a fact")
    expect(dialog.get_by_role("textbox", name="New fact")).to_be_visible()
    mia.type_text("New fact", "owns(mia, pixie)")
    dialog.get_by_label("Reason").fill("the cat is called Pixie")
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog).to_contain_text("household(mia, pixie)")
    dialog.get_by_role("button", name="Correct", exact=True).click()
    expect(page.get_by_text("Corrected: owns(mia, pixie)")).to_be_visible()
    expect(fact_button(page, "mia owns pixie")).to_contain_text("was owns(mia, pixel)")
    assert [row["args"] for row in mia.post("/query", {"text": "owns(mia, ?what)"})] == [
        ["mia", "pixie"]
    ]


def test_forgetting_shows_first_what_would_go(mia: Console):
    page = mia.open("memory")
    fact_button(page, "pixel allergic to chicken").click()
    page.get_by_role("button", name="Forget …").click()
    dialog = page.get_by_role("dialog", name="Forget a fact")
    expect(dialog).to_contain_text("2 facts, 1 message and 0 conclusions would go.")
    expect(dialog).to_contain_text("Mia: “No, she is allergic to chicken.”")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    assert mia.post("/query", {"text": "allergic_to(pixel, ?what)"}) != []
    dialog.get_by_role("button", name="Forget for good").click()
    expect(page.get_by_text("Forgotten: 2 facts, 1 message.")).to_be_visible()
    expect(page.get_by_text("she is allergic to chicken")).to_have_count(0)
    assert mia.post("/query", {"text": "allergic_to(pixel, ?what)"}) == []


def test_a_purge_shows_first_what_would_go(mia: Console):
    page = mia.open("memory")
    page.get_by_role("button", name="Purge …").click()
    dialog = page.get_by_role("dialog", name="Purge")
    purge = dialog.get_by_role("button", name="Purge for good")
    expect(purge).to_be_disabled()
    name = dialog.get_by_role("textbox", name="Name")
    name.fill("Lea")
    page.keyboard.press("Enter")
    lost = dialog.get_by_role("region", name="What would be purged")
    expect(lost).to_contain_text("5 facts, 2 messages and 2 conclusions would go.")
    expect(lost).to_contain_text("studies(lea, medicine)")
    assert mia.violations() == []
    name.fill("Le")
    expect(purge).to_be_disabled()
    name.fill("Lea")
    purge.click()
    expect(page.get_by_text("Purged: 5 facts, 2 messages.")).to_be_visible()
    expect(page.get_by_role("list", name="Conversation")).not_to_contain_text("My sister Lea")


def test_a_contradiction_is_resolved_by_keeping_a_side(mia: Console):
    page = mia.open("memory", part="contradictions")
    expect(page.get_by_text("1 to resolve")).to_be_visible()
    conflict = page.get_by_role("list", name="Contradictions").get_by_role("listitem").first
    expect(conflict).to_contain_text("Said by Mia on 19 Jul 2026")
    expect(conflict).to_contain_text("confidence 0.7 · from crm")
    page.get_by_role("button", name='Keep … phone(mia, "555 1234")').click()
    dialog = page.get_by_role("dialog", name="Retract a fact")
    expect(dialog).to_contain_text('phone(mia, "555 9876")')
    expect(dialog).to_contain_text("contradiction(")
    dialog.get_by_role("button", name="Retract").click()
    expect(page.get_by_role("heading", name="How disagreement is found")).to_be_visible()
    assert [row["args"][1] for row in mia.post("/query", {"text": "phone(mia, ?n)"})] == [
        "555 1234"
    ]


def test_a_fact_that_is_stored_and_denied_is_to_resolve(console: Console):
    console.post("/tell", {"text": "likes(ann, tea)"})
    console.post("/tell", {"text": "~likes(ann, tea)", "conflictStrategy": "KEEP_BOTH"})
    page = console.open("memory", part="contradictions")
    expect(page.get_by_role("heading", name="Stored and denied")).to_be_visible()
    expect(page.get_by_role("button", name="Keep")).to_have_count(2)


def test_a_window_says_in_words_why_each_entry_is_there(mia: Console):
    page = mia.open("window", query="Where does Mia live?", maxFacts="6")
    row = page.get_by_role("table", name="Entries").get_by_role("row").nth(1)
    expect(row).to_contain_text("lives_in(mia, Berlin)")
    expect(row).to_contain_text(
        "matches “Mia” and “live”; current value since 13 Nov 2026; said by Mia"
    )
    row.click()
    why = page.get_by_role("region", name="Why is lives_in(mia, Berlin) here?")
    expect(why).to_contain_text("“I moved to Berlin” Mia, 13 Nov 2026, 09:00 UTC")


def test_what_was_known_then_has_the_messages_of_then(console: Console):
    for day, text in ((1, "I like tea."), (2, "I like milk.")):
        message = {"role": "user", "name": "Ann", "content": text, "at": f"2026-03-0{day}"}
        console.post("/memory/add", {"messages": [message], "session": "s"})
    first = console.get("/facts/history?predicate=said&order=oldest")["events"][0]["at"]
    known = datetime.fromtimestamp(first / 1000, timezone.utc).isoformat()
    page = console.open("memory", known=known)
    expect(page.get_by_text("1 message", exact=True)).to_be_visible()
    expect(page.get_by_role("list", name="Conversation")).to_contain_text("I like tea.")
    expect(page.get_by_text("I like milk.")).to_have_count(0)


def test_a_memory_without_messages_teaches(console: Console):
    console.load("p(a).")
    page = console.open("memory")
    expect(page.get_by_role("heading", name="No conversation yet")).to_be_visible()
    expect(page.get_by_label("Python")).to_contain_text("memory.add(")


def test_a_reader_sees_and_changes_nothing(
    new_console: Callable[..., Console], keyed_server: Server, keys: dict[str, str]
):
    console = new_console(on=keyed_server)
    console.expected_statuses |= {401}
    writer = {"Authorization": f"Bearer {keys['writer']}"}
    added = console.post(
        "/memory/add",
        {"messages": [{"role": "user", "name": "Ann", "content": "I like tea."}]},
        **writer,
    )
    evidence = [{"episode": added["episodeIds"][0], "start": 2, "end": 10}]
    console.post("/tell", {"text": "likes(ann, tea)", "evidence": evidence}, **writer)
    page = console.open("memory")
    page.get_by_label("API key").fill(keys["reader"])
    page.keyboard.press("Enter")
    fact_button(page, "ann likes tea").click()
    expect(page.get_by_role("link", name="Why it holds")).to_be_visible()
    for name in ("Correct …", "Forget …"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("link", name="Timeline").last.click()
    expect(page.get_by_role("list", name="Changes")).to_be_visible()
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(
    new_console: Callable[..., Console], scheme: str, width: int
):
    console = remembering(
        new_console(
            color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
        )
    )
    page = console.open("memory")
    fact_button(page, "mia lives in Berlin").click()
    expect(page.get_by_role("region", name="About lives_in(mia, Berlin)")).to_be_visible()
    assert console.violations() == []
    for part, shown in (("timeline", "Values"), ("contradictions", "Contradictions")):
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page = console.open("memory", part=part, about="works_as")
        expect(page.get_by_role("list", name=shown)).to_be_visible()
        assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
