"""Messages of a conversation, and the passages of a text, each by one speaker.

A chat message has a role, its content as text or as parts with text, and optionally a name, a time
and an id. Several messages are read as one text, joined by line breaks. Lines of a message without
a speaker may begin with one: only names that are known as speakers count.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbcore.errors import InvalidInput
from kbcore.state.episodes.episodes import MAX_SPEAKER_CHARS
from kbcore.state.names import check_name
from kbcore.timestamps import instant
from kbplanner.ir.limits import text_problem
from kbplanner.pacing import YieldNow, go_on, lines_of, paced

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
"""Speakers that every tenant knows."""

ROLES = frozenset((USER, ASSISTANT, SYSTEM))

MEMBERS = ("role", "content", "name", "at", "id")
"""The members of a chat message that are read."""

MESSAGES_PER_YIELD = 500
LINES_PER_YIELD = 1000
"""Messages and lines read between two calls of `yield_now`: about a millisecond."""

_SPEAKER = re.compile(rf"\s*([^\W\d_][^:\n]{{0,{MAX_SPEAKER_CHARS - 1}}}):[ \t]+(?=\S)")

Span = tuple[int, int]
"""Characters of a text, from the first up to, not including, the second."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message: its text, and where known its speaker, time in epoch milliseconds and id.

    `is_chat` is True for a chat message: a conversation teaches no rules.
    """

    text: str
    speaker: str | None = None
    at: int | None = None
    id: str | None = None
    is_chat: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a text: its speaker (None: unknown), time in epoch milliseconds, session, and
    the agent whose conversation it is from.
    """

    speaker: str | None = None
    at: int | None = None
    session: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class Passage:
    """A passage of a message by one speaker: the characters from `start` up to `end` of the text.

    `words` is where the words begin, after a name as in `ann: hello`. `at` is the given time, in
    epoch milliseconds, and `message` the number of the message, from 0. `is_named` is False for
    words of an unknown speaker, which count as those of the user.
    """

    start: int
    end: int
    words: int
    speaker: str
    at: int | None
    message: int
    is_named: bool = True


class Transcript:
    """A text, or messages joined by line breaks, and its passages in order."""

    def __init__(
        self,
        messages: Sequence[Message],
        source: Source,
        is_speaker: Callable[[str], bool],
        yield_now: YieldNow,
    ) -> None:
        """Divide messages; those without a speaker and a time have those of `source`.

        `is_speaker` tells which names are known as speakers of this tenant. `yield_now` is called
        about once a millisecond.
        """
        self.messages = messages
        self.text = "\n".join(message.text for message in paced(messages, yield_now))
        self.passages: list[Passage] = []
        named = {each.speaker for each in paced(messages, yield_now) if each.speaker is not None}
        offset = 0
        for number, message in enumerate(paced(messages, yield_now, MESSAGES_PER_YIELD)):
            at = source.at if message.at is None else message.at
            end = offset + len(message.text)
            speaker = message.speaker or source.speaker
            if speaker is not None:
                self.passages.append(Passage(offset, end, offset, speaker, at, number))
            else:
                for start, stop, words, name in _speeches(
                    message.text, lambda name: name in named or is_speaker(name), yield_now
                ):
                    span = offset + start, offset + stop, offset + words
                    self.passages.append(Passage(*span, name, at, number, words > start))
            offset = end + 1
        self._starts = [passage.start for passage in paced(self.passages, yield_now)]

    def passage(self, position: int) -> Passage:
        """Return the passage of a character of the text."""
        return self.passages[max(bisect_right(self._starts, position) - 1, 0)]

    def time(self, spans: Iterable[Span]) -> int | None:
        """Return the earliest given time of spans of the text, None if none is given."""
        times = (self.passage(start).at for start, _ in spans)
        return min((at for at in times if at is not None), default=None)


def messages_of(
    values: object,
    field: str,
    user: str | None,
    read_time: Callable[[Any], int] = instant,
    yield_now: YieldNow = go_on,
) -> list[Message]:
    """Return messages that are given as texts or as chat messages; raise InvalidInput at `field`.

    `user` is the name of the user: the speaker of texts, and of chat messages with the role `user`
    and no name. The speaker of other roles is `assistant`. Members of chat messages other than
    `MEMBERS`, and parts without text, are not read.
    """
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Sequence):
        raise InvalidInput.at(field, "must be an array of texts or messages")
    return [
        _message(value, f"{field}[{index}]", user, read_time)
        for index, value in enumerate(paced(values, yield_now, MESSAGES_PER_YIELD))
    ]


def well_formed(text: str) -> str:
    """Return a text with `?` for each half of a surrogate pair, which cannot be stored."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def check_speaker(field: str, speaker: str) -> None:
    """Raise InvalidInput at `field` if a text cannot be the name of a speaker."""
    if not speaker.strip() or len(speaker) > MAX_SPEAKER_CHARS:
        raise InvalidInput.at(field, f"must have 1 to {MAX_SPEAKER_CHARS} characters")
    if problem := text_problem(speaker):
        raise InvalidInput.at(field, problem)


def _message(
    value: object, where: str, user: str | None, read_time: Callable[[Any], int]
) -> Message:
    if isinstance(value, str):
        return Message(well_formed(value), user)
    if not isinstance(value, Mapping):
        raise InvalidInput.at(where, "must be a text, or a message with a role and content")
    role, name, id = (_text_member(value, key, where) for key in ("role", "name", "id"))
    if role is None and name is None:
        raise InvalidInput.at(f"{where}.role", "is required: user, assistant, or another role")
    if id is not None:
        check_name(f"{where}.id", id)
    is_user = role is not None and role.casefold() == USER
    speaker = name or ((user or USER) if is_user else ASSISTANT)
    check_speaker(f"{where}.name", speaker)
    at = value.get("at")
    if at is not None:
        try:
            at = read_time(at)
        except ValueError as error:
            raise InvalidInput.at(f"{where}.at", str(error)) from None
    content = well_formed(_content(value, f"{where}.content"))
    return Message(content, speaker, at, id, is_chat=True)


def _text_member(value: Mapping[str, object], key: str, where: str) -> str | None:
    member = value.get(key)
    if member is not None and not (isinstance(member, str) and member):
        raise InvalidInput.at(f"{where}.{key}", "must be a text that is not empty")
    return member


def _content(value: Mapping[str, object], where: str) -> str:
    """Return the text of a message; a message that only calls tools has null, and no text."""
    if "content" not in value:
        raise InvalidInput.at(where, "is required")
    content = value["content"]
    if content is None or isinstance(content, str):
        return content or ""
    if not isinstance(content, list | tuple):
        raise InvalidInput.at(where, "must be a text or an array of parts")
    texts = []
    for index, part in enumerate(content):
        text = part.get("text") if isinstance(part, Mapping) else part
        if isinstance(text, str):
            texts.append(text)
        elif text is not None or not isinstance(part, Mapping):
            raise InvalidInput.at(f"{where}[{index}]", "must be a text or a part with a text")
    return "\n".join(texts)


def _speeches(
    text: str, is_speaker: Callable[[str], bool], yield_now: YieldNow
) -> Iterable[tuple[int, int, int, str]]:
    """Yield start, end, start of the words, and speaker of the passages of a text.

    A line such as `ann: hello` begins a passage that goes on up to the next blank line. What no
    line names a speaker for was said by the user.
    """
    start, words, speaker, offset = 0, 0, USER, 0
    for line in paced(lines_of(text, yield_now), yield_now, LINES_PER_YIELD):
        name = _speaker(line, is_speaker)
        if name is not None or (speaker != USER and not line.strip()):
            if offset > start:
                yield start, offset - 1, words, speaker
            start = offset
            words = offset if name is None else offset + name[1]
            speaker = USER if name is None else name[0]
        offset += len(line) + 1
    yield start, len(text), words, speaker


def _speaker(line: str, is_speaker: Callable[[str], bool]) -> tuple[str, int] | None:
    """Return the known speaker whom a line begins with, and where the words begin."""
    match = _SPEAKER.match(line)
    if match is None:
        return None
    name = match[1].rstrip()
    if name.casefold() in ROLES:
        return name.casefold(), match.end()
    return (name, match.end()) if is_speaker(name) else None
