r"""Regular expressions in linear time: compilation to engine programs, and matching.

The syntax is the common one without features that need backtracking: characters, `.` (anything but
a line feed), `[a-z]`, `[^a-z]`, `\d \w \s` (ASCII) and their capitals, `^` and `$` (of the whole
text), groups, `|`, `* + ?`, `{n}`, `{n,}`, `{n,m}`, and `?` after a repetition that prefers the
shortest. A pattern matches anywhere in the text. csrc/text/pattern.c runs the programs in the
engine, `matches` and `captured` in Python. No library is used, so that a rule matches the same
everywhere and a run can be stopped. Thompson, "Regular expression search algorithm" (1968); for the
text of a group, Pike's machine, whose threads have an order of preference: Cox, "Regular expression
matching: the virtual machine approach" (2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache

from kbplanner.errors import InvalidInput
from kbplanner.ir.limits import shortened

MAX_PROGRAM_WORDS = 4096
"""Maximum length of a pattern's program, in words."""

MAX_GROUP_DEPTH = 64
"""Maximum nesting depth of groups."""

_LAST_CODE_POINT = 0x10FFFF
_SPACE = ((9, 13), (32, 32))
_CLASSES = {"d": ((48, 57),), "w": ((48, 57), (65, 90), (95, 95), (97, 122)), "s": _SPACE}
_CONTROLS = {"t": 9, "n": 10, "v": 11, "f": 12, "r": 13}

Ranges = tuple[tuple[int, int], ...]


class Instruction(IntEnum):
    """Opcodes of a program; operands follow."""

    ACCEPT = 0
    """The pattern matches."""
    RANGES = 1
    """A count, then this many ranges: continue behind a character in one of them."""
    SPLIT = 2
    """Two targets to continue at; the first is preferred."""
    JUMP = 3
    """A target to continue at."""
    BEGIN = 4
    """Continue if at the start of the text."""
    END = 5
    """Continue if at the end of the text."""
    OPEN = 6
    """Continue; the group begins here."""
    CLOSE = 7
    """Continue; the group ends here."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str, group: int | None = None) -> tuple[int, ...]:
    """Return the program of a pattern; raises InvalidInput if it is invalid or too large.

    With `group` the program marks where this group begins and ends: groups count from 1 by their
    opening brackets, 0 is the whole match. A group that the pattern does not have is InvalidInput.
    """
    compiler = _Compiler(pattern, group)
    words = compiler.alternatives(0)
    if compiler.at < len(pattern):
        raise compiler.error('")" without "("')
    if group == 0:
        words = compiler.marked(words)
    elif group is not None and group > compiler.groups:
        raise InvalidInput(
            f'the pattern "{shortened(pattern)}" has no group {group}: it has {compiler.groups}'
        )
    return (*_moved(words, 0), Instruction.ACCEPT)


def captured(program: Sequence[int], text: str) -> str | None:
    """Return the text of the marked group in the first match of a program; None if it has none.

    Of the matches that begin first, the one is taken that the order of SPLIT prefers.
    """
    marks: tuple[int, int] | None = None
    threads = _threads(program, [(0, -1, -1)], 0, len(text))
    for index in range(len(text) + 1):
        following: list[tuple[int, int, int]] = []
        for at, start, end in threads:
            if program[at] == Instruction.ACCEPT:
                marks = start, end
                break
            if index < len(text) and _reads(program, at, ord(text[index])):
                following.append((at + 2 + 2 * program[at + 1], start, end))
        else:
            if marks is None:
                following.append((0, -1, -1))
        threads = _threads(program, following, index + 1, len(text))
    return None if marks is None or marks[1] < 0 else text[marks[0] : marks[1]]


def _threads(
    program: Sequence[int], starts: Sequence[tuple[int, int, int]], index: int, length: int
) -> list[tuple[int, int, int]]:
    """Return what waits for a character or accepts, by preference: a place, and the marks of the
    group.
    """
    reached: set[int] = set()
    waiting = []
    todo = list(reversed(starts))
    while todo:
        at, start, end = todo.pop()
        if at in reached:
            continue
        reached.add(at)
        code = program[at]
        if code in (Instruction.ACCEPT, Instruction.RANGES):
            waiting.append((at, start, end))
        elif code == Instruction.SPLIT:
            todo += [(program[at + 2], start, end), (program[at + 1], start, end)]
        elif code == Instruction.JUMP:
            todo.append((program[at + 1], start, end))
        elif code == Instruction.OPEN:
            todo.append((at + 1, index, end))
        elif code == Instruction.CLOSE:
            todo.append((at + 1, start, index))
        elif index == (0 if code == Instruction.BEGIN else length):
            todo.append((at + 1, start, end))
    return waiting


def matches(program: Sequence[int], text: str) -> bool:
    """Return True if a program matches anywhere in a text."""
    now, accepted = _follow(program, [0], True, not text)
    for index, char in enumerate(text, 1):
        if accepted:
            return True
        point = ord(char)
        after = [at + 2 + 2 * program[at + 1] for at in now if _reads(program, at, point)]
        now, accepted = _follow(program, [*after, 0], False, index == len(text))
    return accepted


def _reads(program: Sequence[int], at: int, point: int) -> bool:
    if program[at] != Instruction.RANGES:
        return False
    first = at + 2
    return any(
        program[i] <= point <= program[i + 1] for i in range(first, first + 2 * program[at + 1], 2)
    )


def _follow(
    program: Sequence[int], starts: list[int], start: bool, end: bool
) -> tuple[list[int], bool]:
    reached = dict.fromkeys(starts)
    todo = list(reached)
    while todo:
        at = todo.pop()
        code = program[at]
        targets: Sequence[int] = ()
        if code == Instruction.ACCEPT:
            return [], True
        if code in (Instruction.SPLIT, Instruction.JUMP):
            targets = program[at + 1 : at + (3 if code == Instruction.SPLIT else 2)]
        elif (
            code in (Instruction.OPEN, Instruction.CLOSE)
            or (code == Instruction.BEGIN and start)
            or (code == Instruction.END and end)
        ):
            targets = (at + 1,)
        new = [target for target in targets if target not in reached]
        reached.update(dict.fromkeys(new))
        todo.extend(new)
    return list(reached), False


# ---- compiling: jump targets count from the start of the words, so that parts can be combined ----

_Words = list[int]


def _moved(words: _Words, start: int) -> _Words:
    """Return words moved to `start`, with their jump targets adjusted."""
    moved = list(words)
    at = 0
    while at < len(words):
        code = words[at]
        if code in (Instruction.SPLIT, Instruction.JUMP):
            size = 3 if code == Instruction.SPLIT else 2
            moved[at + 1 : at + size] = [index + start for index in words[at + 1 : at + size]]
        else:
            size = 2 + 2 * words[at + 1] if code == Instruction.RANGES else 1
        at += size
    return moved


class _Compiler:
    def __init__(self, pattern: str, group: int | None = None) -> None:
        self.pattern = pattern
        self.at = 0
        self.groups = 0
        self._group = group

    def marked(self, words: _Words) -> _Words:
        """Return the words of the group that is asked for, with marks at its ends."""
        return self._joined(self._joined([Instruction.OPEN], words), [Instruction.CLOSE])

    def error(self, problem: str) -> InvalidInput:
        """Return the error: the problem and its position."""
        return InvalidInput(
            f'the pattern "{shortened(self.pattern)}" is not a valid regular expression: '
            f"{problem} at character {self.at + 1}"
        )

    def alternatives(self, depth: int) -> _Words:
        if depth > MAX_GROUP_DEPTH:
            raise self.error(f"groups nest at most {MAX_GROUP_DEPTH} deep,")
        words = self._sequence(depth)
        while self._accept("|"):
            other = self._sequence(depth)
            end = 3 + len(words) + 2 + len(other)
            left = [Instruction.SPLIT, 3, 5 + len(words), *_moved(words, 3), Instruction.JUMP, end]
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
            lazy = self._accept("?")
            repeated: _Words = []
            for _ in range(least):
                repeated = self._joined(repeated, words)
            if most is None:
                split = _split(5 + len(words), lazy)
                loop = [*split, *_moved(words, 3), Instruction.JUMP, 0]
                repeated = self._joined(repeated, loop)
            split = _split(3 + len(words), lazy)
            for _ in range((most or least) - least):
                repeated = self._joined(repeated, [*split, *_moved(words, 3)])
            words = repeated
        return words

    def _bounds(self) -> tuple[int, int | None] | None:
        """Read the bounds of a repetition: minimum and maximum; None without a repetition."""
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._accept(sign):
                return bounds
        if not self._accept("{"):
            return None
        least = self._count()
        most: int | None = least
        if self._accept(","):
            most = None if self.pattern.startswith("}", self.at) else self._count()
        if not self._accept("}") or (most is not None and most < least):
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
            is_group = not self._accept("?")
            if not is_group and not self._accept(":"):
                raise self.error('"(?" begins a construct that is not supported')
            self.groups += is_group
            is_marked = is_group and self.groups == self._group
            words = self.alternatives(depth + 1)
            if not self._accept(")"):
                raise self.error('"(" without ")"')
            return self.marked(words) if is_marked else words
        if char in "^$":
            return [Instruction.BEGIN if char == "^" else Instruction.END]
        if char == ".":
            return _ranges(((0, 9), (11, _LAST_CODE_POINT)))
        if char == "[":
            return _ranges(self._set())
        return _ranges(self._escape() if char == "\\" else ((ord(char), ord(char)),))

    def _set(self) -> Ranges:
        negated = self._accept("^")
        ranges: list[tuple[int, int]] = []
        start = self.at
        while self.at == start or not self.pattern.startswith("]", self.at):
            low = self._member()
            if len(low) == 1 and low[0][0] == low[0][1] and self._is_range():
                self.at += 1
                high = self._member()
                if len(high) != 1 or high[0][0] != high[0][1] or high[0][0] < low[0][0]:
                    raise self.error("a range whose end is before its start")
                low = ((low[0][0], high[0][0]),)
            ranges.extend(low)
        self.at += 1
        return _complement(ranges) if negated else _merged(ranges)

    def _is_range(self) -> bool:
        return self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at)

    def _member(self) -> Ranges:
        if self.at >= len(self.pattern):
            raise self.error('"[" without "]"')
        if self.pattern.startswith("[:", self.at):
            raise self.error('"[:" is not supported; write the characters,')
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
            return ranges if char.islower() else _complement(ranges)
        if char.isalnum():
            self.at -= 1
            raise self.error(f'"\\{char}" is not supported')
        return ((ord(char), ord(char)),)

    def _accept(self, sign: str) -> bool:
        if not self.pattern.startswith(sign, self.at):
            return False
        self.at += len(sign)
        return True

    def _joined(self, left: _Words, right: _Words) -> _Words:
        if len(left) + len(right) >= MAX_PROGRAM_WORDS:
            raise self.error("it is too large")
        return left + _moved(right, len(left))


def _split(end: int, lazy: bool) -> _Words:
    """Return the SPLIT between the words after it and `end`; `lazy` prefers `end`."""
    return [Instruction.SPLIT, end, 3] if lazy else [Instruction.SPLIT, 3, end]


def _ranges(ranges: Ranges) -> _Words:
    return [Instruction.RANGES, len(ranges), *(point for pair in ranges for point in pair)]


def _merged(ranges: Sequence[tuple[int, int]]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(ranges):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Sequence[tuple[int, int]]) -> Ranges:
    gaps = []
    first = 0
    for low, high in _merged(ranges):
        if first < low:
            gaps.append((first, low - 1))
        first = high + 1
    if first <= _LAST_CODE_POINT:
        gaps.append((first, _LAST_CODE_POINT))
    return tuple(gaps)
