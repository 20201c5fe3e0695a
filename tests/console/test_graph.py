"""The graph screen: the stored facts around a constant."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect
from support.console import SAMPLE, Console


def facts(page: Page) -> list[str]:
    expect(page.get_by_role("region", name="Drawing").get_by_role("img")).to_be_visible()
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
    legend = page.get_by_role("list", name="Predicates that are shown")
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
    page.locator(".graph-drawing text").filter(has_text="bob").click(force=True)
    expect(page.get_by_text("2 facts")).to_be_visible()
    assert "toggle=bob" in page.url


_OVERLAPS = """() => {
  const boxes = [...document.querySelectorAll(".graph-drawing rect")]
    .map((each) => each.getBoundingClientRect());
  const meet = (first, second) => first.left < second.right && second.left < first.right
    && first.top < second.bottom && second.top < first.bottom;
  return boxes.flatMap((first, index) =>
    boxes.slice(index + 1).filter((second) => meet(first, second))).length;
}"""
"""The number of pairs of boxes, labels of facts included, that overlap."""


def test_every_fact_is_labelled_and_nothing_overlaps(console: Console):
    rows = [f"likes(ann, thing{number}). owner_of(ann, item{number})." for number in range(8)]
    console.load(" ".join(rows) + " gave(ann, bob, 'a very long name of a book').")
    page = console.open("graph", constant="ann")
    assert len(facts(page)) == 17
    drawing = page.locator(".graph-drawing text")
    expect(drawing.filter(has_text=re.compile("^owner of$"))).to_have_count(8)
    expect(drawing.filter(has_text=re.compile("^gave$"))).to_have_count(1)
    assert page.evaluate(_OVERLAPS) == 0
    size = drawing.first.evaluate("each => getComputedStyle(each).fontSize")
    assert size == "13px"


def test_the_legend_filters_and_the_field_suggests(console: Console):
    console.load("knows(ann, bob). likes(ann, tea).")
    page = console.open("graph")
    page.get_by_role("button", name="ann", exact=True).click()
    assert sorted(facts(page)) == ["knows(ann, bob)", "likes(ann, tea)"]
    options = page.locator("#graph-constants option")
    assert {each.get_attribute("value") for each in options.all()} == {"ann", "bob", "tea"}
    page.get_by_role("button", name="likes", exact=True).click()
    expect(page.get_by_text("1 fact,")).to_be_visible()
    assert facts(page) == ["knows(ann, bob)"]
    page.reload()
    expect(page.get_by_role("button", name="likes")).to_have_attribute("aria-pressed", "false")


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
    legend = page.get_by_role("list", name="Predicates that are shown")
    assert legend.get_by_role("listitem").all_inner_texts() == ["name 1", "visit 5,000"]
    page.get_by_role("button", name="Show more").click()
    expect(page.get_by_text("40 of 5,001 around hub")).to_be_visible()
    assert len(facts(page)) == 40
    assert "pages=2" in page.url


def test_a_constant_without_facts_and_a_variable(console: Console):
    console.load(SAMPLE)
    page = console.open("graph", constant="zoe")
    expect(page.get_by_text("No fact has the constant zoe.")).to_be_visible()
    page.get_by_label("Constant", exact=True).fill("?x")
    expect(page.get_by_role("button", name="Show")).to_be_disabled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(new_console: Callable[..., Console], scheme: str):
    console = new_console(color_scheme=scheme, reduced_motion="reduce")
    console.load(SAMPLE + "gave(ann, bob, book).")
    page = console.open("graph", constant="ann", hops="2")
    assert "gave(ann, bob, book)" in facts(page)
    expect(page.get_by_role("region", name="Drawing")).to_be_visible()
    assert console.violations() == []


def test_a_narrow_window_does_not_scroll_sideways(new_console: Callable[..., Console]):
    console = new_console(viewport={"width": 390, "height": 800})
    console.load(SAMPLE)
    page = console.open("graph", constant="bob")
    assert len(facts(page)) == 3
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_narrow_window_shows_the_whole_drawing(new_console: Callable[..., Console]):
    console = new_console(viewport={"width": 390, "height": 800})
    console.load(SAMPLE)
    page = console.open("graph", constant="bob", hops="2")
    drawing = page.get_by_role("region", name="Drawing")
    expect(drawing.get_by_role("img")).to_be_visible()
    assert drawing.evaluate("each => each.scrollWidth <= each.clientWidth")
