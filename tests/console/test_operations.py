"""The operations screen: metrics, health, events, tenants, keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect
from support.console import Console
from support.servers import Server

TOKEN = "a-bootstrap-token-of-some-length"


def open_operations(console: Console, **parameters: str) -> Page:
    """Open the screen. Its stream of events never ends, so the network is never idle."""
    query = httpx.QueryParams({"tenant": console.tenant, **parameters})
    console.page.goto(f"{console.base}/console/operations?{query}")
    expect(console.page.get_by_text("Connected", exact=True)).to_be_visible()
    return console.page


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server that manages keys, and the key of its administrator."""
    with Server(tmp_path, AUTH_ENABLED="true", BOOTSTRAP_TOKEN=TOKEN) as server:
        base = f"http://{server.address[0]}:{server.address[1]}"
        answer = httpx.post(f"{base}/auth/bootstrap", json={"name": "first", "token": TOKEN})
        answer.raise_for_status()
        yield server, answer.json()["key"]


def log_in(page: Page, key: str) -> None:
    page.get_by_label("API key").fill(key)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Operations")).to_be_visible()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that no other test uses."""
    with Server(tmp_path) as server:
        yield server


def test_health_and_metrics(own_server: Server, new_console: Callable[..., Console]):
    console = new_console(on=own_server)  # the metric counts the facts of all tenants
    page = open_operations(console)
    expect(page.get_by_role("row", name="Storage pass")).to_be_visible()
    expect(page.get_by_text("This server works alone")).to_be_visible()
    metric = page.get_by_role("listitem").filter(has_text="Facts")
    before = int(metric.locator("strong").inner_text(timeout=10_000).replace(",", ""))
    console.post("/assert/facts", {"facts": [{"predicate": "p", "args": [i]} for i in range(9)]})
    expect(metric.locator("strong")).to_have_text(f"{before + 9:,}", timeout=15_000)
    rate = page.get_by_role("listitem").filter(has_text="Requests per second")
    expect(rate.locator("strong")).not_to_have_text("–")
    expect(rate.get_by_role("img", name="Requests per second: lowest")).to_be_visible()
    expect(rate.locator("canvas")).to_be_visible()
    assert page.evaluate(DRAWN, "Facts")


DRAWN = """title => {
  const item = [...document.querySelectorAll(".sparklines li")].find(li => li.textContent.includes(title));
  const canvas = item.querySelector("canvas");
  return canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(byte => byte > 0);
}"""
"""Whether a chart has anything drawn on it."""


def test_live_events_pause_and_continue(console: Console):
    console.load("likes(ann, milk).")
    page = open_operations(console)
    log = page.get_by_role("log", name="Events")
    console.load("likes(ann, tea).")
    expect(log.get_by_text("likes(ann, tea)")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.get_by_text("Paused", exact=True)).to_be_visible()
    console.load("likes(ann, 'green tea'). r(?x) :- likes(?x, tea).")
    expect(log.get_by_role("listitem")).to_have_count(1)
    page.get_by_role("button", name="Continue").click()
    expect(log.get_by_text("r(?x) :- likes(?x, tea).")).to_be_visible()
    expect(log.get_by_role("listitem")).to_have_count(3)


def test_events_of_a_predicate_are_in_the_address(console: Console):
    console.load("likes(ann, milk).")
    page = open_operations(console, predicate="age")
    console.load("likes(ann, tea). age(ann, 50).")
    log = page.get_by_role("log", name="Events")
    expect(log.get_by_text("age(ann, 50)")).to_be_visible()
    expect(log.get_by_role("listitem")).to_have_count(1)


def test_at_most_200_events_are_listed(console: Console):
    console.load("item(0).")
    page = open_operations(console)
    console.load(" ".join(f"item({number})." for number in range(1, 451)))
    log = page.get_by_role("log", name="Events")
    expect(log.get_by_text("item(450)", exact=True)).to_be_visible()
    expect(log.get_by_role("listitem")).to_have_count(200)


def test_leaving_the_screen_ends_its_stream(console: Console):
    console.load("likes(ann, milk).")
    page = open_operations(console)
    with page.expect_event("requestfailed", lambda request: "/memory/events" in request.url):
        page.get_by_role("link", name="Playground").click()
    expect(page.get_by_role("heading", name="Playground")).to_be_visible()


def test_a_tenant_leads_to_its_knowledge(console: Console):
    console.load("likes(ann, milk).")
    page = open_operations(console)
    page.get_by_label("Filter tenants of default").fill(console.tenant)
    page.get_by_role("link", name=console.tenant).first.click()
    expect(page.get_by_role("heading", name="Playground")).to_be_visible()
    expect(page.get_by_role("button", name=f"Tenant {console.tenant}")).to_be_visible()


def test_keys_with_the_keyboard_alone(
    managed: tuple[Server, str], new_console: Callable[..., Console]
):
    server, key = managed
    console = new_console(on=server)
    console.expected_statuses |= {401}
    page = console.page
    page.goto(f"{console.base}/console/operations?tenant={console.tenant}")
    log_in(page, key)
    expect(page.get_by_role("row", name="first (this key)")).to_be_visible()
    page.get_by_label("Name of the key").focus()
    page.keyboard.type("report")
    page.keyboard.press("Tab")
    page.keyboard.type("writer")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    page.keyboard.type("north, south")
    page.keyboard.press("Enter")
    shown = page.get_by_role("status").filter(has_text="shown this once")
    secret = shown.locator("code").inner_text()
    headers = {"Authorization": f"Bearer {secret}"}
    whoami = httpx.get(f"{console.base}/auth/whoami", headers=headers).json()
    assert (whoami["role"], whoami["tenants"]) == ("writer", ["north", "south"])
    assert console.violations() == []
    row = page.get_by_role("row").filter(has_text="report")
    expect(row).to_contain_text("north, south")
    row.get_by_role("button", name="Revoke report …").focus()
    page.keyboard.press("Enter")
    expect(row.get_by_role("button", name="Revoke report")).to_be_focused()
    assert console.violations() == []
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(row.get_by_role("button", name="Revoke report …")).to_be_visible()
    assert httpx.get(f"{console.base}/auth/whoami", headers=headers).status_code == 200
    row.get_by_role("button", name="Revoke report …").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(row).to_have_count(0)
    assert httpx.get(f"{console.base}/auth/whoami", headers=headers).status_code == 401


def test_a_reader_is_told_what_its_key_does_not_permit(
    managed: tuple[Server, str], new_console: Callable[..., Console]
):
    server, admin = managed
    console = new_console(on=server)
    console.expected_statuses |= {401, 403}
    created = httpx.post(
        f"{console.base}/auth/keys",
        json={"name": "r", "role": "reader"},
        headers={"Authorization": f"Bearer {admin}"},
    )
    page = console.page
    page.goto(f"{console.base}/console/operations?tenant={console.tenant}")
    log_in(page, created.json()["key"])
    keys = page.get_by_role("region", name="Keys")
    expect(keys.get_by_role("alert")).to_contain_text("Your key does not permit this (403).")
    expect(page.get_by_role("row", name="Storage pass")).to_be_visible()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(new_console: Callable[..., Console], scheme: str):
    console = new_console(color_scheme=scheme, reduced_motion="reduce")
    console.load("likes(ann, milk).")
    page = open_operations(console)
    console.load("likes(ann, tea).")
    expect(page.get_by_role("log", name="Events")).to_be_visible()
    expect(page.locator(".sparkline canvas")).to_have_count(5)
    assert console.violations() == []


def test_a_narrow_window_does_not_scroll_sideways(new_console: Callable[..., Console]):
    console = new_console(viewport={"width": 390, "height": 800})
    console.load("likes(ann, milk).")
    page = open_operations(console)
    expect(page.locator(".sparkline canvas")).to_have_count(5)
    expect(page.get_by_role("row", name="Storage pass")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_slow_goals_open_in_the_playground(console: Console):
    console.load(
        "edge(0, 1). path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- path(?x, ?y), edge(?y, ?z)."
    )
    edges = [{"predicate": "edge", "args": [i, i + 1]} for i in range(600)]
    console.post("/assert/facts", {"facts": edges})
    page = open_operations(console)
    expect(page.get_by_text("No goal of this tenant took 10 ms or more")).to_be_visible()
    console.post("/ask", {"text": "path(?x, ?y)", "maxAnswers": 1_000_000})
    page.reload()
    listed = page.get_by_role("group", name="List of slow goals")
    listed.get_by_role("link", name="path(?x, ?y)").click()
    expect(page.get_by_role("heading", name="Playground")).to_be_visible()
    expect(page.get_by_role("textbox", name="Goal")).to_contain_text("path(?x, ?y)")
