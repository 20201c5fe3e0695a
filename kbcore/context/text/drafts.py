"""Text of a window under construction, with its size known after every step.

The same code writes and measures the text, so a budget includes headings, notes and rules. There
are two formats: facts in the rule language, and natural text, with a line for each subject (the
first argument). A sentence never mixes the two: what cannot be said well stays a line of notation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from kbcore.context.request import NATURAL
from kbcore.context.text.phrases import (
    NO_TEMPLATES,
    Templates,
    clause_of,
    reason_text,
    rule_phrase,
    sentence,
)
from kbcore.context.window import Entry, SpanKey
from kbcore.state.memory.quoting import marks
from kbplanner.ir.terms import Atom
from kbplanner.syntax.printer import print_atom, print_constant

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_YEAR_1, _YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999
"""The epoch milliseconds that have a date in the usual form."""

MAX_CITED = 3
"""Sources cited for one fact: further ones say little more."""

CONTRADICTED = "contradicted: the opposite is known too"
"""The note at an entry whose opposite is stored or derivable."""

TemplatesOf = Callable[[str | None], Templates]
"""The declared phrases that are used in a partition."""


def no_templates(scope: str | None) -> Templates:
    """Return no phrases."""
    return NO_TEMPLATES


Key = tuple[object, ...]
"""Name of a block: its kind, then what tells it from others of the kind."""


@dataclass(slots=True)
class Block:
    """One line or one group of lines of the text.

    `pieces` are written one after another between `head` and `tail`. `scope` is the part that is
    written only when the text has entries of several scopes.
    """

    head: str
    tail: str
    scope: str = ""
    pieces: list[str] = field(default_factory=list)
    named: bool = False


class Piece(NamedTuple):
    """A part of an entry or rule: its block, new or known by `key`, and whether it names the
    subject of the block.
    """

    key: Key
    block: Block
    text: str = ""
    names: bool = False


class _Added(NamedTuple):
    """A piece that was added, with the data to undo the step."""

    key: Key
    is_new: bool
    names: bool


class _Step(NamedTuple):
    """The changes of a single call of `add`."""

    item: Entry | str
    cited: list[int]
    new_sources: int
    units: int
    scope_units: int
    added: list[_Added]


class Draft(ABC):
    """A text to which entries and rules are added and from which the last ones can be removed.

    `units` measures a piece of text. `resolved` is True if the losing side of each contradiction
    was left out, `goal_driven` if entries were selected for goals. With `cites`, facts with evidence
    are followed by the numbers of their sources.
    """

    def __init__(
        self,
        units: Callable[[str], int] = len,
        *,
        resolved: bool = True,
        goal_driven: bool = False,
        templates: TemplatesOf = no_templates,
        cites: bool = False,
    ) -> None:
        self._units = units
        self._cites = cites
        self._sources: dict[SpanKey, int] = {}
        self._cited: list[int] = []
        self._templates = templates
        self._resolved = resolved
        self._goal_driven = goal_driven
        self._blocks: dict[Key, Block] = {}
        self._scopes: Counter[str | None] = Counter()
        self._steps: list[_Step] = []
        self._size = 0
        self._scope_size = 0

    @property
    def size(self) -> int:
        """The units of all pieces; at least the length of the text where units are characters."""
        return self._size + (self._scope_size if len(self._scopes) > 1 else 0)

    @property
    def items(self) -> list[Entry | str]:
        """The entries and the texts of rules, in the order in which they were added."""
        return [step.item for step in self._steps]

    @property
    def citations(self) -> list[list[int]]:
        """The numbers of the sources of each entry, in the order of the entries."""
        return [step.cited for step in self._steps if isinstance(step.item, Entry)]

    @property
    def sources(self) -> list[SpanKey]:
        """The cited spans, in the order of their numbers, which begin at 1."""
        return list(self._sources)

    def add(self, item: Entry | str) -> None:
        """Add an entry, or a rule as text."""
        units = scope_units = 0
        added: list[_Added] = []
        known_sources = len(self._sources)
        self._cited = self._numbers_of(item)
        for key, new, text, names in self._pieces(item):
            block = self._blocks.setdefault(key, new)
            if block is new:
                units += self._units(new.head + text + new.tail)
                scope_units += self._units(new.scope) if new.scope else 0
            else:
                units += self._units(text)
            block.pieces.append(text)
            block.named = block.named or names
            added.append(_Added(key, block is new, names))
        if isinstance(item, Entry):
            self._scopes[item.scope] += 1
        self._size += units
        self._scope_size += scope_units
        new_sources = len(self._sources) - known_sources
        self._steps.append(_Step(item, self._cited, new_sources, units, scope_units, added))

    def pop(self) -> Entry | str:
        """Remove the item added last, and return it."""
        step = self._steps.pop()
        for _ in range(step.new_sources):
            self._sources.popitem()
        for key, is_new, names in reversed(step.added):
            block = self._blocks[key]
            block.pieces.pop()
            if names:
                block.named = False
            if is_new:
                del self._blocks[key]
        if isinstance(step.item, Entry):
            self._scopes[step.item.scope] -= 1
            if not self._scopes[step.item.scope]:
                del self._scopes[step.item.scope]
        self._size -= step.units
        self._scope_size -= step.scope_units
        return step.item

    def _numbers_of(self, item: Entry | str) -> list[int]:
        """Return the numbers of the sources of an entry, at most MAX_CITED."""
        if not self._cites or isinstance(item, str):
            return []
        spans = item.evidence[:MAX_CITED]
        return [self._sources.setdefault(span, len(self._sources) + 1) for span in spans]

    def text(self, *, scoped: bool = False) -> str:
        """Return the text without a final line break; empty if nothing was added.

        Scopes are named if there are several, and always with `scoped`.
        """
        scoped = scoped or len(self._scopes) > 1
        return "".join(self._written(block, scoped) for block in self._ordered()).removesuffix("\n")

    @abstractmethod
    def _pieces(self, item: Entry | str) -> Iterator[Piece]:
        """Yield the pieces of an entry or of a rule."""

    @abstractmethod
    def _ordered(self) -> Iterator[Block]:
        """Yield the blocks in the order in which they are written."""

    def _written(self, block: Block, scoped: bool) -> str:
        return (block.scope if scoped else "") + block.head + "".join(block.pieces) + block.tail


class NaturalDraft(Draft):
    """Natural text: lines of subjects, then facts without a good sentence in the notation of the
    rule language, then unresolved contradictions, then rules.
    """

    def _pieces(self, item: Entry | str) -> Iterator[Piece]:
        if isinstance(item, str):
            phrase = rule_phrase(item, self._templates(None))
            block = Block("Rule: ", "\n" if phrase is None else ".\n")
            yield Piece(("rule", item), block, phrase or item)
            return
        templates = self._templates(item.scope)
        atom = Atom(item.predicate, item.args, not item.negated)
        clause, reason = clause_of(atom, templates), reason_text(_premises(item), templates)
        if clause is None or reason is None:
            yield _notation(("fact", len(self._steps)), item, self._cited)
        else:
            yield self._sentence(item, clause, reason)
        both = ("contradiction", item.predicate, item.args)
        if item.contradicted and not self._resolved and both not in self._blocks:
            known = Atom(item.predicate, item.args)
            clause_text = sentence(known, templates)
            if clause_text is None:
                clash = f"{print_atom(known)} and {print_atom(replace(known, positive=False))}"
                yield Piece(both, Block("% Contradiction, unresolved: ", "\n"), clash)
            else:
                clash = f"both that {clause_text} and the opposite"
                yield Piece(both, Block("Contradiction, unresolved: ", ".\n"), clash)

    def _sentence(self, item: Entry, clause: tuple[str, str], reason: str) -> Piece:
        """Return an entry as a clause of the line about its subject, which the line names once.

        An entry with a reason has a line of its own: what follows would read as part of the reason.
        """
        subject, predicate = clause
        key: Key = ("subject", item.scope, item.args[0] if item.args else "")
        if reason:
            key = (*key, len(self._steps))
        known = self._blocks.get(key)
        named = known is not None and known.named
        if subject and not named:
            predicate = f"{subject} {predicate}"
        notes = ", ".join(_notes(item))
        text = f"{'' if known is None else '; '}{predicate}{f' ({notes})' if notes else ''}"
        text += marks(self._cited) + reason
        scope = "In base: " if item.scope is None else f"In {print_constant(item.scope)}: "
        return Piece(key, Block("", ".\n", scope), text, names=bool(subject) and not named)

    def _ordered(self) -> Iterator[Block]:
        for kind in ("subject", "fact", "contradiction", "rule"):
            yield from (block for key, block in self._blocks.items() if key[0] == kind)


class FactsDraft(Draft):
    """Facts and rules in the rule language, grouped by goal and scope; all other text is in
    comments.

    The text without its comments is a program that parses to the same facts and rules.
    """

    def _pieces(self, item: Entry | str) -> Iterator[Piece]:
        headed = self._goal_driven
        if isinstance(item, str):
            if headed and ("rules",) not in self._blocks:
                yield Piece(("rules",), Block("% Rules\n", ""))
            yield Piece(("rule", item), Block("", "\n"), item)
            return
        goal, scope = ("goal", item.goal), ("scope", item.goal, item.scope)
        if headed and goal not in self._blocks:
            yield Piece(
                goal,
                Block("% Other facts\n" if item.goal is None else f"% Goal: {item.goal}\n", ""),
            )
        if scope not in self._blocks:
            yield Piece(scope, Block("", "", _scope_heading(item)))
        yield _notation(("fact", *scope[1:], len(self._steps)), item, self._cited, headed=False)

    def _ordered(self) -> Iterator[Block]:
        groups: dict[object, dict[object, list[Block]]] = {}
        rules: list[Block] = []
        for key, block in self._blocks.items():
            if key[0] in ("rule", "rules"):
                rules.append(block)
            else:  # the heading of a goal comes before its first scope
                groups.setdefault(key[1], {}).setdefault(
                    key[2] if len(key) > 2 else key, []
                ).append(block)
        for scopes in groups.values():
            for blocks in scopes.values():
                yield from blocks
        yield from rules


def draft_for(
    name: str,
    units: Callable[[str], int] = len,
    *,
    resolved: bool = True,
    goal_driven: bool = False,
    templates: TemplatesOf = no_templates,
    cites: bool = False,
) -> Draft:
    """Return an empty draft in a format; `structured` is measured as the text of `facts`."""
    kind = NaturalDraft if name == NATURAL else FactsDraft
    return kind(units, resolved=resolved, goal_driven=goal_driven, templates=templates, cites=cites)


def _notation(key: Key, entry: Entry, cited: Sequence[int], *, headed: bool = True) -> Piece:
    """Return an entry in the rule language, with its notes in a comment.

    With `headed` the line comes after the name of its scope where the text has several.
    """
    notes = [*_notes(entry)]
    if entry.provenance is not None:
        premises = _premises(entry)
        notes.append(f"because {', '.join(premises) or entry.provenance.rule}")
    remark = "; ".join(notes) + marks(cited)
    comment = f"  % {remark.strip()}" if remark else ""
    block = Block("", "\n", _scope_heading(entry) if headed else "")
    return Piece(key, block, f"{entry.text}.{comment}")


def _scope_heading(entry: Entry) -> str:
    return "% Base\n" if entry.scope is None else f"% Scope {print_constant(entry.scope)}\n"


def _premises(entry: Entry) -> tuple[str, ...]:
    """Return the premises of an entry, each once."""
    return () if entry.provenance is None else tuple(dict.fromkeys(entry.provenance.premises))


def moment_text(at: int) -> str:
    """Return an instant (epoch milliseconds) in the shortest exact form: `2026-11-21`,
    `2026-11-21T12:30Z`.
    """
    if not _YEAR_1 <= at <= _YEAR_9999:
        return f"epoch millisecond {at}"
    when = _EPOCH + timedelta(milliseconds=at)
    if at % 86_400_000 == 0:
        return when.date().isoformat()
    spec = "minutes" if at % 60_000 == 0 else "seconds" if at % 1000 == 0 else "milliseconds"
    return when.isoformat(timespec=spec).removesuffix("+00:00") + "Z"


def _notes(entry: Entry) -> Iterator[str]:
    if entry.valid_from is not None and entry.created_at and entry.valid_from != entry.created_at:
        yield f"since {moment_text(entry.valid_from)}"
    if entry.valid_until is not None:
        yield f"until {moment_text(entry.valid_until)}"
    if entry.confidence is not None:
        yield f"confidence {entry.confidence:.3g}"
    if entry.contradicted:
        yield CONTRADICTED
