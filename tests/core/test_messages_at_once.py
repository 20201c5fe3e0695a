"""The same messages sent by several calls at once are stored once, those of each call in order."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from kbcore import open_kb
from kbcore.errors import Conflict
from kbcore.operations.natural_language import MAX_ATTEMPTS, NaturalLanguage

WORDS = "I moved to Berlin.", "Do you like it?", "Yes, a lot."
HISTORY = [
    {"role": "assistant" if number % 2 else "user", "content": text}
    for number, text in enumerate(WORDS)
]
NEW = {"role": "user", "content": "And now something else."}


@pytest.fixture
def memory():
    with open_kb() as kb:
        yield kb.memory(user="mia")


def said(memory, session="s"):
    return [each.text for each in memory.kb.episodes(session=session).episodes]


def before_each_write(monkeypatch, interrupt):
    """Call `interrupt` with the number of the attempt between reading and writing messages."""
    store, attempts = NaturalLanguage._store_read, []
    busy = []

    def stored(self, *args):
        if not busy:
            attempts.append(args)
            busy.append(True)
            interrupt(len(attempts))
            busy.pop()
        return store(self, *args)

    monkeypatch.setattr(NaturalLanguage, "_store_read", stored)
    return attempts


@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_messages_that_another_call_stored_meanwhile_are_not_stored_again(
    memory, monkeypatch, earlier
):
    if earlier:
        memory.add(HISTORY[:earlier], session="s")
    history = [*HISTORY, NEW]

    def interrupt(attempt):
        if attempt == 1:
            memory.add(history, session="s")

    attempts = before_each_write(monkeypatch, interrupt)
    assert memory.add(history, session="s").episodes == ()
    assert len(attempts) == 1
    assert said(memory) == [*WORDS, NEW["content"]]
    assert len(memory.kb.ask("said(?who, ?text, ?when)")) == len(history)


def test_the_rest_of_a_list_is_stored_if_another_call_stored_its_beginning(memory, monkeypatch):
    def interrupt(attempt):
        if attempt == 1:
            memory.add(HISTORY[:2], session="s")

    attempts = before_each_write(monkeypatch, interrupt)
    assert len(memory.add(HISTORY, session="s").episodes) == 1
    assert len(attempts) == 2
    assert said(memory) == list(WORDS)


def test_other_messages_of_the_session_are_no_reason_to_read_again(memory, monkeypatch):
    def interrupt(attempt):
        memory.add([NEW], session="s" if attempt == 1 else None)

    attempts = before_each_write(monkeypatch, interrupt)
    assert len(memory.add(HISTORY, session="s").episodes) == len(HISTORY)
    assert len(attempts) == 1
    assert said(memory) == [NEW["content"], *WORDS]


def test_a_call_that_never_finds_its_messages_at_rest_is_refused(memory, monkeypatch):
    history = [
        {"role": "user", "content": f"message {number}", "id": f"m-{number}"}
        for number in range(20)
    ]

    def interrupt(attempt):
        memory.add(history[attempt - 1 : attempt], session="s")

    attempts = before_each_write(monkeypatch, interrupt)
    with pytest.raises(Conflict, match="another call"):
        memory.add(history, session="s")
    assert len(attempts) == MAX_ATTEMPTS
    assert said(memory) == [f"message {number}" for number in range(MAX_ATTEMPTS)]


def test_threads_that_send_one_conversation(memory):
    start = Barrier(6)

    def send(_):
        start.wait()
        memory.add(HISTORY, session="s")

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(send, range(6)))
    assert said(memory) == list(WORDS)
