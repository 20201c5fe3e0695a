"""The playground: goals, answers, proofs, plans."""

from __future__ import annotations

import csv
from collections.abc import Callable
from urllib.parse import urlsplit

import pyarrow
import pytest
from playwright.sync_api import expect
from support.console import SAMPLE, Console, read_json, rows_of


def test_a_goal_runs_with_control_enter(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    console.run_goal("ancestor(ann, ?who)")
    expect(page.get_by_role("table", name="Answers")).to_be_visible()
    assert rows_of(page, "Answers") == [["bob"], ["cleo"], ["dan"]]
    expect(page.get_by_text("3 answers")).to_be_visible()


def test_the_address_reproduces_the_state(console: Console):
    console.load(SAMPLE)
    console.open("playground")
    console.run_goal("ancestor(?x, dan)")
    page = console.page
    page.get_by_role("tab", name="Plan").click()
    expect(page.get_by_text("Actual rows").first).to_be_visible()
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.get_by_role("tab", name="Plan")).to_have_attribute("aria-selected", "true")
    assert rows_of(page, "Answers") == [["ann"], ["bob"], ["cleo"]]


def test_the_proof_of_the_selected_answer(console: Console):
    console.load(SAMPLE)
    page = console.open("playground", goal="ancestor(ann, ?who)")
    page.get_by_role("table", name="Answers").focus()
    page.keyboard.press("End")
    tree = page.get_by_role("tree", name="Proof")
    expect(tree.get_by_role("treeitem").first).to_contain_text("ancestor(ann, dan)")
    expect(tree.get_by_text("parent(cleo, dan)")).to_be_visible()
    tree.focus()
    page.keyboard.press("ArrowLeft")
    expect(tree.get_by_role("treeitem")).to_have_count(1)
    page.get_by_role("button", name="Graph").click()
    expect(page.get_by_role("img", name="parent(cleo, dan): stored fact")).to_be_visible()


def test_an_editor_that_loads_late_leaves_the_focus_where_it_is(console: Console):
    console.load(SAMPLE)
    held = []
    page = console.page
    page.route("**/CodeEditor*.js", lambda route: held.append(route))
    console.open("playground", goal="ancestor(ann, ?who)")
    table = page.get_by_role("table", name="Answers")
    table.focus()
    (waiting,) = held
    waiting.continue_()
    expect(page.get_by_role("textbox", name="Goal")).to_be_visible()
    expect(table).to_be_focused()


def test_why_there_is_no_answer(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    console.run_goal("ancestor(cleo, bob)")
    expect(page.get_by_role("tab", name="Why not")).to_have_attribute("aria-selected", "true")
    panel = page.get_by_role("tabpanel")
    expect(panel.get_by_text("ancestor(cleo, bob) does not hold.")).to_be_visible()
    expect(panel.locator(".holds").first).to_contain_text("parent(cleo, dan)")
    panel.get_by_role("link", name="ancestor(dan, bob)").click()
    expect(panel.get_by_text("ancestor(dan, bob) does not hold.")).to_be_visible()
    assert console.violations() == []


def test_a_goal_of_several_literals(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    console.run_goal("parent(?x, ?y), likes(?y, ?what)")
    expect(page.get_by_role("table", name="Answers")).to_be_visible()
    assert rows_of(page, "Answers") == [["ann", "bob", "tea"]]


def test_mistakes_are_marked_while_typing(console: Console):
    page = console.open("playground")
    console.type_text("Goal", "ancestor(ann ?who)")
    expect(page.locator(".cm-lintRange-error")).to_be_visible()


def test_a_mistake_in_a_goal_is_shown_with_its_position(console: Console):
    console.load(SAMPLE)
    console.expected_statuses.add(400)
    page = console.open("playground")
    console.run_goal("ancestor(ann, ")
    expect(page.get_by_role("alert")).to_contain_text("Line 1, column")


def test_a_goal_over_its_limit_is_explained(console: Console):
    console.load("n(0). n(?y) :- n(?x), ?y = ?x + 1.")
    console.expected_statuses.add(422)
    page = console.open("playground")
    console.run_goal("n(?x)")
    expect(page.get_by_role("alert")).to_contain_text("limit", timeout=30_000)


def test_answers_are_exported(console: Console):
    console.load(SAMPLE + 'quote("a, b", "say ""x""").'.replace('""', "'"))
    page = console.open("playground", goal="ancestor(?x, ?y)")
    paths = {}
    for name in ("CSV", "JSON", "Arrow"):
        with page.expect_download() as download:
            page.get_by_role("button", name=name).click()
        paths[name] = download.value.path()
    rows = list(csv.reader(paths["CSV"].read_text().splitlines()))
    assert rows[0] == ["x", "y"]
    assert ["ann", "dan"] in rows
    assert len(rows) == 7
    assert {tuple(row["args"]) for row in read_json(paths["JSON"])} == {
        tuple(row) for row in rows[1:]
    }
    with pyarrow.ipc.open_stream(paths["Arrow"].read_bytes()) as reader:
        assert reader.read_all().num_rows == 6


def test_ten_thousand_answers_scroll(console: Console):
    facts = [{"predicate": "item", "args": [f"a{i}", str(i)]} for i in range(10_000)]
    console.post("/assert/facts", {"facts": facts})
    page = console.open("playground", goal="item(?name, ?number)")
    table = page.get_by_role("table", name="Answers")
    expect(table).to_have_attribute("aria-rowcount", "10001")
    table.focus()
    page.keyboard.press("End")
    expect(table.get_by_text("a9999", exact=True)).to_be_visible()
    assert table.locator(".table-body").get_by_role("row").count() < 100


_TIME_TO_OPEN = """async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const named = (role, name) =>
    [...document.querySelectorAll(role)].find((each) => each.textContent.trim() === name);
  const lines = () => document.querySelectorAll("[role=tree] [role=treeitem]").length;
  named("[role=tab]", "Plan").click();
  while (lines() > 0) await frame();
  const start = performance.now();
  named("[role=tab]", "Proof").click();
  while (lines() === 0) await frame();
  named("button", "Expand all").click();
  while (lines() < 15) await frame();
  await frame();
  return performance.now() - start;
}"""
"""Milliseconds from a click on the tab until all levels of the proof are open and painted."""


def test_a_proof_of_a_thousand_nodes_opens_quickly(console: Console):
    """Only the lines in view are rendered; the time to open is printed, measured in the page."""
    chain = "".join(f"edge(n{i}, n{i + 1}). " for i in range(500))
    console.load(
        chain + "reach(?x, ?y) :- edge(?x, ?y). reach(?x, ?z) :- edge(?x, ?y), reach(?y, ?z)."
    )
    page = console.open("playground", goal="reach(n0, n500)")
    expect(page.get_by_text("nodes", exact=False).first).to_be_visible()
    tree = page.get_by_role("tree", name="Proof")
    expect(page.get_by_text("1000 nodes")).to_be_visible()
    milliseconds = page.evaluate(_TIME_TO_OPEN)
    print(f"a proof of 1000 nodes opens in {milliseconds:.0f} ms")
    assert tree.get_by_role("treeitem").count() < 100
    tree.focus()
    page.keyboard.press("End")
    expect(tree.get_by_text("edge(n499, n500)")).to_be_visible()
    assert tree.get_by_role("treeitem").count() < 100


def test_completion_of_predicates(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    page.get_by_role("textbox", name="Goal").click()
    page.keyboard.type("anc")
    option = page.get_by_role("option", name="ancestor")
    option.click()
    expect(page.get_by_role("textbox", name="Goal")).to_contain_text("ancestor(")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_violations_of_accessibility(new_console: Callable[..., Console], scheme: str):
    console = new_console(color_scheme=scheme, reduced_motion="reduce")
    console.load(SAMPLE)
    page = console.open("playground", goal="ancestor(ann, ?who)")
    expect(page.get_by_role("tree", name="Proof")).to_be_visible()
    assert console.violations() == []
    page.get_by_role("button", name="Graph").click()
    expect(page.get_by_role("group", name="Drawing of the proof")).to_be_visible()
    assert console.violations() == []
    page.get_by_role("tab", name="Plan").click()
    expect(page.get_by_text("Actual rows").first).to_be_visible()
    assert console.violations() == []


def test_several_goals_are_answered_from_one_state(console: Console):
    console.load(SAMPLE)
    page = console.open("playground")
    with page.expect_request(lambda request: urlsplit(request.url).path == "/ask") as asked:
        console.run_goal("ancestor(ann, ?who)\n?- likes(?x, tea).\nlikes(dan, ?what)")
    assert asked.value.post_data_json["goals"] == [
        "ancestor(ann, ?who)",
        "likes(?x, tea)",
        "likes(dan, ?what)",
    ]
    goals = page.get_by_role("region", name="Goals")
    expect(goals).to_contain_text("3 goals, answered from one state")
    entries = goals.get_by_role("button")
    expect(entries).to_have_text(
        ["ancestor(ann, ?who) 3 answers", "likes(?x, tea) 1 answer", "likes(dan, ?what) 0 answers"]
    )
    assert rows_of(page, "Answers") == [["bob"], ["cleo"], ["dan"]]
    entries.nth(1).click()
    expect(page.get_by_role("tree", name="Proof")).to_contain_text("likes(bob, tea)")
    entries.nth(2).click()
    expect(page.get_by_role("tab", name="Why not")).to_have_attribute("aria-selected", "true")
    page.reload()
    expect(entries.nth(2)).to_have_attribute("aria-pressed", "true")
    assert console.violations() == []


def test_a_mistake_in_one_of_several_goals_is_shown_with_its_goal(console: Console):
    console.load(SAMPLE)
    console.expected_statuses.add(400)
    page = console.open("playground")
    console.type_text("Goal", "parent(ann, ?x)\nparent(ann ?x)")
    expect(page.locator(".cm-lintRange-error")).to_have_text("?x")
    with page.expect_response(lambda response: urlsplit(response.url).path == "/ask"):
        page.keyboard.press("Control+Enter")
    expect(page.get_by_role("alert")).to_contain_text("Goal 2 has a mistake.")
    expect(page.get_by_role("alert")).to_contain_text("parent(ann ?x)")


def test_a_question_in_words_gets_suggested_goals(console: Console):
    console.load("sister(mia, lea). lives_in(lea, kiel). lives_in(mia, berlin).")
    page = console.open("playground")
    console.type_text("Goal", "Where does the sister of mia live?")
    page.keyboard.press("Control+Enter")
    suggestions = page.get_by_role("region", name="Suggested goals")
    expect(suggestions).to_contain_text("kiel answers sister(mia, ?x), lives_in(?x, ?y)")
    assert console.violations() == []
    suggestions.get_by_role("button").first.click()
    expect(page.get_by_role("table", name="Answers")).to_be_visible()
    assert rows_of(page, "Answers") == [["lea", "kiel"]]
    console.type_text("Goal", "Who is the cousin of zed?")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("No name in the question is a constant of a fact")).to_be_visible()
