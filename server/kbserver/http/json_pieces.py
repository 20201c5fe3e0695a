"""Parsing of large JSON documents in pieces, so that other requests run between them.

No JSON parser for Python gives way before its end. A large document is therefore cut at commas, at
any depth, into pieces that are documents themselves: each begins with the brackets that are open at
its first cut and ends with those that close what is open at its second. Only the brackets and the
strings are scanned for that; the parser checks everything else, and a piece that it refuses makes
the document invalid.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

from kbcore.errors import TooLarge
from kbcore.strict_json import JsonPlace, given_twice, too_deep
from kbplanner.pacing import YieldNow, paced

PIECE_BYTES = 1 << 16
"""Bytes of a piece, at least; up to the next comma. Parsing takes 10 ms at most."""

MAX_CONTAINERS = 600_000
"""Arrays and objects of a large document: the collection of garbage goes through all of them in one
go. A fact has two.
"""

MAX_MEMBERS = 100_000
"""Members of an object of several pieces: a hash table grows in one go."""

MAX_VALUE_BYTES = 4 << 20
"""Bytes of a large document without a comma between two values: they are parsed in one go."""

LEVELS_PER_YIELD = 8
"""Levels of brackets of a piece matched between two calls of `yield_now`: a millisecond or two."""

_CANDIDATES = 80
"""Strings with commas that are skipped from the end of a piece before the piece is enlarged."""

_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_BACKSLASH, _OBJECT = b"\\}"
_CLOSING = {ord("["): ord("]"), ord("{"): _OBJECT}
"""The bracket that closes each bracket."""

ParsePiece = Callable[[bytes, JsonPlace], Any]
"""Parses a document; raises InvalidInput with positions in the whole body."""


def parse_in_pieces(body: bytes, max_depth: int, parse: ParsePiece, yield_now: YieldNow) -> Any:
    """Return the value of a document, calling `yield_now` between its pieces.

    Raises InvalidInput, also where a key of an object occurs in two pieces.
    """
    return _Document(body, max_depth, parse, yield_now).value()


class _Document:
    def __init__(self, body: bytes, max_depth: int, parse: ParsePiece, yield_now: YieldNow) -> None:
        self._body = body
        self._max_depth = max_depth
        self._parse = parse
        self._yield_now = yield_now
        token = secrets.token_hex(8)  # no key of the document: its sender does not know it
        self._left, self._right = f"{token}l", f"{token}r"
        self._open: list[Any] = []
        """The containers that are open at the last cut, outermost first."""

    def value(self) -> Any:
        whole: Any = None
        stack: list[int] = []
        start = 0
        for end, new_stack, lowest in self._cuts():
            value = self._piece(start, end, stack, new_stack)
            if stack:
                self._merge(value, len(stack), lowest, len(new_stack))
            else:
                whole = value
                self._open = self._spine(whole, len(new_stack))
            if new_stack:
                self._drop_last(self._open[-1])
            stack, start = new_stack, end + 1
            self._yield_now()
        return whole

    def _piece(self, start: int, end: int, stack: list[int], new_stack: list[int]) -> Any:
        before = self._prefix(stack)
        after = self._suffix(new_stack)
        text = b"%b%b%b" % (before, self._body[start:end], after)
        return self._parse(text, JsonPlace(self._body, start, len(before), end - start))

    def _prefix(self, stack: list[int]) -> bytes:
        """Return what opens the containers, with a first member that is left out again."""
        key = b'"%b":' % self._left.encode()
        parts = [b"{" + key if bracket == _OBJECT else b"[" for bracket in stack]
        return b"".join(parts) + b"0," if parts else b""

    def _suffix(self, stack: list[int]) -> bytes:
        """Return what closes the containers, with a last member that is left out again."""
        if not stack:
            return b""
        last = b',"%b":0' % self._right.encode() if stack[-1] == _OBJECT else b",0"
        return last + b"".join(b"}" if bracket == _OBJECT else b"]" for bracket in reversed(stack))

    def _cuts(self) -> Iterator[tuple[int, list[int], int]]:
        """Yield for each piece its end, the brackets open there, and the fewest open within it."""
        body, size = self._body, len(self._body)
        stack: list[int] = []
        start = containers = 0
        while (end := self._next_comma(start)) < size:
            brackets = _without_strings(body[start:end]).translate(None, _NO_BRACKETS)
            containers += brackets.count(b"[") + brackets.count(b"{")
            if containers > MAX_CONTAINERS:
                raise TooLarge(
                    f"a body has at most {MAX_CONTAINERS} arrays and objects",
                    {"limit": "bodyContainers", "value": MAX_CONTAINERS},
                )
            unmatched = self._unmatched(brackets)
            opening = unmatched.lstrip(b"]}")
            closing = unmatched[: len(unmatched) - len(opening)]
            depth = len(stack) - len(closing)
            is_within = depth > 0 or (start == 0 and opening and not closing)
            if not is_within or closing[::-1] != bytes(stack[depth:]) or opening.strip(b"[{"):
                yield end + 1, [], 0  # no document ends with a comma: the parser refuses it
                return
            stack = [*stack[:depth], *(_CLOSING[bracket] for bracket in opening)]
            if len(stack) > self._max_depth:
                raise too_deep(self._max_depth)
            yield end, stack, depth
            start = end + 1
        yield size, [], 0

    def _next_comma(self, start: int) -> int:
        """Return the last comma outside strings in a piece that starts outside of one.

        The piece grows until there is one; without any, return the end of the body. Raises
        TooLarge.
        """
        body, size = self._body, len(self._body)
        length = PIECE_BYTES
        while start + length < size:
            self._yield_now()
            end = start + length
            for _ in range(_CANDIDATES):
                end = body.rfind(b",", start, end)
                if end < 0:
                    break
                if _without_escapes(body[start:end]).count(b'"') % 2 == 0:
                    return end
                end = self._last_quote(start, end)
            length *= 2
            if length > MAX_VALUE_BYTES:
                raise TooLarge(
                    f"a value in a body has at most {MAX_VALUE_BYTES} bytes",
                    {"limit": "valueBytes", "value": MAX_VALUE_BYTES},
                )
        return size

    def _last_quote(self, start: int, end: int) -> int:
        """Return the last quote in a part of the body that no backslash stands before."""
        quote = self._body.rfind(b'"', start, end)
        while quote > start and self._is_escaped(start, quote):
            quote = self._body.rfind(b'"', start, quote)
        return max(quote, start)

    def _is_escaped(self, start: int, position: int) -> bool:
        first = position
        while first > start and self._body[first - 1] == _BACKSLASH:
            first -= 1
        return (position - first) % 2 == 1

    def _unmatched(self, brackets: bytes) -> bytes:
        """Return brackets without the pairs that match: closing ones, then opening ones."""
        for _ in paced(range(self._max_depth + 1), self._yield_now, LEVELS_PER_YIELD):
            shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
            if len(shorter) == len(brackets):
                return brackets
            brackets = shorter
        raise too_deep(self._max_depth)

    def _merge(self, value: Any, depth: int, lowest: int, new_depth: int) -> None:
        """Add the members of a piece to the containers that were open before it."""
        spine = [value]
        for _ in range(depth - 1):
            spine.append(spine[-1][self._left] if type(spine[-1]) is dict else spine[-1][0])
        for part in spine:
            if type(part) is dict:
                del part[self._left]
            else:
                del part[0]
        for whole, part in zip(self._open, spine, strict=True):
            if type(whole) is dict:
                if len(whole) > MAX_MEMBERS:
                    raise TooLarge(
                        f"an object in a body has at most {MAX_MEMBERS} members",
                        {"limit": "objectMembers", "value": MAX_MEMBERS},
                    )
                if not whole.keys().isdisjoint(part):
                    raise given_twice(next(key for key in part if key in whole))
                whole.update(part)
            else:
                whole.extend(part)
        if new_depth > lowest:
            del self._open[lowest:]
            self._open += self._spine(self._last(self._open[-1]), new_depth - lowest)
        else:
            del self._open[new_depth:]

    def _spine(self, value: Any, depth: int) -> list[Any]:
        """Return a container, the last one in it, and so on."""
        spine = [value] if depth else []
        while len(spine) < depth:
            spine.append(self._last(spine[-1]))
        return spine

    def _last(self, container: Any) -> Any:
        return container[next(reversed(container))] if type(container) is dict else container[-1]

    def _drop_last(self, container: Any) -> None:
        if type(container) is dict:
            del container[self._right]
        else:
            del container[-1]


def _without_escapes(text: bytes) -> bytes:
    """Return a text without backslashes in front of backslashes and quotes, and without those."""
    return text.replace(b"\\\\", b"").replace(b'\\"', b"")


def _without_strings(text: bytes) -> bytes:
    return b"".join(_without_escapes(text).split(b'"')[::2])
