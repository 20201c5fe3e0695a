"""Facts and rules: browse, add, edit, expire, retract, and the impact before a change."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect
from support.console import SAMPLE, Console, rows_of
from support.servers import Server


def stored(console: Console, text: str) -> list[dict]:
    return console.post("/query", {"text": text})


def select_first(console: Console, label: str) -> None:
    console.page.get_by_role("table", name=label).focus()
    console.page.keyboard.press("Home")


TYPE_IN_TASKS = """async (text) => {
  for (const character of text) {
    document.execCommand("insertText", false, character);
    await new Promise((next) => {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = next;
      port2.postMessage(0);
    });
  }
}"""
"""Type each character in a task of its own, so that some come between a rendering and its
effects.
"""


def append(console: Console, label: str, text: str) -> None:
    """Replace the final dot of the text of an editor."""
    console.page.get_by_role("textbox", name=label).click()
    console.page.keyboard.press("Control+End")
    console.page.keyboard.press("Backspace")
    console.page.keyboard.insert_text(text)


def test_predicates_are_listed_with_counts_and_found(console: Console):
    console.load(SAMPLE)
    page = console.open("facts")
    names = page.get_by_role("navigation", name="Predicates").get_by_role("button")
    assert names.all_inner_texts() == [
        "ancestor/2\n2 rules",
        "likes/2\n1 fact",
        "parent/2\n3 facts",
    ]
    page.get_by_role("searchbox", name="Find a predicate").fill("PAR")
    expect(names).to_have_count(1)
    names.first.click()
    expect(page.get_by_role("table", name="Facts")).to_be_visible()
    assert rows_of(page, "Facts") == [["ann", "bob"], ["bob", "cleo"], ["cleo", "dan"]]


def test_a_filter_is_part_of_the_address(console: Console):
    console.load(SAMPLE + "~parent(ann, eve).")
    page = console.open("facts", predicate="parent/2")
    page.get_by_role("searchbox", name="Argument 1 is").fill("ann")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tabpanel").get_by_text("2 facts", exact=True)).to_be_visible()
    page.get_by_role("combobox", name="Sign").select_option("Negative")
    expect(page.get_by_role("tabpanel").get_by_text("1 fact", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_role("table", name="Facts")).to_be_visible()
    assert rows_of(page, "Facts") == [["ann", "eve", "negative"]]


def test_pages_of_facts_follow_changes(console: Console):
    facts = [{"predicate": "item", "args": [f"a{i:03}"]} for i in range(250)]
    console.post("/assert/facts", {"facts": facts})
    page = console.open("facts", predicate="item/1")
    expect(page.get_by_text("Facts 1 to 100 of 250 facts")).to_be_visible()
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("Facts 101 to 200")).to_be_visible()
    select_first(console, "Facts")
    page.get_by_role("button", name="Retract").click()
    page.get_by_role("dialog").get_by_role("button", name="Retract").click()
    expect(page.get_by_text("Retracted: item(a100)")).to_be_visible()
    table = page.get_by_role("table", name="Facts")
    expect(table.get_by_role("cell").first).to_have_text("a101")
    page.get_by_role("button", name="Next page").click()
    expect(page.get_by_text("Facts 201 to 249")).to_be_visible()
    page.reload()
    expect(page.get_by_text("Facts 201 to 249")).to_be_visible()
    page.go_back()
    expect(page.get_by_text("Facts 101 to 200")).to_be_visible()


def test_only_the_page_that_is_shown_is_requested(console: Console):
    facts = [{"predicate": "item", "args": [f"a{i:04}", f"b{i % 10}"]} for i in range(1500)]
    console.post("/assert/facts", {"facts": facts})
    requests: list[dict[str, object]] = []
    console.page.on(
        "request",
        lambda request: (
            requests.append(request.post_data_json)
            if urlsplit(request.url).path == "/query"
            else None
        ),
    )
    page = console.open("facts", predicate="item/2", page="15")
    expect(page.get_by_text("Facts 1,401 to 1,500 of 1,500 facts")).to_be_visible()
    expect(page.get_by_role("button", name="Next page")).to_be_disabled()
    assert [(each["offset"], each["limit"]) for each in requests] == [(1400, 100)]
    page.get_by_role("searchbox", name="Contains").fill("A123")
    page.keyboard.press("Enter")
    expect(page.get_by_role("tabpanel").get_by_text("10 facts", exact=True)).to_be_visible()
    assert rows_of(page, "Facts")[0] == ["a1230", "b0"]
    assert "contains=A123" in page.url
    console.open("facts", predicate="item/2", page="99")
    expect(page.get_by_text("Facts 1,401 to 1,500 of 1,500 facts")).to_be_visible()


def test_facts_are_added_and_mistakes_are_shown(console: Console):
    page = console.open("facts")
    expect(page.get_by_role("heading", name="No facts yet")).to_be_visible()
    page.get_by_role("button", name="Add facts").click()
    console.expected_statuses.add(400)
    console.type_text("Facts, one a line", "likes(ann, tea)\nlikes(bob, ?what)")
    page.get_by_role("button", name="Add 2 facts").click()
    expect(page.get_by_role("alert")).to_contain_text("facts[1]")
    assert stored(console, "likes(?x, ?y)") == []
    console.type_text("Facts, one a line", "likes(ann, tea)\nlikes(bob, milk).")
    page.get_by_role("spinbutton", name="Confidence").fill("0.5")
    page.get_by_role("button", name="Add 2 facts").click()
    expect(page.get_by_text("2 new, 0 already stored.")).to_be_visible()
    assert [(row["args"], row["confidence"]) for row in stored(console, "likes(?x, ?y)")] == [
        (["ann", "tea"], 0.5),
        (["bob", "milk"], 0.5),
    ]
    expect(page.get_by_role("button", name="likes/2")).to_contain_text("2 facts")


def test_an_edit_is_previewed_and_replaces_the_fact(console: Console):
    console.load(SAMPLE)
    page = console.open("facts", predicate="parent/2")
    select_first(console, "Facts")
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Edit parent")
    dialog.get_by_role("textbox", name="Argument 2").fill("cleo")
    dialog.get_by_role("textbox", name="Metadata").fill('{"source": "register"}')
    dialog.get_by_role("button", name="Preview").click()
    expect(dialog.get_by_role("list", name="No longer holds")).to_contain_text("ancestor(ann, bob)")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved: parent(ann, cleo)")).to_be_visible()
    expect(page.get_by_role("table", name="Facts").get_by_text("register")).to_be_visible()
    [row] = stored(console, "parent(ann, ?child)")
    assert (row["args"], row["metadata"]) == (["ann", "cleo"], {"source": "register"})


def test_an_edit_keeps_the_digits_of_numbers_in_metadata(console: Console):
    metadata = {"serial": 9007199254740993, "share": 0.30000000000000004}
    console.post("/tell", {"predicate": "cert", "args": ["a", "1"], "metadata": metadata})
    page = console.open("facts", predicate="cert/2")
    select_first(console, "Facts")
    page.get_by_role("button", name="Edit").click()
    dialog = page.get_by_role("dialog", name="Edit cert")
    expect(dialog.get_by_role("textbox", name="Metadata")).to_have_value(
        '{"serial":9007199254740993,"share":0.30000000000000004}'
    )
    dialog.get_by_role("textbox", name="Argument 2").fill("2")
    dialog.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved: cert(a, 2)")).to_be_visible()
    [row] = stored(console, "cert(a, ?n)")
    assert (row["args"], row["metadata"]) == (["a", "2"], metadata)


def test_an_edit_of_a_fact_that_is_gone_stores_nothing(console: Console):
    console.load(SAMPLE)
    page = console.open("facts", predicate="parent/2")
    select_first(console, "Facts")
    page.get_by_role("button", name="Edit").click()
    console.post("/retract", {"text": "parent(ann, bob)"})
    page.get_by_role("textbox", name="Argument 2").fill("eve")
    page.get_by_role("dialog").get_by_role("button", name="Save").click()
    expect(page.get_by_role("alert")).to_contain_text("not stored any more")
    assert stored(console, "parent(ann, ?child)") == []


def test_a_fact_expires_now(console: Console):
    console.load(SAMPLE)
    page = console.open("facts", predicate="parent/2")
    select_first(console, "Facts")
    page.get_by_role("button", name="Expire").click()
    dialog = page.get_by_role("dialog", name="Expire a fact")
    expect(dialog.get_by_role("list", name="No longer holds")).to_contain_text("ancestor(ann, dan)")
    dialog.get_by_role("button", name="Expire").click()
    expect(page.get_by_text("Expired: parent(ann, bob)")).to_be_visible()
    expect(page.get_by_role("tabpanel").get_by_text("2 facts", exact=True)).to_be_visible()
    assert console.post("/ask", {"text": "ancestor(ann, ?who)"}) == []


def test_a_fact_expires_at_a_time(console: Console):
    console.load(SAMPLE)
    page = console.open("facts", predicate="likes/2")
    select_first(console, "Facts")
    page.get_by_role("button", name="Expire").click()
    page.get_by_label("End (empty: now)").fill("2099-01-31T12:00:00")
    page.get_by_role("dialog").get_by_role("button", name="Expire").click()
    expect(page.get_by_role("table", name="Facts").get_by_text("31 Jan 2099")).to_be_visible()
    [row] = stored(console, "likes(?x, ?y)")
    assert row["confidence"] == 0.8
    assert row["validUntil"] > 4_000_000_000_000


def test_a_retraction_by_keyboard_shows_what_no_longer_holds(console: Console):
    console.load(SAMPLE)
    page = console.open("facts", predicate="parent/2")
    page.get_by_role("tab", name="Facts").focus()
    for _ in range(6):  # the panel, the text, two filters, the sign, the table
        page.keyboard.press("Tab")
    expect(page.get_by_role("table", name="Facts")).to_be_focused()
    page.keyboard.press("End")
    expect(page.get_by_role("group", name="The selected fact")).to_contain_text("parent(cleo, dan)")
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Retract")).to_be_focused()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Retract a fact")
    expect(dialog.get_by_text("4 no longer hold")).to_be_visible()
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Retract")).to_be_focused()
    assert len(stored(console, "parent(?x, ?y)")) == 3
    page.keyboard.press("Enter")
    expect(dialog.get_by_role("listitem")).to_have_count(4)
    for _ in range(10):
        if dialog.get_by_role("button", name="Retract").evaluate(
            "button => button === document.activeElement"
        ):
            break
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Retracted: parent(cleo, dan)")).to_be_visible()
    assert len(stored(console, "parent(?x, ?y)")) == 2


def test_a_new_rule_is_previewed_then_saved(console: Console):
    console.load(SAMPLE)
    page = console.open("facts")
    page.get_by_role("button", name="New rule").click()
    editor = page.get_by_role("region", name="New rule")
    expect(editor.get_by_role("button", name="Save")).to_be_disabled()
    rule = "grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."
    console.type_text("Rule", rule)
    page.keyboard.press("Control+Enter")
    added = editor.get_by_role("list", name="Becomes true").get_by_role("listitem")
    expect(added).to_have_count(2)
    expect(added.first).to_contain_text("grandparent(ann, cleo)")
    assert console.post("/ask", {"text": "grandparent(?x, ?y)"}) == []
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    expect(added).to_have_count(2)
    editor.get_by_role("button", name="Save").click()
    expect(page.get_by_text(f"Rule Asserted: {rule}")).to_be_visible()
    expect(page.get_by_role("table", name="Rules").get_by_text(rule)).to_be_visible()
    assert len(console.post("/ask", {"text": "grandparent(?x, ?y)"})) == 2


def test_a_changed_rule_replaces_the_stored_one(console: Console):
    console.load("p(a). p(b). q(a). r(?x) :- p(?x).")
    page = console.open("facts", view="rules")
    select_first(console, "Rules")
    page.get_by_role("button", name="Edit").click()
    append(console, "Rule", ", not q(?x).")
    editor = page.get_by_role("region", name="Edit the rule")
    editor.get_by_role("button", name="Preview").click()
    removed = editor.get_by_role("list", name="No longer holds").get_by_role("listitem")
    expect(removed).to_have_count(1)
    expect(removed).to_contain_text("r(a)")
    append(console, "Rule", ", ?x != c.")
    expect(editor.get_by_role("button", name="Save")).to_be_disabled()
    editor.get_by_role("button", name="Preview").click()
    editor.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Rule Asserted: r(?x)")).to_be_visible()
    assert [row["args"] for row in console.post("/ask", {"text": "r(?x)"})] == [["b"]]
    expect(page.get_by_role("tabpanel").get_by_text("1 rule", exact=True)).to_be_visible()


def test_typing_faster_than_the_page_renders_loses_nothing(console: Console):
    page = console.open("facts", rule="new", view="rules")
    editor = page.get_by_role("textbox", name="Rule")
    editor.click()
    text = "abcdefghijklmnopqrstuvwxyz" * 8
    page.evaluate(TYPE_IN_TASKS, text)
    expect(editor).to_have_text(text)


def test_a_mistake_in_a_rule_is_shown_with_its_position(console: Console):
    console.expected_statuses.add(400)
    page = console.open("facts", rule="new", view="rules")
    console.type_text("Rule", "r(?x) :- p(?y).")
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_contain_text("Line 1, column")
    expect(page.get_by_role("button", name="Save")).to_be_disabled()


def test_a_rule_is_retracted_after_its_impact(console: Console):
    console.load(SAMPLE)
    page = console.open("facts", view="rules", predicate="ancestor/2")
    select_first(console, "Rules")
    page.get_by_role("button", name="Retract").click()
    dialog = page.get_by_role("dialog", name="Retract a rule")
    expect(dialog.get_by_text("6 no longer hold")).to_be_visible()
    dialog.get_by_role("button", name="Retract").click()
    expect(page.get_by_text("Rule Retracted: ancestor(?x, ?y)")).to_be_visible()
    assert console.post("/ask", {"text": "ancestor(?x, ?y)"}) == []


def test_changes_belong_to_the_scope_of_the_page(console: Console):
    console.load(SAMPLE)
    console.post("/scope/fork", {"targetScope": "draft"})
    page = console.open("facts", predicate="parent/2", scope="draft")
    select_first(console, "Facts")
    page.get_by_role("button", name="Retract").click()
    page.get_by_role("dialog").get_by_role("button", name="Retract").click()
    expect(page.get_by_role("tabpanel").get_by_text("2 facts", exact=True)).to_be_visible()
    assert len(stored(console, "parent(?x, ?y)")) == 3
    assert len(console.post("/query", {"text": "parent(?x, ?y)", "scope": "draft"})) == 2


def test_a_reader_is_offered_no_writes(
    new_console: Callable[..., Console], keyed_server: Server, keys: dict[str, str]
):
    console = new_console(on=keyed_server)
    writer = {"Authorization": f"Bearer {keys['writer']}"}
    console.post("/teach", {"text": SAMPLE}, **writer)
    console.expected_statuses |= {401, 403}
    page = console.open("facts", predicate="parent/2")
    page.get_by_label("API key").fill(keys["reader"])
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Facts")).to_be_visible()
    select_first(console, "Facts")
    expect(page.get_by_role("link", name="Show the proof")).to_be_visible()
    expect(page.get_by_role("button", name="Key reader")).to_be_visible()
    for name in ("Add facts", "New rule", "Edit", "Expire", "Retract"):
        expect(page.get_by_role("button", name=name, exact=True)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_violations_of_accessibility(
    new_console: Callable[..., Console], scheme: str, width: int
):
    console = new_console(
        color_scheme=scheme, reduced_motion="reduce", viewport={"width": width, "height": 800}
    )
    console.load(SAMPLE + "~parent(ann, eve).")
    page = console.open("facts", predicate="parent/2")
    select_first(console, "Facts")
    assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for action in ("Edit", "Expire", "Retract"):
        group = page.get_by_role("group", name="The selected fact")
        group.get_by_role("button", name=action).click()
        if action == "Edit":
            page.get_by_role("button", name="Preview").click()
        if action == "Retract":
            expect(page.get_by_role("list", name="No longer holds")).to_be_visible()
        expect(page.get_by_text("Computing the impact")).to_have_count(0)
        expect(page.get_by_role("dialog").get_by_text("Facts and conclusions")).to_have_count(
            1 if action != "Edit" else 0
        )
        assert console.violations() == []
        page.keyboard.press("Escape")
    page.get_by_role("button", name="Add facts").click()
    expect(page.get_by_role("textbox", name="Facts, one a line")).to_be_visible()
    assert console.violations() == []
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    console.open("facts", view="rules", rule="new", draft="r(?x) :- parent(?x, ?y).")
    expect(page.get_by_role("list", name="Becomes true")).to_be_visible()
    assert console.violations() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_rows_of_a_spreadsheet_are_shown_and_stored_with_one_request(console: Console):
    console.load('@input lives_in(person, place) "where a person lives". lives_in(a, b).')
    page = console.open("facts", predicate="lives_in/2")
    page.get_by_role("button", name="Paste from a spreadsheet").click()
    dialog = page.get_by_role("dialog", name="Paste from a spreadsheet")
    rows = dialog.get_by_role("textbox", name="Rows, with tabs between the columns")
    rows.fill("place\tperson\tsince\nBerlin\tmia\t2026-03-01\n\tlea\t\n")
    expect(dialog.get_by_role("checkbox")).to_be_checked()
    expect(dialog.get_by_role("alert")).to_have_text("Row 3 has no value in column 1.")
    expect(dialog.get_by_role("button", name="Store 2 facts")).to_be_disabled()
    rows.fill('place\tperson\tsince\nBerlin\tmia\t2026-03-01\n"New\tYork"\tlea\t\n')
    expect(dialog).to_contain_text("2 facts of lives_in/2 would be stored in the base.")
    table = rows_of(page, "Facts that would be stored")
    assert table == [["mia", "Berlin", "1 Mar 2026"], ["lea", "New York", ""]]
    assert console.violations() == []
    with page.expect_request("**/assert/facts") as stored:
        dialog.get_by_role("button", name="Store 2 facts").click()
    assert len(stored.value.post_data_json["facts"]) == 2
    expect(page.get_by_role("status").filter(has_text="2 new, 0 already stored.")).to_be_visible()
    expect(page.get_by_role("table", name="Facts")).to_contain_text("Berlin")


def test_tables_can_be_dense(console: Console):
    console.load("likes(ann, tea). likes(bob, milk).")
    page = console.open("facts", predicate="likes/2")
    row = page.get_by_role("table", name="Facts").locator(".table-body").get_by_role("row").first
    before = row.bounding_box()
    button = page.get_by_role("button", name="Dense tables")
    button.click()
    expect(row).to_have_css("height", "24px")
    assert before is not None
    assert before["height"] == 32
    page.reload()
    expect(row).to_have_css("height", "24px")
    assert console.violations() == []
    button.click()
    expect(row).to_have_css("height", "32px")
