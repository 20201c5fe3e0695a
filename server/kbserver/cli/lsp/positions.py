"""Positions of the protocol, lines and units of UTF-16 or another encoding, and offsets in a
text.
"""

from __future__ import annotations

from bisect import bisect_right

from lsprotocol.types import Position, PositionEncodingKind, Range


class Lines:
    """The lines of a text, which end with a line feed. Columns count the units of an encoding."""

    def __init__(self, text: str, encoding: PositionEncodingKind | str | None) -> None:
        self._text = text
        self._starts = [0]
        at = text.find("\n")
        while at >= 0:
            self._starts.append(at + 1)
            at = text.find("\n", at + 1)
        self._encoding = encoding

    def offset(self, position: Position) -> int:
        """Return the offset of a position; behind the end of a line it is that end."""
        if position.line >= len(self._starts):
            return len(self._text)
        start = self._starts[position.line]
        end = self._text.find("\n", start)
        end = len(self._text) if end < 0 else end
        units = position.character
        while start < end and units > 0:
            units -= self._size(self._text[start])
            start += 1
        return start

    def position(self, offset: int) -> Position:
        """Return the position of an offset."""
        line = bisect_right(self._starts, offset) - 1
        return Position(line, self._size(self._text[self._starts[line] : offset]))

    def range(self, start: int, end: int) -> Range:
        """Return the range of two offsets."""
        return Range(self.position(start), self.position(end))

    def offset_of(self, line: int, column: int) -> int:
        """Return the offset of a line and a column that count from 1, columns in code points."""
        start = self._starts[min(line, len(self._starts)) - 1]
        return min(start + column - 1, len(self._text))

    def _size(self, text: str) -> int:
        """Return the number of units of a text."""
        if text.isascii() or self._encoding == PositionEncodingKind.Utf32:
            return len(text)
        if self._encoding == PositionEncodingKind.Utf8:
            return len(text.encode("utf-8", "surrogatepass"))
        return len(text) + sum(char > "\uffff" for char in text)
