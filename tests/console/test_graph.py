"""The graph screen: the stored facts around a constant."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect
from support.console import SAMPLE, Console


def facts(page: Page) -> list[str]:
    expect(page.locator(".graph-drawing canvas").first).to_be_visible()
    return page.get_by_role("list", name="Facts").get_by_role("listitem").all_inner_texts()


def test_one_and_two_hops(console: Console):
    console.load(SAMPLE)
    page = console.open("graph", constant="ann")
    assert facts(page) == ["parent(ann, bob)"]
    page.get_by_role("button", name="Two hops").click()
    expect(page.get_by_text("3 facts")).to_be_visible()
    assert sorted(facts(page)) == ["likes(bob, tea)", "parent(ann, bob)", "parent(bob, cleo)"]
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_text("3 facts")).to_be_visible()
    legend = page.get_by_role("list", name="Colours of predicates")
    assert legend.get_by_role("listitem").all_inner_texts() == ["likes", "parent"]


def test_expand_and_collapse_with_the_keyboard_alone(console: Console):
    console.load(SAMPLE)
    page = console.open("graph")
    expect(page.get_by_label("Constant", exact=True)).to_be_focused()
    page.keyboard.type("ann")
    page.keyboard.press("Enter")
    assert facts(page) == ["parent(ann, bob)"]
    constants = page.get_by_role("list", name="Constants")
    bob = constants.get_by_role("button", name="bob")
    bob.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("3 facts")).to_be_visible()
    expect(bob).to_have_attribute("aria-expanded", "true")
    bob.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("1 fact,")).to_be_visible()


def test_a_click_on_a_node_expands_it(console: Console):
    console.load("knows(ann, bob). knows(bob, cleo).")
    page = console.open("graph", constant="ann")
    assert facts(page) == ["knows(ann, bob)"]
    box = page.locator(".graph-drawing").bounding_box()
    assert box is not None
    # A node is larger than the steps of the grid; a click on the centre changes nothing.
    expanded = page.get_by_text("2 facts")
    for x in range(20, int(box["width"]), 24):
        for y in range(20, int(box["height"]), 24):
            page.mouse.click(box["x"] + x, box["y"] + y)
            if "toggle=bob" in page.url:
                expect(expanded).to_be_visible()
                return
    pytest.fail("no click met the node")


def test_a_constant_with_many_facts_is_capped_and_paged(console: Console):
    rows = [{"predicate": "visit", "args": ["hub", f"n{number}"]} for number in range(5000)]
    console.post("/assert/facts", {"facts": [*rows, {"predicate": "name", "args": ["hub"]}]})
    requests: list[str] = []
    console.page.on("request", lambda request: requests.append(urlsplit(request.url).path))
    page = console.open("graph", constant="hub")
    assert len(facts(page)) == 20
    assert "name(hub)" in facts(page)
    assert requests.count("/neighbours") == 1
    assert "/query" not in requests
    expect(page.get_by_text("More facts exist than are shown.")).to_be_visible()
    expect(page.get_by_text("20 of 5,001 around hub")).to_be_visible()
    legend = page.get_by_role("list", name="Colours of predicates")
    assert legend.get_by_role("listitem").all_inner_texts() == ["name 1", "visit 5,000"]
    page.get_by_role("button", name="Show more").click()
    expect(page.get_by_text("40 of 5,001 around hub")).to_be_visible()
    assert len(facts(page)) == 40
    assert "pages=2" in page.url


def test_a_constant_without_facts_and_a_variable(console: Console):
    console.load(SAMPLE)
    page = console.open("graph", constant="zoe")
    expect(page.get_by_text("0 facts")).to_be_visible()
    page.get_by_label("Constant", exact=True).fill("?x")
    expect(page.get_by_role("button", name="Show")).to_be_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(new_console: Callable[..., Console], scheme: str):
    console = new_console(color_scheme=scheme, reduced_motion="reduce")
    console.load(SAMPLE + "gave(ann, bob, book).")
    page = console.open("graph", constant="ann", hops="2")
    assert "gave(ann, bob, book)" in facts(page)
    assert console.violations() == []


def test_a_narrow_window_does_not_scroll_sideways(new_console: Callable[..., Console]):
    console = new_console(viewport={"width": 390, "height": 800})
    console.load(SAMPLE)
    page = console.open("graph", constant="bob")
    assert len(facts(page)) == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
