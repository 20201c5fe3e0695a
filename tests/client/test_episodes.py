"""Episodes, evidence, corrections and purges with the client, in this process and on servers."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import pytest

from kbcore_client import Conflict, InvalidInput, NotFound


def test_a_fact_can_be_traced_to_what_was_said(kb):
    first = kb.add_episode("ann", "I like green tea.", session="chat-1", at="2026-01-01T00:00:00Z")
    again = kb.add_episode("ann", "I like green tea.", session="chat-1", at="2026-01-01T00:00:00Z")
    assert (first.is_new, again.is_new, first.id) == (True, False, again.id)
    kb.tell("likes", ["ann", "tea"], evidence=[(first.id, 0, 17)])
    kb.tell("calm(ann)", evidence=[first.id])
    (row,) = kb.query("likes(?x, ?y)").rows()
    assert row["evidence"] == [{"episode": first.id, "start": 0, "end": 17}]
    found = kb.episode(first.id)
    assert (found.episode.text, found.total, len(found.facts)) == ("I like green tea.", 2, 2)
    assert kb.episode(first.id, limit=1).facts == found.facts[:1]
    assert kb.episodes(session="chat-1").episodes == [found.episode]
    assert kb.episodes(speaker="bob").total == 0
    (proof,) = kb.prove("likes(ann, ?x)")
    assert "said by ann on 2026-01-01T00:00:00Z" in kb.explain("likes(ann, ?x)")
    assert proof is not None
    with pytest.raises(NotFound):
        kb.episode("none")
    with pytest.raises(InvalidInput, match=r"evidence\[0\]"):
        kb.tell("p", ["a"], evidence=["none"])
    with pytest.raises(Conflict):
        kb.add_episode("ann", "other", id=first.id)


def test_texts_are_recorded_and_windows_cite_them(kb):
    done = kb.ingest("likes(ann, tea).\nlikes(bob, milk).", speaker="ann", session="chat-1")
    (id,) = done.episode_ids
    assert kb.episode(id).total == 2
    window = kb.context(goals="likes(?x, ?y)", citations=True)
    assert [source["text"] for source in window.sources] == [
        "likes(ann, tea).",
        "likes(bob, milk).",
    ]
    assert [entry.citations for entry in window.entries] == [(1,), (2,)]
    assert "likes(bob, milk).  % [2]" in window.text


def is_logged(kb, seq):
    """Undo a correction; return False if the storage is in memory and has no log."""
    try:
        undone = kb.undo(seq)
    except Conflict as error:
        return (error.details or {})["reason"] != "compacted"
    return (undone.undone, undone.retracted, undone.restored) == (seq, 1, 1)


def test_correct_undo_and_purge(kb):
    kb.tell("likes", ["ann", "tea"], metadata={"k": 1})
    done = kb.correct("likes(ann, tea)", "likes(ann, coffee)", reason="ann said so")
    assert done.new["metadata"] == {
        "corrects": {"fact": "likes(ann, tea)", "reason": "ann said so"}
    }
    if is_logged(kb, done.seq):
        assert kb.query("likes(?x, ?y)") == [("ann", "tea")]
    else:
        kb.correct("likes(ann, coffee)", "likes(ann, tea)", reason="undone by hand")
    assert kb.query("likes(?x, ?y)") == [("ann", "tea")]
    with pytest.raises(NotFound):
        kb.correct("likes(ann, coffee)", "likes(ann, milk)", reason="r")
    kb.tell("drinks(?x) :- likes(?x, ?y).")
    dry = kb.purge(subject="ann", dry_run=True)
    assert (dry.fact_count, dry.conclusions, dry.id) == (1, ["drinks(ann)"], None)
    assert kb.query("likes(?x, ?y)") == [("ann", "tea")]
    purged = kb.purge(subject="ann")
    assert (purged.fact_count, purged.erased) == (1, True)
    assert kb.query("likes(?x, ?y)") == []
    assert [(each.id, each.by, each.erased) for each in kb.purges()] == [
        (purged.id, "subject", True)
    ]
    with pytest.raises(InvalidInput):
        kb.purge()


def test_what_was_known_and_what_happened(kb):
    kb.tell("likes", ["ann", "tea"])
    kb.correct("likes(ann, tea)", "likes(ann, coffee)", reason="ann said so")
    page = kb.history("likes", oldest_first=True)
    assert [(each.event, each.cause) for each in page.events] == [
        ("asserted", "assert"),
        ("asserted", "correct"),
        ("retracted", "correct"),
    ]
    assert [each.reason for each in page.events] == [None, "ann said so", "ann said so"]
    assert page.total == 3
    assert page.events[0].at >= page.start_at
    assert kb.history("likes", ["ann", "tea"], limit=1).events[0].before["args"] == ["ann", "tea"]
    past = kb.known_at(page.events[-1].at)
    assert list(past.ask("likes(ann, ?x)")) == [("ann", "coffee")]
    assert len(past.query("likes(?x, ?y)")) == 1
    assert past.count("likes") == 1
    assert past.context_summary().facts == 1
    assert past.prove("likes(ann, coffee)")
    assert past.why_not("likes(ann, tea)").text
    with pytest.raises(InvalidInput, match="is before"):
        list(kb.known_at(page.start_at - 1).ask("likes(ann, ?x)"))
    assert [each.predicate for each in past.predicates()] == ["likes"]
    assert past.scopes() == []
    assert past.rules() == []
    assert past.salient("likes")
    assert past.recall("likes(ann, ?x)", at=page.events[-1].at)
    assert past.episodes().total == kb.episodes().total
    assert past.rule_sets() == []
    with pytest.raises(InvalidInput, match="uses the present state"):
        next(iter(past.events()))
    with pytest.raises(InvalidInput):
        past.tell("likes", ["bob", "tea"])
    kb.undo(seq=page.events[-1].seq)
    undone = kb.history("likes", limit=2).events
    assert [(each.cause, each.undoes) for each in undone] == [("undo", page.events[-1].seq)] * 2


def test_messages_are_messages_in_every_client(kb):
    messages = [
        {"role": "user", "content": "likes(ann, tea)", "at": date(2026, 9, 1)},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "likes(bob, tea)"}],
            "id": "m-1",
        },
        "likes(cid, tea)",
    ]
    at = datetime(2026, 9, 2)
    done = kb.ingest(messages, speaker="ann", at=at, session="chat-1")
    assert len(done.facts) == 3
    listed = kb.episodes(session="chat-1").episodes
    assert [(each.speaker, each.text) for each in listed] == [
        ("ann", "likes(ann, tea)"), ("assistant", "likes(bob, tea)"), ("ann", "likes(cid, tea)")
    ]  # fmt: skip
    assert [each.at for each in listed] == [1_788_220_800_000, *[1_788_307_200_000] * 2]
    starts = {row["args"][0]: row["validFrom"] for row in kb.query("likes(?x, tea)").rows()}
    assert starts == {"ann": 1_788_220_800_000, "bob": 1_788_307_200_000, "cid": 1_788_307_200_000}
    assert kb.ingest(messages[1:2], session="chat-1", speaker="ann", at=at).facts == ()
    with pytest.raises(Conflict):
        kb.ingest([{**messages[1], "content": "likes(bob, rum)"}], session="chat-1")
    with pytest.raises(InvalidInput, match=r"text\[0\]\.role: is required"):
        kb.ingest([{"content": "x"}])
    with pytest.raises(InvalidInput, match="text: must be"):
        kb.ingest(3)


def test_durations_and_dates_of_facts(kb):
    kb.tell("visits(ann, rome)", valid_from=date(2026, 9, 1), ttl=timedelta(days=400))
    kb.tell("visits(bob, rome)", valid_from="2026-09-01", ttl="400d")
    rows = kb.query("visits(?x, rome)").rows()
    assert {(row["validFrom"], row["ttl"]) for row in rows} == {(1_788_220_800_000, 34_560_000_000)}
    assert len(kb.query("visits(?x, rome)", as_of=date(2026, 9, 1))) == 2
    with pytest.warns(UserWarning, match="1788253210 looks like seconds"):
        kb.tell("visits(cid, rome)", valid_from=1_788_253_210)
