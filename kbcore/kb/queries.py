"""Queries of a knowledge base: goals, patterns over stored facts, and aggregates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kbcore.kb.base import TenantHandle
from kbcore.reason.aggregate import AggregateOutcome, AggregateQuery, aggregate
from kbcore.reason.annotate import Answers
from kbcore.reason.ask import Reasoner, terms_of
from kbcore.reason.budget import Budget, Notes, RequestLimits
from kbcore.reason.match import StoredPattern
from kbcore.reason.options import DEFAULT_OPTIONS, AnswerOptions, GoalOptions
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.ir.terms import Atom, BodyItem, Literal, Term, Variable
from kbplanner.passes.check import counterpart

Write = Callable[[list[Row], Callable[[], None]], bytes]
"""Function that encodes rows, which it consumes, as a JSON array.

The function calls its second argument between pieces of work.
"""


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
        with self._reads(options.request_limits, notes, "ask", (literal,)) as (tenant, budget):
            answers = self._answers(tenant, literal, options, budget)
            return [row for _, rows in answers for row in rows]

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
        needs_rows = (
            options.as_of is not None
            or options.min_confidence is not None
            or options.include_undefined
            or options.scope == ALL_SCOPES
            or (literal.negated and atom.ground)
        )
        with self._reads(options.request_limits, notes, "ask", (literal,)) as (tenant, budget):
            if not needs_rows:
                (partition,) = self._partitions(tenant, options.scope)
                parts = self._services.reasoner(tenant).answers_json(
                    partition, atom, budget, options.limit, options.offset
                )
                if parts is not None:
                    return parts
            answers = self._answers(tenant, literal, options, budget)
            return [write([row for _, rows in answers for row in rows], budget.yield_now)]

    def query_json(
        self,
        atom: Atom,
        write: Write,
        *,
        positive: bool | None = None,
        scope: str | None = None,
        limit: int | None = None,
        as_of: int | None = None,
        request_limits: RequestLimits | None = None,
    ) -> list[bytes]:
        """Return the facts of `query_rows`, with their truth values, as parts of a JSON array.

        The options are those of `query_rows`. `write` encodes rows that cannot be written directly
        from the engine.
        """
        with self._reads(request_limits, kind="query") as (tenant, budget):
            if as_of is None and scope != ALL_SCOPES:
                (partition,) = self._partitions(tenant, scope)
                parts = self._services.reasoner(tenant).facts_json(
                    partition, atom, positive, budget, limit
                )
                if parts is not None:
                    return parts
            pattern = StoredPattern(atom.predicate, terms_of(atom), positive)
            rows = self._stored_rows(tenant, pattern, scope, limit, as_of, budget)
            for part in budget.slices(len(rows)):
                for row in rows[part.start : part.stop]:
                    row["truthVal"] = not row["negated"]
            return [write(rows, budget.yield_now)]

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
        """Return matching stored facts without applying rules.

        `positive` selects one sign; None selects both, positive facts first.
        """
        with self._reads(request_limits, kind="query") as (tenant, budget):
            pattern = StoredPattern(predicate, args, positive)
            return self._stored_rows(tenant, pattern, scope, limit, as_of, budget)

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
        listed = 0

        def solve(
            reasoner: Reasoner, partition: Partition, budget: Budget, goal: GoalOptions
        ) -> Answers:
            nonlocal listed
            rows, count = reasoner.solve_body(partition, body, variables, budget, goal)
            listed += count if goal.first is None else min(count, goal.first)
            budget.check_answers(listed)
            return rows, count

        return self._tuples(body, len(variables), options, solve, returns_all=True)

    def tuples(self, atom: Atom, options: AnswerOptions = DEFAULT_OPTIONS) -> list[tuple[str, ...]]:
        """Return the answers of a goal as tuples of names, one per argument, in answer order.

        The scope, limit, offset and point in time of the options apply.
        """

        def solve(
            reasoner: Reasoner, partition: Partition, budget: Budget, goal: GoalOptions
        ) -> Answers:
            return reasoner.solve(partition, atom, budget, goal)

        return self._tuples((Literal(atom),), atom.arity, options, solve)

    # -- inside ------------------------------------------------------------------------------------

    def _tuples(
        self,
        goal: Sequence[BodyItem],
        arity: int,
        options: AnswerOptions,
        solve: Callable[[Reasoner, Partition, Budget, GoalOptions], Answers],
        returns_all: bool = False,
    ) -> list[tuple[str, ...]]:
        """Return the answers of `solve` in each partition, within the limit and offset."""
        end = None if options.limit is None else options.offset + options.limit
        tuples: list[tuple[str, ...]] = []
        with self._reads(options.request_limits, None, "ask", goal) as (tenant, budget):
            reasoner = self._services.reasoner(tenant)
            for partition in self._partitions(tenant, options.scope):
                first = None if end is None else end - len(tuples)
                if first == 0:
                    break
                goal_options = GoalOptions(
                    options.as_of, first, returns_all=returns_all and first is None
                )
                rows, count = solve(reasoner, partition, budget, goal_options)
                if first is not None and first < count:
                    rows, count = rows[: first * arity], first
                if not arity:
                    tuples.extend([()] * count)
                    continue
                texts = tenant.engine.texts(rows)
                tuples.extend(zip(*[texts[column::arity] for column in range(arity)], strict=True))
        return tuples[options.offset :]
