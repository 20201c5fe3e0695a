"""Queries of a knowledge base: goals, patterns over stored facts, and aggregates."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence

from kbcore.kb.proofs import Explaining
from kbcore.reason.aggregate import AggregateOutcome, aggregate
from kbcore.reason.annotate import Answers
from kbcore.reason.ask import Reasoner, terms_of
from kbcore.reason.budget import Budget, BudgetWanted, Notes
from kbcore.reason.match import matching, sorted_rows
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.terms import Atom, BodyItem, Literal, Term, Variable
from kbplanner.passes.check import counterpart

Write = Callable[[list[Row], Callable[[], None]], bytes]
"""Function that encodes rows, which it consumes, as a JSON array.

The function calls its second argument between pieces of work.
"""


class Asking(Explaining):
    """Queries of a knowledge base."""

    def infer(
        self,
        literal: Literal,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        include_undefined: bool = False,
        wanted: BudgetWanted | None = None,
        notes: Notes | None = None,
    ) -> list[Row]:
        """Return the answers of a goal, from facts and rules, in answer order.

        Rows of different partitions follow one another. `as_of` (epoch milliseconds) evaluates
        validity at that point in time. `notes` are filled in. With `include_undefined` the result
        also has rows for atoms that recursion through negation leaves undefined; their metadata has
        `truth` "undefined".

        Raises BudgetExceeded, and RateLimited if the tenant runs too many long goals.
        """
        with self._reads(wanted, notes, "ask", (literal,)) as (tenant, budget):
            ask = tenant, literal, scope, limit, offset, min_confidence, as_of, budget
            return [
                row for _, rows in self._answers(*ask, undefined=include_undefined) for row in rows
            ]

    def infer_json(
        self,
        literal: Literal,
        write: Write,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        include_undefined: bool = False,
        wanted: BudgetWanted | None = None,
        notes: Notes | None = None,
    ) -> list[bytes]:
        """Return the answers of `infer`, with the same options, as parts of a JSON array.

        `write` encodes rows that cannot be written directly from the engine. Raises BudgetExceeded
        and RateLimited.
        """
        asked = literal.atom
        if literal.negated:
            asked = counterpart(literal)
        special = as_of is not None or min_confidence is not None or include_undefined
        with self._reads(wanted, notes, "ask", (literal,)) as (tenant, budget):
            if not special and scope != ALL_SCOPES and not (literal.negated and asked.ground):
                (partition,) = self._partitions(tenant, scope)
                found = self._services.reasoner(tenant).written(
                    partition, asked, budget, limit, offset
                )
                if found is not None:
                    return found
            ask = tenant, literal, scope, limit, offset, min_confidence, as_of, budget
            rows = [
                row for _, some in self._answers(*ask, undefined=include_undefined) for row in some
            ]
            return [write(rows, budget.rest)]

    def query_json(
        self,
        atom: Atom,
        write: Write,
        *,
        positive: bool | None = None,
        scope: str | None = None,
        limit: int | None = None,
        as_of: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> list[bytes]:
        """Return the facts of `query_rows`, with their truth values, as parts of a JSON array.

        The options are those of `query_rows`. `write` encodes rows that cannot be written directly
        from the engine.
        """
        with self._reads(wanted, kind="query") as (tenant, budget):
            if as_of is None and scope != ALL_SCOPES:
                (partition,) = self._partitions(tenant, scope)
                found = self._services.reasoner(tenant).written_facts(
                    partition, atom, positive, budget, limit
                )
                if found is not None:
                    return found
            rows = self._stored(
                tenant, atom.predicate, terms_of(atom), positive, scope, limit, as_of, budget
            )
            for part in budget.slices(len(rows)):
                for place in part:
                    rows[place]["truthVal"] = not rows[place]["negated"]
            return [write(rows, budget.rest)]

    def query_rows(
        self,
        predicate: str,
        args: Sequence[Term],
        *,
        positive: bool | None = None,
        scope: str | None = None,
        limit: int | None = None,
        as_of: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> list[Row]:
        """Return matching stored facts without applying rules.

        `positive` selects one sign; None selects both, positive facts first.
        """
        with self._reads(wanted, kind="query") as (tenant, budget):
            return self._stored(tenant, predicate, args, positive, scope, limit, as_of, budget)

    def aggregate(
        self,
        predicate: str,
        op: str,
        *,
        arg_index: int | None = None,
        pattern: Sequence[Term] | None = None,
        scope: str | None = None,
        skip_non_numeric: bool = False,
        as_of: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> AggregateOutcome:
        """Return COUNT, SUM, MIN, MAX or AVG of one argument of the matching stored facts."""
        with self._reads(wanted, kind="aggregate") as (tenant, budget):
            asked = (
                self._partitions(tenant, scope),
                predicate,
                op.upper(),
                arg_index,
                pattern,
                skip_non_numeric,
                as_of,
            )
            return aggregate(tenant, *asked, budget)

    def bindings(
        self,
        body: Sequence[BodyItem],
        variables: Sequence[Variable],
        *,
        scope: str | None = None,
        limit: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> list[tuple[str, ...]]:
        """Return the first `limit` bindings of `variables` for which a body holds, in answer order.

        Raises BudgetExceeded, including when there are more answers than a request may return.
        """
        listed, arity = 0, len(variables)

        def solve(reasoner: Reasoner, partition: Partition, budget: Budget) -> Answers:
            nonlocal listed
            left = None if limit is None else limit - listed
            if left == 0:
                return array("I"), 0
            budget.whole, budget.first = left is None, left
            rows, count = reasoner.solve_body(partition, body, variables, budget)
            if left is not None and left < count:
                rows, count = rows[: left * arity], left
            listed += count
            budget.check_answers(listed)
            return rows, count

        return self._tuples(scope, arity, wanted, solve, body)

    def tuples(
        self, atom: Atom, *, scope: str | None = None, wanted: BudgetWanted | None = None
    ) -> list[tuple[str, ...]]:
        """Return the answers of a goal as tuples of names, one per argument, in answer order."""

        def solve(reasoner: Reasoner, partition: Partition, budget: Budget) -> Answers:
            return reasoner.solve(partition, atom, budget)

        return self._tuples(scope, atom.arity, wanted, solve, (Literal(atom),))

    # -- inside ------------------------------------------------------------------------------------

    def _stored(
        self,
        tenant: Tenant,
        predicate: str,
        args: Sequence[Term],
        positive: bool | None,
        scope: str | None,
        limit: int | None,
        as_of: int | None,
        budget: Budget,
    ) -> list[Row]:
        found: list[Row] = []
        for partition in self._partitions(tenant, scope):
            for stored, rows, ids in matching(
                tenant, partition, predicate, args, positive, as_of, budget
            ):
                if limit is None:
                    budget.check_answers(len(ids))
                left = None if limit is None else limit - len(found)
                found.extend(sorted_rows(tenant, stored, rows, len(ids), left, budget))
        return found

    def _tuples(
        self,
        scope: str | None,
        arity: int,
        wanted: BudgetWanted | None,
        solve: Callable[[Reasoner, Partition, Budget], Answers],
        goal: Sequence[BodyItem],
    ) -> list[tuple[str, ...]]:
        found: list[tuple[str, ...]] = []
        with self._reads(wanted, None, "ask", goal) as (tenant, budget):
            reasoner = self._services.reasoner(tenant)
            for partition in self._partitions(tenant, scope):
                rows, count = solve(reasoner, partition, budget)
                if not arity:
                    found.extend([()] * count)
                    continue
                texts = tenant.engine.texts(rows)
                found.extend(zip(*[texts[column::arity] for column in range(arity)], strict=True))
        return found
