"""Memory about a user through the client, in this process and on servers."""

from __future__ import annotations

from datetime import date

import pytest

from kbcore_client import InvalidInput, NotFound, connect

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
