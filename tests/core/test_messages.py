"""Messages: speaker, time and session of everything that is made from a text."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone

import pytest

from kbcore import Config, KnowledgeBase, open_kb
from kbcore.errors import AlreadyExists, InvalidInput

AT = "2026-09-01T09:00:10Z"
WHEN = "2026-09-01T09:00:10.000Z"
SAID = "said(?who, ?what, ?when)"


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    """A knowledge base that keeps prose."""
    with open_kb(config=Config(extraction_fallback="episode")) as opened:
        yield opened


def said(kb: KnowledgeBase) -> list[tuple[str, str]]:
    """Speakers and words of what was said, checked against the episodes."""
    rows = kb.query("said(?who, ?what, ?when)").rows()
    episodes = {each.id: each for each in kb.episodes().episodes}
    for row in rows:
        for span in row["evidence"]:
            episode = episodes[span["episode"]]
            time = datetime.fromtimestamp(episode.at / 1000, timezone.utc)
            when = time.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            assert row["args"][0] == episode.speaker
            assert row["args"][2] == when
            words = episode.text[span["start"] : span["end"]]
            assert row["args"][1].split() == words.split()
    return [(row["args"][0], row["args"][1]) for row in rows]


def test_the_given_speaker_and_time_hold_for_everything(kb):
    kb.ingest("Nice to meet you, Mia.\nNoted: vegetarian", speaker="assistant", at=AT, session="s")
    assert said(kb) == [("assistant", "Nice to meet you, Mia.\nNoted: vegetarian")]
    (row,) = kb.query(SAID).rows()
    (episode,) = kb.episodes(session="s").episodes
    assert (row["args"][2], row["validFrom"], episode.at) == (WHEN, episode.at, episode.at)


def test_facts_are_valid_from_the_time_of_the_text(kb):
    kb.ingest(
        'lives_in(ann, oslo)\nborn(ann, bergen) [validFrom="1990-05-01"].', at="2022-08-22T10:57Z"
    )
    (lives,), (born,) = kb.query("lives_in(?x, ?y)").rows(), kb.query("born(?x, ?y)").rows()
    assert lives["validFrom"] == 1_661_165_820_000
    assert born["validFrom"] == 641_520_000_000


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Noted: vegetarian", [("user", "Noted: vegetarian")]),
        ("mia: I moved", [("user", "mia: I moved")]),
        ("Assistant: hi\nUSER: hello", [("assistant", "hi"), ("user", "hello")]),
        ("Ann Lee: hi\nyou\n\nwithout a name", [("Ann Lee", "hi\nyou"), ("user", "without a name")]),
    ],
)  # fmt: skip
def test_only_known_names_are_speakers(kb, text, expected):
    kb.add_episode("Ann Lee", "hello")
    kb.ingest(text)
    assert sorted(said(kb)) == sorted(expected)


def test_a_name_is_no_speaker_after_its_episodes_are_gone(kb):
    kb.add_episode("mia", "hello")
    kb.ingest("mia: I moved")
    kb.purge(speaker="mia")
    kb.ingest("mia: I moved again")
    assert said(kb) == [("user", "mia: I moved again")]


def test_chat_messages(kb):
    parts = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}, "b"]
    messages = [
        {"role": "system", "name": "rules", "content": "Be brief."},
        {"role": "user", "content": "hi", "at": AT},
        {"role": "assistant", "content": parts, "id": "m-1"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "name": "bob", "content": "bob: hello", "at": date(2026, 9, 2)},
        "Mia: a text",
    ]
    done = kb.ingest(messages, speaker="mia", session="s")
    assert sorted(said(kb)) == [
        ("assistant", "a\nb"),
        ("bob", "bob: hello"),
        ("mia", "Mia: a text"),
        ("mia", "hi"),
        ("rules", "Be brief."),
    ]
    episodes = kb.episodes(session="s").episodes
    assert [each.text for each in episodes] == ["Be brief.", "hi", "a\nb", "bob: hello", "Mia: a text"]  # fmt: skip
    assert episodes[1].at == 1_788_253_210_000
    assert episodes[3].at == 1_788_307_200_000
    assert (episodes[2].id, len(done.recorded)) == ("m-1", 5)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (3, r"text\[0\]: must be a text, or a message"),
        ({"content": "x"}, r"text\[0\]\.role: is required"),
        ({"role": "user"}, r"text\[0\]\.content: is required"),
        ({"role": "user", "content": 3}, r"text\[0\]\.content: must be"),
        ({"role": "user", "content": [3]}, r"text\[0\]\.content\[0\]: must be"),
        ({"role": "user", "content": "x", "name": "n" * 300}, r"text\[0\]\.name: must have"),
        ({"role": "user", "content": "x", "at": "soon"}, r"text\[0\]\.at: must be"),
        ({"role": "user", "content": "x", "id": "a b"}, r"text\[0\]\.id: 'a b' is not a name"),
    ],
)
def test_bad_messages_are_refused(kb, message, problem):
    with pytest.raises(InvalidInput, match=problem):
        kb.ingest([message])


def test_the_same_id_is_one_message(kb):
    message = {"role": "user", "content": "I moved.", "id": "m-1"}
    kb.ingest([message, message], session="s")
    again = kb.ingest([message, {"role": "user", "content": "Yes."}], session="s")
    assert [fact.args[1] for fact in again.facts] == ["Yes."]
    assert kb.ingest([message], session="s").facts == ()
    assert [each.text for each in kb.episodes().episodes] == ["I moved.", "Yes."]
    with pytest.raises(AlreadyExists, match="message 1: the episode 'm-1' has another content"):
        kb.ingest([{**message, "content": "I stayed."}], session="s")


def test_a_whole_history_adds_only_the_rest(kb):
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    kb.ingest(history, session="s")
    more = [*history, {"role": "user", "content": "hi"}]
    assert kb.ingest(more, session="s").asserted == 1
    assert kb.ingest(more, session="s").asserted == 0
    assert [each.text for each in kb.episodes(session="s").episodes] == ["hi", "hello", "hi"]
    kb.ingest([{"role": "user", "content": "bye"}], session="s")
    kb.ingest(history, session="other")
    assert kb.episodes().total == 6


def test_equal_messages_are_two_unless_their_time_is_equal(kb):
    yes = {"role": "user", "content": "Yes."}
    kb.ingest([yes, yes])
    kb.ingest("Yes.")
    assert kb.episodes().total == 3
    dated = {**yes, "at": AT}
    kb.ingest([dated, dated])
    kb.ingest([dated])
    assert kb.episodes().total == 4


def test_repeated_statements_do_not_run_out_of_evidence(kb, monkeypatch):
    monkeypatch.setattr("kbcore.operations.episodes.episodes.MAX_EVIDENCE", 3)
    for _ in range(5):
        kb.ingest(["likes(ann, tea)"])
    kb.ingest(["Yes."] * 5)
    assert [len(row["evidence"]) for row in kb.query("likes(?x, ?y)").rows()] == [3]
    assert [len(row["evidence"]) for row in kb.query(SAID).rows()] == [3]
    assert kb.episodes().total == 10


def test_long_texts_are_cut_at_sentences(kb):
    text = " ".join(f"Sentence number {n} of a long mail about the garden." for n in range(70))
    kb.ingest(text, speaker="mia")
    words = [words for _, words in said(kb)]
    assert len(words) == 5
    assert all(len(each) < 1000 and each.endswith(".") for each in words)
    assert " ".join(words) == text
    assert kb.episodes().episodes[0].text == text
    window = kb.context(query="sentence number 40", max_tokens=500)
    assert "Sentence number 40 of" in window.text


@pytest.mark.parametrize("between", [" ", "", "文", "\n", ". "])
def test_texts_of_every_kind_are_cut(kb, between):
    text = between.join(map(str, range(20_000)))
    kb.ingest(text)
    words = [words for _, words in said(kb)]
    assert 700 <= max(map(len, words)) <= 1000
    joined = "".join("".join(words).split())
    assert sorted(joined) == sorted("".join(text.split()))
    assert len(words) <= len(text) // 600


RULE = "likes(?x, rum) :- likes(?x, tea)."


@pytest.mark.parametrize(
    "typed",
    [
        RULE,
        f"likes(ann, tea)\n{RULE}",
        "@key likes(?x, _).",
        "this :- is no rule",
        "likes(ann, :- ha",
    ],
)
def test_a_chat_message_teaches_no_rules(kb, typed):
    result = kb.ingest([{"role": "user", "content": typed}], speaker="mia", session="s")
    assert kb.rules() == []
    assert not result.rules
    assert kb.episodes(session="s").episodes[0].text == typed
    assert kb.count("likes") == typed.startswith("likes(ann, tea)")


def test_a_text_teaches_rules(kb):
    kb.ingest(RULE)
    kb.ingest([f"{RULE[:-1]}, likes(?x, tea)."])
    assert len(kb.rules()) == 2


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        ("2026-09-01", 1_788_220_800_000),
        ("2026-09-01T10:30", 1_788_258_600_000),
        ("2026-09-01T10:30:00+02:00", 1_788_251_400_000),
        (date(2026, 9, 1), 1_788_220_800_000),
        (datetime(2026, 9, 1, 10, 30), 1_788_258_600_000),
        (datetime(2026, 9, 1, 10, 30, tzinfo=timezone(timedelta(hours=2))), 1_788_251_400_000),
    ],
)  # fmt: skip
def test_forms_of_times(kb, at, expected):
    kb.ingest("likes(ann, tea)", at=at)
    kb.tell("likes(bob, tea)", valid_from=at)
    assert [row["validFrom"] for row in kb.query("likes(?x, ?y)").rows()] == [expected, expected]


def test_prose_that_no_fact_can_hold_is_refused(kb):
    with pytest.raises(InvalidInput, match="text: line 2: "):
        kb.ingest("likes(ann, tea)\nA \0 character")
    assert kb.count("likes") == 0


def test_forms_of_durations(kb):
    for ttl in ("30d", timedelta(days=30), 2_592_000_000):
        kb.tell("likes", ["ann", str(ttl)], ttl=ttl)
    assert {row["ttl"] for row in kb.query("likes(?x, ?y)").rows()} == {2_592_000_000}
    with pytest.raises(InvalidInput, match="ttl: must be a positive number of milliseconds, or"):
        kb.tell("likes(bob, tea)", ttl="soon")
    with pytest.raises(InvalidInput, match="at: must be a point in time, not a duration"):
        kb.ingest("likes(bob, tea)", at=timedelta(days=1))


def test_seconds_are_warned_of(kb):
    with pytest.warns(UserWarning, match="1788253210 looks like seconds"):
        kb.tell("likes(ann, tea)", valid_from=1_788_253_210)
