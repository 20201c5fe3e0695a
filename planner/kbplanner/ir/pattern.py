"""Regular expressions that take linear time: to programs for the engine, and what such a program matches.

The syntax is the common one without what needs going back: characters, `.` (anything but a line feed), `[a-z]`, `[^a-z]`,
`\\d \\w \\s` (ASCII) and their capitals, `^` and `$` (of the whole text), groups, `|`, `* + ?`, `{n}`, `{n,}`, `{n,m}`. A
pattern matches somewhere in the text. The engine runs the programs (csrc/pattern.c) and this is its twin: no library is
asked, so that a rule matches the same everywhere and a run can be stopped. Thompson, "Regular expression search algorithm"
(1968).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

from kbplanner.errors import InvalidInput

MOST_WORDS = 4096
"""Longest program of a pattern."""

MOST_GROUPS = 64
"""How deep groups may nest."""

_LAST = 0x10FFFF
_SPACE = ((9, 13), (32, 32))
_CLASSES = {"d": ((48, 57),), "w": ((48, 57), (65, 90), (95, 95), (97, 122)), "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}

Ranges = tuple[tuple[int, int], ...]


class Instruction(IntEnum):
    """What a word of a program asks for; operands follow."""

    ACCEPT = 0
    """It matches."""
    RANGES = 1
    """Count, then so many pairs: go on behind a character in one of them."""
    SPLIT = 2
    """Two places to go on at."""
    JUMP = 3
    """A place to go on at."""
    BEGIN = 4
    """Go on at the start of the text."""
    END = 5
    """Go on at the end of the text."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> tuple[int, ...]:
    """The program of a pattern; raises InvalidInput where it is none, or too large."""
    compiler = _Compiler(pattern)
    words = compiler.alternatives(0)
    if compiler.at < len(pattern):
        raise compiler.error('")" without "("')
    return (*_placed(words, 0), Instruction.ACCEPT)


def matches(program: Sequence[int], text: str) -> bool:
    """Whether a program matches somewhere in a text."""
    now, accepted = _follow(program, [0], True, not text)
    for place, char in enumerate(text, 1):
        if accepted:
            return True
        point = ord(char)
        after = [at + 2 + 2 * program[at + 1] for at in now if _reads(program, at, point)]
        now, accepted = _follow(program, [*after, 0], False, place == len(text))
    return accepted


def _reads(program: Sequence[int], at: int, point: int) -> bool:
    if program[at] != Instruction.RANGES:
        return False
    first = at + 2
    return any(program[i] <= point <= program[i + 1] for i in range(first, first + 2 * program[at + 1], 2))


def _follow(program: Sequence[int], places: list[int], start: bool, end: bool) -> tuple[list[int], bool]:
    found = dict.fromkeys(places)
    todo = list(found)
    while todo:
        at = todo.pop()
        code = program[at]
        targets: Sequence[int] = ()
        if code == Instruction.ACCEPT:
            return [], True
        if code in (Instruction.SPLIT, Instruction.JUMP):
            targets = program[at + 1 : at + (3 if code == Instruction.SPLIT else 2)]
        elif (code == Instruction.BEGIN and start) or (code == Instruction.END and end):
            targets = (at + 1,)
        new = [target for target in targets if target not in found]
        found.update(dict.fromkeys(new))
        todo.extend(new)
    return list(found), False


# ---- compiling: words whose places count from their own start, so that parts can be put together ----

_Words = list[int]


def _placed(words: _Words, start: int) -> _Words:
    """Words moved to `start`: the places in them move along."""
    moved = list(words)
    at = 0
    while at < len(words):
        code = words[at]
        if code in (Instruction.SPLIT, Instruction.JUMP):
            size = 3 if code == Instruction.SPLIT else 2
            moved[at + 1 : at + size] = [place + start for place in words[at + 1 : at + size]]
        else:
            size = 2 + 2 * words[at + 1] if code == Instruction.RANGES else 1
        at += size
    return moved


class _Compiler:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0

    def error(self, problem: str) -> InvalidInput:
        """What is wrong, and where."""
        shown = self.pattern if len(self.pattern) <= 40 else self.pattern[:39] + "…"
        return InvalidInput(f'the pattern "{shown}" is no regular expression here: {problem} at character {self.at + 1}')

    def alternatives(self, depth: int) -> _Words:
        if depth > MOST_GROUPS:
            raise self.error(f"groups nest at most {MOST_GROUPS} deep,")
        words = self._sequence(depth)
        while self._take("|"):
            other = self._sequence(depth)
            end = 3 + len(words) + 2 + len(other)
            left = [Instruction.SPLIT, 3, 5 + len(words), *_placed(words, 3), Instruction.JUMP, end]
            words = self._joined(left, other)
        return words

    def _sequence(self, depth: int) -> _Words:
        words: _Words = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            words = self._joined(words, self._repeated(depth))
        return words

    def _repeated(self, depth: int) -> _Words:
        words = self._single(depth)
        while (bounds := self._bounds()) is not None:
            least, most = bounds
            made: _Words = []
            for _ in range(least):
                made = self._joined(made, words)
            if most is None:
                loop = [Instruction.SPLIT, 3, 5 + len(words), *_placed(words, 3), Instruction.JUMP, 0]
                made = self._joined(made, loop)
            for _ in range((most or least) - least):
                made = self._joined(made, [Instruction.SPLIT, 3, 3 + len(words), *_placed(words, 3)])
            words = made
            self._take("?")  # fewest first or most first: that it matches is the same
        return words

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often: least and most; None where nothing says so."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self._take("{"):
            return None
        least = self._count()
        most: int | None = least
        if self._take(","):
            most = None if self.pattern.startswith("}", self.at) else self._count()
        if not self._take("}") or (most is not None and most < least):
            raise self.error('"{" begins no repetition: write {2}, {2,} or {2,5};')
        return least, most

    def _count(self) -> int:
        start = self.at
        while self.at < len(self.pattern) and self.pattern[self.at] in "0123456789":
            self.at += 1
        if not 0 < self.at - start < 5:
            raise self.error('"{" begins no repetition: write {2}, {2,} or {2,5};')
        return int(self.pattern[start : self.at])

    def _single(self, depth: int) -> _Words:
        char = self.pattern[self.at]
        if char in "*+?{":
            raise self.error(f'nothing to repeat before "{char}"')
        self.at += 1
        if char == "(":
            if self._take("?") and not self._take(":"):
                raise self.error('"(?" begins what is not offered')
            words = self.alternatives(depth + 1)
            if not self._take(")"):
                raise self.error('"(" without ")"')
            return words
        if char in "^$":
            return [Instruction.BEGIN if char == "^" else Instruction.END]
        if char == ".":
            return _ranges(((0, 9), (11, _LAST)))
        if char == "[":
            return _ranges(self._set())
        return _ranges(self._escape() if char == "\\" else ((ord(char), ord(char)),))

    def _set(self) -> Ranges:
        negated = self._take("^")
        found: list[tuple[int, int]] = []
        start = self.at
        while self.at == start or not self.pattern.startswith("]", self.at):
            low = self._member()
            if len(low) == 1 and low[0][0] == low[0][1] and self._is_range():
                self.at += 1
                high = self._member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise self.error("a range whose end is before its start")
                low = ((low[0][0], high[0][0]),)
            found.extend(low)
        self.at += 1
        return _others(found) if negated else _merged(found)

    def _is_range(self) -> bool:
        return self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at)

    def _member(self) -> Ranges:
        if self.at >= len(self.pattern):
            raise self.error('"[" without "]"')
        if self.pattern.startswith("[:", self.at):
            raise self.error('"[:" is not offered; write the characters,')
        char = self.pattern[self.at]
        self.at += 1
        return self._escape() if char == "\\" else ((ord(char), ord(char)),)

    def _escape(self) -> Ranges:
        if self.at >= len(self.pattern):
            raise self.error("a backslash at the end")
        char = self.pattern[self.at]
        self.at += 1
        if char in _CONTROLS:
            return ((_CONTROLS[char], _CONTROLS[char]),)
        if char.lower() in _CLASSES:
            ranges = _CLASSES[char.lower()]
            return ranges if char.islower() else _others(ranges)
        if char.isalnum():
            self.at -= 1
            raise self.error(f'"\\{char}" is not offered')
        return ((ord(char), ord(char)),)

    def _take(self, sign: str) -> bool:
        if not self.pattern.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def _joined(self, left: _Words, right: _Words) -> _Words:
        if len(left) + len(right) >= MOST_WORDS:
            raise self.error("it is too large")
        return left + _placed(right, len(left))


def _ranges(ranges: Ranges) -> _Words:
    return [Instruction.RANGES, len(ranges), *(point for pair in ranges for point in pair)]


def _merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    found: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _others(ranges: Sequence[tuple[int, int]]) -> Ranges:
    found = []
    first = 0
    for low, high in _merged(ranges):
        if first < low:
            found.append((first, low - 1))
        first = high + 1
    if first <= _LAST:
        found.append((first, _LAST))
    return tuple(found)
