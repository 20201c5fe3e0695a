"""Rule sets: versions, differences side by side, the impact of an edited text, and rollback."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest
from playwright.sync_api import Page, expect
from support.console import Console
from support.servers import Server

THIRD = "may_enter(?who) :- level(?who, ?level), ?level >= 3."
SECOND = "may_enter(?who) :- level(?who, ?level), ?level >= 2."
EDITED = "may_enter(?who) :- level(?who, ?level), ?level >= 1."


def deploy(console: Console, text: str, key: str | None = None, **notes: str) -> None:
    """Deploy a text as the rule set "access"."""
    headers = {"X-Tenant-ID": console.tenant}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    body = {"text": text, **notes}
    httpx.put(
        f"{console.base}/rulesets/access", json=body, headers=headers, timeout=30
    ).raise_for_status()


def deploy_two(
    console: Console, key: str | None = None, message: str = "Level 2 may enter"
) -> None:
    """Deploy two versions of the rule set "access"; the facts are no part of it."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    console.post("/teach", {"text": "level(ann, 3). level(bob, 2). level(cleo, 1)."}, **headers)
    deploy(console, f"{THIRD} open(shop).", key, message="First rules", revision="4f2c91d0aa77e1")
    deploy(console, f"{SECOND} closed(shop).", key, message=message)


def cells(page: Page, label: str) -> list[list[str]]:
    """Return the texts of the rows of the table in a region, when it has come."""
    rows = page.get_by_role("region", name=label).locator("tbody tr")
    expect(rows).not_to_have_count(0)
    return [row.locator("th, td").all_inner_texts() for row in rows.all()]


def test_the_list_and_the_versions_say_what_was_deployed(console: Console):
    deploy_two(console)
    page = console.open("rulesets")
    entry = page.get_by_role("list", name="Rule sets").get_by_role("listitem")
    expect(entry).to_contain_text("access")
    expect(entry).to_contain_text("version 2")
    expect(entry).to_contain_text("1 rule, 1 fact")
    page.get_by_role("button", name="Show access").click()
    expect(page.get_by_role("region", name="Versions").locator("tbody tr")).to_have_count(2)
    second, first = cells(page, "Versions")
    assert (second[0], second[2:5]) == ("2", ["no key", "Level 2 may enter", ""])
    assert (first[0], first[3:8]) == ("1", ["First rules", "4f2c91d0aa77", "2", "0", "0"])


def test_two_versions_are_side_by_side_and_in_the_address(console: Console):
    deploy_two(console)
    page = console.open("rulesets", set="access")
    name = "Compare version 2 with the version before"
    page.get_by_role("button", name=name).click()
    expect(page.get_by_role("region", name="Differences")).to_be_visible()
    changed = [[THIRD, SECOND], ["open(shop).", ""], ["", "closed(shop)."]]
    assert cells(page, "Differences") == changed
    page.get_by_role("combobox", name="Before").select_option("Version 0 (empty)")
    expect(page.get_by_role("columnheader", name="Version 0 (empty)")).to_be_visible()
    expect(page.get_by_role("region", name="Differences").locator("del")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("combobox", name="Before")).to_have_value("0")
    assert cells(page, "Differences") == [["", SECOND], ["", "closed(shop)."]]


def test_the_impact_of_an_edited_text_is_shown_and_nothing_is_stored(console: Console):
    deploy_two(console)
    page = console.open("rulesets", set="access", view="impact")
    expect(page.get_by_role("textbox", name="Text of access")).to_contain_text("may_enter")
    console.type_text("Text of access", EDITED)
    page.get_by_role("textbox", name="Goal whose answers to compare").fill("may_enter(?who)")
    page.get_by_role("button", name="Show the impact").click()
    impact = page.get_by_role("region", name="Impact", exact=True)
    sentence = "Facts and conclusions: 1 becomes true, 1 no longer holds."
    expect(impact.get_by_text(sentence)).to_be_visible()
    assert cells(page, "Changes by predicate") == [
        ["closed/1", "0", "1", "0"],
        ["may_enter/1", "1", "0", "0"],
    ]
    expect(impact.get_by_role("list", name="New answers")).to_contain_text("who = cleo")
    assert cells(page, "Differences") == [[SECOND, EDITED], ["closed(shop).", ""]]
    assert console.post("/ask", {"text": "may_enter(cleo)"}) == []


def test_a_mistake_in_the_edited_text_is_shown_with_its_place(console: Console):
    deploy_two(console)
    console.expected_statuses.add(400)
    page = console.open("rulesets", set="access", view="impact")
    expect(page.get_by_role("textbox", name="Text of access")).to_contain_text("may_enter")
    console.type_text("Text of access", "may_enter(?who) :- .")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Line 1, column 20")


def test_a_rollback_is_confirmed_by_keyboard(console: Console):
    deploy_two(console)
    page = console.open("rulesets", set="access")
    button = page.get_by_role("button", name="Roll back to version 1")
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Roll access back to version 1")
    expect(dialog.get_by_role("region", name="Differences")).to_contain_text(THIRD)
    expect(dialog.get_by_role("button", name="Cancel")).to_be_focused()
    page.keyboard.press("Enter")
    expect(button).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("region", name="Differences")).to_be_visible()
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Rolled access back to version 1, as version 3.")).to_be_visible()
    expect(page.get_by_role("region", name="Versions")).to_contain_text("rolled back to version 1")
    assert [row["args"] for row in console.post("/ask", {"text": "may_enter(?who)"})] == [["ann"]]


def test_a_rollback_does_not_overwrite_a_later_deployment(console: Console):
    deploy_two(console)
    console.expected_statuses.add(409)
    page = console.open("rulesets", set="access")
    page.get_by_role("button", name="Roll back to version 1").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("region", name="Differences")).to_be_visible()
    deploy(console, EDITED)
    dialog.get_by_role("button", name="Roll back").click()
    expect(dialog.get_by_role("alert")).to_contain_text("version 3")
    assert len(console.post("/ask", {"text": "may_enter(?who)"})) == 3


@pytest.mark.parametrize(("role", "count"), [("reader", 0), ("writer", 1)])
def test_only_a_writer_is_offered_a_rollback(
    new_console: Callable[..., Console],
    keyed_server: Server,
    keys: dict[str, str],
    role: str,
    count: int,
):
    console = new_console(on=keyed_server)
    deploy_two(console, keys["writer"])
    page = console.open("rulesets", set="access")
    page.get_by_label("API key").fill(keys[role])
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Versions").locator("tbody tr")).to_have_count(2)
    assert {row[2] for row in cells(page, "Versions")} == {"writer"}
    page.wait_for_function("document.querySelector('main[data-fetching=\"0\"]') !== null")
    expect(page.get_by_role("button", name="Roll back")).to_have_count(count)


def test_a_tenant_without_rule_sets_says_so(console: Console):
    page = console.open("rulesets")
    expect(page.get_by_role("heading", name="No rule set yet")).to_be_visible()


@pytest.mark.parametrize("width", [390, 700, 1000])
def test_a_narrow_page_shows_the_versions_with_their_buttons(
    new_console: Callable[..., Console], width: int
):
    console = new_console(viewport={"width": width, "height": 800})
    deploy_two(console, message="word" * 60)
    page = console.open("rulesets", set="access")
    region = page.get_by_role("region", name="Versions")
    expect(region.get_by_role("row")).to_have_count(3)
    expect(region.get_by_role("columnheader", name="Message")).to_have_count(1)
    buttons = region.get_by_role("button").all()
    assert len(buttons) == 3
    for each in (*buttons, *region.locator("time, .number, code").all()):
        box = each.bounding_box()
        assert box is not None
        assert box["width"] > 0
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
    assert region.evaluate("each => each.scrollWidth <= each.clientWidth")
    page.get_by_role("button", name="Roll back to version 1").click()
    dialog = page.get_by_role("dialog", name="Roll access back to version 1")
    expect(dialog.get_by_role("button", name="Cancel")).to_be_in_viewport()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Compare version 2 with the version before").click()
    expect(page.get_by_role("region", name="Differences")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_violations_of_accessibility(
    new_console: Callable[..., Console], scheme: str, width: int
):
    console = new_console(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
    )
    deploy_two(console)
    for view in ("versions", "compare", "impact"):
        page = console.open("rulesets", set="access", view=view)
        if view == "impact":
            console.type_text("Text of access", EDITED)
            page.keyboard.press("Control+Enter")
            expect(page.get_by_role("region", name="Changes by predicate")).to_be_visible()
        assert console.violations() == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
    page = console.open("rulesets", set="access")
    page.get_by_role("button", name="Roll back to version 1").click()
    expect(page.get_by_role("dialog").get_by_role("region", name="Differences")).to_be_visible()
    assert console.violations() == []


ACCESS = """
may(?who, ?doc) :- member(?who, ?team), owns(?team, ?doc), not banned(?who).
banned(?who) :- reported(?who, ?by), not forgiven(?who).
boss(?x, ?z) :- boss(?x, ?y), boss(?y, ?z).
"""


def test_dependencies_have_their_strata(console: Console):
    console.load(ACCESS)
    page = console.open("rulesets")
    page.get_by_role("link", name="Dependencies").click()
    expect(page.get_by_role("region", name="Strata")).to_be_visible()
    assert cells(page, "Strata") == [
        ["1 stored facts", "forgiven/1\nmember/2\nowns/2\nreported/2"],
        ["2", "banned/1\nboss/2recursive"],
        ["3", "may/2"],
    ]
    drawing = page.get_by_role("group", name="Drawing of the dependencies")
    expect(drawing.get_by_role("button")).to_have_count(7)
    assert console.violations() == []
    node = drawing.get_by_role("button", name="boss/2 2")
    node.focus()
    page.keyboard.press("Enter")
    expect(drawing.get_by_role("button")).to_have_count(1)
    assert "predicate=boss%2F2" in page.url
    page.get_by_role("combobox", name="Predicate").select_option("banned/1")
    expect(drawing.get_by_role("button")).to_have_text(
        ["banned/1 2", "forgiven/1 1", "may/2 3", "reported/2 1"]
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_dependencies_in_a_narrow_window(new_console: Callable[..., Console], scheme: str):
    console = new_console(color_scheme=scheme, viewport={"width": 390, "height": 800})
    console.load(ACCESS)
    page = console.open("rulesets", part="dependencies")
    assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
