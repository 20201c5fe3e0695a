"""Reviews of texts beside what is stored: warnings about the rules of a load, and checks of whole
texts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from kbcore.language.files import Batch, read_statements
from kbcore.state.names import NAME_RULE, is_name
from kbcore.state.rulebook import RuleBook, recursion_warning, stored_rule
from kbcore.timestamps import instant
from kbplanner.check.texts import NOTHING_STORED, ReadText, StoredProgram, check_texts
from kbplanner.ir.inputs import Input
from kbplanner.ir.terms import Rule
from kbplanner.syntax.arity import arity_warnings
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.statements import (
    DeclarationStatement,
    FactStatement,
    RuleStatement,
    Statement,
)
from kbtypes.results import Finding

Known = dict[str, set[int]]
"""Predicates with their arities."""


class RuleReview:
    """Collects the rules of one file batch by batch, then returns the warnings that need all of
    them.

    `known` returns the stored predicates. It is called once, before the first batch with rules is
    stored.
    """

    def __init__(self, known: Callable[[], Known]) -> None:
        self._fetch_known = known
        self._known: Known = {}
        self._facts: Known = {}
        self._heads: Known = {}
        self._statements: list[RuleStatement] = []
        self._warnings: list[RuleWarning] = []

    @property
    def has_rules(self) -> bool:
        """True if any batch had rules."""
        return bool(self._statements)

    @property
    def defined(self) -> list[tuple[str, int]]:
        """The predicates that the file concludes, as facts or as rule heads."""
        return [
            (name, arity)
            for known in (self._facts, self._heads)
            for name in known
            for arity in known[name]
        ]

    def add(self, batch: Batch) -> None:
        """Add a batch that is about to be stored."""
        if batch.statements and not self._statements:
            self._known = self._fetch_known()
        if batch.rule_set is not None:
            lines_before = "\n" * (batch.rule_set.line - 1)  # for the places of errors
            for part in read_statements([lines_before, batch.rule_set.text]):
                self._add_defined(part)
        self._add_defined(batch)
        self._statements += batch.statements
        self._warnings += batch.warnings

    def _add_defined(self, batch: Batch) -> None:
        """Add the predicates that a batch concludes or declares as inputs."""
        for fact in batch.facts:
            self._facts.setdefault(fact.predicate, set()).add(len(fact.args))
        for rows in batch.rows:
            self._facts.setdefault(rows.predicate, set()).add(rows.arity)
        for statement in batch.statements:
            head = statement.rule.head
            self._heads.setdefault(head.predicate, set()).add(head.arity)
        for definition in batch.rules:
            if isinstance(definition, Input):
                self._facts.setdefault(definition.predicate, set()).add(definition.arity)

    def whole(
        self, stored: Iterable[Rule], defined: Iterable[tuple[str, int]] = ()
    ) -> list[RuleWarning]:
        """Return the warnings that no batch has by itself, in the order of the file.

        `stored` are the rules of the tenant, before or after the load. `defined` are predicates
        that other files conclude. Raises InvalidInput or AlreadyExists if the rules cannot be
        stored beside the stored ones.
        """
        if not self._statements:
            return []
        known = {name: set(arities) for name, arities in self._known.items()}
        for name, arities in self._facts.items():
            known.setdefault(name, set()).update(arities)
        for name, arity in defined:
            known.setdefault(name, set()).add(arity)
        return in_order(
            [
                *arity_warnings(self._statements, known),
                *_recursion_warnings(stored, self._statements),
            ]
        )

    def all(
        self, stored: Iterable[Rule], defined: Iterable[tuple[str, int]] = ()
    ) -> list[RuleWarning]:
        """Return the warnings of the batches and of the whole, in the order of the file.

        Raises as `whole` does.
        """
        return in_order([*self._warnings, *self.whole(stored, defined)])


def known_predicates(rows: Iterable[Mapping[str, object]]) -> Known:
    """Return the predicates that a schema describes, with their arities."""
    known: Known = {}
    for row in rows:
        arity = row["arity"]
        if isinstance(arity, int):
            known.setdefault(str(row["predicate"]), set()).add(arity)
    return known


def in_order(warnings: Iterable[RuleWarning]) -> list[RuleWarning]:
    """Return warnings by their place in the text."""
    return sorted(
        warnings, key=lambda warning: (0, 0) if warning.span is None else warning.span[:2]
    )


def check_programs(
    texts: Sequence[str | ReadText],
    stored: StoredProgram = NOTHING_STORED,
    scope: str | None = None,
    yield_now: Callable[[], None] = lambda: None,
    names: Sequence[str] = (),
) -> list[list[Finding]]:
    """Return the errors and warnings of each of several texts that belong together.

    `yield_now` is called about once a millisecond while the texts are read. `names` are those of
    their files.
    """
    return check_texts(
        texts,
        stored,
        names=names,
        scope=scope,
        problem_of=annotation_problem,
        yield_now=yield_now,
    )


def annotation_problem(statement: Statement) -> str | None:
    """Return the reason why an annotation has no valid value; None if all have one."""
    scope = None
    if isinstance(statement, FactStatement):
        notes = statement.annotations
        scope = notes.scope
        for name, value in (("validFrom", notes.valid_from), ("validUntil", notes.valid_until)):
            try:
                _ = None if value is None else instant(value)
            except ValueError as error:
                return f"{name}: {error}"
    elif isinstance(statement, RuleStatement):
        scope = statement.rule.scope
    elif isinstance(statement, DeclarationStatement):
        scope = statement.declaration.scope
    if scope is not None and not is_name(scope):
        return f"scope: {scope!r} is not a name: it has {NAME_RULE}"
    return None


def _recursion_warnings(
    stored: Iterable[Rule], statements: Sequence[RuleStatement]
) -> list[RuleWarning]:
    """Warn about recursion through negation and through computed values, at the first rule
    concerned.
    """
    book = RuleBook()
    for rule in (*stored, *(statement.rule for statement in statements)):
        book.add(stored_rule(rule))
    warnings = []
    for cycle in book.check([stored_rule(statement.rule) for statement in statements]):
        names = {name.removeprefix("~") for name in cycle}
        heads = (s for s in statements if f"{s.rule.head.predicate}/{s.rule.head.arity}" in names)
        first = next(heads, statements[0])
        warnings.append(
            RuleWarning("negative-recursion", recursion_warning(cycle), None, first.span)
        )
    for statement in statements:
        new = stored_rule(statement.rule)
        # An equal rule may be stored already, with other names of variables.
        same = book.get(new.scope, new.id)
        warnings += [
            replace(warning, span=statement.span) for warning in book.endless([same or new])
        ]
    return warnings
