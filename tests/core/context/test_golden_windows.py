"""Golden files of windows, read as the model that receives them would read them.

`KB_GOLDEN=write` rewrites the texts for review. A file is a script of steps:

- A line of the rule language is stored, with the evidence of the last `>> episode`.
- `>> episode {...}` stores an episode; `>> evidence none` ends its use as evidence.
- `>> messages {...}` stores a conversation: the arguments of `KnowledgeBase.ingest`.
- `>> ingest FACTS` stores facts, of which a new value of a key ends the older one.
- `>> vocabulary` installs memory.kb.
- `>> advance MS` moves the clock, which begins on 2026-03-02 at 09:00 UTC.
- `>> retract FACT` retracts a fact, `>> consolidate N` summarises groups of at least N facts.
- `>> window {...}` shows the window for a request, with the options of `KnowledgeBase.context`.
- `>> changes {...}` shows the changes of the window of a session.

The texts stand after the request: `-- natural, 12 tokens`, then the lines, each after `| `.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.context.request import FACTS, NATURAL
from kbcore.context.text.tokens import tokens
from kbcore.embed import KnowledgeBase
from kbcore.node.opening import open_runtime

FOLDER = Path(__file__).parents[1] / "golden" / "windows"
MARCH_2 = 1_772_442_000_000
"""2026-03-02T09:00Z in epoch milliseconds."""


def script(text: str) -> list[str]:
    """Return the lines of a file without the texts of windows."""
    return [line for line in text.splitlines() if not line.startswith(("-- ", "| ", "|"))]


class Player:
    """Runs the steps of a script on a knowledge base for each format of text."""

    def __init__(self, text_format: str) -> None:
        self._format = text_format
        self._clock = ManualClock(MARCH_2)
        config = replace(Config(), storage_backend="memory", extraction_fallback="episode")
        self._runtime = open_runtime(config, clock=self._clock)
        self._kb = KnowledgeBase(self._runtime, "default")
        self._evidence: list[str] = []

    def texts(self, lines: list[str]) -> Iterator[str | None]:
        """Yield for each line the text that it shows, or None."""
        with self._runtime:
            for line in lines:
                yield self._step(line)

    def _step(self, line: str) -> str | None:
        if not line.startswith(">> "):
            if line and not line.startswith("%"):
                self._kb.tell(line, evidence=self._evidence)
            return None
        command, _, rest = line.removeprefix(">> ").partition(" ")
        if command == "window":
            return self._window(json.loads(rest))
        if command == "changes":
            session = json.loads(rest).pop("session")
            return self._kb.context_diff(session, format=self._format).text
        if command == "episode":
            self._evidence = [self._kb.add_episode(**json.loads(rest)).episode.id]
        elif command == "messages":
            self._kb.ingest(**json.loads(rest))
        elif command == "ingest":
            self._kb.ingest(rest)
        elif command == "vocabulary":
            self._kb.tell((files("kbcore") / "memory.kb").read_text(encoding="utf-8"))
        elif command == "evidence":
            self._evidence = []
        elif command == "advance":
            self._clock.advance(int(rest))
        elif command == "retract":
            self._kb.retract(rest)
        elif command == "consolidate":
            self._kb.consolidate(min_group_size=int(rest))
        else:
            raise ValueError(f"unknown step {command!r}")
        return None

    def _window(self, options: dict[str, Any]) -> str:
        window = self._kb.context(**options, format=self._format)
        again = self._kb.context(**options, format=self._format)
        assert (window.text, window.id) == (again.text, again.id)
        assert window.tokens == tokens(len(window.text)) <= options.get("max_tokens", 10**6)
        return window.text


def played(text: str) -> str:
    """Return a file with the texts that its windows have now."""
    lines = script(text)
    natural, facts = (Player(each).texts(lines) for each in (NATURAL, FACTS))
    result = []
    for line, *shown in zip(lines, natural, facts, strict=True):
        result.append(line)
        for name, each in zip((NATURAL, FACTS), shown, strict=True):
            if each is not None:
                result.append(f"-- {name}, {tokens(len(each))} tokens")
                result += [f"| {part}".rstrip() for part in each.split("\n")]
    return "\n".join(result) + "\n"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_the_text_of_a_window(path: Path) -> None:
    before = path.read_text(encoding="utf-8")
    after = played(before)
    if os.environ.get("KB_GOLDEN") == "write":
        path.write_text(after, encoding="utf-8")
    assert after == path.read_text(encoding="utf-8")


def test_there_are_golden_windows_of_all_kinds() -> None:
    assert len(list(FOLDER.glob("*.txt"))) >= 25
