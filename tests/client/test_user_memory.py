"""Memory about a user through the client, in this process and on servers."""

from __future__ import annotations

from datetime import date

import pytest

from kbcore_client import InvalidInput, NotFound, connect
from kbtypes.windows import ADAPTER_PREDICATES

MOVED = {"role": "user", "content": "I moved to Berlin.", "at": "2026-11-20T09:00:00Z"}
ASKED = {"role": "assistant", "content": "Do you like the parks?"}


@pytest.fixture
def memory(kb):
    return kb.memory()


def test_messages_in_and_text_out(kb, memory):
    added = memory.add([MOVED, ASKED], session="s1", agent="amy")
    assert (len(added.episodes), added.facts, added.asserted) == (2, (), 2)
    assert memory.add([MOVED, ASKED], session="s1", agent="amy").episodes == ()
    found = memory.search("Who moved to Berlin?", max_tokens=200, max_facts=5)
    assert found.entries[0].args[:2] == (kb.tenant, "I moved to Berlin.")
    assert found.sources[0]["speaker"] == kb.tenant
    assert "I moved to Berlin." in found.text
    assert 0 < found.tokens <= 200
    assert memory.search("Berlin", agent="bob").text == ""
    assert memory.search("Berlin", session="s1", agent="amy").entries
    assert memory.search("Berlin", citations=False).sources in ([], ())
    assert kb.memory(user=f"{kb.tenant}-b").search("Berlin").text == ""
    with pytest.raises(InvalidInput, match=r"^user: "):
        kb.memory(user="")
    for name in ("  ", "mia\n", "zoë", 5):
        with pytest.raises(InvalidInput, match="is not a name"):
            kb.memory(user=name).search("Berlin")


def test_a_forgotten_message_stays_away(memory):
    memory.add([MOVED, ASKED], session="s1")
    memory.forget(memory.search("Berlin").sources[0]["episode"], dry_run=False)
    again = memory.add([MOVED, ASKED], session="s1")
    assert (again.episodes, again.forgotten) == ((), 1)


def test_an_update_says_that_a_value_holds_already(memory):
    memory.update("lives_in(mia, Berlin)", since="2024-01-01")
    (warning,) = memory.update("lives_in(mia, Berlin)", since="2025-01-01").warnings
    assert warning.startswith("lives_in(mia, Berlin) holds since 2024-01-01")


def test_data_of_adapters_is_no_memory(kb, memory):
    """Also where it matches, it is in no window and in no list unless its predicate is named."""
    memory.add(MOVED)
    for name in ADAPTER_PREDICATES:
        kb.tell(name, ["berlin", "moved to Berlin"])
    names = {entry.predicate for entry in memory.search("Who moved to Berlin?").entries}
    assert names == {"said"}
    facts = memory.facts()
    assert (facts.total, facts.facts) == (0, ())
    assert {entry.predicate for entry in kb.context(query="Who moved to Berlin?").entries} == {
        "said"
    }
    assert [entry.predicate for entry in kb.context(max_facts=50).entries] == ["said"]
    forgotten = memory.forget("moved to Berlin")
    assert [each.fact.partition("(")[0] for each in forgotten.facts] == ["said"]
    for name in ADAPTER_PREDICATES:
        window = kb.context(query="Who moved to Berlin?", predicates=[name])
        assert [entry.predicate for entry in window.entries] == [name]


def test_values_change_and_are_forgotten(memory):
    memory.add({**MOVED, "id": "m1"})
    memory.update("lives_in(mia, Hamburg)", since=date(2024, 1, 1))
    memory.update("lives_in(mia, Berlin)", since="2026-11-13", evidence=["m1"], confidence=0.9)
    page = memory.facts()
    (fact,) = page.facts
    assert (fact.fact, fact.confidence, page.total) == ("lives_in(mia, Berlin)", 0.9, 1)
    assert fact.args == ("mia", "Berlin")
    assert [source["text"] for source in fact.sources] == ["I moved to Berlin."]
    with pytest.raises(InvalidInput, match="no declared @key"):
        memory.update("likes(mia, tea)")
    with pytest.raises(NotFound):
        memory.update("likes(mia, tea)", replaces="likes(mia, milk)")
    would = memory.forget("lives_in(mia, ?where)", limit=1)
    assert (would.dry_run, would.fact_count, would.text_count) == (True, 3, 1)
    assert [each.text for each in would.texts] == ["I moved to Berlin."]
    assert not memory.forget("lives_in(mia, ?where)", dry_run=False).dry_run
    assert memory.facts().total == 0
    assert memory.search("Berlin").text == ""


def test_history_of_a_fact(http_url):
    with connect(http_url) as kb:
        memory = kb.memory(user="history-of-mia")
        _check_history(memory)


def _check_history(memory):
    memory.update("lives_in(mia, Hamburg)", since="2024-01-01")
    memory.update("lives_in(mia, Berlin)", since="2026-11-13")
    page = memory.history("lives_in(mia, ?where)", limit=10)
    assert [event.after["args"][1] for event in page.events if event.after] == [
        "Hamburg", "Berlin", "Hamburg",
    ]  # fmt: skip


def test_wrong_arguments_name_the_argument(memory):
    for call, match in (
        (lambda: memory.add([{"content": "hi"}]), r"messages\[0\]\.role"),
        (lambda: memory.add(7), "messages"),
        (lambda: memory.add([]), "messages"),
        (lambda: memory.search(""), "question"),
        (lambda: memory.search("x", max_tokens=0), "max_tokens"),
        (lambda: memory.update("lives_in(mia"), "fact"),
        (lambda: memory.forget(""), "about"),
        (lambda: memory.history(""), "about|predicate"),
        (lambda: memory.facts(limit=0), "limit"),
    ):
        with pytest.raises(InvalidInput, match=match):
            call()


def test_a_time_that_json_cannot_hold_is_named(memory):
    messages = [{"role": "user", "content": "hi"}, {"content": "hi", "at": float("inf")}]
    with pytest.raises(InvalidInput) as wrong:
        memory.add(messages)
    assert [*wrong.value.details["fields"]] == ["messages[1].at"]
    with pytest.raises(InvalidInput) as wrong:
        memory.update("lives_in(mia, Bern)", since=float("nan"))
    assert [*wrong.value.details["fields"]] == ["since"]


def test_the_size_of_a_text_is_at_least_one_token(memory):
    with pytest.raises(InvalidInput, match="max_tokens: must be a whole number of at least 1"):
        memory.search("tea", max_tokens=0)
