"""The two formats of the text of a window: facts in the rule language, and natural text.

Both name a fact once. Facts are grouped by the goal that they were selected for, then those that
match the query, then the others. Natural text has no notation of the rule language: a fact without
a good sentence is a label, `ann · parent: bob`, and a text that was said a line with its day.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from kbcore.context.request import DAY, NATURAL
from kbcore.context.text.draft import (
    Draft,
    Item,
    Key,
    Piece,
    Quote,
    TemplatesOf,
    TextBlock,
    no_templates,
)
from kbcore.context.text.memories import HAPPENED, SAID, SaidText, memory_text, without_marks
from kbcore.context.text.notes import (
    day_text,
    goal_of,
    group_of,
    iso_day_text,
    note_group,
    rank_of,
    scope_heading,
    summarized,
    title_of,
)
from kbcore.context.text.phrases import (
    UNKNOWN,
    AtomWords,
    clause_of,
    in_words,
    is_computed,
    is_obvious,
    label_name,
    reason_text,
    rule_phrase,
    unmet_words,
    verb_phrase,
)
from kbcore.context.window import QUERY, UNPROVED, is_absence
from kbcore.state.episodes.quoting import marks
from kbplanner.ir.terms import Atom
from kbplanner.syntax.printer import print_constant
from kbtypes.windows import Entry, GoalNote, Provenance

MAX_NAMED = 20
"""Premises that the reason of a conclusion names, such as the facts of a sum."""

_FactKey = tuple[str | None, str]
"""Scope and signed text of a fact."""


class NaturalDraft(Draft):
    """Natural text: lines of subjects with the facts about each, then texts that were said in the
    order of time, then rules.

    A stored fact that a reason before it has named has no line of its own.
    """

    def _prepare(self) -> None:
        self._named: dict[_FactKey, list[frozenset[int]]] = {}

    def _time_text(self, at: int) -> str:
        return day_text(at, minute=self._minute)

    def _pieces(self, item: Item) -> Iterator[Piece]:
        if isinstance(item, str):
            phrase = rule_phrase(item, self._templates(None))
            if phrase is not None:
                note = self.rule_sets.get(item)
                end = f" ({note}).\n" if note else ".\n"
                yield Piece(("rule", item), TextBlock("Rule: ", end), phrase)
            return
        if isinstance(item, GoalNote):
            group = note_group(item)
            yield from self._titled(group)
            for kind, text in self._remarks(item):
                yield Piece(("note", group, kind), TextBlock("", "\n"), text)
            return
        if self._is_named(item):
            return
        premises = _premises(item)
        for premise in premises:
            self._named.setdefault((item.scope, premise), []).append(frozenset(self._step.cited))
        yield from self._titled(group_of(item))
        memory = self._memory(item)
        yield self._clause(item, premises) if memory is None else self._said(item, memory)

    def _forget(self, item: Item) -> None:
        if isinstance(item, Entry):
            for premise in _premises(item):
                lines = self._named[item.scope, premise]
                lines.pop()
                if not lines:
                    del self._named[item.scope, premise]

    def _min_size(self, entry: Entry) -> int:
        arity = len(entry.args)
        if self._named or (entry.predicate, arity) in self._templates(entry.scope):
            return 0
        if not arity or entry.predicate in (SAID, HAPPENED) or entry.metadata:
            return 0
        phrase = verb_phrase(entry.predicate, arity, not entry.negated)
        subject, *others = entry.args
        # Printed arguments are at least as long. The last character is a line break, or another
        # one between two clauses.
        size = sum(map(len, others)) + len(others) + (1 if phrase is None else len(phrase)) + 1
        is_label = phrase is None
        key = _line_key(entry, print_constant(subject), is_label)
        return size if key in self._blocks else size + len(subject) + 1

    def _is_named(self, entry: Entry) -> bool:
        """Return whether a reason says all that the line of a fact would say."""
        reasons = self._named.get((entry.scope, entry.signed)) if self._named else None
        if not reasons or entry.provenance is not None or self._notes(entry):
            return False
        if self._memory(entry) is not None:
            return False
        return any(reason.issuperset(self._step.cited) for reason in reasons)

    def _memory(self, entry: Entry) -> SaidText | None:
        """Return the text that an entry says was said, unless a declared phrase words it."""
        memory = super()._memory(entry)
        is_worded = memory is not None and (SAID, 3) in self._templates(entry.scope)
        return None if is_worded else memory

    def _titled(self, group: str) -> Iterator[Piece]:
        """Yield the heading of a group; it is written if there are several groups."""
        if ("title", group) in self._blocks:
            return
        goal = goal_of(group)
        if goal is None:
            title = title_of(group, self._goal_driven)
            title = f"{title}:\n" if title else ""
        elif self._goal_driven:
            title = f"Goal: {in_words(goal, self._templates(None))}\n"
        else:  # what the query was taken to mean: not a goal of the request
            title = ""
        yield Piece(("title", group), TextBlock("", "", title=title))

    def _remarks(self, note: GoalNote) -> Iterator[tuple[str, str]]:
        """Yield what is said about a goal besides its facts."""
        templates = self._templates(None)
        unmet = "; and because ".join(unmet_words(text, templates) for text in note.unmet)
        elsewhere = "; ".join(in_words(text, templates) for text in note.elsewhere)
        for kind, text in _remarks(note, f", because {unmet}" if unmet else "", elsewhere):
            yield kind, f"{text}."

    def _clause(self, item: Entry, premises: Sequence[str]) -> Piece:
        """Return an entry as a clause of the line about its subject, which the line names once.

        A clause with a reason has a line of its own, because what follows would read as part of the
        reason; so has a clause that does not begin with its subject.
        """
        templates = self._templates(item.scope)
        is_unknown = is_absence(item)
        atom = Atom(item.predicate, item.args, is_unknown or not item.negated)
        clause = clause_of(atom, templates)
        summary = summarized(item)
        if summary is not None and clause.is_label:
            name, sources = summary
            clause = clause._replace(text=f"{label_name(name)}: {sources} facts (summary)")
        reason = "" if is_unknown else reason_text(premises, templates)
        if is_unknown:
            clause = AtomWords("", f"{UNKNOWN} {clause.whole}", clause.is_label)
        subject = clause.subject or (print_constant(item.args[0]) if item.args else "")
        key = _line_key(item, subject, clause.is_label)
        if reason or not clause.subject:
            key = (*key, len(self._steps))
        known = self._blocks.get(key)
        named = known is not None and known.named
        text = clause.text if named else clause.whole
        text = f"{'' if known is None else '; '}{text}{self._remarked(item)}"
        text = self._marked(text + reason + (_more(item) if reason else ""))
        is_quoted = not clause.subject and text.endswith('"')
        end = "\n" if clause.is_label or is_quoted else ".\n"
        block = TextBlock("", end, _in_scope(item))
        return Piece(key, block, text, names=bool(clause.subject) and not named)

    def _said(self, item: Entry, memory: SaidText) -> Piece:
        """Return a text that was said as a line with its day and speaker."""
        first = item.evidence[0] if item.evidence else ("", 0, 0)
        order = memory.at, first[0], first[1] or 0, len(self._steps)
        key = ("said", group_of(item), (item.scope, None), order)
        text = memory_text(memory, minute=self._minute) + self._remarked(item)
        block = TextBlock("", "\n", _in_scope(item))
        return Piece(key, block, self._marked(text))

    def _marked(self, text: str) -> str:
        """Return a text with the numbers of its sources; nothing else in it looks like one."""
        return text if self._quote is None else without_marks(text) + marks(self._step.cited)

    def _remarked(self, item: Entry) -> str:
        """Return the notes about an entry in parentheses; empty without notes."""
        notes = ", ".join(self._notes(item))
        return f" ({notes})" if notes else ""

    def _ordered(self) -> Iterator[TextBlock]:
        groups: dict[object, dict[object, list[TextBlock]]] = {}
        texts = sorted((key for key in self._blocks if key[0] == "said"), key=_order_of)
        for key, block in self._blocks.items():
            if key[0] in ("title", "note"):
                groups.setdefault(key[1], {}).setdefault(None, []).append(block)
            elif key[0] == "line":
                groups.setdefault(key[1], {}).setdefault(key[2], []).append(block)
            elif key[0] == "said":
                groups.setdefault(key[1], {}).setdefault(key[2], [])
        for key in texts:
            groups[key[1]][key[2]].append(self._blocks[key])
        yield from _written_groups(groups)
        yield from (block for key, block in self._blocks.items() if key[0] == "rule")


def _order_of(key: Key) -> Any:
    """Return what orders the texts of a group: time, then their places in what was said."""
    return key[3]


def _line_key(entry: Entry, subject: str, is_label: bool) -> Key:
    """Return the name of the line about a subject."""
    return "line", group_of(entry), (entry.scope, subject), is_label


def _in_scope(entry: Entry) -> str:
    """Return the words before a line that name its scope."""
    return "In base: " if entry.scope is None else f"In {print_constant(entry.scope)}: "


@dataclass(slots=True, eq=False)
class _Line:
    """An entry in notation and its line."""

    entry: Entry
    cited: Sequence[int]
    block: TextBlock


class FactsDraft(Draft):
    """Facts and rules in the rule language, grouped by goal and scope; all other text is in
    comments.

    The text without its comments is a program that parses to the same facts and rules. A fact that
    a conclusion depends on has a number after `#`, and the comment of the conclusion names it.
    """

    comment = "% "

    def _time_text(self, at: int) -> str:
        return iso_day_text(at, minute=self._minute)

    def _prepare(self) -> None:
        self._lines: dict[_FactKey, _Line] = {}
        self._users: dict[_FactKey, list[_Line]] = {}
        self._number: dict[_FactKey, int] = {}
        self._numbered: list[int] = []

    def _pieces(self, item: Item) -> Iterator[Piece]:
        if isinstance(item, str):
            if self._goal_driven and ("rules",) not in self._blocks:
                yield Piece(("rules",), TextBlock("% Rules\n", ""))
            note = self.rule_sets.get(item)
            end = f"  % {note}\n" if note else "\n"
            yield Piece(("rule", item), TextBlock("", end), item)
            return
        if isinstance(item, GoalNote):
            group = note_group(item)
            yield from self._titled(group)
            unmet = f". Unmet conditions: {'; or '.join(item.unmet)}" if item.unmet else ""
            for kind, text in _remarks(item, unmet, ", ".join(item.elsewhere)):
                yield Piece(("note", group, kind), TextBlock("% ", "\n"), text)
            return
        group = group_of(item)
        yield from self._titled(group)
        scope = ("scope", group, (item.scope,))
        if scope not in self._blocks:
            yield Piece(scope, TextBlock("", "", scope_heading(item)))
        line = _Line(item, self._step.cited, TextBlock("", "\n"))
        changed = self._enter(line)
        yield Piece(
            ("fact", group, (item.scope,), len(self._steps)), line.block, self._written_line(line)
        )
        for other in changed:
            self._revise(other.block, self._written_line(other))

    def _enter(self, line: _Line) -> list[_Line]:
        """Give numbers to the facts that a new line uses, and to its own fact if that is used.

        Returns the earlier lines that change.
        """
        entry, changed, before = line.entry, dict[int, _Line](), len(self._number)
        own = entry.scope, entry.signed
        self._lines.setdefault(own, line)
        if self._numbers:
            if own in self._users and own not in self._number:
                self._number[own] = len(self._number) + 1
                changed.update((id(user), user) for user in self._users[own])
            for premise in _premises(entry):
                key = entry.scope, premise
                self._users.setdefault(key, []).append(line)
                if key in self._lines and key not in self._number and key != own:
                    self._number[key] = len(self._number) + 1
                    used = self._lines[key]
                    changed.update({id(used): used})
                    changed.update((id(user), user) for user in self._users[key])
            changed.pop(id(line), None)
        self._numbered.append(len(self._number) - before)
        return list(changed.values())

    def _forget(self, item: Item) -> None:
        if not isinstance(item, Entry):
            return
        for _ in range(self._numbered.pop()):
            self._number.popitem()
        if self._numbers:
            for premise in _premises(item):
                users = self._users[item.scope, premise]
                users.pop()
                if not users:
                    del self._users[item.scope, premise]
        if self._lines[item.scope, item.signed].entry is item:
            del self._lines[item.scope, item.signed]

    def _min_size(self, entry: Entry) -> int:
        # A fact that gets a number makes the reasons of others shorter.
        return 0 if (entry.scope, entry.signed) in self._users else _min_line(entry)

    def _written_line(self, line: _Line) -> str:
        entry = line.entry
        numbers = [self._number.get((entry.scope, premise)) for premise in _premises(entry)]
        premises = [
            premise if number is None else f"#{number}"
            for premise, number in zip(_premises(entry), numbers, strict=True)
        ]
        own = self._number.get((entry.scope, entry.signed))
        is_own = self._lines.get((entry.scope, entry.signed)) is line
        notes = self._notes(entry)
        if (summary := summarized(entry)) is not None:
            subject = print_constant(entry.args[0]) if entry.args else ""
            name = print_constant(summary[0])
            notes.append(f"summary of {summary[1]} facts {name}({subject}, ...)")
        if own is not None and is_own:
            notes.insert(0, f"#{own}")
        return _notation(entry, premises, line.cited, notes)

    def _titled(self, group: str) -> Iterator[Piece]:
        if ("title", group) in self._blocks:
            return
        goal = goal_of(group)
        title = title_of(group, self._goal_driven) if goal is None else f"Goal: {goal}"
        title = f"% {title}\n" if title else ""
        block = TextBlock(title, "") if self._goal_driven else TextBlock("", "", title=title)
        yield Piece(("title", group), block)

    def _ordered(self) -> Iterator[TextBlock]:
        groups: dict[object, dict[object, list[TextBlock]]] = {}
        rules: list[TextBlock] = []
        for key, block in self._blocks.items():
            if key[0] in ("rule", "rules"):
                rules.append(block)
            elif key[0] != "source":
                # The heading of a group and its notes come before its first scope.
                part = None if key[0] in ("title", "note") else key[2]
                groups.setdefault(key[1], {}).setdefault(part, []).append(block)
        yield from _written_groups(groups)
        yield from rules


def draft_for(
    name: str,
    units: Callable[[str], int] = len,
    *,
    goal_driven: bool = False,
    templates: TemplatesOf = no_templates,
    quote: Quote | None = None,
    numbers: bool = True,
    times: str = DAY,
) -> Draft:
    """Return an empty draft in a format; `structured` is measured as the text of `facts`."""
    kind = NaturalDraft if name == NATURAL else FactsDraft
    return kind(
        units,
        goal_driven=goal_driven,
        templates=templates,
        quote=quote,
        numbers=numbers,
        times=times,
    )


def _written_groups(groups: dict[object, dict[object, list[TextBlock]]]) -> Iterator[TextBlock]:
    """Yield the blocks of groups in the order of a text, equal ones in their own order."""
    for group in sorted(groups, key=rank_of):
        parts = groups[group]
        yield from parts.pop(None, ())
        for blocks in parts.values():
            yield from blocks


def _min_line(entry: Entry) -> int:
    """Return the characters of the line of a stored fact in the rule language, without notes."""
    return len(entry.signed) + len(".\n")


def _notation(entry: Entry, premises: Iterable[str], cited: Sequence[int], notes: list[str]) -> str:
    """Return an entry in the rule language, with its notes in a comment."""
    text = entry.signed
    if is_absence(entry):
        text = entry.text
        notes.append("not known to hold")
    elif entry.provenance is not None and entry.provenance != UNPROVED:
        notes.append(f"because {', '.join(premises) or entry.provenance.rule}{_more(entry)}")
    remark = "; ".join(notes) + marks(cited)
    return f"{text}.{f'  % {remark.strip()}' if remark else ''}"


def _premises(entry: Entry) -> tuple[str, ...]:
    """Return the premises of an entry that its reason names.

    Each is named once, at most MAX_NAMED, without tests that are plain to see.
    """
    return _all_premises(entry)[:MAX_NAMED]


def _more(entry: Entry) -> str:
    """Return the end of the reason of an entry with more premises than are named."""
    more = len(_all_premises(entry)) - MAX_NAMED
    return f" and {more} more" if more > 0 else ""


def _all_premises(entry: Entry) -> tuple[str, ...]:
    return () if entry.provenance is None else _shown_premises(entry.provenance)


@lru_cache(maxsize=1024)
def _shown_premises(provenance: Provenance) -> tuple[str, ...]:
    """Return the premises without tests that call functions, which say how values are computed."""
    premises = tuple(
        dict.fromkeys(
            premise
            for index, premise in enumerate(provenance.signed)
            if index not in provenance.tests or not is_computed(premise)
        )
    )
    return tuple(premise for premise in premises if not is_obvious(premise)) or premises


def _remarks(note: GoalNote, unmet: str, elsewhere: str) -> Iterator[tuple[str, str]]:
    """Yield what is said about a goal besides its facts, with a name for each remark."""
    if note.goal == QUERY:
        yield "unanswered", "Nothing relevant to the query is known"
    elif note.denied:
        yield "denied", "This does not hold"
    elif note.unanswered:
        yield "unanswered", f"No answer is known{unmet}"
    if note.elsewhere:
        more = f", and {note.elsewhere_more} more" if note.elsewhere_more else ""
        yield "elsewhere", f"Also, listed above: {elsewhere}{more}"
    if note.contradicted:
        count = f"{note.contradicted} contradicted answers are"
        if note.contradicted == 1:
            count = "One contradicted answer is"
        yield "contradicted", f"{count} left out"
    if note.unproved:
        yield "unproved", "Premises are left out, because finding them exceeds the limits"
    if note.cut:
        yield "cut", "More answers are left out"
    elif note.maybe_more:
        yield "maybe_more", "There may be more answers"
