"""Why answers hold, for programs and for people, and how a goal is evaluated."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from typing import Any, TypeAlias

from kbcore.kb.base import TenantHandle
from kbcore.proofs.answers import body_proofs, proofs
from kbcore.proofs.shapes import MAX_PROOF_NODES, ProofLimits
from kbcore.proofs.text import no_answer, proof_text
from kbcore.reason.analysis import plan_data
from kbcore.reason.budget import Budget, BudgetWanted
from kbcore.reason.plan_text import plan_text
from kbcore.state.tenant import Tenant
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.syntax.printer import print_item

WriteProofs: TypeAlias = "Callable[[Iterable[dict[str, Any]], Callable[[], None]], list[bytes]]"
"""Gives the JSON array of proofs, which are made one by one, in parts; it calls the function between pieces of its work."""


class Explaining(TenantHandle):
    """The part of a knowledge base that explains."""

    def prove(
        self,
        literal: Literal,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        form: str = "tree",
        nodes: int | None = None,
        depth: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> list[dict[str, Any]]:
        """The answers `infer` gives, each with its proof: a `tree`, or a `dag` that writes shared lemmas once.

        A proof is cut at `nodes` nodes (None: the setting) and `depth` steps (None: the setting, for a tree; none for a
        dag). Raises BudgetExceeded.
        """
        with self._reads(wanted, None, "prove", (literal,)) as (tenant, budget):
            asked = scope, limit, offset, min_confidence, as_of
            return list(
                self._proofs(
                    tenant, literal, asked, form, self._limits_of(form, nodes, depth), budget
                )
            )

    def prove_json(
        self,
        literal: Literal,
        write: WriteProofs,
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        form: str = "tree",
        nodes: int | None = None,
        depth: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> list[bytes]:
        """The proofs of `prove`, with the same options, as a JSON array in parts; `write` makes it of them."""
        with self._reads(wanted, None, "prove", (literal,)) as (tenant, budget):
            asked = scope, limit, offset, min_confidence, as_of
            with closing(
                self._proofs(
                    tenant, literal, asked, form, self._limits_of(form, nodes, depth), budget
                )
            ) as found:
                return write(found, budget.rest)

    def explain(
        self,
        body: Sequence[BodyItem],
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        nodes: int | None = None,
        depth: int | None = None,
        wanted: BudgetWanted | None = None,
    ) -> str:
        """Why the answers of a goal of one or several literals hold, as text for people.

        `offset` and `min_confidence` are for goals of one literal. Raises BudgetExceeded, and UnsafeRule for several
        literals of which one has a variable that nothing binds.
        """
        limits, only = self._limits_of("tree", nodes, depth), body[0]
        with self._reads(wanted, None, "prove", body) as (tenant, budget):
            if len(body) == 1 and isinstance(only, Literal):
                asked = scope, limit, offset, min_confidence, as_of
                found = self._proofs(tenant, only, asked, "tree", limits, budget)
            else:
                found = self._body_proofs(tenant, body, scope, limit, limits, budget, as_of)
            with closing(found):
                texts = [proof_text(proof, budget.rest) for proof in found]
        return "\n\n".join(texts) or no_answer(", ".join(print_item(item) for item in body))

    def plan(
        self,
        body: Sequence[BodyItem],
        *,
        scope: str | None = None,
        as_of: int | None = None,
        wanted: BudgetWanted | None = None,
        analyze: bool = False,
    ) -> str:
        """How a goal is evaluated, as text for people: `plans` in words."""
        found = self.plans(body, scope=scope, as_of=as_of, wanted=wanted, analyze=analyze)
        return "\n\n".join(map(plan_text, found))

    def plans(
        self,
        body: Sequence[BodyItem],
        *,
        scope: str | None = None,
        as_of: int | None = None,
        wanted: BudgetWanted | None = None,
        analyze: bool = False,
    ) -> list[dict[str, Any]]:
        """How a goal is evaluated in each partition: its plan and what is expected of it.

        With `analyze` the goal is run, beside the goal tables, and each plan says what the run met. Raises BudgetExceeded,
        and UnsafeRule as `explain` does.
        """
        with self._reads(wanted, kind="other") as (tenant, budget):
            reasoner = self._services.reasoner(tenant)
            partitions = self._partitions(tenant, scope)
            return [
                plan_data(reasoner, one, body, budget, analyze=analyze, as_of=as_of)
                for one in partitions
            ]

    def _proofs(
        self,
        tenant: Tenant,
        literal: Literal,
        asked: tuple[str | None, int | None, int, float | None, int | None],
        form: str,
        limits: ProofLimits,
        budget: Budget,
    ) -> Generator[dict[str, Any]]:
        """The proofs of the answers of a literal; `asked`: scope, limit, offset, least confidence, moment."""
        reasoner, as_of = self._services.reasoner(tenant), asked[-1]
        for partition, rows in self._answers(tenant, literal, *asked, budget):
            yield from proofs(reasoner, partition, literal, rows, form, limits, budget, as_of)

    def _body_proofs(
        self,
        tenant: Tenant,
        body: Sequence[BodyItem],
        scope: str | None,
        limit: int | None,
        limits: ProofLimits,
        budget: Budget,
        as_of: int | None,
    ) -> Generator[dict[str, Any]]:
        """The proofs of the answers of several literals, partition by partition."""
        reasoner = self._services.reasoner(tenant)
        for partition in self._partitions(tenant, scope):
            yield from body_proofs(reasoner, partition, body, limit, limits, budget, as_of)

    def _limits_of(self, form: str, nodes: int | None, depth: int | None) -> ProofLimits:
        config = self._services.config
        deepest = MAX_PROOF_NODES if form == "dag" else config.proof_depth
        return ProofLimits(nodes or config.proof_nodes, depth or deepest)
