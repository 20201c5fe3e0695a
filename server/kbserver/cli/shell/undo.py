"""Undo of what the shell stored: the facts as they were before, and the rules that were new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kbcore.language.dump import definition_text, fact_text, listed_rule
from kbcore.language.files import declaration_of, rule_of
from kbcore.state.rulebook import stored_declaration, stored_rule
from kbplanner.ir.terms import Atom
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.printer import print_atom
from kbplanner.syntax.statements import DeclarationStatement, FactStatement, RuleStatement
from kbserver.cli.shared.target import CommandTarget

MAX_FACTS = 1000
"""Facts of an entry up to which it can be undone: each costs two reads before the write."""

Row = dict[str, Any]
FactKey = tuple[Atom, str | None]
"""An atom without its sign, and a scope."""
RuleKey = tuple[str, str | None]
"""Id and scope of a rule or phrase."""


class ChangeTooLarge(Exception):
    """An entry has too many facts to be undone."""


@dataclass(slots=True)
class UndoChange:
    """Change by an entry of the shell.

    `facts` are the facts that the entry wrote or removed, and `before` the rows with these atoms
    that were stored before. `added` and `removed` are rules and declarations.
    """

    facts: list[FactKey] = field(default_factory=list)
    before: list[Row] = field(default_factory=list)
    added: list[RuleKey] = field(default_factory=list)
    removed: list[Row] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """True if there is nothing to undo."""
        return not (self.facts or self.added or self.removed)

    def extend(self, later: UndoChange) -> None:
        """Add a change that was made after this one."""
        known = set(self.facts)
        self.before += [row for row in later.before if _key(row) not in known]
        self.facts += [fact for fact in later.facts if fact not in known]
        self.added += [rule for rule in later.added if rule not in self.added]
        self.removed += later.removed

    def undo(self, target: CommandTarget) -> None:
        """Restore the facts and the rules; raises Failed and KBError.

        Times at which facts were created are not restored.
        """
        for id, scope in reversed(self.added):
            target.send("POST", "/retract/rule", {"id": id, "scope": scope})
        for scope in dict.fromkeys(scope for _, scope in self.facts):
            lines = [f"RETRACT {print_atom(atom)};" for atom, its in self.facts if its == scope]
            lines += [fact_text(row) for row in self.before if row["scope"] == scope]
            target.send("POST", "/execute", {"command": "\n".join(lines), "scope": scope})
        for row in self.removed:
            text = definition_text(listed_rule(row["id"], row["text"], row["scope"]))
            target.send("POST", "/assert/rule", {"text": text})


def _key(row: Row) -> FactKey:
    return Atom(row["predicate"], tuple(row["args"])), row["scope"]


def change_of_storing(target: CommandTarget, text: str, scope: str | None) -> UndoChange:
    """Return the change that storing the statements of a text will make.

    Raises TooLarge if the text has more than MAX_FACTS facts, RuleSyntaxError, Failed and KBError.
    """
    change = UndoChange()
    rules: list[RuleKey] = []
    for each in parse_program(text):
        if isinstance(each, FactStatement):
            atom = Atom(each.atom.predicate, each.atom.args)
            change.facts.append((atom, each.annotations.scope or scope))
        elif isinstance(each, RuleStatement):
            rule = stored_rule(rule_of(each, scope))
            rules.append((rule.id, rule.scope))
        elif isinstance(each, DeclarationStatement):
            declared = stored_declaration(declaration_of(each, scope))
            rules.append((declared.id, declared.scope))
    change.facts = list(dict.fromkeys(change.facts))
    if len(change.facts) > MAX_FACTS:
        raise ChangeTooLarge
    change.before = _stored(target, change.facts)
    if rules:
        known = set(_stored_rules(target))
        change.added = [rule for rule in dict.fromkeys(rules) if rule not in known]
    return change


def change_of_retracting(target: CommandTarget, pattern: str, scope: str | None) -> UndoChange:
    """Return the change that retracting the facts that match a pattern will make.

    Raises TooLarge if they are more than MAX_FACTS.
    """
    rows: list[Row] = []
    for text in [pattern] if pattern.startswith("~") else [pattern, f"~{pattern}"]:
        body = {"text": text, "scope": scope, "limit": MAX_FACTS + 1}
        rows += target.send("POST", "/query", body).json()
    facts = list(dict.fromkeys(map(_key, rows)))
    if len(facts) > MAX_FACTS:
        raise ChangeTooLarge
    return UndoChange(facts, _stored(target, facts))


def change_of_removing_rule(target: CommandTarget, id: str, scope: str | None) -> UndoChange:
    """Return the change that removing a rule will make."""
    row = _stored_rules(target).get((id, scope))
    return UndoChange(removed=[] if row is None else [row])


def _stored(target: CommandTarget, facts: Iterable[FactKey]) -> list[Row]:
    """Return the stored facts of both signs with these atoms and scopes."""
    rows: list[Row] = []
    for atom, scope in facts:
        for positive in (True, False):
            text = print_atom(Atom(atom.predicate, atom.args, positive))
            rows += target.send("POST", "/query", {"text": text, "scope": scope}).json()
    return rows


def _stored_rules(target: CommandTarget) -> dict[RuleKey, Row]:
    """Return the rules and declarations of every scope."""
    answer = target.send("GET", "/rules?scope=*").json()
    rows: Sequence[Row] = [
        *answer["rules"],
        *answer.get("phrases", ()),
        *answer.get("inputs", ()),
    ]
    return {(row["id"], row["scope"]): row for row in rows}
