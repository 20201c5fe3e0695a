"""The rules of a tenant.

Their identity, their visibility per scope, and the check before a rule is stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbcore.errors import AlreadyExists
from kbcore.state.episodes.text_sizes import entry_bytes
from kbcore.state.labels import NO_LABELS, Labels, meets, write_labels
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.dimensions import Dimension
from kbplanner.ir.inputs import Input
from kbplanner.ir.masks import Mask
from kbplanner.ir.modes import NO_MODES, Modes
from kbplanner.ir.phrases import Declaration, Definition, Phrase
from kbplanner.ir.requirements import Requirement
from kbplanner.ir.schema import RelationSchema, Role
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    Comparison,
    Expr,
    Extremum,
    HeadTerm,
    Literal,
    Rule,
    Variable,
    extremum_of,
)
from kbplanner.pacing import YieldNow, go_on, paced, yielding
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.printer import print_declaration, print_rule
from kbtypes.results import (
    DIMENSION_ID_SUFFIX,
    INPUT_ID_SUFFIX,
    MASK_ID_SUFFIX,
    REQUIREMENT_ID_SUFFIX,
    StoredDimension,
    StoredInput,
    StoredMask,
    StoredPhrase,
    StoredRequirement,
    StoredRule,
)

RULES_PER_YIELD = 1
"""Rules examined between two calls of `yield_now`: one can have 64 KiB of expressions."""

MAX_STRICT_SCOPES = 1000
"""Maximum number of partitions whose strict inputs are remembered."""

HEADS_PER_YIELD = 500
"""Heads collected between two calls of `yield_now`: about a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRule(StoredRule):
    """A stored rule with its parsed form; `labels` are all those with which it was stored, where it
    is shown.
    """

    rule: Rule = field(repr=False)
    labels: tuple[Labels, ...] = field(default=(), repr=False, compare=False)

    def labelled(self, labels: Labels) -> ParsedRule:
        """Return the rule as it was stored with these labels only: its text names them."""
        if not labels:
            return self
        return replace(self, rule=replace(self.rule, labels=write_labels(labels)))

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.text, self.scope)

    @property
    def report(self) -> str:
        """A line about the rule for the one who stored it."""
        return f"Rule Asserted: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedPhrase(StoredPhrase):
    """A stored phrase with its parsed form."""

    declaration: Phrase = field(repr=False)

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.text, self.scope)

    @property
    def report(self) -> str:
        """A line about the phrase for the one who stored it."""
        return f"Phrase Asserted: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedInput(StoredInput):
    """A stored declaration of an input with its parsed form."""

    declaration: Input = field(repr=False)

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.text, self.scope)

    @property
    def report(self) -> str:
        """A line about the input for the one who stored it."""
        return f"Input Asserted: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedMask(StoredMask):
    """A stored mask with its parsed form."""

    declaration: Mask = field(repr=False)

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.text, self.scope)

    @property
    def report(self) -> str:
        """A line about the mask for the one who stored it."""
        return f"Mask Asserted: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDimension(StoredDimension):
    """A stored dimension of labels with its parsed form."""

    declaration: Dimension = field(repr=False)

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.text, self.scope)

    @property
    def report(self) -> str:
        """A line about the dimension for the one who stored it."""
        return f"Labels Asserted: {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedRequirement(StoredRequirement):
    """A stored requirement with its parsed form."""

    declaration: Requirement = field(repr=False)

    @property
    def bytes(self) -> int:
        """Approximate size in bytes, for the quota of the tenant."""
        return entry_bytes(self.id, self.text, self.scope)

    @property
    def report(self) -> str:
        """A line about the requirement for the one who stored it."""
        return f"Requirement Asserted: {self.text}"


ParsedDeclaration = ParsedPhrase | ParsedInput | ParsedMask | ParsedDimension | ParsedRequirement

StoredDefinition = ParsedRule | ParsedDeclaration


@dataclass(frozen=True, slots=True)
class RulesOutcome:
    """Outcome of storing rules: the rules, warnings for their author, and the numbers of new and of
    known facts. `discarded` counts the facts that a conflict strategy did not store.

    `rules` includes rules that were stored before. `timestamp` is the logged time in epoch
    milliseconds.
    """

    rules: tuple[StoredDefinition, ...]
    warnings: tuple[str, ...] = ()
    asserted: int = 0
    updated: int = 0
    timestamp: int = 0
    discarded: int = 0


def stored_rule(rule: Rule) -> ParsedRule:
    """Give a rule its id.

    Its own name, or a digest of its text that ignores the names of variables.
    """
    bare = _bare(rule)
    rule = replace(rule, labels=()) if rule.labels else rule
    return ParsedRule(rule.name or "r" + _digest(bare), print_rule(bare), rule.scope, rule=rule)


def is_same_rule(rule: ParsedRule, other: ParsedRule) -> bool:
    """Return True if two rules are equal, apart from their names and the names of variables."""
    return rule.rule == other.rule or _digest(_bare(rule.rule)) == _digest(_bare(other.rule))


def stored_declaration(declared: Declaration) -> ParsedDeclaration:
    """Give a declaration its id."""
    text = print_declaration(replace(declared, scope=None))
    id = f"@{declared.signature}"
    if isinstance(declared, Input):
        return ParsedInput(id + INPUT_ID_SUFFIX, text, declared.scope, declaration=declared)
    if isinstance(declared, Mask):
        return ParsedMask(id + MASK_ID_SUFFIX, text, declared.scope, declaration=declared)
    if isinstance(declared, Dimension):
        return ParsedDimension(id + DIMENSION_ID_SUFFIX, text, None, declaration=declared)
    if isinstance(declared, Requirement):
        return ParsedRequirement(id + REQUIREMENT_ID_SUFFIX, text, None, declaration=declared)
    return ParsedPhrase(id, text, declared.scope, declaration=declared)


def stored_definition(definition: Definition) -> StoredDefinition:
    """Give a rule or a declaration its id."""
    if isinstance(definition, Rule):
        return stored_rule(definition)
    return stored_declaration(definition)


class RuleBook:
    """All rules of a tenant, in the order they were stored, with a compiled set for each partition,
    and the declared phrases and inputs.
    """

    def __init__(self) -> None:
        self._rules: dict[tuple[str | None, str], ParsedRule] = {}
        self._visible: dict[str | None, RuleSet] = {}
        self._scopes: dict[str | None, int] = {}
        self._declarations: dict[tuple[str | None, str], ParsedDeclaration] = {}
        self._checked: dict[str | None, RuleSet] = {}
        """Compiled sets of the last check, by scope: what it checks is mostly stored next."""
        self.version = 0
        """Number of changes of the rules and declarations."""
        self.bytes = 0
        """Approximate size of the rules and declarations in bytes."""
        self.inputs_version = 0
        """Number of changes of the declared inputs."""
        self._strict: dict[str | None, dict[tuple[str, int], Input]] = {}
        """The strict inputs of each partition that was asked for, until the inputs change."""
        self.labels: dict[tuple[str | None, str], tuple[Labels, ...]] = {}
        """All the labels with which a rule was stored, by scope and id, where it has any."""
        self.forms: dict[tuple[str | None, str], dict[Labels, ParsedRule]] = {}
        """The forms of a rule by their labels, where it was stored with other names of variables
        than those that are shown: a view shows none that it does not admit."""
        self.strict_count = 0
        """Number of strict inputs: without them, no argument is checked."""
        self.required: dict[tuple[str, int], Requirement] = {}
        """The requirements by name and arity of the predicate."""
        self.view: Labels = NO_LABELS
        """The view whose state this is: predicates that require more have no rules in it."""

    def copy(self) -> RuleBook:
        """Return the same rules in a separate book of the same version."""
        copy = RuleBook()
        copy._rules, copy._scopes, copy.version = (
            dict(self._rules),
            dict(self._scopes),
            self.version,
        )
        copy._visible = dict(self._visible)
        copy._checked = dict(self._checked)
        copy._declarations = dict(self._declarations)
        copy.inputs_version, copy.strict_count = self.inputs_version, self.strict_count
        copy.bytes = self.bytes
        copy.required, copy.view = dict(self.required), self.view
        copy.labels = dict(self.labels)
        copy.forms = {key: dict(forms) for key, forms in self.forms.items()}
        return copy

    def __len__(self) -> int:
        return len(self._rules) + len(self._declarations)

    def all(self) -> list[ParsedRule]:
        """Return every rule of every scope."""
        return list(self._rules.values())

    def get(self, scope: str | None, rule_id: str) -> ParsedRule | None:
        """Return the rule of a scope with an id."""
        return self._rules.get((scope, rule_id))

    def labels_of(self, stored: ParsedRule) -> tuple[Labels, ...]:
        """Return all the labels with which a rule was stored."""
        return self.labels.get((stored.scope, stored.id), (NO_LABELS,))

    def forms_of(self, stored: ParsedRule) -> list[tuple[Labels, ParsedRule]]:
        """Return all the labels with which a rule was stored, each with its form."""
        return [(labels, self.form(stored, labels)) for labels in self.labels_of(stored)]

    def form(self, stored: ParsedRule, labels: Labels) -> ParsedRule:
        """Return a rule as it was stored with labels."""
        return self.forms.get((stored.scope, stored.id), {}).get(labels, stored)

    def visible(self, scope: str | None, yield_now: YieldNow | None = None) -> RuleSet:
        """Return the rules that are valid in a partition: those without scope, and its own.

        `yield_now` is called about once a millisecond while they are compiled; by default it is
        `current_yield`.
        """
        scoped = scope if scope in self._scopes else None
        rule_set = self._visible.get(scoped)
        if rule_set is None:
            # Without turns, in which others may change the rules.
            rules = tuple(self._chosen(self._rules.values(), scoped, go_on))
            if self.required:
                rules = tuple(rule for rule in rules if self._is_met(rule.head))
            rule_set = self._checked.pop(scoped, None)
            if rule_set is None or rule_set.rules != rules:
                version = self.version
                rule_set = RuleSet(rules, yield_now=yield_now)
                if self.version != version:  # the rules have changed since
                    return rule_set
            self._visible[scoped] = rule_set
        return rule_set

    def whole(self, scope: str | None) -> RuleSet:
        """Return the rules of a partition, also those whose predicates require more."""
        return RuleSet(tuple(self._chosen(self._rules.values(), scope, go_on)))

    def _is_met(self, head: Atom) -> bool:
        """Return True if conclusions of a predicate may be made in the state of this view."""
        required = self.required.get((head.predicate, head.arity))
        return required is None or meets(required, self.view, self.dimensions())

    def check(
        self,
        added: Sequence[ParsedRule],
        external: Modes = NO_MODES,
        yield_now: YieldNow = go_on,
        removed: Collection[tuple[str | None, str]] = (),
    ) -> list[tuple[str, ...]]:
        """Raise if rules cannot be stored.

        An id belongs to another rule, or a partition could no longer be evaluated. `external` has
        the modes of the predicates that plugins provide. `yield_now` is called about once a
        millisecond. `removed` are scopes and ids of rules that are removed before.

        Return the cycles through negation that the rules are part of, each as the predicates along
        the cycle.
        """
        merged = dict(self._rules)
        for key in removed:
            merged.pop(key, None)
        for stored in paced(added, yield_now, RULES_PER_YIELD):
            key = (stored.scope, stored.id)
            known = merged.get(key)
            if known is not None and not is_same_rule(known, stored):
                raise AlreadyExists(
                    f"rule id '{stored.id}' belongs to another rule; retract the stored rule first",
                    {"id": stored.id, "text": known.text},
                )
            merged.setdefault(key, stored)
        scopes = {scope for scope, _ in merged}
        touched = {stored.scope for stored in added}
        heads = {
            RelationSchema(head.predicate, head.arity, head.positive, Role.DERIVED)
            for head in (stored.rule.head for stored in paced(added, yield_now, HEADS_PER_YIELD))
        }
        cycles: dict[tuple[str, ...], None] = {}
        checked: dict[str | None, RuleSet] = {}
        for scope in scopes | {None} if None in touched else touched:
            rules = RuleSet(self._chosen(merged.values(), scope, yield_now), yield_now=yield_now)
            checked[scope] = rules
            if not rules.reads.isdisjoint(external):
                with yielding(yield_now):
                    rules.with_external(external).check(schema.stored for schema in heads)
            parts = (
                part
                for part in paced(
                    rules.negative_components(frozenset(), yield_now), yield_now, RULES_PER_YIELD
                )
                if not heads.isdisjoint(part.relations)
            )
            cycles.update((tuple(part.cycle), None) for part in parts)
        self._checked = checked
        return list(cycles)

    def endless(
        self, added: Iterable[ParsedRule], yield_now: YieldNow = go_on
    ) -> list[RuleWarning]:
        """Return a warning for each stored rule that recurses through a computed value.

        `yield_now` is called about once a millisecond.
        """
        hint = "bound it, for instance with ?x < 100, or goals may meet their budget"
        return [
            RuleWarning(
                "endless",
                f"{_name_of(stored.rule.head)} recurses through a computed value and may not end",
                hint,
            )
            for stored in paced(added, yield_now, RULES_PER_YIELD)
            if extremum_of(stored.rule.head) is None
            and stored.rule in self.visible(stored.scope, yield_now).computed_recursion
        ]

    def scopes(self) -> set[str | None]:
        """Return the scopes that have their own rules or declarations, with None if there are any
        without scope.
        """
        return {*self._scopes, *(scope for scope, _ in self._declarations)}

    def of(self, scope: str | None) -> list[ParsedRule]:
        """Return the rules with exactly this scope, in the order they were stored."""
        return (
            [stored for stored in self._rules.values() if stored.scope == scope]
            if scope in self._scopes
            else []
        )

    def add(self, stored: ParsedRule, labels: Labels = NO_LABELS) -> bool:
        """Store a rule that was checked; return False if it is already stored with the labels."""
        key = (stored.scope, stored.id)
        if key in self._rules:
            known = self.labels.get(key, (NO_LABELS,))
            if labels in known:
                return False
            self.labels[key] = tuple(sorted({*known, labels}))
            if stored != self._rules[key]:
                self.forms.setdefault(key, {})[labels] = stored
            self.version += 1
            return True
        if labels:
            self.labels[key] = (labels,)
        self._rules[key] = stored
        self.bytes += stored.bytes
        self.version += 1
        self._scopes[stored.scope] = self._scopes.get(stored.scope, 0) + 1
        self._visible.clear()
        return True

    def remove(
        self,
        scope: str | None,
        rule_id: str,
        goes: Callable[[Labels], bool] | None = None,
    ) -> ParsedRule | None:
        """Remove a rule and return it; None if nothing is removed.

        It stays with the labels for which `goes` returns False.
        """
        key = (scope, rule_id)
        if goes is not None and key in self._rules:
            known = self.labels.get(key, (NO_LABELS,))
            left = tuple(each for each in known if not goes(each))
            if left == known:
                return None
            if left:
                return self._leave(key, left)
        self.labels.pop(key, None)
        self.forms.pop(key, None)
        removed = self._rules.pop((scope, rule_id), None)
        if removed is not None:
            self.bytes -= removed.bytes
            self.version += 1
            self._scopes[scope] -= 1
            if not self._scopes[scope]:
                del self._scopes[scope]
            self._visible.clear()
        return removed

    def _leave(self, key: tuple[str | None, str], left: tuple[Labels, ...]) -> ParsedRule:
        """Leave a rule with some of its labels, in a form that it was stored with them."""
        current, forms = self._rules[key], self.forms.pop(key, {})
        self.labels[key] = left
        chosen = forms.get(left[0], current)
        others = {each: forms.get(each, current) for each in left[1:]}
        if others := {each: form for each, form in others.items() if form != chosen}:
            self.forms[key] = others
        self._rules[key] = chosen
        self.bytes += chosen.bytes - current.bytes
        self.version += 1
        self._visible.clear()
        return current

    def declare(self, declaration: Declaration) -> None:
        """Store a phrase or an input in place of an earlier one for the same predicate and
        scope.
        """
        declared = stored_declaration(declaration)
        before = self._declarations.get((declared.scope, declared.id))
        self._declarations[declared.scope, declared.id] = declared
        self.bytes += declared.bytes - (0 if before is None else before.bytes)
        self.version += 1
        self._inputs_changed(before, declared)
        if isinstance(declared, ParsedRequirement):
            required = declared.declaration
            self.required[required.predicate, required.arity] = required
        if self.required:
            self._visible.clear()

    def withdraw(self, scope: str | None, declared_id: str) -> ParsedDeclaration | None:
        """Remove a phrase or an input and return it; None if it does not exist."""
        removed = self._declarations.pop((scope, declared_id), None)
        if removed is not None:
            self.bytes -= removed.bytes
            self.version += 1
            self._inputs_changed(removed, None)
            if isinstance(removed, ParsedRequirement):
                required = removed.declaration
                self.required.pop((required.predicate, required.arity), None)
                self._visible.clear()
        return removed

    def _inputs_changed(
        self, before: ParsedDeclaration | None, after: ParsedDeclaration | None
    ) -> None:
        self.strict_count += _is_strict(after) - _is_strict(before)
        if isinstance(before or after, ParsedInput):
            self.inputs_version += 1
            self._strict = {}

    def strict_inputs(self, scope: str | None) -> Mapping[tuple[str, int], Input]:
        """Return the inputs of a partition whose facts are checked, by name and arity."""
        known = self._strict
        inputs = known.get(scope)
        if inputs is None:
            inputs = {name: each for name, each in self.inputs(scope).items() if each.checks}
            if known is self._strict and len(known) < MAX_STRICT_SCOPES:
                known[scope] = inputs
        return inputs

    def declaration(self, scope: str | None, declared_id: str) -> ParsedDeclaration | None:
        """Return the phrase or the input of a scope with an id."""
        return self._declarations.get((scope, declared_id))

    def declarations(self) -> list[ParsedDeclaration]:
        """Return every phrase and input of every scope, in the order of declaration."""
        return list(self._declarations.values())

    def declarations_of(self, scope: str | None) -> list[ParsedDeclaration]:
        """Return the phrases and inputs with exactly this scope."""
        return [declared for declared in self._declarations.values() if declared.scope == scope]

    def templates(self, scope: str | None) -> dict[tuple[str, int], Phrase]:
        """Return the phrases used in a partition, by name and arity: its own before the general
        ones.
        """
        return {
            (declared.declaration.predicate, declared.declaration.arity): declared.declaration
            for chosen in dict.fromkeys((None, scope))
            for declared in self.declarations_of(chosen)
            if isinstance(declared, ParsedPhrase)
        }

    def inputs(
        self, scope: str | None, *, all_scopes: bool = False
    ) -> dict[tuple[str, int], Input]:
        """Return the inputs declared for a partition, or for any if `all_scopes`, by name and
        arity: its own before the general ones.
        """
        return {
            (declared.declaration.predicate, declared.declaration.arity): declared.declaration
            for declared in sorted(self.declarations(), key=lambda each: each.scope is not None)
            if isinstance(declared, ParsedInput) and (all_scopes or declared.scope in (None, scope))
        }

    def dimensions(self) -> dict[str, Dimension]:
        """Return the dimensions of labels by name."""
        return {
            declared.declaration.name: declared.declaration
            for declared in self._declarations.values()
            if isinstance(declared, ParsedDimension)
        }

    def masks(
        self, scope: str | None, *, all_scopes: bool = False
    ) -> dict[tuple[str, int], frozenset[int]]:
        """Return the masked arguments, numbered from 0, for a partition, or for any if
        `all_scopes`, by name and arity of the predicate.
        """
        masked: dict[tuple[str, int], frozenset[int]] = {}
        for declared in self._declarations.values():
            if isinstance(declared, ParsedMask) and (all_scopes or declared.scope in (None, scope)):
                mask = declared.declaration
                key, positions = (mask.predicate, mask.arity), {each - 1 for each in mask.positions}
                masked[key] = masked.get(key, frozenset()) | positions
        return masked

    @staticmethod
    def _chosen(rules: Iterable[ParsedRule], scope: str | None, yield_now: YieldNow) -> list[Rule]:
        return [
            stored.rule
            for stored in paced(rules, yield_now, HEADS_PER_YIELD)
            if stored.scope in (None, scope)
        ]


def recursion_warning(cycle: Sequence[str]) -> str:
    """Return the warning for rules that recurse through negation."""
    return (
        f"recursion through negation: {', '.join(cycle)} "
        "(answers follow the well-founded semantics, includeUndefined shows what is neither true nor false)"
    )


def _is_strict(declared: ParsedDeclaration | None) -> bool:
    return isinstance(declared, ParsedInput) and declared.declaration.checks


def _name_of(atom: Atom) -> str:
    return f"{'' if atom.positive else '~'}{atom.predicate}/{atom.arity}"


def _bare(rule: Rule) -> Rule:
    """Return a rule without its name and scope."""
    if rule.name is None and rule.scope is None and not rule.labels:
        return rule
    return Rule(rule.head, rule.body, confidence=rule.confidence)


def _digest(bare: Rule) -> str:
    return hashlib.sha256(print_rule(_renamed(bare)).encode()).hexdigest()[:12]


def rule_shape(rule: Rule) -> str:
    """Return a text that is equal for rules which differ in constants, confidence, names and scopes
    only.
    """
    return print_rule(_renamed(Rule(rule.head, rule.body), lambda constant: "c"))


def _same_constant(constant: str) -> str:
    return constant


def _renamed(rule: Rule, constant: Callable[[str], str] = _same_constant) -> Rule:
    """Return the rule with its variables named by their order of appearance, and its constants as
    `constant` returns them.
    """
    names: dict[Variable, Variable] = {}

    def variable(old: Variable) -> Variable:
        return old if old.anonymous else names.setdefault(old, Variable(f"v{len(names)}"))

    def head_term(term: HeadTerm) -> HeadTerm:
        if isinstance(term, Aggregate):
            return Aggregate(term.function, term.variable and variable(term.variable))
        if isinstance(term, Extremum):
            return Extremum(term.function, variable(term.variable))
        return variable(term) if isinstance(term, Variable) else constant(term)

    def expression(expr: Expr) -> Expr:
        if isinstance(expr, Apply):
            return Apply(expr.function, tuple(expression(arg) for arg in expr.args))
        return variable(expr) if isinstance(expr, Variable) else constant(expr)

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
