"""The two formats of the text of a window: facts in the rule language, and natural text.

Both name a fact once. Facts are grouped by the goal that they were selected for, then those that
match the query, then the others. A sentence never mixes prose and notation: what cannot be said
well stays a line of notation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from kbcore.context.request import NATURAL
from kbcore.context.text.draft import (
    Draft,
    Item,
    Key,
    Piece,
    TemplatesOf,
    TextBlock,
    no_templates,
)
from kbcore.context.text.notes import (
    CONTRADICTED,
    DISPUTED,
    TITLES,
    group_of,
    note_group,
    scope_heading,
    title_of,
)
from kbcore.context.text.phrases import (
    UNKNOWN,
    clause_of,
    is_obvious,
    premise_atom,
    reason_text,
    rule_phrase,
    sentence,
    verb_phrase,
)
from kbcore.context.window import QUERY, UNPROVED, is_absence
from kbcore.state.episodes.quoting import marks
from kbplanner.ir.terms import Atom
from kbplanner.syntax.printer import print_atom, print_constant
from kbtypes.windows import Entry, GoalNote, Provenance

MAX_NAMED = 20
"""Premises that the reason of a conclusion names, such as the facts of a sum."""

_FactKey = tuple[str | None, str]
"""Scope and signed text of a fact."""


class NaturalDraft(Draft):
    """Natural text: lines of subjects, each followed by the facts about it without a good sentence
    in the notation of the rule language, then unresolved contradictions, then rules.

    A stored fact that a reason before it has named has no line of its own.
    """

    def _prepare(self) -> None:
        self._named: dict[_FactKey, list[frozenset[int]]] = {}

    def _pieces(self, item: Item) -> Iterator[Piece]:
        if isinstance(item, str):
            phrase = rule_phrase(item, self._templates(None))
            block = TextBlock("Rule: ", "\n" if phrase is None else ".\n")
            yield Piece(("rule", item), block, phrase or item)
            return
        if isinstance(item, GoalNote):
            group = note_group(item)
            yield from self._titled(group)
            for kind, text in self._remarks(item):
                yield Piece(("note", group, kind), TextBlock("", "\n"), text)
            return
        cited = self._step.cited
        if self._is_named(item):
            return
        premises = _premises(item)
        for premise in premises:
            self._named.setdefault((item.scope, premise), []).append(frozenset(cited))
        templates = self._templates(item.scope)
        atom = Atom(item.predicate, item.args, not item.negated)
        clause: tuple[str, str] | None
        reason: str | None
        if is_absence(item):
            known = sentence(replace(atom, positive=True), templates)
            clause, reason = (None if known is None else ("", f"{UNKNOWN} {known}")), ""
        else:
            clause, reason = clause_of(atom, templates), reason_text(premises, templates)
        group = group_of(item)
        yield from self._titled(group)
        subject = item.args[0] if item.args else ""
        if clause is None or reason is None:
            key = ("fact", group, (item.scope, subject), len(self._steps))
            block = TextBlock("", "\n", scope_heading(item))
            yield Piece(key, block, _notation(item, premises, cited, self._notes(item)))
        else:
            yield self._sentence(item, clause, reason)
        both = ("contradiction", item.predicate, item.args)
        if item.contradicted and not self._resolved and both not in self._blocks:
            known_atom = Atom(item.predicate, item.args)
            clause_text = sentence(known_atom, templates)
            if clause_text is None:
                opposite = print_atom(replace(known_atom, positive=False))
                clash = f"{print_atom(known_atom)} and {opposite}"
                yield Piece(both, TextBlock("% Contradiction, unresolved: ", "\n"), clash)
            else:
                clash = f"both that {clause_text} and the opposite"
                yield Piece(both, TextBlock("Contradiction, unresolved: ", ".\n"), clash)

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
        phrase = verb_phrase(entry.predicate, arity, not entry.negated)
        if phrase is None:
            return _min_line(entry)
        subject, *others = entry.args
        # Printed arguments are at least as long; the last two characters are "; " or ".\n".
        size = len(phrase) + sum(map(len, others)) + len(others) + 2
        if ("subject", group_of(entry), (entry.scope, subject)) not in self._blocks:
            size += len(subject) + 1
        return size

    def _is_named(self, entry: Entry) -> bool:
        """Return whether a reason says all that the line of a fact would say."""
        reasons = self._named.get((entry.scope, entry.signed)) if self._named else None
        if not reasons or entry.provenance is not None or self._notes(entry):
            return False
        return any(reason.issuperset(self._step.cited) for reason in reasons)

    def _titled(self, group: str) -> Iterator[Piece]:
        """Yield the heading of a group; it is written if there are several groups."""
        if ("title", group) in self._blocks:
            return
        title = title_of(group, self._goal_driven, "Goal ")
        yield Piece(("title", group), TextBlock("", "", title=f"{title}:\n" if title else ""))

    def _remarks(self, note: GoalNote) -> Iterator[tuple[str, str]]:
        """Yield what is said about a goal besides its facts."""
        templates, clauses = self._templates(None), list[str]()
        for text in note.elsewhere:
            atom = premise_atom(text)
            clause = None if atom is None else sentence(atom, templates)
            if clause is not None:
                clauses.append(clause)
        if len(clauses) < len(note.elsewhere):  # all in one form
            clauses = list(note.elsewhere)
        for kind, text in _remarks(note, "; ".join(clauses)):
            yield kind, f"{text}."

    def _sentence(self, item: Entry, clause: tuple[str, str], reason: str) -> Piece:
        """Return an entry as a clause of the line about its subject, which the line names once.

        An entry with a reason has a line of its own: what follows would read as part of the reason.
        """
        subject, predicate = clause
        first = item.args[0] if item.args else ""
        key: Key = ("subject", group_of(item), (item.scope, first))
        if reason or is_absence(item):
            key = (*key, len(self._steps))
        known = self._blocks.get(key)
        named = known is not None and known.named
        if subject and not named:
            predicate = f"{subject} {predicate}"
        notes = ", ".join(self._notes(item, CONTRADICTED if self._resolved else DISPUTED))
        text = f"{'' if known is None else '; '}{predicate}{f' ({notes})' if notes else ''}"
        text += reason + (_more(item) if reason else "") + marks(self._step.cited)
        scope = "In base: " if item.scope is None else f"In {print_constant(item.scope)}: "
        return Piece(key, TextBlock("", ".\n", scope), text, names=bool(subject) and not named)

    def _ordered(self) -> Iterator[TextBlock]:
        groups: dict[object, dict[object, list[TextBlock]]] = {}
        for key, block in self._blocks.items():
            if key[0] in ("title", "note"):
                groups.setdefault(key[1], {}).setdefault(None, []).append(block)
            elif key[0] in ("subject", "fact"):
                groups.setdefault(key[1], {}).setdefault(key[2], []).append(block)
        yield from _written_groups(groups)
        for kind in ("contradiction", "rule"):
            yield from (block for key, block in self._blocks.items() if key[0] == kind)


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

    def _prepare(self) -> None:
        self._lines: dict[_FactKey, _Line] = {}
        self._users: dict[_FactKey, list[_Line]] = {}
        self._number: dict[_FactKey, int] = {}
        self._numbered: list[int] = []

    def _pieces(self, item: Item) -> Iterator[Piece]:
        if isinstance(item, str):
            if self._goal_driven and ("rules",) not in self._blocks:
                yield Piece(("rules",), TextBlock("% Rules\n", ""))
            yield Piece(("rule", item), TextBlock("", "\n"), item)
            return
        if isinstance(item, GoalNote):
            group = note_group(item)
            yield from self._titled(group)
            for kind, text in _remarks(item, ", ".join(item.elsewhere)):
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
        if own is not None and is_own:
            notes.insert(0, f"#{own}")
        return _notation(entry, premises, line.cited, notes)

    def _titled(self, group: str) -> Iterator[Piece]:
        if ("title", group) in self._blocks:
            return
        title = title_of(group, self._goal_driven, "Goal: ")
        title = f"% {title}\n" if title else ""
        block = TextBlock(title, "") if self._goal_driven else TextBlock("", "", title=title)
        yield Piece(("title", group), block)

    def _ordered(self) -> Iterator[TextBlock]:
        groups: dict[object, dict[object, list[TextBlock]]] = {}
        rules: list[TextBlock] = []
        for key, block in self._blocks.items():
            if key[0] in ("rule", "rules"):
                rules.append(block)
            else:  # the heading of a group and its notes come before its first scope
                part = None if key[0] in ("title", "note") else key[2]
                groups.setdefault(key[1], {}).setdefault(part, []).append(block)
        yield from _written_groups(groups)
        yield from rules


def draft_for(
    name: str,
    units: Callable[[str], int] = len,
    *,
    resolved: bool = True,
    goal_driven: bool = False,
    templates: TemplatesOf = no_templates,
    cites: bool = False,
    numbers: bool = True,
) -> Draft:
    """Return an empty draft in a format; `structured` is measured as the text of `facts`."""
    kind = NaturalDraft if name == NATURAL else FactsDraft
    return kind(
        units,
        resolved=resolved,
        goal_driven=goal_driven,
        templates=templates,
        cites=cites,
        numbers=numbers,
    )


def _written_groups(groups: dict[object, dict[object, list[TextBlock]]]) -> Iterator[TextBlock]:
    """Yield the blocks of groups: those that were asked for in their order, the others last."""
    for last in (False, True):
        for group, parts in groups.items():
            if (group in TITLES) != last:
                continue
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
    premises = tuple(dict.fromkeys(provenance.signed))
    return tuple(premise for premise in premises if not is_obvious(premise)) or premises


def _remarks(note: GoalNote, elsewhere: str) -> Iterator[tuple[str, str]]:
    """Yield what is said about a goal besides its facts, with a name for each remark."""
    if note.goal == QUERY:
        yield "unanswered", "Nothing relevant to the query is known"
    elif note.denied:
        yield "denied", "This does not hold"
    elif note.unanswered:
        unmet = f". Unmet conditions: {'; or '.join(note.unmet)}" if note.unmet else ""
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
