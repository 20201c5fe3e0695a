"""Writes of a knowledge base: facts, rules, files, scripts and retractions."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kbcore import python_values
from kbcore.branching.preview import DEFAULT_LISTED, Proposal, TruthPreview, rule_retraction
from kbcore.errors import InvalidInput
from kbcore.language.csv_rows import CsvHeader, delimiter_mode, header_mode
from kbcore.language.files import (
    FORMATS,
    Batch,
    declaration_of,
    fact_of,
    plain_rows,
    read_dump,
    read_file,
    rule_of,
)
from kbcore.language.rule_review import RuleReview
from kbcore.operations.conflicts import KEEP_BOTH
from kbcore.operations.scripts import ScriptOutcome
from kbcore.python_api.arguments import request_limits
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import duration, fraction, instant
from kbcore.state.changes import RetractPattern
from kbcore.state.facts import AssertOutcome, Fact
from kbcore.state.rulebook import StoredDefinition
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Rule
from kbplanner.passes.check import check_statements
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import DeclarationStatement, FactStatement, GoalStatement
from kbtypes.episodes import Evidences
from kbtypes.results import (
    RetractOutcome,
    StoredStatement,
    StoreOutcome,
)
from kbtypes.values import Arg, Duration, Instant

_FILE_NAME = re.compile(r"[^\n()]*[^\s().]\.[A-Za-z0-9]+")
"""A string that is a file name rather than a text, whose last statement ends with a dot."""


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """Result of a load: the numbers of new facts, known facts and rules.

    `goals` are the goals in the text; a load does not ask them. `header` is the decision on the
    first row of a CSV file: `header.skipped` if the row is a header, `header.cells` its names.
    `warnings` are about the rules of the text; `warning.display(name)` returns a line of text.
    """

    asserted: int
    updated: int
    rules: int
    goals: tuple[GoalStatement, ...]
    header: CsvHeader | None = None
    warnings: tuple[RuleWarning, ...] = ()


class PythonWrites(PythonHandle):
    """Writes of a knowledge base."""

    def tell(  # noqa: PLR0913  one parameter for each attribute of a fact
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        negated: bool = False,
        scope: str | None = None,
        ttl: Duration | None = None,
        valid_from: Instant | None = None,
        valid_until: Instant | None = None,
        confidence: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        evidence: Evidences = (),
        conflict: str = KEEP_BOTH,
    ) -> StoreOutcome:
        """Store a fact, `tell("parent", ["ann", "bob"])`, or the facts and rules of a text.

        A text is `tell("parent(ann, bob)")`, or several statements of the rule language, which are
        stored all or none. The other arguments apply to each fact, unless its annotations say
        otherwise; only `scope` also applies to rules.

        `ttl` is a duration from this call, also for a fact that is already stored: milliseconds, a
        text such as `30d`, or a timedelta. Points in time are epoch milliseconds, ISO 8601 texts,
        dates or datetimes, in UTC without an offset. `evidence` are ids of episodes, or spans `(id,
        start, end)`, that support the fact, beside those it has.
        `conflict` names a strategy for facts whose opposite is stored: KEEP_BOTH, REJECT,
        NEWEST_WINS, CONFIDENCE, or that of a plugin. Raises InvalidInput, RuleSyntaxError,
        Conflict.
        """
        details = Fact(
            "",
            (),
            not negated,
            scope,
            duration("ttl", ttl),
            instant("valid_from", valid_from),
            instant("valid_until", valid_until),
            fraction("confidence", confidence),
            python_values.metadata("metadata", metadata),
            python_values.evidence("evidence", evidence),
        )
        if args is None:
            return self._store(predicate, details, conflict)
        name, constants, _ = python_values.fact(predicate, args)
        fact = replace(details, predicate=name, args=constants)
        return _facts_outcome(self.kb.assert_facts([fact], conflict=conflict))

    def tell_many(
        self,
        predicate: str,
        rows: Iterable[Sequence[Arg]],
        *,
        scope: str | None = None,
        conflict: str = KEEP_BOTH,
    ) -> StoreOutcome:
        """Store many facts of one predicate, all or none; `conflict` is that of `tell`."""
        python_values.refuse_atom("predicate", predicate)
        row_list = list(rows)
        plain = plain_rows(predicate, row_list, scope)
        if plain:
            return _facts_outcome(self.kb.assert_rows([plain], conflict=conflict))
        facts = [
            Fact(predicate, python_values.constants(predicate, row), scope=scope)
            for row in row_list
        ]
        return _facts_outcome(self.kb.assert_facts(facts, conflict=conflict))

    def teach(self, text: str, *, scope: str | None = None) -> StoreOutcome:
        """Store the rules and facts of a text in the rule language, all or none.

        `scope` is for statements that name none; a rule without a scope holds in every scope.
        `warnings` of the result are about rules that are valid but probably not intended. Raises
        RuleSyntaxError with every error of the text, and InvalidInput if the text has goals.
        """
        return self._store(text, Fact("", (), scope=scope), KEEP_BOTH)

    def load(
        self,
        source: str | os.PathLike[str],
        *,
        scope: str | None = None,
        predicate: str | None = None,
        header: str = "auto",
        delimiter: str = "auto",
    ) -> LoadOutcome:
        """Load a file or a text in the rule language.

        A path object, or a string that ends in .kb, .jsonl, .csv or .tsv, names a file; any other
        string is a text. After an error, the batches of a file before the faulty one stay. For CSV
        files, `predicate` is the predicate of every row (None: the first cell of the row), `header`
        is "auto", "yes" or "no", and `delimiter` "comma", "semicolon", "tab" or "auto", as in
        docs/how-to/load-data.md. Raises InvalidInput,
        OSError.
        """
        mode, sign = header_mode(header), delimiter_mode(delimiter)
        if isinstance(source, str) and not source.endswith(FORMATS):
            _refuse_file_name(source)
            batches: Iterator[Batch] = read_dump([source], scope)
        else:
            batches = read_file(
                Path(source), scope=scope, predicate=predicate, header=mode, delimiter=sign
            )
        asserted = updated = rules = 0
        goals: list[GoalStatement] = []
        first_row: CsvHeader | None = None
        review = RuleReview(self.kb.known_predicates)
        for batch in batches:
            first_row = first_row or batch.header
            review.add(batch)
            if batch.rule_set is not None:
                deployed = self.kb.deploy_dumped(batch.rule_set)
                rules += len(deployed.added)
                asserted += deployed.facts.added_count
            if batch.rules:
                rules += len(self.kb.assert_rules(batch.rules).rules)
            if batch.facts or batch.rows:
                outcome = (
                    self.kb.assert_facts(batch.facts)
                    if batch.facts
                    else self.kb.assert_rows(batch.rows)
                )
                asserted, updated = asserted + outcome.asserted, updated + outcome.updated
            goals.extend(batch.goals)
        warnings = review.all(stored.rule for stored in self.kb.rules()) if review.has_rules else ()
        return LoadOutcome(asserted, updated, rules, tuple(goals), first_row, tuple(warnings))

    def execute(
        self, text: str, *, scope: str | None = None, timeout_ms: int | None = None
    ) -> ScriptOutcome:
        """Run a text in the rule language: store its clauses and answer its queries, in order.

        The text is applied as a whole or not at all. A query (`?- goal.`) sees the clauses before
        it. `timeout_ms` limits all queries together. Raises RuleSyntaxError with every error of the
        text, BudgetExceeded, Conflict.
        """
        return self.kb.execute(text, scope=scope, request_limits=request_limits(timeout_ms))

    def retract(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        count: bool = True,
    ) -> RetractOutcome:
        """Remove a fact of both signs; with variables, every fact that matches.

        The fact or pattern may be a text, as for `query`; the text `~p(a)` removes only the
        negative fact. Without `count` the conclusions that no longer hold are not counted, which
        takes most of the time where there are many.
        """
        predicate, terms, positive = python_values.atom(predicate, args)
        constants = [term for term in terms if isinstance(term, str)]
        if len(constants) == len(terms):
            return self.kb.retract_fact(
                predicate, constants, positive=positive, scope=scope, count=count
            )
        return self.kb.retract_pattern(
            predicate, terms, positive=positive, scope=scope, count=count
        )

    def retract_rule(
        self, rule: str | StoredStatement, *, scope: str | None = None
    ) -> StoredDefinition:
        """Remove a rule, given by its id, as text, or as an element of `rules()`, and return it.

        A declaration is given by its id or as an element of `phrases()` or `inputs()`.

        The id is the name of the rule, or `id` of an element of those lists.
        Conclusions of only this rule are absent from later answers. Raises NotFound.
        """
        if isinstance(rule, StoredStatement):
            return self.kb.retract_rule(id=rule.id, scope=rule.scope)
        retraction = rule_retraction(python_values.text("rule", rule), scope)
        return self.kb.retract_rule(id=retraction.id, scope=retraction.scope)

    def preview(
        self,
        tell: str | Sequence[str] = (),
        *,
        teach: str | Sequence[str] = (),
        forget: str | Sequence[str] = (),
        forget_rules: str | Sequence[str] = (),
        scope: str | None = None,
        limit: int = DEFAULT_LISTED,
        timeout_ms: int | None = None,
    ) -> TruthPreview:
        """Return the facts and conclusions that would become true, false or undefined if a change
        were made; nothing is stored.

        The change retracts the facts `forget` (variables match anything) and the rules
        `forget_rules`, given as for `retract_rule`, then stores the facts and rules of the texts
        `tell` and `teach`. `scope` is for all that name none; a rule without a scope holds in every
        scope. Each list of the result has at most `limit` elements; the counts are complete unless
        it is `truncated`. Raises NotFound, InvalidInput, RuleSyntaxError.
        """
        facts: list[Fact] = []
        definitions: list[Definition] = []
        for field, texts in (("tell", tell), ("teach", teach)):
            for text in _texts(field, texts):
                more_facts, more_definitions = _clauses(
                    text, Fact("", (), scope=scope), field, labelled=True
                )
                facts += more_facts
                definitions += more_definitions
        with python_values.named(predicate="forget"):
            atoms = [python_values.atom(text, None) for text in _texts("forget", forget)]
        proposal = Proposal(
            tuple(facts),
            tuple(each for each in definitions if isinstance(each, Rule)),
            tuple(
                RetractPattern(name, tuple(terms), positive, scope)
                for name, terms, positive in atoms
            ),
            tuple(rule_retraction(text, scope) for text in _texts("forget_rules", forget_rules)),
        )
        return self.kb.preview(
            proposal,
            limit=python_values.integer("limit", limit) or 0,
            request_limits=request_limits(timeout_ms),
        )

    def _store(self, text: str, details: Fact, conflict: str) -> StoreOutcome:
        """Store the facts and rules of a text; `details` apply to facts without annotations."""
        facts, rules = _clauses(text, details, labelled=True)
        if not rules:
            return _facts_outcome(self.kb.assert_facts(facts, conflict=conflict))
        if conflict != KEEP_BOTH or details != Fact("", (), scope=details.scope):
            raise InvalidInput.at("text", "has a rule; only `scope` applies to rules")
        outcome = self.kb.assert_rules(rules, facts)
        return StoreOutcome(
            outcome.asserted, outcome.updated, outcome.timestamp, outcome.rules, outcome.warnings
        )


def _clauses(
    text: str, details: Fact, field: str = "text", *, labelled: bool = False
) -> tuple[list[Fact], list[Definition]]:
    """Return the facts and definitions of a text; `details` apply to facts without annotations.
    Statements have labels in a `labelled` text only.

    Raises RuleSyntaxError, and InvalidInput that names `field`.
    """
    source = python_values.text(field, text)
    statements = parse_program(source, final_dot=False, labelled=labelled)
    if not statements:
        raise InvalidInput.at(field, "has no fact and no rule")
    check_statements(statements)
    facts: list[Fact] = []
    rules: list[Definition] = []
    has_details = details != Fact("", (), scope=details.scope)
    for statement in statements:
        if isinstance(statement, FactStatement):
            fact = fact_of(statement, details.scope)
            facts.append(_with_details(fact, details) if has_details else fact)
        elif isinstance(statement, GoalStatement):
            raise InvalidInput.at(
                field,
                f"line {statement.span.line}: a goal is asked, not stored; use ask or execute",
            )
        elif isinstance(statement, DeclarationStatement):
            rules.append(declaration_of(statement, details.scope))
        else:
            rules.append(rule_of(statement, details.scope))
    return facts, rules


def _texts(field: str, texts: str | Sequence[str]) -> list[str]:
    """Return one or several texts as a list; raises InvalidInput that names `field`."""
    several = texts if isinstance(texts, Sequence) and not isinstance(texts, str) else [texts]
    return [python_values.text(field, each) for each in several]


def _facts_outcome(outcome: AssertOutcome) -> StoreOutcome:
    return StoreOutcome(
        outcome.asserted, outcome.updated, outcome.timestamp, discarded=outcome.discarded
    )


def _with_details(fact: Fact, details: Fact) -> Fact:
    """Return a fact with the given details where it has none of its own."""
    return Fact(
        fact.predicate,
        fact.args,
        fact.positive and details.positive,
        fact.scope or details.scope,
        details.ttl if fact.ttl is None else fact.ttl,
        details.valid_from if fact.valid_from is None else fact.valid_from,
        details.valid_until if fact.valid_until is None else fact.valid_until,
        details.confidence if fact.confidence is None else fact.confidence,
        fact.metadata or details.metadata,
        details.evidence,
        labels=fact.labels,
    )


def _refuse_file_name(source: str) -> None:
    """Raise InvalidInput if a string names a file of another type rather than being a text."""
    if _FILE_NAME.fullmatch(source.strip()):
        raise InvalidInput.at(
            "source",
            f"{source!r} looks like a file; the name must end in {', '.join(FORMATS)}"
            " (a text of facts and rules ends with a dot)",
        )
