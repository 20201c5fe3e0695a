"""Look through a view: labels of facts, levels and groups in the bar, and links that keep them."""

from __future__ import annotations

from playwright.sync_api import Page, expect
from support.console import Console, rows_of

DECLARED = """@levels trust: web < tool < user.
@groups team: hr, eng.
paid(?who) :- salary(?who, ?_).
"""


def tell(console: Console, text: str, labels: dict[str, str | list[str]]) -> None:
    console.post("/tell", {"text": text, "labels": labels})


def salaries(console: Console) -> Page:
    console.load(DECLARED)
    tell(console, "salary(ann, 10)", {"trust": "user", "team": ["hr"]})
    tell(console, "salary(bob, 99)", {"trust": "web"})
    tell(console, "salary(cy, 20)", {"trust": "tool", "team": ["eng", "hr"]})
    return console.open("facts", predicate="salary/2")


def test_a_tenant_without_labels_has_no_view(console: Console) -> None:
    console.load("p(a).")
    page = console.open("facts", predicate="p/1")
    expect(page.get_by_role("table", name="Facts")).to_be_visible()
    expect(page.get_by_role("button", name="View")).to_have_count(0)


def test_facts_show_their_labels_and_a_view_hides_the_others(console: Console) -> None:
    page = salaries(console)
    expect(page.get_by_role("table", name="Facts")).to_be_visible()
    assert sorted(rows_of(page, "Facts")) == [
        ["ann", "10", "team: hr"],
        ["bob", "99", "trust: web"],
        ["cy", "20", "team: eng or hr, trust: tool"],
    ]
    page.get_by_role("button", name="View all").click()
    page.get_by_label("View: trust").select_option("tool or higher")
    expect(page.get_by_role("status").get_by_text("2 facts")).to_be_visible()
    page.get_by_role("group", name="View: team").get_by_label("eng").check()
    expect(page.get_by_role("status").get_by_text("1 fact")).to_be_visible()
    assert [row[:2] for row in rows_of(page, "Facts")] == [["cy", "20"]]
    page.get_by_role("link", name="Playground").click()
    page.reload()
    expect(page.get_by_role("button", name="View trust: tool, team: eng")).to_be_visible()
    page.get_by_role("button", name="Show everything").click()
    expect(page.get_by_role("button", name="View all")).to_be_visible()


def test_answers_and_proofs_are_those_of_the_view(console: Console) -> None:
    salaries(console)
    page = console.open("playground", goal="paid(?who)", only='{"trust":"user"}')
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("table", name="Answers")).to_be_visible()
    assert [row[0] for row in rows_of(page, "Answers")] == ["ann"]


def test_a_screen_that_cannot_look_through_a_view_says_so(console: Console) -> None:
    salaries(console)
    console.expected_statuses = {400}
    page = console.open("operations", only='{"trust":"user"}')
    expect(page.get_by_role("alert")).to_contain_text("view")
    page.get_by_role("button", name="Show everything").click()
    expect(page.get_by_role("alert")).to_have_count(0)
