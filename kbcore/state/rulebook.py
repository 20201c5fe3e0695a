"""The rules of a tenant.

Their identity, their visibility per scope, and the check before a rule is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kbcore.errors import AlreadyExists
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    Comparison,
    Expr,
    HeadTerm,
    Literal,
    Rule,
    Variable,
)
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.printer import print_rule


@dataclass(frozen=True, slots=True)
class StoredRule:
    """A rule with its id, its canonical text, and the scope it is valid in (None: every
    partition).
    """

    id: str
    rule: Rule
    text: str
    scope: str | None


@dataclass(frozen=True, slots=True)
class RulesOutcome:
    """Outcome of storing rules: the rules, warnings for their author, and the number of new facts.

    `rules` includes rules that were stored before.
    """

    rules: tuple[StoredRule, ...]
    warnings: tuple[str, ...] = ()
    asserted: int = 0


def stored_rule(rule: Rule) -> StoredRule:
    """Give a rule its id.

    Its own name, or a digest of its text that ignores the names of variables.
    """
    return StoredRule(
        rule.name or "r" + _digest(rule),
        rule,
        print_rule(replace(rule, name=None, scope=None)),
        rule.scope,
    )


class RuleBook:
    """All rules of a tenant, in the order they were stored, and a compiled set for each
    partition.
    """

    def __init__(self) -> None:
        self._rules: dict[tuple[str | None, str], StoredRule] = {}
        self._visible: dict[str | None, RuleSet] = {}
        self._scopes: dict[str | None, int] = {}
        self.version = 0
        """Number of changes of the rules."""

    def copy(self) -> RuleBook:
        """Return the same rules in a separate book of the same version."""
        copy = RuleBook()
        copy._rules, copy._scopes, copy.version = (
            dict(self._rules),
            dict(self._scopes),
            self.version,
        )
        copy._visible = dict(self._visible)
        return copy

    def __len__(self) -> int:
        return len(self._rules)

    def all(self) -> list[StoredRule]:
        """Return every rule of every scope."""
        return list(self._rules.values())

    def get(self, scope: str | None, rule_id: str) -> StoredRule | None:
        """Return the rule of a scope with an id."""
        return self._rules.get((scope, rule_id))

    def visible(self, scope: str | None) -> RuleSet:
        """Return the rules that are valid in a partition: those without scope, and its own."""
        scoped = scope if scope in self._scopes else None
        rule_set = self._visible.get(scoped)
        if rule_set is None:
            rule_set = self._visible[scoped] = RuleSet(self._chosen(self._rules.values(), scoped))
        return rule_set

    def check(self, added: Sequence[StoredRule]) -> list[tuple[str, ...]]:
        """Raise if rules cannot be stored.

        An id belongs to another rule, or a partition could no longer be evaluated.

        Return the cycles through negation that the rules are part of, each as the predicates along
        the cycle.
        """
        merged = dict(self._rules)
        for stored in added:
            key = (stored.scope, stored.id)
            known = merged.get(key)
            if known is not None and _digest(known.rule) != _digest(stored.rule):
                raise AlreadyExists(
                    f"rule id '{stored.id}' belongs to another rule; retract the stored rule first",
                    {"id": stored.id, "text": known.text},
                )
            merged.setdefault(key, stored)
        scopes = {scope for scope, _ in merged}
        touched = {stored.scope for stored in added}
        heads = {
            RelationSchema(s.rule.head.predicate, s.rule.head.arity, s.rule.head.positive).derived
            for s in added
        }
        cycles: dict[tuple[str, ...], None] = {}
        for scope in scopes | {None} if None in touched else touched:
            rules = RuleSet(self._chosen(merged.values(), scope))
            parts = (
                part
                for part in rules.negative_components(frozenset())
                if not heads.isdisjoint(part.relations)
            )
            cycles.update((tuple(part.cycle), None) for part in parts)
        return list(cycles)

    def endless(self, added: Iterable[StoredRule]) -> list[RuleWarning]:
        """Return a warning for each stored rule that recurses through a computed value."""
        hint = "bound it, for instance with ?x < 100, or goals may meet their budget"
        return [
            RuleWarning(
                "endless",
                f"{_name_of(stored.rule.head)} recurses through a computed value and may not end",
                hint,
            )
            for stored in added
            if stored.rule in self.visible(stored.scope).computed_recursion
        ]

    def scopes(self) -> set[str | None]:
        """Return the scopes that have their own rules, with None if there are rules without
        scope.
        """
        return set(self._scopes)

    def of(self, scope: str | None) -> list[StoredRule]:
        """Return the rules with exactly this scope, in the order they were stored."""
        return (
            [stored for stored in self._rules.values() if stored.scope == scope]
            if scope in self._scopes
            else []
        )

    def add(self, stored: StoredRule) -> bool:
        """Store a rule that was checked; return False if it is already stored."""
        key = (stored.scope, stored.id)
        if key in self._rules:
            return False
        self._rules[key] = stored
        self.version += 1
        self._scopes[stored.scope] = self._scopes.get(stored.scope, 0) + 1
        self._visible.clear()
        return True

    def remove(self, scope: str | None, rule_id: str) -> StoredRule | None:
        """Remove a rule and return it; None if it does not exist."""
        removed = self._rules.pop((scope, rule_id), None)
        if removed is not None:
            self.version += 1
            self._scopes[scope] -= 1
            if not self._scopes[scope]:
                del self._scopes[scope]
            self._visible.clear()
        return removed

    @staticmethod
    def _chosen(rules: Iterable[StoredRule], scope: str | None) -> list[Rule]:
        return [stored.rule for stored in rules if stored.scope in (None, scope)]


def recursion_warning(cycle: Sequence[str]) -> str:
    """Return the warning for rules that recurse through negation."""
    return (
        f"recursion through negation: {', '.join(cycle)} "
        "(answers follow the well-founded semantics, includeUndefined shows what is neither true nor false)"
    )


def _name_of(atom: Atom) -> str:
    return f"{'' if atom.positive else '~'}{atom.predicate}/{atom.arity}"


def _digest(rule: Rule) -> str:
    renamed = print_rule(_renamed(replace(rule, name=None, scope=None)))
    return hashlib.sha256(renamed.encode()).hexdigest()[:12]


def _renamed(rule: Rule) -> Rule:
    """Return the rule with its variables named by their order of appearance."""
    names: dict[Variable, Variable] = {}

    def variable(old: Variable) -> Variable:
        return old if old.anonymous else names.setdefault(old, Variable(f"v{len(names)}"))

    def head_term(term: HeadTerm) -> HeadTerm:
        if isinstance(term, Aggregate):
            return Aggregate(term.function, term.variable and variable(term.variable))
        return variable(term) if isinstance(term, Variable) else term

    def expression(expr: Expr) -> Expr:
        if isinstance(expr, Apply):
            return Apply(expr.function, tuple(expression(arg) for arg in expr.args))
        return variable(expr) if isinstance(expr, Variable) else expr

    def item(old: Literal | Comparison) -> Literal | Comparison:
        if isinstance(old, Comparison):
            return Comparison(old.op, expression(old.left), expression(old.right), old.negated)
        return Literal(atom(old.atom), old.negated)

    def atom(old: Atom) -> Atom:
        return Atom(old.predicate, tuple(head_term(arg) for arg in old.args), old.positive)

    return Rule(
        atom(rule.head),
        tuple(item(old) for old in rule.body),
        rule.name,
        rule.confidence,
        rule.scope,
    )
