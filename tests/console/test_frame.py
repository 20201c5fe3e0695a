"""The frame of all screens: menus, time, command palette, what a key may do, and the first load."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect
from support.console import SAMPLE, Console, rows_of
from support.servers import Server

FIRST_LOAD_BYTES = 150_000


def has_focus(page: Page, selector: str) -> bool:
    return bool(page.locator(selector).evaluate("each => each.contains(document.activeElement)"))


def test_the_first_load_is_small_and_without_the_editor(console: Console):
    console.load(SAMPLE)
    sizes: dict[str, int] = {}
    console.page.on(
        "response",
        lambda response: sizes.update(
            {urlsplit(response.url).path: int(response.headers.get("content-length", "0"))}
        ),
    )
    page = console.open()
    expect(page.get_by_role("heading", name="Memory", level=1)).to_be_visible()
    files = {path: size for path, size in sizes.items() if path.startswith("/console/")}
    assert any(path.endswith("/index.js") for path in files)
    assert not any("CodeEditor" in path for path in files)
    print(f"the first load takes {sum(files.values())} bytes")
    assert 0 < sum(files.values()) <= FIRST_LOAD_BYTES, files
    sizes.clear()
    page.get_by_role("link", name="Playground").click()
    expect(page.get_by_role("textbox", name="Goal")).to_be_visible()
    assert any("CodeEditor" in path for path in sizes)


def test_screens_are_in_the_order_of_need(console: Console):
    console.load(SAMPLE)
    page = console.open("memory")
    names = page.get_by_role("navigation", name="Screens").get_by_role("link").all_inner_texts()
    assert names == [
        *("Memory", "Playground", "Facts", "Rules", "Graph", "Scopes", "Operations", "Examples"),
    ]
    for name in names:
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=name).click()
        expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()


def test_a_tenant_is_found_by_a_part_of_its_name(console: Console):
    console.load(SAMPLE)
    other = f"{console.tenant}-north"
    console.post("/teach", {"text": "p(a)."}, **{"X-Tenant-ID": other})
    page = console.open("facts")
    page.get_by_role("button", name=f"Tenant {console.tenant}").click()
    expect(page.get_by_role("combobox", name="Tenants")).to_be_focused()
    page.keyboard.type(f"{console.tenant[-6:]}-nor")
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="p/1")).to_be_visible()
    assert f"tenant={other}" in page.url


def test_escape_closes_a_menu_and_returns_the_focus(console: Console):
    console.load(SAMPLE)
    page = console.open("facts")
    button = page.get_by_role("button", name="Scope base")
    button.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("combobox", name="Scopes")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(button).to_be_focused()


def test_a_typo_names_the_tenant_that_is_meant(console: Console):
    console.load(SAMPLE)
    real, typo = console.tenant, f"{console.tenant[:-2]}{console.tenant[-1]}{console.tenant[-2]}x"
    console.tenant = typo
    page = console.open("memory")
    expect(page.get_by_role("status").filter(has_text="does not exist")).to_contain_text(typo)
    page.get_by_role("button", name=f"Open {real}").click()
    expect(page.get_by_role("status").filter(has_text="does not exist")).to_have_count(0)
    assert f"tenant={real}" in page.url


def test_a_new_tenant_is_created_on_purpose_only(console: Console):
    console.load(SAMPLE)
    name = f"{console.tenant}-new"
    page = console.open("facts")
    page.get_by_role("button", name=f"Tenant {console.tenant}").click()
    page.keyboard.type(name)
    page.get_by_role("option", name=f"Create tenant “{name}”").click()
    expect(page.get_by_role("button", name=f"Tenant {name}")).to_be_visible()
    expect(page.get_by_role("heading", name="No facts yet")).to_be_visible()
    expect(page.get_by_text("does not exist")).to_have_count(0)


def test_all_screens_show_what_was_valid_at_a_time(console: Console):
    for fact, begin, end in (
        ("Hamburg", "2026-03-02", "2026-11-13"),
        ("Berlin", "2026-11-13", None),
    ):
        body = {"text": f"lives_in(mia, {fact})", "validFrom": begin, "validUntil": end}
        console.post("/tell", body)
    page = console.open("playground", goal="lives_in(mia, ?where)")
    assert rows_of(page, "Answers") == [["Berlin"]]
    page.get_by_role("button", name="Time now").click()
    page.get_by_role("radio", name="As of").check()
    page.get_by_label("Instant").fill("2026-05-01T00:00")
    page.get_by_role("button", name="Show", exact=True).click()
    expect(page.get_by_role("table", name="Answers").get_by_text("Hamburg")).to_be_visible()
    expect(page.get_by_text("What was valid at 1 May 2026.")).to_be_visible()
    page.get_by_role("link", name="Facts", exact=True).click()
    page.get_by_role("button", name="lives_in/2").click()
    expect(page.get_by_role("table", name="Facts").get_by_text("Hamburg")).to_be_visible()
    expect(page.get_by_role("button", name="Add facts")).to_have_count(0)
    page.get_by_role("link", name="Operations").click()
    expect(page.get_by_text("Operations shows the present")).to_be_visible()
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_role("button", name="Time now")).to_be_visible()
    assert "asof" not in page.url


def test_all_screens_show_what_was_known_at_a_time(console: Console):
    console.load("likes(ann, tea).")
    stored = console.post("/query", {"text": "likes(ann, tea)"})[0]["createdAt"]
    known = datetime.fromtimestamp((stored + 1) / 1000, timezone.utc).isoformat()
    page = console.open("facts", predicate="likes/2")
    # The clock of the server is in milliseconds: the second fact is later than the instant.
    page.wait_for_function("instant => Date.now() > instant + 2", arg=stored)
    console.load("likes(ann, milk).")
    page = console.open("facts", predicate="likes/2", known=known)
    assert [row[1] for row in rows_of(page, "Facts")] == ["tea"]
    page.get_by_role("button", name="Back to now").click()
    expect(page.get_by_role("table", name="Facts").get_by_text("milk")).to_be_visible()


def test_the_palette_finds_screens_predicates_constants_and_goals(console: Console):
    console.load(SAMPLE)
    page = console.open("playground", goal="ancestor(ann, ?who)")
    page.get_by_role("button", name="Save the goal").click()
    for typed, option, heading in (
        ("contrad", "Contradictions", "Memory"),
        ("likes", "likes/2", "Facts"),
        ("cleo", "cleo", "Graph"),
        ("ancestor(a", "ancestor(ann, ?who)", "Playground"),
        ("parent(?x, dan)", "Run parent(?x, dan)", "Playground"),
    ):
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox", name="Screens, predicates")).to_be_focused()
        page.keyboard.type(typed)
        first = page.get_by_role("option").first
        expect(first).to_contain_text(option)
        assert console.violations() == []
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_have_count(0)
        expect(page.get_by_role("heading", name=heading, level=1)).to_be_visible()
    assert rows_of(page, "Answers") == [["cleo"]]


def test_tab_leaves_the_editor_which_says_how(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    editor = page.get_by_role("textbox", name="Goal")
    editor.click()
    expect(page.get_by_text("Esc, then Tab: next field.")).to_be_visible()
    expect(editor).to_have_accessible_description(
        "Ctrl+Enter: run. Ctrl+Space: suggestions. Esc, then Tab: next field."
    )
    page.keyboard.type("anc")
    expect(page.get_by_role("option", name="ancestor")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    assert not has_focus(page, ".editor")
    assert editor.inner_text() == "anc"


def test_a_mistake_is_shown_once_where_it_is(console: Console):
    console.load(SAMPLE)
    console.expected_statuses.add(400)
    page = console.open("playground", goal="ancestor(ann, ")
    alert = page.get_by_role("region", name="Goal").get_by_role("alert")
    expect(alert).to_contain_text("never closed")
    assert alert.inner_text().count("never closed") == 1


def test_a_goal_with_its_mark_and_dot_is_taken(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    console.run_goal("?- ancestor(ann, ?who).")
    expect(page.get_by_text("3 answers")).to_be_visible()
    expect(page.locator(".cm-lintRange-error")).to_have_count(0)
    expect(page.get_by_role("tree", name="Proof")).to_be_visible()


def test_a_reader_types_the_name_of_a_tenant(
    new_console: Callable[..., Console], keyed_server: Server, keys: dict[str, str]
):
    console = new_console(on=keyed_server)
    console.expected_statuses |= {401}
    console.post("/teach", {"text": SAMPLE}, Authorization=f"Bearer {keys['writer']}")
    real, console.tenant = console.tenant, "default"
    page = console.open("facts")
    page.get_by_label("API key").fill(keys["reader"])
    page.keyboard.press("Enter")
    page.get_by_role("button", name="Tenant default").click()
    expect(page.get_by_text("Only an admin can list the tenants")).to_be_visible()
    page.keyboard.type(real)
    page.get_by_role("option", name=f"Open tenant “{real}”").click()
    expect(page.get_by_role("button", name="likes/2")).to_be_visible()


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_open_menus_are_accessible(new_console: Callable[..., Console], scheme: str, width: int):
    console = new_console(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
    )
    console.load(SAMPLE + "@levels trust: web < user.")
    page = console.open("facts", asof="2026-05-01T00:00:00Z")
    for name in ("Tenant", "View", "Time"):
        page.get_by_role("button", name=name).click()
        panel = page.get_by_role("dialog", name=name)
        expect(panel).to_be_visible()
        assert console.violations() == []
        box = panel.bounding_box()
        assert box is not None
        assert 0 <= box["x"] <= box["x"] + box["width"] <= width
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.keyboard.press("Escape")
