"""Reader for facts and rules in text written by people and models, without calling a model.

A text in the rule language is parsed as such. Any other text is read line by line: a line is a fact
in predicate syntax, starts a rule that ends at its full stop, or is prose, whose line number is
recorded. A single word is prose, although the rule language would read it as a fact without
arguments: "Yes." states no fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kbcore.errors import InvalidInput
from kbcore.language.files import read_statements
from kbcore.language.lenient import read_line
from kbcore.state.facts import Fact
from kbcore.timestamps import iso_text
from kbplanner.errors import KBError
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom
from kbplanner.pacing import paced
from kbplanner.passes.check import check_fact

_COMMENT = re.compile(r"\s*(?:%|#|//).*|\s*")
_STARTS = re.compile(r"\s*(?:@|~|not\s+)?[\w'\"][^\s(]*\(")
_FULL_STOP = re.compile(r"\.\s*(?:(?:%|#|//)[^.]*)?$")

_SPEAKER = re.compile(r"\s*([^\W\d_][\w-]{0,39}):\s+(?=\S)")

EPISODE = "said"
"""Predicate of prose that is stored as it is: `said(speaker, text, when)`."""

DEFAULT_SPEAKER = "user"

LINES_PER_REST = 500
"""Lines read between two calls of `rest`: about a millisecond."""


SignedAtom = tuple[str, tuple[str, ...], bool]
"""Predicate, arguments and sign of a fact."""

Span = tuple[int, int]
"""Characters of a text, from the first up to, not including, the second."""


@dataclass(slots=True)
class Taken:
    """The facts (without repetition) and rules of a text, in order.

    `unread` are the numbers of prose lines. `spans` are the places of each fact in the text.
    """

    facts: list[Fact] = field(default_factory=list)
    rules: list[Definition] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    spans: dict[SignedAtom, list[Span]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.facts or self.rules)

    def place(self, fact: Fact, span: Span) -> None:
        """Add a place of a fact."""
        self.spans.setdefault((fact.predicate, fact.args, fact.positive), []).append(span)


def read_statements_of(text: str, scope: str | None, rest: Callable[[], None]) -> Taken:
    """Read a text whose facts and rules belong to one scope; `rest` is called about once a
    millisecond.

    Raises InvalidInput and RuleSyntaxError for a rule that cannot be read, a fact beyond the
    limits, or a statement that names another scope; the caller must then store none of the text.
    """
    taken = _whole(text, scope) or _by_line(text, scope, rest)
    for other in {fact.scope for fact in taken.facts} | {rule.scope for rule in taken.rules}:
        if other != scope:
            raise InvalidInput.at(
                "text", f"a statement names the scope {other!r}, which is not that of the request"
            )
    taken.facts = list(
        {(fact.predicate, fact.args, fact.positive): fact for fact in taken.facts}.values()
    )
    return taken


def first_lines(turns: Sequence[str]) -> tuple[int, ...]:
    """Return the number of the line at which each turn begins in the turns joined by line breaks."""
    return tuple(accumulate((turn.count("\n") + 1 for turn in turns[:-1]), initial=1))


def episodes_of(
    text: str, unread: Sequence[int], turns: Sequence[int], scope: str | None, at: int
) -> list[tuple[Fact, int, int]]:
    """Return prose as facts `said(speaker, text, when)`, one for each run of consecutive lines,
    with the numbers of the first and last line of each.

    `unread` are the numbers of the lines of prose, `turns` of the lines at which a new turn of a
    conversation begins, and `at` the time in epoch milliseconds. A line `ann: ...` names its
    speaker; the following lines of the run are hers too. Raises InvalidInput that names the line.
    """
    lines = text.split("\n")
    episodes: list[tuple[int, str, list[str]]] = []
    last = 0
    for number in unread:
        line = lines[number - 1].strip()
        speaker = _SPEAKER.match(line)
        if speaker is not None:
            episodes.append((number, speaker[1], [line[speaker.end() :]]))
        elif number == last + 1 and number not in turns and episodes:
            episodes[-1][2].append(line)
        else:
            episodes.append((number, DEFAULT_SPEAKER, [line]))
        last = number
    return [
        (
            _episode(number, (speaker, "\n".join(parts), iso_text(at)), scope),
            number,
            number + len(parts) - 1,
        )
        for number, speaker, parts in episodes
    ]


def speaker_of(text: str) -> str | None:
    """Return the speaker whom a text begins with, as in `ann: ...`; None without one."""
    match = _SPEAKER.match(text)
    return None if match is None else match[1]


def line_span(text: str, first: int, last: int) -> Span:
    """Return the span of lines, given by their numbers, without the last line break."""
    lines = text.split("\n")
    start = sum(len(line) + 1 for line in lines[: first - 1])
    return start, start + sum(len(line) + 1 for line in lines[first - 1 : last]) - 1


def _episode(number: int, args: tuple[str, ...], scope: str | None) -> Fact:
    try:
        check_fact(Atom(EPISODE, args))
    except InvalidInput as error:
        raise InvalidInput.at("text", f"line {number}: {error.message}") from None
    return Fact(EPISODE, args, True, scope, metadata={"episode": True})


def _whole(text: str, scope: str | None) -> Taken | None:
    """Return the statements of a text in the rule language.

    None if it is not, or has only words or queries.
    """
    try:
        taken = _strictly(text, scope)
    except KBError:
        return None
    return (
        taken
        if taken is not None and (taken.rules or all(fact.args for fact in taken.facts))
        else None
    )


def _strictly(text: str, scope: str | None) -> Taken | None:
    taken = Taken()
    offsets = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
    for batch in read_statements((text,), scope):
        if batch.goals:
            return None
        taken.facts += batch.facts
        taken.rules += batch.rules
        for fact, span in zip(batch.facts, batch.spans, strict=True):
            start = offsets[span.line - 1] + span.column - 1
            taken.place(fact, (start, offsets[span.end_line - 1] + span.end_column - 1))
    return taken


def _by_line(text: str, scope: str | None, rest: Callable[[], None]) -> Taken:
    taken = Taken()
    lines = text.split("\n")
    offsets = [0, *accumulate(len(line) + 1 for line in lines)]
    numbered = enumerate(paced(iter(lines), rest, LINES_PER_REST), 1)
    for number, line in numbered:
        atom = read_line(line)
        if atom is not None and not any(arg.startswith("?") for arg in atom.args):  # type: ignore[union-attr]
            try:
                check_fact(atom)
            except InvalidInput as error:
                raise InvalidInput.at("text", f"line {number}: {error.message}") from None
            args = tuple(arg for arg in atom.args if isinstance(arg, str))
            taken.facts.append(Fact(atom.predicate, args, atom.positive, scope))
            taken.place(taken.facts[-1], _stripped(line, offsets[number - 1]))
        elif ":-" in line and atom is None:
            first = number
            while not _FULL_STOP.search(line) and number < len(lines) and lines[number].strip():
                number, line = next(numbered)
            _add(
                taken,
                _rules(lines, first, number, scope),
                (offsets[first - 1], offsets[number] - 1),
            )
        elif _STARTS.match(line) and (statements := _annotated(line, scope)) is not None:
            _add(taken, statements, _stripped(line, offsets[number - 1]))
        elif not _COMMENT.fullmatch(line):
            taken.unread.append(number)
    return taken


def _rules(lines: list[str], first: int, last: int, scope: str | None) -> Taken:
    """Return the statements of lines with `:-`, which must be valid rules: an error names its line."""
    source = "\n".join(lines[first - 1 : last])
    try:
        statements = _strictly(source if _FULL_STOP.search(source) else source + ".", scope)
    except KBError:
        statements = _strictly("\n" * (first - 1) + source, scope)
    return Taken(unread=list(range(first, last + 1))) if statements is None else statements


def _annotated(line: str, scope: str | None) -> Taken | None:
    """Return the facts of a line in the rule language, possibly several or with annotations."""
    try:
        return _strictly(line if _FULL_STOP.search(line) else line + ".", scope)
    except KBError:
        return None


def _stripped(line: str, offset: int) -> Span:
    """Return the span of a line without blanks around it."""
    start = offset + len(line) - len(line.lstrip())
    return start, start + len(line.strip())


def _add(taken: Taken, statements: Taken, span: Span) -> None:
    for fact in statements.facts:
        taken.place(fact, span)
    taken.facts += statements.facts
    taken.rules += statements.rules
    taken.unread += statements.unread
