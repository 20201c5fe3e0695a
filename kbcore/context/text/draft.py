"""Text of a window under construction, with its size known after every step.

The same code writes and measures the text, so a budget includes headings, notes and rules.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from kbcore.context.request import DAY, MINUTE
from kbcore.context.text.memories import HAPPENED, SAID, SaidText, memory_of, quotation
from kbcore.context.text.notes import notes_of
from kbcore.context.text.phrases import NO_TEMPLATES, Templates
from kbplanner.ir.terms import Atom
from kbtypes.windows import Entry, GoalNote, RuleInSet, SpanKey

MAX_CITED = 3
"""Sources cited for one stored fact: further ones say little more."""

MAX_CITED_PREMISES = 8
"""Sources cited for one conclusion, which cites those of the facts it depends on."""

Quote = Callable[[SpanKey], SaidText | None]
"""The text of a source that is written as a footnote; None: the text has only its number."""

TemplatesOf = Callable[[str | None], Templates]
"""The declared phrases that are used in a partition."""


def no_templates(scope: str | None) -> Templates:
    """Return no phrases."""
    return NO_TEMPLATES


Item = Entry | GoalNote | str
"""A part of a window: an entry, a note about a goal, or a rule as text."""

Key = tuple[object, ...]
"""Name of a block: its kind, then what tells it from others of the kind."""


@dataclass(slots=True)
class TextBlock:
    """One line or one group of lines of the text.

    `pieces` are written one after another between `head` and `tail`. `scope` is the part that is
    written only when the text has entries of several scopes, and `title` the part that is written
    only when the text has several groups of facts.
    """

    head: str
    tail: str
    scope: str = ""
    title: str = ""
    pieces: list[str] = field(default_factory=list)
    named: bool = False


class Piece(NamedTuple):
    """A part of an item: its block, new or known by `key`, and whether it names the subject of the
    block.
    """

    key: Key
    block: TextBlock
    text: str = ""
    names: bool = False


class _Added(NamedTuple):
    """A piece that was added, with the data to undo the step."""

    key: Key
    is_new: bool
    names: bool


@dataclass(slots=True)
class _Step:
    """The changes of a single call of `add`; `revised` has the earlier text of changed lines."""

    item: Item
    cited: list[int] = field(default_factory=list)
    new_sources: int = 0
    units: int = 0
    scope_units: int = 0
    title_units: int = 0
    titles: int = 0
    added: list[_Added] = field(default_factory=list)
    revised: list[tuple[TextBlock, str]] = field(default_factory=list)


def set_notes(rule_sets: Iterable[RuleInSet]) -> dict[str, str]:
    """Return the names and versions of the rule sets of rules as text, by the text of the rule."""
    notes: dict[str, str] = {}
    for each in rule_sets:
        note = f"{each.name} version {each.version}"
        notes[each.rule] = f"{notes[each.rule]}, {note}" if each.rule in notes else note
    return notes


class Draft(ABC):
    """A text to which items are added and from which the last ones can be removed.

    `units` measures a piece of text. `goal_driven` is True if entries were selected for goals. With
    `quote`, facts with evidence are followed by the numbers of their sources, which end the text
    as far as `quote` returns them. With `numbers`, conclusions may refer to other facts of the text
    by number. `times` is DAY or MINUTE. `remark` is noted at each entry, and
    `rule_sets` at the rules that belong to any, by text.
    """

    comment = ""
    """What begins a line that is no fact."""

    def __init__(
        self,
        units: Callable[[str], int] = len,
        *,
        goal_driven: bool = False,
        templates: TemplatesOf = no_templates,
        quote: Quote | None = None,
        numbers: bool = True,
        times: str = DAY,
    ) -> None:
        self._units = units
        self._quote = quote
        self._numbers = numbers
        self._minute = times == MINUTE
        self.remark = ""
        self.rule_sets: Mapping[str, str] = {}
        self._sources: dict[SpanKey, int] = {}
        self._templates = templates
        self._goal_driven = goal_driven
        self._blocks: dict[Key, TextBlock] = {}
        self._scopes: Counter[str | None] = Counter()
        self._steps: list[_Step] = []
        self._step = _Step("")
        self._size = 0
        self._scope_size = 0
        self._title_size = 0
        self._titles = 0
        self._prepare()

    @property
    def size(self) -> int:
        """The units of all pieces; at least the length of the text where units are characters."""
        scopes = self._scope_size if len(self._scopes) > 1 else 0
        return self._size + scopes + (self._title_size if self._titles > 1 else 0)

    @property
    def items(self) -> list[Item]:
        """The entries, notes and rules, in the order in which they were added."""
        return [step.item for step in self._steps]

    @property
    def citations(self) -> list[list[int]]:
        """The numbers of the sources of each entry, in the order of the entries."""
        return [step.cited for step in self._steps if isinstance(step.item, Entry)]

    @property
    def sources(self) -> list[SpanKey]:
        """The cited spans, in the order of their numbers, which begin at 1."""
        return list(self._sources)

    def add(self, item: Item) -> None:
        """Add an entry, a note about a goal, or a rule as text."""
        step = self._step = _Step(item)
        known_sources = len(self._sources)
        step.cited = self._numbers_of(item)
        step.new_sources = len(self._sources) - known_sources
        pieces = chain(self._pieces(item), self._footnotes(item))
        for key, new, text, names in pieces:
            block = self._blocks.setdefault(key, new)
            if block is new:
                step.units += self._units(new.head + text + new.tail)
                step.scope_units += self._units(new.scope) if new.scope else 0
                step.title_units += self._units(new.title) if new.title else 0
                step.titles += key[0] == "title"
            else:
                step.units += self._units(text)
            block.pieces.append(text)
            block.named = block.named or names
            step.added.append(_Added(key, block is new, names))
        if isinstance(item, Entry):
            self._scopes[item.scope] += 1
        self._count(step, 1)
        self._steps.append(step)

    def min_size(self, entry: Entry) -> int:
        """Return a lower bound of the characters that an entry would add to the text.

        This takes much less time than `add`; 0 if nothing is known.
        """
        if entry.provenance is not None or (self._quote is not None and self._memory(entry)):
            return 0  # a text that is in the window needs no footnote
        return self._min_size(entry)

    def pop(self) -> Item:
        """Remove the item added last, and return it."""
        step = self._steps.pop()
        for _ in range(step.new_sources):
            self._sources.popitem()
        for block, text in reversed(step.revised):
            block.pieces[-1] = text
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
        self._count(step, -1)
        self._forget(step.item)
        return step.item

    def text(self, *, scoped: bool = False) -> str:
        """Return the text without a final line break; empty if nothing was added.

        Scopes are named if there are several, and always with `scoped`.
        """
        scoped = scoped or len(self._scopes) > 1
        blocks = chain(self._ordered(), self._last_blocks())
        return "".join(self._written(block, scoped) for block in blocks).removesuffix("\n")

    def _notes(self, entry: Entry) -> list[str]:
        """Return the notes about an entry."""
        remark = [self.remark] if self.remark else []
        is_event = (entry.predicate, len(entry.args)) == (HAPPENED, 4)
        is_dated = is_event or self._memory(entry) is not None
        return [*remark, *notes_of(entry, self._time_text, dated=is_dated)]

    def _memory(self, entry: Entry) -> SaidText | None:
        """Return the text that an entry says was said; None for other entries."""
        if entry.predicate != SAID or entry.negated:
            return None
        memory = memory_of(Atom(entry.predicate, entry.args))
        if memory is None or entry.excerpt is None:
            return memory
        return memory._replace(text=entry.excerpt)

    @abstractmethod
    def _time_text(self, at: int) -> str:
        """Return a time in epoch milliseconds as text."""

    @abstractmethod
    def _prepare(self) -> None:
        """Create what the format records about items."""

    @abstractmethod
    def _pieces(self, item: Item) -> Iterator[Piece]:
        """Yield the pieces of an item."""

    @abstractmethod
    def _forget(self, item: Item) -> None:
        """Undo what `_pieces` recorded about an item; called for the item added last."""

    @abstractmethod
    def _min_size(self, entry: Entry) -> int:
        """Return a lower bound of the characters that an entry without provenance would add."""

    @abstractmethod
    def _ordered(self) -> Iterator[TextBlock]:
        """Yield the blocks in the order in which they are written."""

    def _revise(self, block: TextBlock, text: str) -> None:
        """Replace the only piece of a block that an earlier step added."""
        before = block.pieces[-1]
        block.pieces[-1] = text
        self._step.revised.append((block, before))
        self._step.units += self._units(text) - self._units(before)

    def _count(self, step: _Step, sign: int) -> None:
        self._size += sign * step.units
        self._scope_size += sign * step.scope_units
        self._title_size += sign * step.title_units
        self._titles += sign * step.titles

    def _numbers_of(self, item: Item) -> list[int]:
        """Return the numbers of the sources of an entry."""
        if self._quote is None or not isinstance(item, Entry):
            return []
        most = MAX_CITED if item.provenance is None else MAX_CITED_PREMISES
        spans = item.evidence[:most]
        return [self._sources.setdefault(span, len(self._sources) + 1) for span in spans]

    def _footnotes(self, item: Item) -> Iterator[Piece]:
        """Yield the sources that an entry is the first to cite; none is a text of the window."""
        if self._quote is None or not isinstance(item, Entry):
            return
        memory, cited = self._memory(item), self._step.cited
        own = "" if memory is None else quotation(memory, minute=self._minute)
        first_new = len(self._sources) - self._step.new_sources + 1
        for span, number in zip(item.evidence, cited, strict=False):
            source, key = self._quote(span), ("source", number)
            text = "" if source is None else quotation(source, minute=self._minute)
            known = self._blocks.get(key)
            is_own = text == own or item.excerpt is not None
            if known is not None and is_own:
                self._revise(known, "")
            elif number >= first_new and known is None and text and not is_own:
                yield Piece(key, TextBlock("", ""), f"{self.comment}[{number}] {text}\n")

    def _last_blocks(self) -> Iterator[TextBlock]:
        """Yield the blocks of the footnotes."""
        return (block for key, block in self._blocks.items() if key[0] == "source")

    def _written(self, block: TextBlock, scoped: bool) -> str:
        title = block.title if self._titles > 1 else ""
        return (
            title
            + (block.scope if scoped else "")
            + block.head
            + "".join(block.pieces)
            + block.tail
        )
