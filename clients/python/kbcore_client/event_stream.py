"""Event streams: the bytes that arrive, split into messages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """A complete message: its type, its data, and its position in the stream.

    `data` is empty if the message only reports a position, or that the server still works.
    """

    kind: str
    data: str
    id: str | None


class MessageReader:
    """Splits the bytes of one connection into messages.

    A message ends with an empty line, so one that is cut before it is never returned. Only line
    feeds end lines: `str.splitlines` would break data at characters such as U+2028. Source:
    https://html.spec.whatwg.org/multipage/server-sent-events.html
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []
        self._fields: dict[str, str] = {}

    def feed(self, data: bytes) -> Iterator[Message]:
        """Yield the messages that end in these bytes."""
        *lines, rest = data.split(b"\n")
        for line in lines:
            self._rest.append(line)
            whole = b"".join(self._rest).removesuffix(b"\r").decode("utf-8", "replace")
            self._rest.clear()
            if not whole:
                yield self._end()
            elif not whole.startswith(":"):
                self._add(*whole.split(":", 1))
        self._rest.append(rest)

    def _add(self, name: str, value: str = "") -> None:
        value = value.removeprefix(" ")
        if name == "data" and "data" in self._fields:
            value = f"{self._fields['data']}\n{value}"
        self._fields[name] = value

    def _end(self) -> Message:
        fields, self._fields = self._fields, {}
        return Message(fields.get("event", "message"), fields.get("data", ""), fields.get("id"))
