"""Reader for facts and rules in text written by people and models, without calling a model.

A text in the rule language is parsed as such. Any other text is read line by line: a line is a fact
in predicate syntax, starts a rule that ends at its full stop, or is prose, whose line number is
recorded. A single word is prose, although the rule language would read it as a fact without
arguments: "Yes." states no fact.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from kbcore.errors import InvalidInput
from kbcore.language.chunks import parts
from kbcore.language.files import batches
from kbcore.language.lenient import read_line
from kbcore.language.messages import Passage, Span, Transcript
from kbcore.state.facts import Fact
from kbcore.timestamps import iso_text
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom
from kbplanner.pacing import YieldNow, let_go, lines_of, paced
from kbplanner.passes.check import check_fact
from kbplanner.syntax.parser import parse_stream
from kbplanner.syntax.statements import Statement

_COMMENT = re.compile(r"\s*(?:%|#|//).*|\s*")
_STARTS = re.compile(r"\s*(?:@|~|not\s+)?[\w'\"][^\s(]*\(")
_FULL_STOP = re.compile(r"\.\s*(?:(?:%|#|//)[^.]*)?$")

EPISODE = "said"
"""Predicate of prose that is stored as it is: `said(speaker, text, when)`."""

PART_CHARS = 800
"""Characters of a part of a long text that is kept as one fact: about 200 tokens."""

LINES_PER_YIELD = 100
FACTS_PER_YIELD = 1000
"""Lines and facts read between two calls of `yield_now`: about a millisecond."""


SignedAtom = tuple[str, tuple[str, ...], bool]
"""Predicate, arguments and sign of a fact."""


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

    def let_go(self, yield_now: YieldNow) -> None:
        """Forget what was taken."""
        for part in (self.facts, self.rules, self.spans):
            let_go(part, yield_now)


def read_statements_of(
    text: str, scope: str | None, yield_now: YieldNow, *, with_rules: bool = True
) -> Taken:
    """Read a text whose facts and rules belong to one scope; `yield_now` is called about once a
    millisecond.

    Without `with_rules`, rules and declarations are prose like any other line. Raises InvalidInput
    and RuleSyntaxError for a rule that cannot be read, a fact beyond the limits, or a statement
    that names another scope; the caller must then store none of the text.
    """
    known = _Known()
    lines = lines_of(text, yield_now)
    offsets = offsets_of(lines, yield_now)
    taken = _whole(text, offsets, scope, known, yield_now)
    if taken is not None and taken.rules and not with_rules:
        taken.let_go(yield_now)
        taken = None
    if taken is None:
        taken = _by_line(lines, offsets, scope, known, yield_now, with_rules=with_rules)
    known.let_go(yield_now)
    facts = taken.facts
    for other in {each.scope for each in paced((*facts, *taken.rules), yield_now, FACTS_PER_YIELD)}:
        if other != scope:
            raise InvalidInput.at(
                "text", f"a statement names the scope {other!r}, which is not that of the request"
            )
    unique = {
        (fact.predicate, fact.args, fact.positive): fact
        for fact in paced(facts, yield_now, FACTS_PER_YIELD)
    }
    taken.facts = list(unique.values())
    let_go(unique, yield_now)
    return taken


def as_prose(text: str, yield_now: YieldNow) -> Taken:
    """Return a text of which no line is read as a fact or a rule."""
    lines = lines_of(text, yield_now)
    numbered = enumerate(paced(lines, yield_now, LINES_PER_YIELD), 1)
    return Taken(unread=[number for number, line in numbered if line.strip()])


def offsets_of(lines: Sequence[str], yield_now: YieldNow) -> list[int]:
    """Return where each line of a text begins, and where one after the last would."""
    return [0, *accumulate(len(line) + 1 for line in paced(lines, yield_now))]


def said_in(
    transcript: Transcript,
    unread: Sequence[int],
    scope: str | None,
    now: int,
    yield_now: YieldNow,
) -> Iterator[tuple[Fact, Span]]:
    """Yield prose as facts `said(speaker, text, when)` with their spans.

    `unread` are the numbers of the lines of prose. A run of consecutive lines of one passage is a
    fact, and several if it is long: it is cut between sentences. `when` is the time of the passage,
    by default `now`, in epoch milliseconds. Raises InvalidInput that names the line.
    """
    text = transcript.text
    offsets = offsets_of(lines_of(text, yield_now), yield_now)
    for first, last in _runs(transcript, unread, offsets, yield_now):
        start, end = offsets[first - 1], offsets[last] - 1
        passage = transcript.passage(start)
        when = _when(now if passage.at is None else passage.at)
        for low, high in parts(text, max(start, passage.words), end, PART_CHARS, yield_now):
            words = "\n".join(map(str.strip, text[low:high].split("\n"))).strip()
            if words:
                fact = _said((passage.speaker, words, when), scope, first)
                yield fact, _stripped(text[low:high], low)


def _when(at: int) -> str:
    try:
        return iso_text(at)
    except OverflowError:
        raise InvalidInput.at("at", f"must be in the years 1 to 9999, found {at}") from None


def _runs(
    transcript: Transcript, unread: Sequence[int], offsets: Sequence[int], yield_now: YieldNow
) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each run of consecutive lines of one passage."""
    first = last = 0
    passage: Passage | None = None
    for number in paced(unread, yield_now, LINES_PER_YIELD):
        own = transcript.passage(offsets[number - 1])
        if number != last + 1 or own is not passage:
            if first:
                yield first, last
            first, passage = number, own
        last = number
    if first:
        yield first, last


def _said(args: tuple[str, ...], scope: str | None, line: int) -> Fact:
    try:
        check_fact(Atom(EPISODE, args))
    except InvalidInput as error:
        raise InvalidInput.at("text", f"line {line}: {error.message}") from None
    return Fact(EPISODE, args, True, scope, metadata={"episode": True})


def _whole(
    text: str, offsets: Sequence[int], scope: str | None, known: _Known, yield_now: YieldNow
) -> Taken | None:
    """Return the statements of a text in the rule language; None if it is not, or has only words or
    queries.

    Reading ends at the first error. The statements before it are noted in `known`.
    """
    statements = known.noted(parse_stream((text,), yield_now=yield_now, explained=False))
    taken = Taken()
    try:
        is_whole = _take(taken, offsets, statements, scope, yield_now)
    except InvalidInput:
        is_whole = False
    if is_whole and (taken.rules or all(fact.args for fact in paced(taken.facts, yield_now))):
        return taken
    taken.let_go(yield_now)
    return None


def _strictly(text: str, scope: str | None, yield_now: YieldNow) -> Taken | None:
    return _unplaced(parse_stream((text,), yield_now=yield_now), scope, yield_now)


def _take(
    taken: Taken,
    offsets: Sequence[int],
    statements: Iterable[Statement],
    scope: str | None,
    yield_now: YieldNow,
) -> bool:
    """Take the facts and rules of the statements of a text, whose lines begin at `offsets`; return
    False if it has queries.
    """
    for batch in batches(statements, scope, yield_now):
        if batch.goals:
            return False
        taken.facts += batch.facts
        taken.rules += batch.rules
        placed = zip(batch.facts, batch.spans, strict=True)
        for fact, span in paced(placed, yield_now, FACTS_PER_YIELD):
            start = offsets[span.line - 1] + span.column - 1
            taken.place(fact, (start, offsets[span.end_line - 1] + span.end_column - 1))
    return True


def _unplaced(
    statements: Iterable[Statement], scope: str | None, yield_now: YieldNow
) -> Taken | None:
    """Return facts and rules as `_taken` does, without the places of the facts."""
    taken = Taken()
    for batch in batches(statements, scope, yield_now):
        if batch.goals:
            return None
        taken.facts += batch.facts
        taken.rules += batch.rules
    return taken


@dataclass(slots=True)
class _Known:
    """Statements that were read before the first error of a text, so that none is read again."""

    _statements: list[Statement] = field(default_factory=list)
    _lines: list[int] = field(default_factory=list)

    def noted(self, statements: Iterable[Statement]) -> Iterator[Statement]:
        """Yield statements in their order, and note them."""
        for statement in statements:
            self._statements.append(statement)
            self._lines.append(statement.span.line)
            yield statement

    def let_go(self, yield_now: YieldNow) -> None:
        """Forget the statements."""
        let_go(self._statements, yield_now)

    def of_lines(self, first: int, last: int) -> list[Statement]:
        """Return the statements of whole lines; none if they are not all that the lines have."""
        start, end = bisect_left(self._lines, first), bisect_right(self._lines, last)
        own = self._statements[start:end]
        is_cut = start > 0 and self._statements[start - 1].span.end_line >= first
        return [] if is_cut or not own or own[-1].span.end_line != last else own


def _by_line(
    lines: list[str],
    offsets: Sequence[int],
    scope: str | None,
    known: _Known,
    yield_now: YieldNow,
    *,
    with_rules: bool,
) -> Taken:
    taken = Taken()
    numbered = enumerate(paced(lines, yield_now, LINES_PER_YIELD), 1)
    for number, line in numbered:
        atom = read_line(line, yield_now)
        if atom is not None and not any(arg.startswith("?") for arg in atom.args):  # type: ignore[union-attr]
            try:
                check_fact(atom)
            except InvalidInput as error:
                raise InvalidInput.at("text", f"line {number}: {error.message}") from None
            args = tuple(arg for arg in atom.args if isinstance(arg, str))
            taken.facts.append(Fact(atom.predicate, args, atom.positive, scope))
            taken.place(taken.facts[-1], _stripped(line, offsets[number - 1]))
        elif with_rules and ":-" in line and atom is None:
            first = number
            while not _FULL_STOP.search(line) and number < len(lines) and lines[number].strip():
                number, line = next(numbered)
            _add(
                taken,
                _rules(lines, (first, number), scope, known, yield_now),
                (offsets[first - 1], offsets[number] - 1),
            )
        elif (
            _STARTS.match(line)
            and (statements := _annotated(lines, number, scope, known, yield_now)) is not None
            and (with_rules or not statements.rules)
        ):
            _add(taken, statements, _stripped(line, offsets[number - 1]))
        elif not _COMMENT.fullmatch(line):
            taken.unread.append(number)
    return taken


def _rules(
    lines: list[str],
    numbers: tuple[int, int],
    scope: str | None,
    known: _Known,
    yield_now: YieldNow,
) -> Taken:
    """Return the statements of lines with `:-`, which must be valid rules: an error names its
    line.
    """
    first, last = numbers
    source = "\n".join(lines[first - 1 : last])
    try:
        own = [] if "/*" in source else known.of_lines(first, last)
        if own:
            statements = _unplaced(own, scope, yield_now)
        else:
            statements = _strictly(
                source if _FULL_STOP.search(source) else source + ".", scope, yield_now
            )
    except InvalidInput:
        statements = _strictly("\n" * (first - 1) + source, scope, yield_now)
    return Taken(unread=list(range(first, last + 1))) if statements is None else statements


def _annotated(
    lines: list[str], number: int, scope: str | None, known: _Known, yield_now: YieldNow
) -> Taken | None:
    """Return the facts of a line in the rule language, possibly several or with annotations."""
    line = lines[number - 1]
    try:
        own = [] if "/*" in line else known.of_lines(number, number)
        if own:
            return _unplaced(own, scope, yield_now)
        return _strictly(line if _FULL_STOP.search(line) else line + ".", scope, yield_now)
    except InvalidInput:
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
