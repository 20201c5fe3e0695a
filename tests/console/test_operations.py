"""The operations screen: metrics, health, events, tenants, keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, Route, expect
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


def test_latency_and_errors_are_charts_of_one_time_axis(
    own_server: Server, new_console: Callable[..., Console]
):
    page = open_operations(new_console(on=own_server))
    groups = page.get_by_role("region", name="Metrics").get_by_role("heading", level=3)
    expect(groups).to_have_text(["Traffic", "Latency", "Errors", "Size"])
    latency = page.get_by_role("region", name="Latency").get_by_role("listitem")
    expect(latency.first.locator("strong")).to_have_text(
        re.compile(r"\ds$|\d m?s$"), timeout=15_000
    )
    errors = page.get_by_role("region", name="Errors").get_by_role("listitem")
    expect(errors.first.locator("strong")).to_have_text("0")


def test_alerts_that_fire_lead_to_the_runbook(
    own_server: Server, new_console: Callable[..., Console]
):
    """The published metrics are changed on their way to the page, without a full disk."""
    console = new_console(on=own_server)

    def fill_the_disk(route: Route) -> None:
        response = route.fetch()
        text = response.text().replace("svc_storage_writable 1.0", "svc_storage_writable 0.0")
        route.fulfill(response=response, body=text)

    page = open_operations(console)
    alerts = page.get_by_role("region", name="Alerts")
    expect(alerts).to_contain_text("No alert fires on this node.")
    page.route("**/metrics", fill_the_disk)
    open_operations(console)
    expect(alerts.get_by_role("listitem")).to_contain_text("KbcoreNotWritable")
    assert console.violations() == []
    alerts.get_by_role("button", name="What to do about KbcoreNotWritable").click()
    dialog = page.get_by_role("dialog", name="KbcoreNotWritable")
    expect(dialog).to_contain_text("free space, other files first")
    assert "runbook=KbcoreNotWritable" in page.url
    assert console.violations() == []
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)


def test_the_log_and_a_snapshot(own_server: Server, new_console: Callable[..., Console]):
    console = new_console(on=own_server)
    console.load("likes(ann, milk).")
    page = open_operations(console)
    log = page.get_by_role("region", name="Log and snapshots")
    expect(log).to_contain_text("none yet")
    log.get_by_role("button", name="Take a snapshot").click()
    expect(log).to_contain_text("The snapshot is taken.")
    expect(log).to_contain_text("up to record 1", timeout=15_000)


@pytest.fixture
def logging_server(tmp_path: Path) -> Iterator[Server]:
    """A server that logs decisions."""
    with Server(tmp_path / "kb", DECISION_LOG=f"file:{tmp_path}/decisions.jsonl") as server:
        yield server


def test_decisions_are_counted(logging_server: Server, new_console: Callable[..., Console]):
    console = new_console(on=logging_server)
    console.load("likes(ann, milk).")
    console.post("/ask", {"text": "likes(ann, ?x)"})
    page = open_operations(console)
    decisions = page.get_by_role("region", name="Decision log")
    expect(decisions.locator("dd").first).to_have_text("1", timeout=15_000)


def test_a_cluster_shows_its_nodes_and_moves(
    own_server: Server, new_console: Callable[..., Console]
):
    """The answers are those of a cluster of two nodes: one takes PostgreSQL to run."""
    console = new_console(on=own_server)
    nodes = [
        {"name": "a", "url": "http://10.0.0.1:9300", "weight": 100, "state": "active"},
        {"name": "b", "url": "http://10.0.0.2:9300", "weight": 100, "state": "drained"},
    ]
    status = {
        "shards": 4,
        "unowned": [3],
        "moving": [{"shard": 2, "from": "b", "to": "a"}],
        "nodes": [{**nodes[0], "shards": [0, 1]}, {**nodes[1], "shards": [2]}],
        "moved": [{"shard": 1, "node": "a"}],
        "drained": ["b"],
        "node": "a",
        "open": [0, 1],
    }
    page = console.page

    def join(route: Route) -> None:
        response = route.fetch()
        text = response.text().replace("svc_cluster_nodes 0.0", "svc_cluster_nodes 2.0")
        route.fulfill(response=response, body=text)

    page.route("**/metrics", join)
    page.route("**/admin/cluster", lambda route: route.fulfill(json=status))
    open_operations(console)
    cluster = page.get_by_role("region", name="Cluster")
    expect(cluster).to_contain_text("2 nodes, 4 shards, 1 moving. This is a.")
    expect(cluster).to_contain_text("No node has the shard 3")
    shards = cluster.get_by_role("list", name="Shards of b").get_by_role("listitem")
    expect(shards).to_have_text(["2 → a"])
    expect(cluster).to_contain_text("Moved by hand: shard 1 to a.")
    assert console.violations() == []


def test_a_slow_goal_leads_to_its_plan(own_server: Server, new_console: Callable[..., Console]):
    console = new_console(on=own_server)
    console.load("n(0). n(?y) :- n(?x), ?x < 4000, ?y = ?x + 1. even(?x) :- n(?x), 0 = ?x mod 2.")
    console.post("/ask", {"text": "even(?x)"})
    page = open_operations(console)
    page.get_by_role("link", name="Plan of even(?x)").click()
    expect(page.get_by_role("tab", name="Plan")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("Actual rows").first).to_be_visible()


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
    expect(page.get_by_role("row", name=console.tenant)).to_have_text(f"{console.tenant}1")
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
    expect(page.locator(".sparkline canvas")).to_have_count(12)
    assert console.violations() == []


def test_a_narrow_window_does_not_scroll_sideways(new_console: Callable[..., Console]):
    console = new_console(viewport={"width": 390, "height": 800})
    console.load("likes(ann, milk).")
    page = open_operations(console)
    expect(page.locator(".sparkline canvas")).to_have_count(12)
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
    listed.get_by_role("link", name="path(?x, ?y)", exact=True).click()
    expect(page.get_by_role("heading", name="Playground")).to_be_visible()
    expect(page.get_by_role("textbox", name="Goal")).to_contain_text("path(?x, ?y)")
