"""The first screen: examples, and the tour."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import expect
from support.console import SAMPLE, Console, rows_of


def test_an_empty_tenant_starts_with_the_examples(console: Console):
    page = console.open()
    expect(page.get_by_role("heading", name="Examples", level=1)).to_be_visible()
    console.load(SAMPLE)
    page = console.open()
    expect(page.get_by_role("heading", name="Memory", level=1)).to_be_visible()


@pytest.mark.parametrize(
    ("title", "answers"),
    [
        ("A family", [["bea"], ["bob"], ["cleo"], ["dan"], ["eve"]]),
        (
            "Access control",
            [["read", "finance"], ["read", "report"]],
        ),
        ("An agent's memory", [["tomato soup"]]),
    ],
)
def test_an_example_is_loaded(console: Console, title: str, answers: list[list[str]]):
    page = console.open("start")
    page.get_by_role("button", name=f"Load: {title}").click()
    expect(page.get_by_role("table", name="Answers")).to_be_visible()
    assert sorted(rows_of(page, "Answers")) == answers


def test_every_step_of_the_tour_keeps_its_promise(console: Console):
    page = console.open("start")
    page.get_by_role("button", name="Take the tour").click()
    expect(page.get_by_text("5 answers")).to_be_visible()
    page.get_by_role("link", name="Next: Its proof").click()
    expect(page.get_by_role("img", name="parent(dan, eve): stored fact")).to_be_visible()
    page.get_by_role("link", name="Next: Why a goal has no answer").click()
    expect(page.get_by_text("0 answers")).to_be_visible()
    expect(page.get_by_role("tab", name="Why not")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_role("tabpanel")).to_contain_text("sibling(")
    address = page.url
    page.get_by_role("link", name="Next: A context window").click()
    text = page.get_by_label("Text for the prompt", exact=True).and_(page.locator("pre"))
    expect(text).to_contain_text("cleo · cousin: dan")
    page.get_by_role("link", name="Next: What a rule changes").click()
    expect(page.get_by_text("0 answers")).to_be_visible()
    tour = page.get_by_role("region", name="Tour, step 5 of 5")
    expect(tour).to_contain_text("relative(eve, dan)")
    tour.get_by_role("button", name="Add the rule").click()
    expect(page.get_by_text("4 answers")).to_be_visible()
    page.goto(address)
    expect(page.get_by_role("heading", name="Tour, step 3 of 5")).to_be_visible()
    page.get_by_role("button", name="End the tour").click()
    expect(page.get_by_role("heading", name="Tour")).to_have_count(0)
    assert "tour=" not in page.url


def test_the_tour_by_keyboard_alone(console: Console):
    page = console.open("start")
    for name in ("Take the tour", "Next: Its proof", "End the tour"):
        target = page.get_by_role("button", name=name).or_(page.get_by_role("link", name=name))
        expect(target).to_be_visible()
        for _ in range(60):
            if target.evaluate("element => document.activeElement === element"):
                break
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        expect(target).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(new_console: Callable[..., Console], scheme: str):
    console = new_console(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": 390, "height": 800}
    )
    page = console.open("start")
    assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="Take the tour").click()
    expect(page.get_by_text("5 answers")).to_be_visible()
    assert console.violations() == []
    page = console.open("playground", goal="relative(eve, ?who)", tour="5")
    expect(page.get_by_text("relative(eve, dan)")).to_be_visible()
    assert console.violations() == []
