"""Texts that are read become the evidence of the facts that they state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from support.http import NOW, Client, Served, serve_in_memory
from support.stand_in import StandIn

PROSE = "Ann works at Acme. She probably likes tea. Bob doesn't like coffee."


@pytest.fixture
def modelled() -> Iterator[Served]:
    """A server with a model that reads simple sentences."""
    with StandIn() as model:
        settings = model.settings(llm_retries=0, llm_timeout_ms=5000)
        with serve_in_memory(**settings) as served:
            yield served


def quotes(client: Client, predicate: str, scope: str | None = None) -> dict[str, list[str]]:
    """The quoted evidence of each fact of a predicate, by its arguments."""
    rows: list[dict[str, Any]] = client.post(
        "/query", {"predicate": predicate, "args": ["?x", "?y"], "scope": scope}
    ).get_json()
    found = {}
    for row in rows:
        texts = []
        for span in row.get("evidence", ()):
            text = client.get(f"/episodes/{span['episode']}").get_json()["text"]
            texts.append(text[span["start"] : span["end"]])
        found[", ".join(row["args"])] = texts
    return found


def episodes(client: Client) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = client.get("/episodes").get_json()["episodes"]
    return listed


def test_lines_in_predicate_syntax_are_evidence(client: Client) -> None:
    text = "Notes of today\n  likes(Ann Lee, green tea)\n- not likes(bob, tea).  % no\nlikes(cid, tea) [confidence=0.5].\n"
    body = {"text": text, "sessionId": "chat-1", "speaker": "ann", "at": NOW - 5}
    answer = client.post("/context/ingest", body).get_json()
    (episode,) = episodes(client)
    assert answer["episodeIds"] == [episode["id"]]
    assert (episode["text"], episode["speaker"], episode["session"], episode["at"]) == (
        text,
        "ann",
        "chat-1",
        NOW - 5,
    )
    assert quotes(client, "likes") == {
        "Ann Lee, green tea": ["likes(Ann Lee, green tea)"],
        "bob, tea": ["- not likes(bob, tea).  % no"],
        "cid, tea": ["likes(cid, tea) [confidence=0.5]."],
    }


def test_statements_of_the_rule_language_are_evidence(client: Client) -> None:
    text = '% facts\nlikes(ann, "日本"). likes(bob,\n  tea).\nq(?x) :- likes(?x, tea).\n'
    client.post("/context/ingest", {"text": text})
    assert quotes(client, "likes") == {
        "ann, 日本": ['likes(ann, "日本").'],
        "bob, tea": ["likes(bob,\n  tea)."],
    }


def test_each_turn_is_an_episode(client: Client) -> None:
    for speaker in ("ann", "bob"):
        client.post("/episodes", {"speaker": speaker, "text": "hi"})
    turns = ["ann: hello\nlikes(ann, tea)", "nothing here", "bob: likes(bob, tea)\nlikes(ann, tea)"]
    client.post("/context", {"turns": turns, "sessionId": "chat-1"})
    assert [(each["speaker"], each["text"]) for each in episodes(client)[2:]] == [
        ("ann", turns[0]),
        ("user", turns[1]),
        ("bob", turns[2]),
    ]
    assert quotes(client, "likes")["ann, tea"] == ["likes(ann, tea)", "likes(ann, tea)"]


def test_the_same_text_is_one_episode(client: Client) -> None:
    for _ in range(2):
        client.post("/context/ingest", {"text": "likes(ann, tea)."})
    assert len(episodes(client)) == 1
    assert quotes(client, "likes") == {"ann, tea": ["likes(ann, tea)."]}


def test_a_text_without_facts_leaves_no_episode(client: Client) -> None:
    client.post("/context/ingest", {"text": "q(?x) :- p(?x)."})
    assert episodes(client) == []


def test_long_texts_are_several_episodes() -> None:
    with serve_in_memory(episode_max_chars=1000) as served:
        lines = [f"likes(person_{n}, tea)." for n in range(200)]
        served.client.post("/context/ingest", {"text": "\n".join(lines)})
        listed = episodes(served.client)
        assert len(listed) > 3
        assert max(each["length"] for each in listed) <= 1000
        assert "".join(each["text"] for each in listed) == "\n".join(lines)
        assert quotes(served.client, "likes") == {
            f"person_{n}, tea": [line] for n, line in enumerate(lines)
        }


def test_prose_that_is_kept_is_its_own_evidence() -> None:
    with serve_in_memory(extraction_fallback="episode") as served:
        served.client.post("/context", {"turns": ["User: I like\nwalking.", "So do I."]})
        (first, second) = served.client.post(
            "/query", {"predicate": "said", "args": ["?a", "?b", "?c"]}
        ).get_json()
        texts = {
            row["args"][1]: [
                served.client.get(f"/episodes/{span['episode']}").get_json()["text"][
                    span["start"] : span["end"]
                ]
                for span in row["evidence"]
            ]
            for row in (first, second)
        }
        assert texts == {
            "I like\nwalking.": ["I like\nwalking."],
            "So do I.": ["So do I."],
        }


def test_recording_can_be_turned_off() -> None:
    with serve_in_memory(record_evidence=False) as served:
        answer = served.client.post("/context/ingest", {"text": "likes(ann, tea)."}).get_json()
        assert "episodeIds" not in answer
        assert episodes(served.client) == []
        assert quotes(served.client, "likes") == {"ann, tea": []}


def test_extraction_records_sentences_when_it_stores(modelled: Served) -> None:
    client = modelled.client
    client.post("/extract", {"text": PROSE})
    assert episodes(client) == []
    answer = client.post("/extract", {"text": PROSE, "assert": True}).get_json()
    (episode,) = episodes(client)
    assert (answer["episodeIds"], episode["text"], episode["speaker"]) == (
        [episode["id"]],
        PROSE,
        "user",
    )
    assert quotes(client, "works_at") == {"Ann, Acme": ["Ann works at Acme."]}
    assert quotes(client, "likes") == {
        "Ann, tea": ["She probably likes tea."],
        "Bob, coffee": ["Bob doesn't like coffee."],
    }


def test_a_fact_that_is_known_gets_further_evidence(modelled: Served) -> None:
    client = modelled.client
    client.tell("works_at", "Ann", "Acme", confidence=0.3, metadata={"k": 1})
    client.post("/extract", {"text": PROSE, "assert": True})
    (row,) = client.post("/query", {"predicate": "works_at", "args": ["?x", "?y"]}).get_json()
    assert (row["confidence"], row["metadata"]) == (0.3, {"k": 1})
    assert quotes(client, "works_at") == {"Ann, Acme": ["Ann works at Acme."]}


def test_prose_between_facts_keeps_its_places(modelled: Served) -> None:
    client = modelled.client
    text = f"likes(cid, tea)\n{PROSE}\nlikes(dee, tea)\n"
    client.post("/context/ingest", {"text": text})
    assert quotes(client, "works_at") == {"Ann, Acme": ["Ann works at Acme."]}
    assert quotes(client, "likes")["dee, tea"] == ["likes(dee, tea)"]
