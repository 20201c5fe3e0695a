"""Queries of a knowledge base: goals, patterns over stored facts, and aggregates."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from kbcore.columns.answer_table import AnswerTable
from kbcore.columns.build import (
    metadata_column,
    sign_column,
    table_of_rows,
    table_of_symbols,
    variable_columns,
)
from kbcore.columns.symbol_answers import SymbolAnswers
from kbcore.context.text.phrases import sentence
from kbcore.operations.base import TenantHandle
from kbcore.operations.slow_log import ListedGoal
from kbcore.reason.aggregate import AggregateOutcome, AggregateQuery, aggregate
from kbcore.reason.ask import terms_of
from kbcore.reason.budget import Budget, Notes, RequestLimits
from kbcore.reason.json_rows import ABSENCE
from kbcore.reason.options import (
    DEFAULT_FACTS,
    DEFAULT_OPTIONS,
    AnswerOptions,
    FactOptions,
    GoalOptions,
)
from kbcore.reason.stored_facts import StoredPattern
from kbcore.search.neighbours import FactsAround, NeighbourOptions, NeighbourSearch
from kbcore.state.facts import Row
from kbcore.state.labelling import stacked_rows
from kbcore.state.partition import FactsThen, StoredRelation
from kbcore.state.rule_sets import CapturedSet, captured_set
from kbcore.state.rulebook import ParsedDeclaration, ParsedRule
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.engine.backend import Engine
from kbplanner.evaluate.deferred import DeferredRows
from kbplanner.ir.terms import Atom, BodyItem, Literal, Term, Variable
from kbplanner.passes.check import counterpart
from kbplanner.syntax.printer import print_atom

Write = Callable[[list[Row], Callable[[], None]], bytes]
"""Function that encodes rows, which it consumes, as a JSON array.

The function calls its second argument between pieces of work.
"""


EXPORTED_ROWS = 1000
"""Number of facts that are converted to rows at once."""


class Contents(NamedTuple):
    """The facts, as rows, the rules, declarations and rule sets of a knowledge base at one time."""

    facts: Iterator[Row]
    rules: list[ParsedRule]
    declarations: list[ParsedDeclaration]
    rule_sets: list[CapturedSet]


MAX_CANDIDATES = 20
"""Maximum number of facts among which a user chooses."""


class FactInWords(NamedTuple):
    """A stored fact as text, and in words; the text again where no sentence fits."""

    text: str
    words: str


class Queries(TenantHandle):
    """Queries of a knowledge base."""

    def infer(
        self,
        literal: Literal,
        options: AnswerOptions = DEFAULT_OPTIONS,
        *,
        notes: Notes | None = None,
    ) -> list[Row]:
        """Return the answers of a goal, from facts and rules, in answer order.

        Rows of different partitions follow one another. `notes` are filled in. Raises
        BudgetExceeded, and RateLimited if the tenant runs too many long goals.
        """

        def evaluate(tenant: Tenant, budget: Budget) -> list[Row]:
            answers = self._answers(tenant, literal, options, budget)
            rows = [row for _, part in answers for row in part]
            budget.answers += len(rows)
            return rows

        return self._evaluated(evaluate, options.request_limits, notes, "ask", (literal,), options)

    def infer_json(
        self,
        literal: Literal,
        write: Write,
        options: AnswerOptions = DEFAULT_OPTIONS,
        *,
        notes: Notes | None = None,
    ) -> list[bytes]:
        """Return the answers of `infer`, with the same options, as parts of a JSON array.

        `write` encodes rows that cannot be written directly from the engine. Raises BudgetExceeded
        and RateLimited.
        """
        atom = counterpart(literal) if literal.negated else literal.atom

        def evaluate(tenant: Tenant, budget: Budget) -> list[bytes]:
            if not _needs_rows(literal, options):
                (partition,) = self._partitions(tenant, options.scope)
                parts = self._services.reasoner(tenant).answers_json(
                    partition, atom, budget, options.limit, options.offset
                )
                if parts is not None:
                    return parts
            answers = self._answers(tenant, literal, options, budget)
            rows = [row for _, part in answers for row in part]
            budget.answers += len(rows)
            return [write(rows, budget.yield_now)]

        return self._evaluated(evaluate, options.request_limits, notes, "ask", (literal,), options)

    def infer_table(
        self,
        literal: Literal,
        options: AnswerOptions = DEFAULT_OPTIONS,
        *,
        notes: Notes | None = None,
    ) -> AnswerTable:
        """Return the answers of `infer`, with the same options, as a table of columns.

        `kbcore.columns.build` says which. Raises BudgetExceeded and RateLimited.
        """
        atom = counterpart(literal) if literal.negated else literal.atom
        variables = variable_columns(atom)

        def evaluate(tenant: Tenant, budget: Budget) -> AnswerTable:
            if not _needs_rows(literal, options):
                (partition,) = self._partitions(tenant, options.scope)
                answers = self._services.reasoner(tenant).plain_answers(
                    partition, atom, budget, options.limit, options.offset
                )
                if answers is not None:
                    symbols, count, absence = answers
                    budget.answers += count
                    further = [metadata_column(ABSENCE, count)] if absence and count else []
                    return table_of_symbols(
                        tenant.engine, symbols, count, atom.arity, variables, further=further
                    )
            listed = self._answers(tenant, literal, options, budget)
            rows = [row for _, part in listed for row in part]
            budget.answers += len(rows)
            scoped = options.scope == ALL_SCOPES
            return table_of_rows(rows, variables, scoped=scoped, paced=budget.paced)

        return self._evaluated(evaluate, options.request_limits, notes, "ask", (literal,), options)

    def query_table(
        self,
        atom: Atom,
        options: FactOptions = DEFAULT_FACTS,
        *,
        positive: bool | None = None,
        notes: Notes | None = None,
    ) -> AnswerTable:
        """Return the facts of `query_page`, with the same options, as a table of columns."""
        pattern = StoredPattern(atom.predicate, terms_of(atom), positive)
        variables = variable_columns(atom)
        with self._reads(options.request_limits, kind="query") as (tenant, budget):
            if options.as_of is None and options.scope != ALL_SCOPES:
                (partition,) = self._partitions(tenant, options.scope)
                reasoner = self._services.reasoner(tenant)
                facts = reasoner.plain_facts(
                    partition, reasoner.fact_search(pattern, options), budget, notes
                )
                if facts is not None:
                    symbols, positives, negatives = facts
                    further = [sign_column(positives, negatives)] if positives and negatives else []
                    count = positives + negatives
                    return table_of_symbols(
                        tenant.engine, symbols, count, atom.arity, variables, further=further
                    )
            rows = self._stored_rows(tenant, pattern, options, budget, notes)
            scoped = options.scope == ALL_SCOPES
            return table_of_rows(rows, variables, scoped=scoped, paced=budget.paced)

    def query_json(
        self,
        atom: Atom,
        write: Write,
        options: FactOptions = DEFAULT_FACTS,
        *,
        positive: bool | None = None,
        notes: Notes | None = None,
    ) -> list[bytes]:
        """Return the facts of `query_page`, with their truth values, as parts of a JSON array.

        The options are those of `query_page`. `write` encodes rows that cannot be written directly
        from the engine.
        """
        pattern = StoredPattern(atom.predicate, terms_of(atom), positive)
        with self._reads(options.request_limits, kind="query") as (tenant, budget):
            if options.as_of is None and options.scope != ALL_SCOPES:
                (partition,) = self._partitions(tenant, options.scope)
                reasoner = self._services.reasoner(tenant)
                parts = reasoner.facts_json(
                    partition, reasoner.fact_search(pattern, options), budget, notes
                )
                if parts is not None:
                    return parts
            rows = self._stored_rows(tenant, pattern, options, budget, notes)
            for part in budget.slices(len(rows)):
                for row in rows[part.start : part.stop]:
                    row["truthVal"] = not row["negated"]
            return [write(rows, budget.yield_now)]

    def query_page(
        self,
        atom: Atom,
        options: FactOptions = DEFAULT_FACTS,
        *,
        positive: bool | None = None,
        notes: Notes | None = None,
    ) -> list[Row]:
        """Return matching stored facts without applying rules.

        `positive` selects one sign; None selects both, positive facts first. The limit and offset
        apply to the facts of all partitions together; `notes.total` becomes the number of facts
        that match without them. Raises BudgetExceeded.
        """
        pattern = StoredPattern(atom.predicate, terms_of(atom), positive)
        with self._reads(options.request_limits, kind="query") as (tenant, budget):
            return self._stored_rows(tenant, pattern, options, budget, notes)

    def facts_in_words(
        self,
        atom: Atom,
        options: FactOptions = DEFAULT_FACTS,
        *,
        positive: bool | None = None,
    ) -> list[FactInWords]:
        """Return the facts of `query_page` in one scope, each once, as text and in words."""
        pattern = StoredPattern(atom.predicate, terms_of(atom), positive)
        with self._reads(options.request_limits, kind="query") as (tenant, budget):
            templates = tenant.rules.templates(options.scope)
            rows = self._stored_rows(tenant, pattern, options, budget, None)
            stored = (
                Atom(row["predicate"], tuple(row["args"]), not row["negated"]) for row in rows
            )
            facts = {print_atom(each): sentence(each, templates) for each in budget.paced(stored)}
        return [FactInWords(text, words or text) for text, words in facts.items()]

    def query_rows(
        self,
        predicate: str,
        args: Sequence[Term],
        *,
        positive: bool | None = None,
        scope: str | None = None,
        limit: int | None = None,
        as_of: int | None = None,
        request_limits: RequestLimits | None = None,
    ) -> list[Row]:
        """Return the facts of `query_page` that match a predicate with these arguments."""
        options = FactOptions(scope, limit, as_of=as_of, request_limits=request_limits)
        with self._reads(request_limits, kind="query") as (tenant, budget):
            pattern = StoredPattern(predicate, args, positive)
            return self._stored_rows(tenant, pattern, options, budget)

    def neighbours(self, constant: str, options: NeighbourOptions) -> FactsAround:
        """Return stored facts that have a constant in any argument, and their number by predicate.

        The facts of all predicates are taken in turn up to the limit. Raises BudgetExceeded.
        """
        with self._reads(options.request_limits, kind="query") as (tenant, budget):
            search = NeighbourSearch(tenant, options, budget)
            return search.find(self._partitions(tenant, options.scope), constant)

    def slow_goals(self) -> list[ListedGoal]:
        """Return the slowest goals of the last hour on this node, slowest first.

        Goals from MIN_LISTED_MS milliseconds on are listed, at most MAX_LISTED distinct ones.
        """
        tenant = self._services.find_tenant(self.database, self.tenant)
        if tenant is None:
            return []
        return self._slow_goals(tenant).slowest(self._services.clock.now_ms())

    def contents(self, scope: str | None = ALL_SCOPES) -> Contents:
        """Return what a scope, or every scope, has stored, as of this call.

        The facts are those valid now or later, not expired ones. They are converted to rows while
        the iterator is read, without holding a lock. The rules are those of the scope itself.
        A fact, or a rule, that is stored with several labels is there with each of them, as it was
        stored. Raises BudgetExceeded.
        """
        with self._reads(None, kind="query") as (tenant, budget):
            now, engine = tenant.at(self._services.clock.now_ms()), tenant.engine
            captured: list[FactsThen] = []
            several: list[Row] = []
            for partition in self._partitions(tenant, scope):
                for stored in sorted(partition.relations(), key=_place):
                    captured.append(FactsThen(stored, *_unexpired(tenant, stored, now, budget)))
                    for row in budget.paced(stored.stacked):
                        several += stacked_rows(tenant, stored, row, now)
            rules = [
                tenant.rules.form(known, labels).labelled(labels)
                for known in tenant.rules.all()
                if scope in (ALL_SCOPES, known.scope)
                for labels in tenant.rules.labels_of(known)
            ]
            declared = [
                each for each in tenant.rules.declarations() if scope in (ALL_SCOPES, each.scope)
            ]
            rule_sets = [
                captured_set(tenant.rule_sets, each)
                for each in tenant.rule_sets.all()
                if scope in (ALL_SCOPES, each.scope)
            ]
        facts = chain(_rows_of(engine, captured), several)
        return Contents(facts, rules, declared, rule_sets)

    def aggregate(
        self,
        query: AggregateQuery,
        *,
        scope: str | None = None,
        as_of: int | None = None,
        request_limits: RequestLimits | None = None,
    ) -> AggregateOutcome:
        """Return COUNT, SUM, MIN, MAX or AVG of one argument of the matching stored facts."""
        with self._reads(request_limits, kind="aggregate") as (tenant, budget):
            return aggregate(tenant, self._partitions(tenant, scope), query, as_of, budget)

    def bindings(
        self,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        options: AnswerOptions = DEFAULT_OPTIONS,
    ) -> list[tuple[str, ...]]:
        """Return the bindings of `variables` for which a body holds, in answer order.

        The scope, limit, offset and point in time of the options apply. Raises BudgetExceeded,
        including when there are more answers than a request may return.
        """
        return self.body_answers(body, variables, options).tuples()

    def body_answers(
        self,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        options: AnswerOptions = DEFAULT_OPTIONS,
    ) -> SymbolAnswers:
        """Return the answers of `bindings`, converted to names when they are read."""
        return self._symbols(body, None, variables, options)

    def answers(self, goal: Literal, options: AnswerOptions = DEFAULT_OPTIONS) -> SymbolAnswers:
        """Return the answers of a goal that is not negated, one name per argument, converted when
        they are read.

        The scope, limit, offset and point in time of the options apply. Raises BudgetExceeded.
        """
        return self._symbols((goal,), goal.atom, (), options)

    def tuples(self, atom: Atom, options: AnswerOptions = DEFAULT_OPTIONS) -> list[tuple[str, ...]]:
        """Return the answers of a goal as tuples of names, one per argument, in answer order."""
        return self.answers(Literal(atom), options).tuples()

    def stored_answers(self, atom: Atom, options: FactOptions = DEFAULT_FACTS) -> SymbolAnswers:
        """Return the stored facts of one sign that match, converted to names when they are read."""
        pattern = StoredPattern(atom.predicate, terms_of(atom), atom.positive)
        with self._reads(options.request_limits, kind="query") as (tenant, budget):
            result = SymbolAnswers(tenant.engine, atom.arity)
            search = self._services.reasoner(tenant).fact_search(pattern, options)
            partitions = self._partitions(tenant, options.scope)
            for partition, _, facts in search.pages(partitions, budget):
                result.append(partition.name, facts.symbols, facts.row_count)
        return result

    # -- inside ------------------------------------------------------------------------------------

    def _symbols(
        self,
        goal: Sequence[BodyItem],
        atom: Atom | None,
        variables: Sequence[Variable],
        options: AnswerOptions,
    ) -> SymbolAnswers:
        """Return the answers of a goal of one `atom` in each partition, or of any goal the bindings
        of `variables`, within the limit and offset.
        """
        arity = len(variables) if atom is None else len(atom.args)
        scope, limit, offset, as_of = options.scope, options.limit, options.offset, options.as_of
        end = None if limit is None else offset + limit

        def evaluate(tenant: Tenant, budget: Budget) -> SymbolAnswers:
            result = SymbolAnswers(tenant.engine, arity)
            reasoner = self._services.reasoner(tenant)
            partitions = self._partitions(tenant, scope)
            deferred = DeferredRows() if end is None and len(partitions) == 1 else None
            for partition in partitions:
                first = None if end is None else end - len(result)
                if first == 0:
                    break
                returns_all = atom is None and first is None
                goal_options = GoalOptions(as_of, first, returns_all=returns_all, deferred=deferred)
                if atom is None:
                    rows, count = reasoner.solve_body(
                        partition, goal, variables, budget, goal_options
                    )
                else:
                    rows, count = reasoner.solve(partition, atom, budget, goal_options)
                if deferred is not None and deferred.is_used:
                    result.defer(partition.name, deferred, count)
                else:
                    if first is not None and first < count:
                        rows, count = rows[: first * arity], first
                    result.append(partition.name, rows, count)
                if atom is None:
                    budget.check_answers(len(result))
            result.warnings = budget.notes.warnings
            if offset:
                result.skip(offset)
            budget.answers += len(result)
            return result

        return self._evaluated(evaluate, options.request_limits, None, "ask", goal, options)


def _needs_rows(literal: Literal, options: AnswerOptions) -> bool:
    """Return True if the answers of a goal cannot be written directly from symbols."""
    return (
        options.as_of is not None
        or options.min_confidence is not None
        or options.include_undefined
        or options.scope == ALL_SCOPES
        or (literal.negated and literal.atom.ground)
    )


def _place(stored: StoredRelation) -> tuple[str, int, bool]:
    """Return the key that orders relations by predicate, arity and sign, positive facts first."""
    return stored.schema.predicate, stored.schema.arity, not stored.schema.positive


def _unexpired(
    tenant: Tenant, stored: StoredRelation, now: int, budget: Budget
) -> tuple[array[int], array[int]]:
    """Return the rows of a relation in answer order that are valid now or later, without those with
    several labels, and their ids.
    """
    arity, relation = stored.schema.arity, stored.relation
    rows, ids = relation.match([0] * arity, hidden=True, yield_now=budget.yield_now)
    rows, count = tenant.engine.sort(rows, arity, budget.offload), len(ids)
    ids = relation.locate(rows, count)
    if not stored.limited and not stored.stacked:
        return rows, ids
    kept_rows, kept_ids = array("I"), array("I")
    for part in budget.slices(count):
        for index, (_, end) in zip(part, stored.windows(ids[part.start : part.stop]), strict=True):
            row = rows[index * arity : (index + 1) * arity]
            if now < end and tuple(row) not in stored.stacked:
                kept_rows.extend(row)
                kept_ids.append(ids[index])
    return kept_rows, kept_ids


def _rows_of(engine: Engine, captured: Sequence[FactsThen]) -> Iterator[Row]:
    """Yield the captured facts as rows."""
    for facts in captured:
        for start in range(0, len(facts), EXPORTED_ROWS):
            yield from facts.rows(engine, start, min(start + EXPORTED_ROWS, len(facts)))
