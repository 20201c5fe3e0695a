"""Outline of a text: its statements and tests, and where predicates, variables and rule names
occur.

It is made from tokens alone, so that a text with mistakes has one too, as while someone types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

from kbplanner.ir.inputs import INPUT
from kbplanner.ir.operators import is_builtin
from kbplanner.syntax.constraints import DISJOINT, KEY, TOTAL
from kbplanner.syntax.scanner import (
    Token,
    block_header_size,
    file_fixture_size,
    scan_statement,
)


class NameKind(Enum):
    """Kind of a name that occurs in a text."""

    PREDICATE = "predicate"
    VARIABLE = "variable"
    RULE = "rule"


@dataclass(frozen=True, slots=True)
class Occurrence:
    """A name at `start:end` of a text, in code points.

    `arity` is that of a predicate, -1 for others. `statement` is the index of its statement.
    `defines` is True for the predicate of a fact or of a head, and for the name before a rule.
    """

    kind: NameKind
    name: str
    start: int
    end: int
    statement: int
    arity: int = -1
    defines: bool = False


@dataclass(frozen=True, slots=True)
class OutlinedStatement:
    """A statement: its kind, `start:end` in the text, and the name of a rule.

    The kind is `fact`, `rule`, `goal` or `declaration`; `test` is the name of the test or fixture
    that it is in. `head` is the predicate of a fact or of the head.
    """

    kind: str
    start: int
    end: int
    name: str | None = None
    head: Occurrence | None = None
    test: str | None = None


@dataclass(frozen=True, slots=True)
class OutlinedBlock:
    """A test or fixture: `start:end` in the text, with its header and closing brace, or with its
    dot.
    """

    kind: str
    name: str
    start: int
    end: int


@dataclass(slots=True)
class Outline:
    """Outline of a text; occurrences are in the order of the text."""

    text: str
    statements: list[OutlinedStatement] = field(default_factory=list)
    blocks: list[OutlinedBlock] = field(default_factory=list)
    occurrences: list[Occurrence] = field(default_factory=list)

    def at(self, offset: int) -> Occurrence | None:
        """Return the occurrence that an offset is in, or directly behind."""
        inside = (each for each in self.occurrences if each.start <= offset < each.end)
        behind = (each for each in self.occurrences if each.end == offset)
        return next(inside, None) or next(behind, None)

    def comment_above(self, offset: int) -> str:
        """Return the text of the comment lines directly above the line of an offset."""
        lines = self.text[: self.text.rfind("\n", 0, offset) + 1].split("\n")[:-1]
        names: list[str] = []
        while lines and lines[-1].lstrip().startswith(("%", "#", "//")):
            names.append(lines.pop().lstrip().lstrip("%#/").strip())
        return "\n".join(reversed(names))


def outline_of(text: str) -> Outline:
    """Return the outline of a text, which may have mistakes."""
    return _Outliner(text).outline()


class _Outliner:
    """Reads one text."""

    def __init__(self, text: str) -> None:
        self._outline = Outline(text)
        self._open: tuple[str, str, int] | None = None

    def outline(self) -> Outline:
        """Read the text to its end."""
        text, position = self._outline.text, 0
        while True:
            tokens, position = scan_statement(text, position)
            if not tokens:
                self._close(len(text))
                return self._outline
            tokens = self._without_blocks(tokens)
            if size := file_fixture_size(tokens):
                end = tokens[size - 1].end
                fixture = OutlinedBlock("fixture", _name(tokens[1]), tokens[0].start, end)
                self._outline.blocks.append(fixture)
                tokens = tokens[size:]
            if tokens:
                self._statement(tokens)

    def _without_blocks(self, tokens: list[Token]) -> list[Token]:
        """Return a statement without the braces and headers of blocks before it."""
        while tokens:
            if tokens[0].value == "}":
                self._close(tokens[0].end)
                tokens = tokens[1:]
            elif size := block_header_size(tokens):
                self._close(tokens[0].start)
                self._open = (tokens[0].value, _name(tokens[1]), tokens[0].start)
                tokens = tokens[size:]
            else:
                break
        for at, token in enumerate(tokens):  # the last statement of a block may lack its dot
            if token.value == "}" and at:
                self._statement(tokens[:at])
                return self._without_blocks(tokens[at:])
        return tokens

    def _close(self, end: int) -> None:
        if self._open is not None:
            kind, name, start = self._open
            self._outline.blocks.append(OutlinedBlock(kind, name, start, end))
            self._open = None

    def _statement(self, tokens: list[Token]) -> None:
        index = len(self._outline.statements)
        test = None if self._open is None else self._open[1]
        kinds = [token.type for token in tokens]
        name, names = None, list[Occurrence]()
        body = 0
        if kinds[0] == "_GOAL":
            kind, body = "goal", 1
        elif kinds[0] == "_AT" and len(tokens) > 2 and kinds[2] != "_COLON":
            kind = "declaration"
            names += _declared(tokens, index)
        else:
            kind = "rule" if "_ARROW" in kinds else "fact"
            if kinds[0] == "_AT" and len(tokens) > 1:
                name, body = _name(tokens[1]), 3
                names.append(_occurrence(NameKind.RULE, tokens[1], index, defines=True))
        arrow = kinds.index("_ARROW") if "_ARROW" in kinds else len(tokens)
        if kind != "declaration":
            names += _atoms(tokens, body, index, arrow if kind in ("fact", "rule") else 0)
        names += _variables_and_reasons(tokens, index)
        names.sort(key=lambda each: each.start)
        head = next(
            (each for each in names if each.kind is NameKind.PREDICATE and each.defines), None
        )
        self._outline.occurrences += names
        self._outline.statements.append(
            OutlinedStatement(kind, tokens[0].start, tokens[-1].end, name, head, test)
        )


def _name(token: Token) -> str:
    """Return the name that a word or a quoted text stands for."""
    if token.type != "STRING":
        return token.value
    return token.value[1:-1].replace(f"\\{token.value[0]}", token.value[0])


def _occurrence(
    kind: NameKind, token: Token, statement: int, arity: int = -1, *, defines: bool = False
) -> Occurrence:
    return Occurrence(kind, _name(token), token.start, token.end, statement, arity, defines)


_OPERATORS = frozenset({"CMP", "EQ", "PLUS", "MINUS", "STAR", "SLASH", "DIV", "MOD"})
_BEFORE_ATOM = frozenset({"_COMMA", "_ARROW", "_GOAL", "_COLON", "NOT", "NEG"})
_AFTER_ATOM = frozenset({"_COMMA", "_ARROW", "_END", "_LSQB"})


def _atoms(tokens: Sequence[Token], start: int, statement: int, head: int) -> Iterator[Occurrence]:
    """Yield the predicates of the atoms; those before the index `head` define theirs."""
    depth = 0
    for at in range(start, len(tokens)):
        token = tokens[at]
        if token.type in ("_LPAR", "_LSQB"):
            depth += 1
        elif token.type in ("_RPAR", "_RSQB"):
            depth -= 1
        elif depth == 0 and token.type in ("IDENT", "STRING"):
            before = tokens[at - 1].type if at > start else "_COMMA"
            end, arity = _call(tokens, at)
            after = tokens[end].type if end < len(tokens) else "_END"
            is_list = after == "EQ" and end + 1 < len(tokens) and tokens[end + 1].type == "_LSQB"
            if before in _OPERATORS or (after in _OPERATORS and not is_list):
                continue
            if arity == 0 and (before not in _BEFORE_ATOM or after not in _AFTER_ATOM):
                continue
            if token.type == "STRING" or not is_builtin(token.value, arity):
                yield _occurrence(NameKind.PREDICATE, token, statement, arity, defines=at < head)


def _call(tokens: Sequence[Token], at: int) -> tuple[int, int]:
    """Return the index behind an atom that begins at an index, and its number of arguments."""
    if at + 1 >= len(tokens) or tokens[at + 1].type != "_LPAR":
        return at + 1, 0
    depth, commas = 0, 0
    for index in range(at + 1, len(tokens)):
        kind = tokens[index].type
        depth += (kind in ("_LPAR", "_LSQB")) - (kind in ("_RPAR", "_RSQB"))
        commas += kind == "_COMMA" and depth == 1
        if depth == 0:
            return index + 1, commas + (index > at + 2)
    return len(tokens), commas + (len(tokens) > at + 2)


def _declared(tokens: Sequence[Token], statement: int) -> Iterator[Occurrence]:
    """Yield the predicates of a declaration: atoms, or `name/arity`, where `@disjoint` may leave
    out the arity 1.
    """
    word = tokens[1].value
    if word in (KEY, TOTAL):
        yield from _atoms(tokens, 2, statement, 0)
        return
    if word == INPUT:
        _, arity = _call(tokens, 2)
        yield _occurrence(NameKind.PREDICATE, tokens[2], statement, arity)
        return
    for at in range(2, len(tokens)):
        if tokens[at].type == "_LSQB":  # annotations
            return
        if tokens[at].type not in ("IDENT", "STRING"):
            continue
        following = [token.type for token in tokens[at + 1 : at + 3]]
        if following == ["SLASH", "NUMBER"] and tokens[at + 2].value.isdecimal():
            arity = int(tokens[at + 2].value)
        elif word == DISJOINT and following[:1] != ["SLASH"]:
            arity = 1
        else:
            continue
        yield _occurrence(NameKind.PREDICATE, tokens[at], statement, arity)


def _variables_and_reasons(tokens: Sequence[Token], statement: int) -> Iterator[Occurrence]:
    """Yield the variables, and the rules that `because` names."""
    for at, token in enumerate(tokens):
        if token.type == "VAR":
            yield _occurrence(NameKind.VARIABLE, token, statement)
        elif token.value == "because" and at + 2 < len(tokens) and tokens[at + 1].type == "_AT":
            yield _occurrence(NameKind.RULE, tokens[at + 2], statement)
