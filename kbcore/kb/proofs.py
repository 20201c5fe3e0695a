"""Proofs and plans: JSON and text explanations of answers, and the evaluation plans of goals."""

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
"""Function that encodes an iterator of proofs as parts of a JSON array.

The function calls its second argument between pieces of work.
"""


class Explaining(TenantHandle):
    """Proofs and plans of a knowledge base."""

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
        """Return the answers of `infer`, each with its proof.

        `form` is `tree`, or `dag`, which writes shared lemmas once. A proof is cut at `nodes` nodes
        (None: the setting) and `depth` steps (None: the setting for a tree, no limit for a dag).
        Raises BudgetExceeded.
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
        """Return the proofs of `prove`, with the same options, as parts of a JSON array.

        `write` encodes the proofs.
        """
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
        """Return a text that explains the answers of a goal of one or more literals.

        `offset` and `min_confidence` apply to goals of one literal. Raises BudgetExceeded, and
        UnsafeRule if a goal of several literals has an unsafe variable.
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
        """Return the evaluation plan of a goal as text: the result of `plans` in words."""
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
        """Return the evaluation plan of a goal in each partition, with estimates.

        With `analyze` the goal is run without using goal tables, and each plan has the measured
        values. Raises BudgetExceeded, and UnsafeRule as `explain` does.
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
        """Yield the proofs of the answers of a literal.

        `asked` is scope, limit, offset, minimum confidence and as-of time.
        """
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
        """Yield the proofs of the answers of several literals, partition by partition."""
        reasoner = self._services.reasoner(tenant)
        for partition in self._partitions(tenant, scope):
            yield from body_proofs(reasoner, partition, body, limit, limits, budget, as_of)

    def _limits_of(self, form: str, nodes: int | None, depth: int | None) -> ProofLimits:
        config = self._services.config
        deepest = MAX_PROOF_NODES if form == "dag" else config.proof_depth
        return ProofLimits(nodes or config.proof_nodes, depth or deepest)
