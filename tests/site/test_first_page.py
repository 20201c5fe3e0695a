"""The first page in a browser: one screen shows what kbcore is for, and a phone shows all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BOTTOMS = "selector => [...document.querySelectorAll(selector)].map(e => e.getBoundingClientRect().bottom)"
LINE = 24
"""Pixels of a line: fonts differ from machine to machine."""


@pytest.fixture
def opened(browser: Browser, address: str) -> Iterator[Callable[..., Page]]:
    """Open pages of the site; an error in the console of the browser fails the test."""
    contexts, errors = [], []

    def open_page(width: int, height: int, scheme: str, path: str = "") -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address + path)
        page.wait_for_load_state("networkidle")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_screen_has_the_pictures_the_code_and_the_command_that_installs(opened, scheme):
    page = opened(1280, 800, scheme)
    for selector, number in (("article img", 3), (".kb-columns pre", 3), ("article pre", 4)):
        bottoms = page.evaluate(BOTTOMS, selector)
        assert len(bottoms) == number
        assert max(bottoms) <= 800 + 2 * LINE, selector
    assert page.evaluate("[...document.images].every(image => image.naturalWidth > 0)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_all_of_it_without_scrolling_to_the_side(opened, scheme):
    page = opened(390, 844, scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    wide = "[...document.querySelectorAll('.kb-columns pre > code')].map(e => e.scrollWidth - e.clientWidth)"
    assert max(page.evaluate(wide)) <= 0
    paths = page.locator(".kb-paths h2")
    assert paths.count() == 4


CONTRAST = """() => {
  const channels = text => text.match(/[\\d.]+/g).map(Number)
  const luminance = rgb => rgb.slice(0, 3).map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0)
  const link = document.querySelector('.md-sidebar--primary a.md-nav__link--active')
  let below = getComputedStyle(document.body).backgroundColor
  const own = channels(getComputedStyle(link).backgroundColor)
  const share = own.length > 3 ? own[3] : 1
  const ground = channels(below).slice(0, 3).map((v, i) => own[i] * share + v * (1 - share))
  const pair = [luminance(channels(getComputedStyle(link).color)), luminance(ground)].sort((a, b) => b - a)
  return (pair[0] + 0.05) / (pair[1] + 0.05)
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_entry_of_the_page_in_the_navigation_can_be_read(opened, scheme):
    page = opened(1280, 800, scheme, "how-to/write-rules-as-text/")
    assert page.evaluate(CONTRAST) >= 4.5
