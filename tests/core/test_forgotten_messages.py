"""Forgotten messages stay forgotten when a client sends its whole conversation again."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbcore import open_kb
from kbcore.errors import AlreadyExists
from kbcore.state.episodes import erased as places
from kbcore.state.episodes.episodes import NewEpisode
from kbcore.state.episodes.erased import ErasedEpisodes

WORDS = "I moved to Berlin.", "Do you like it?", "My secret is rhubarb.", "Noted.", "Thanks a lot!"
HISTORY = [
    {"role": "assistant" if number % 2 else "user", "content": text}
    for number, text in enumerate(WORDS)
]
NEW = {"role": "user", "content": "And now something else."}
TIMED = [{**each, "at": 1_795_165_200_000 + number} for number, each in enumerate(HISTORY)]
NAMED = [{**each, "id": f"m-{number}"} for number, each in enumerate(HISTORY)]


@pytest.fixture
def memory():
    with open_kb() as kb:
        yield kb.memory(user="mia")


def said(memory, session="s"):
    return [each.text for each in memory.kb.episodes(session=session).episodes]


def forget(memory, number, session="s"):
    listed = memory.kb.episodes(session=session).episodes
    chosen = next(each.id for each in listed if each.text == WORDS[number])
    memory.forget(chosen, dry_run=False)


def without(*numbers):
    return [text for number, text in enumerate(WORDS) if number not in numbers]


@pytest.mark.parametrize("history", [HISTORY, TIMED, NAMED])
@pytest.mark.parametrize("numbers", [(0,), (2,), (4,), (0, 1, 2), (1, 3), (3, 4), (0, 1, 2, 3, 4)])
def test_a_forgotten_message_does_not_come_back(memory, history, numbers):
    memory.add(history, session="s")
    for number in numbers:
        forget(memory, number)
    for _ in range(2):
        again = memory.add(history, session="s")
        assert (again.episodes, again.asserted, again.forgotten) == ((), 0, len(numbers))
    assert len(memory.add([*history, NEW], session="s").episodes) == 1
    assert said(memory) == [*without(*numbers), NEW["content"]]
    assert memory.add([*history, NEW], session="s").episodes == ()


@pytest.mark.parametrize("history", [HISTORY, TIMED, NAMED])
@pytest.mark.parametrize("number", range(5))
def test_a_client_may_forget_the_message_too(memory, history, number):
    memory.add(history, session="s")
    forget(memory, number)
    rest = [each for index, each in enumerate(history) if index != number]
    assert memory.add([*rest, NEW], session="s").forgotten == 0
    assert said(memory) == [*without(number), NEW["content"]]


def test_a_forgotten_message_does_not_come_back_under_the_id_that_it_had(memory):
    ids = memory.add(TIMED, session="s").episodes
    forget(memory, 2)
    again = memory.add(
        [{**each, "id": id} for each, id in zip(TIMED, ids, strict=True)], session="s"
    )
    assert (again.episodes, again.asserted, again.forgotten) == ((), 0, 1)
    assert said(memory) == without(2)


def test_a_message_is_forgotten_after_others_were(memory):
    memory.add(HISTORY, session="s")
    forget(memory, 1)
    memory.add([*HISTORY, NEW], session="s")
    forget(memory, 3)
    assert memory.add([*HISTORY, NEW], session="s").forgotten == 2
    assert said(memory) == [*without(1, 3), NEW["content"]]


def test_the_same_can_be_said_again(memory):
    memory.add(HISTORY, session="s")
    forget(memory, 2)
    assert memory.add([HISTORY[2]], session="s").episodes
    assert memory.add([*HISTORY, HISTORY[2]], session="s").episodes == ()
    assert said(memory) == [*without(2), WORDS[2]]
    timed = {**TIMED[2], "at": "2026-12-01"}
    assert memory.add(timed).episodes
    assert memory.add([HISTORY[2]], session="other").episodes


def test_messages_without_a_session_are_known_by_time_and_id(memory):
    memory.add([*TIMED, {**NEW, "id": "m-9"}])
    for word in (WORDS[2], NEW["content"]):
        (chosen,) = (each for each in memory.kb.episodes().episodes if each.text == word)
        memory.forget(chosen.id, dry_run=False)
    again = memory.add([*TIMED, {**NEW, "id": "m-9"}])
    assert again.forgotten == 2
    assert said(memory, None) == without(2)


def test_a_purge_of_a_name_counts_too(memory):
    memory.add(HISTORY, session="rhubarb-1")
    memory.kb.purge(subject="rhubarb")
    assert memory.add(HISTORY, session="rhubarb-1").forgotten == 5
    assert said(memory, "rhubarb-1") == []


def test_messages_with_and_without_ids_are_sent_again(memory):
    mixed = [NAMED[0], HISTORY[1], NAMED[2], HISTORY[3]]
    memory.add(mixed, session="s")
    assert memory.add(mixed, session="s").episodes == ()
    forget(memory, 1)
    forget(memory, 2)
    assert memory.add([*mixed, NEW], session="s").forgotten == 2
    assert said(memory) == [WORDS[0], WORDS[3], NEW["content"]]


def test_a_long_message_is_forgotten_as_a_whole(memory):
    long = {"role": "user", "content": "\n".join(f"Line {number}." * 9 for number in range(20_000))}
    parts = memory.add([HISTORY[0], long, HISTORY[1]], session="s").episodes[1:-1]
    assert len(parts) > 1
    for part in parts:
        memory.forget(part, dry_run=False)
    assert memory.add([HISTORY[0], long, HISTORY[1]], session="s").forgotten == 1
    assert said(memory) == [WORDS[0], WORDS[1]]


def test_forgotten_messages_survive_a_restart(tmp_path):
    with open_kb(path=tmp_path / "kb") as kb:
        memory = kb.memory(user="mia")
        memory.add(HISTORY, session="s-mia")
        memory.add(NAMED, session="names")
        memory.kb.purge(subject="rhubarb")
        assert not _files_with(tmp_path / "kb", b"rhubarb")
        shutil.copytree(tmp_path / "kb", tmp_path / "killed")
    for folder in ("kb", "killed"):
        with open_kb(path=tmp_path / folder) as kb:
            memory = kb.memory(user="mia")
            assert memory.add([*HISTORY, NEW], session="s-mia").forgotten == 1
            assert memory.add(NAMED, session="names").forgotten == 1
            assert said(memory, "s-mia") == [*without(2), NEW["content"]]
            assert said(memory, "names") == without(2)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8), st.booleans())
def test_any_history_can_be_sent_again(choices, is_timed):
    history = [
        {
            "role": "user",
            "content": "x" * (number + 1),
            **({"at": 1000 * number} if is_timed else {}),
        }
        for number in range(len(choices) + 1)
    ]
    with open_kb() as kb:
        memory = kb.memory(user="mia")
        *old, new = history
        ids = memory.add(old, session="s").episodes if old else ()
        for id, (is_erased, _) in zip(ids, choices, strict=True):
            if is_erased:
                memory.forget(id, dry_run=False)
        sent = [
            message
            for message, (is_erased, is_kept) in zip(old, choices, strict=True)
            if is_kept or not is_erased
        ]
        again = memory.add([*sent, new], session="s")
        assert again.forgotten == sum(each == (True, True) for each in choices)
        live = [each["content"] for each, (gone, _) in zip(old, choices, strict=True) if not gone]
        assert said(memory) == [*live, new["content"]]


def _files_with(folder: Path, text: bytes) -> list[Path]:
    files = [each for each in folder.rglob("*") if each.is_file()]
    return [each for each in files if text in each.read_bytes()]


def test_what_is_kept_of_a_message_does_not_tell_it(memory):
    memory.add(HISTORY, session="s")
    memory.add({**NEW, "id": "m-7"}, session="t")
    forget(memory, 2)
    memory.forget("m-7", dry_run=False)
    remembered = str(memory.kb.kb._read_tenant().erased.to_json())
    for text in ("rhubarb", "m-7", "'s'", "'t'", "mia"):
        assert text not in remembered


def test_the_number_of_kept_places_is_limited(monkeypatch):
    monkeypatch.setattr(places, "KEPT_PLACES", 3)
    monkeypatch.setattr(places, "KEPT_IDS", 2)
    erased = ErasedEpisodes()
    for number in range(4):
        episode = NewEpisode(f"m-{number}", "mia", "x").dated(0)
        erased.add("purge-1", {str(number // 2): {number % 2: episode}})
    assert [len(erased.in_session(name)) for name in "01"] == [0, 2]
    assert [erased.has_id(f"m-{number}") for number in range(4)] == [False, False, True, True]
    again = ErasedEpisodes()
    again.restore(erased.to_json())
    assert again.to_json() == erased.to_json()
    assert again.in_session("1") == erased.in_session("1")


def test_of_two_contents_stored_at_once_under_one_id_one_is_refused(memory, monkeypatch):
    kind = type(memory.kb.kb)
    known = kind._known_messages

    def then_another(self, *args):
        result = known(self, *args)
        monkeypatch.setattr(kind, "_known_messages", known)
        memory.add([{**NAMED[0], "content": "I moved to Copenhagen."}], session="s")
        return result

    monkeypatch.setattr(kind, "_known_messages", then_another)
    with pytest.raises(AlreadyExists):
        memory.add([NAMED[0]], session="s")
    assert said(memory) == ["I moved to Copenhagen."]
    assert len(memory.kb.ask("said(?who, ?text, ?when)")) == 1
