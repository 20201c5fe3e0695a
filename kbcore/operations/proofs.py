"""Proofs, plans, and explanations of goals without answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeAlias

from kbcore.errors import InvalidInput
from kbcore.operations.base import TenantHandle
from kbcore.proofs.answers import body_proofs, proofs
from kbcore.proofs.candidates import FALSE, TRUE, WhyNot
from kbcore.proofs.how_to import (
    MAX_PROPOSALS,
    HowToOptions,
    HowToSearch,
    vocabulary_of,
)
from kbcore.proofs.shapes import ProofLimits, ProofOptions
from kbcore.proofs.text import no_answer, proof_text
from kbcore.proofs.why_not import (
    DEFAULT_CANDIDATES,
    MAX_CANDIDATES,
    MAX_DEPTH,
    WhyNotOptions,
    WhyNotSearch,
    low_confidence,
)
from kbcore.proofs.worlds import world_of
from kbcore.reason.analysis import plan_data
from kbcore.reason.budget import Budget
from kbcore.reason.options import DEFAULT_OPTIONS, AnswerOptions
from kbcore.reason.plan_text import plan_text
from kbcore.state.tenant import Tenant
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.syntax.printer import print_item
from kbtypes.how_to import HowTo

WriteProofs: TypeAlias = "Callable[[Iterable[dict[str, Any]], Callable[[], None]], list[bytes]]"
"""Function that encodes an iterator of proofs as parts of a JSON array.

The function calls its second argument between pieces of work.
"""

DEFAULT_PROOF = ProofOptions()


class Proofs(TenantHandle):
    """Proofs and plans of a knowledge base.

    Answers that are neither true nor false have no proof: the methods that return proofs raise
    InvalidInput for `include_undefined`.
    """

    def prove(
        self,
        literal: Literal,
        options: AnswerOptions = DEFAULT_OPTIONS,
        proof: ProofOptions = DEFAULT_PROOF,
    ) -> list[dict[str, Any]]:
        """Return the answers of `infer`, each with its proof. Raises BudgetExceeded."""
        limits = self._proof_limits(options, proof)

        def evaluate(tenant: Tenant, budget: Budget) -> list[dict[str, Any]]:
            return list(self._proofs(tenant, literal, options, limits, budget))

        return self._evaluated(evaluate, options.request_limits, None, "prove", (literal,), options)

    def prove_json(
        self,
        literal: Literal,
        write: WriteProofs,
        options: AnswerOptions = DEFAULT_OPTIONS,
        proof: ProofOptions = DEFAULT_PROOF,
    ) -> list[bytes]:
        """Return the proofs of `prove`, with the same options, as parts of a JSON array.

        `write` encodes the proofs.
        """
        limits = self._proof_limits(options, proof)

        def evaluate(tenant: Tenant, budget: Budget) -> list[bytes]:
            with closing(self._proofs(tenant, literal, options, limits, budget)) as shaped_proofs:
                return write(shaped_proofs, budget.yield_now)

        return self._evaluated(evaluate, options.request_limits, None, "prove", (literal,), options)

    def explain(
        self,
        body: Sequence[BodyItem],
        options: AnswerOptions = DEFAULT_OPTIONS,
        proof: ProofOptions = DEFAULT_PROOF,
    ) -> str:
        """Return a text that explains the answers of a goal of one or more literals.

        `offset` and `min_confidence` apply to goals of one literal; the proofs are trees. Raises
        BudgetExceeded, and UnsafeRule if a goal of several literals has an unsafe variable.
        """
        limits, item = self._proof_limits(options, replace(proof, form="tree")), body[0]

        def evaluate(tenant: Tenant, budget: Budget) -> list[str]:
            if len(body) == 1 and isinstance(item, Literal):
                proof_trees = self._proofs(tenant, item, options, limits, budget)
            else:
                proof_trees = self._body_proofs(tenant, body, options, limits, budget)
            with closing(proof_trees):
                return [proof_text(tree, budget.yield_now) for tree in proof_trees]

        texts = self._evaluated(evaluate, options.request_limits, None, "prove", body)
        if texts:
            return "\n\n".join(texts)
        short = self._short_of(body, options)
        return short or no_answer(", ".join(print_item(item) for item in body))

    def why_not(
        self,
        body: Sequence[BodyItem],
        options: AnswerOptions = DEFAULT_OPTIONS,
        *,
        depth: int = 1,
    ) -> WhyNot:
        """Explain why a goal of one or more literals has no answer.

        The result has at most `limit` candidates, by default DEFAULT_CANDIDATES, and follows the
        missing premise of each `depth` levels down. A goal holds if it has an answer in any
        partition of the scope, of at least `min_confidence`, which goals of one literal can have;
        premises are not tested for confidence. A search that meets a limit is cut short, not
        refused. Raises InvalidInput, BudgetExceeded if it cannot be decided whether the goal holds,
        and UnsafeRule as `explain` does.
        """
        self._check_why_not(body, options, depth)
        limit = DEFAULT_CANDIDATES if options.limit is None else options.limit

        def evaluate(tenant: Tenant, budget: Budget) -> WhyNot:
            search = WhyNotSearch(
                self._services.reasoner(tenant), budget, WhyNotOptions(options.as_of, limit, depth)
            )
            item = body[0]
            if len(body) > 1 or not isinstance(item, Literal):
                result = search.several(self._partitions(tenant, options.scope), body)
            else:
                result = self._why_not(tenant, item, options._replace(limit=limit), budget, search)
            return search.completed(result, body, options.scope)

        result = self._evaluated(evaluate, options.request_limits, None, "prove", body)
        if not result.holds and (short := self._short_of(body, options)):
            result = replace(result, falls_short=short)
        return result

    def _short_of(self, body: Sequence[BodyItem], options: AnswerOptions) -> str | None:
        """Return what to say of a goal that follows below the level that its predicate requires."""
        item = body[0]
        if len(body) > 1 or not isinstance(item, Literal):
            return None
        return self._falls_short(item, options)

    def _falls_short(self, literal: Literal, options: AnswerOptions) -> str | None:
        """Return None: there are no levels without views."""
        return None

    def how_to(
        self,
        body: Sequence[BodyItem],
        how: HowToOptions,
        options: AnswerOptions = DEFAULT_OPTIONS,
    ) -> HowTo:
        """Return the smallest changes of facts that would make a goal true or false in a scope.

        Of `options`, the scope and the limits of the request apply. Each proposal is evaluated in
        an overlay, as a preview is; nothing is stored. A search that meets a limit is cut short,
        not refused. Raises InvalidInput, BudgetExceeded if it cannot be decided whether the goal
        holds, and UnsafeRule as `explain` does.
        """
        self._check_writable(options.scope)
        _check_how_to(how, options)

        def evaluate(tenant: Tenant, budget: Budget) -> HowTo:
            now, reasoner = tenant.at(self._services.clock.now_ms()), self._services.reasoner
            partition = self._partitions(tenant, options.scope)[0]
            vocabulary, constants = vocabulary_of(
                reasoner(tenant), partition, body, how.changing, now
            )
            with world_of(tenant, options.scope, reasoner, now, constants) as world:
                return HowToSearch(world, vocabulary, budget, how).result(body)

        return self._evaluated(evaluate, options.request_limits, None, "prove", body)

    def _check_why_not(self, body: Sequence[BodyItem], options: AnswerOptions, depth: int) -> None:
        if options.include_undefined:
            raise InvalidInput.at("includeUndefined", "does not apply: the truth value is returned")
        if options.offset:
            raise InvalidInput.at("offset", "does not apply to candidates; use 'limit'")
        if options.limit is not None and not 1 <= options.limit <= MAX_CANDIDATES:
            raise InvalidInput.at("limit", f"must be from 1 to {MAX_CANDIDATES} candidates")
        if not 1 <= depth <= MAX_DEPTH:
            raise InvalidInput.at("depth", f"must be from 1 to {MAX_DEPTH}")
        if options.min_confidence is not None and not (
            len(body) == 1 and isinstance(body[0], Literal)
        ):
            raise InvalidInput.at(
                "minConfidence", "needs a goal of one literal; write a rule for the others"
            )

    def plan(
        self,
        body: Sequence[BodyItem],
        options: AnswerOptions = DEFAULT_OPTIONS,
        *,
        analyze: bool = False,
    ) -> str:
        """Return the evaluation plan of a goal as text: the result of `plans` in words."""
        return "\n\n".join(map(plan_text, self.plans(body, options, analyze=analyze)))

    def plans(
        self,
        body: Sequence[BodyItem],
        options: AnswerOptions = DEFAULT_OPTIONS,
        *,
        analyze: bool = False,
    ) -> list[dict[str, Any]]:
        """Return the evaluation plan of a goal in each partition, with estimates.

        With `analyze` the goal is run without using goal tables, and each plan has the measured
        values. The options that select answers do not matter. Raises BudgetExceeded, and UnsafeRule
        as `explain` does.
        """

        def evaluate(tenant: Tenant, budget: Budget) -> list[dict[str, Any]]:
            reasoner = self._services.reasoner(tenant)
            return [
                plan_data(reasoner, partition, body, budget, analyze=analyze, as_of=options.as_of)
                for partition in self._partitions(tenant, options.scope)
            ]

        return self._evaluated(evaluate, options.request_limits)

    # -- inside ------------------------------------------------------------------------------------

    def _proofs(
        self,
        tenant: Tenant,
        literal: Literal,
        options: AnswerOptions,
        limits: ProofLimits,
        budget: Budget,
    ) -> Generator[dict[str, Any]]:
        """Yield the proofs of the answers of a literal."""
        reasoner = self._services.reasoner(tenant)
        for partition, rows in self._answers(tenant, literal, options, budget):
            budget.answers += len(rows)
            yield from proofs(reasoner, partition, literal, rows, limits, budget, options.as_of)

    def _body_proofs(
        self,
        tenant: Tenant,
        body: Sequence[BodyItem],
        options: AnswerOptions,
        limits: ProofLimits,
        budget: Budget,
    ) -> Generator[dict[str, Any]]:
        """Yield the proofs of the answers of several literals, partition by partition."""
        reasoner = self._services.reasoner(tenant)
        for partition in self._partitions(tenant, options.scope):
            yield from body_proofs(
                reasoner, partition, body, options.limit, limits, budget, options.as_of
            )

    def _why_not(
        self,
        tenant: Tenant,
        literal: Literal,
        options: AnswerOptions,
        budget: Budget,
        search: WhyNotSearch,
    ) -> WhyNot:
        """Return the explanation of a goal of one literal, which may hold."""
        first = options._replace(limit=1)
        if any(rows for _, rows in self._answers(tenant, literal, first, budget)):
            return WhyNot(print_item(literal), TRUE)
        first = first._replace(min_confidence=None)
        if options.min_confidence is not None:
            any_confidence = options._replace(min_confidence=None)
            answers = self._answers(tenant, literal, any_confidence, budget)
            if any(rows for _, rows in answers):
                return low_confidence(literal, answers, options.min_confidence)
        possible = self._answers(tenant, literal, first._replace(include_undefined=True), budget)
        return search.literal(
            self._partitions(tenant, options.scope),
            literal,
            undefined=any(rows for _, rows in possible),
        )

    def _proof_limits(self, options: AnswerOptions, proof: ProofOptions) -> ProofLimits:
        if options.include_undefined:
            raise InvalidInput.at(
                "includeUndefined",
                "cannot be combined with proofs: undefined answers have no proof",
            )
        config = self._services.config
        return proof.limits(config.proof_nodes, config.proof_depth)


def _check_how_to(how: HowToOptions, options: AnswerOptions) -> None:
    if how.make not in (TRUE, FALSE):
        raise InvalidInput.at("make", f"must be '{TRUE}' or '{FALSE}'")
    if not 1 <= how.limit <= MAX_PROPOSALS:
        raise InvalidInput.at("limit", f"must be from 1 to {MAX_PROPOSALS} proposals")
    for name, value in (
        ("asOf", options.as_of),
        ("offset", options.offset or None),
        ("minConfidence", options.min_confidence),
        ("includeUndefined", options.include_undefined or None),
    ):
        if value is not None:
            raise InvalidInput.at(name, "does not apply to 'howTo'")
