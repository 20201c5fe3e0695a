"""Why answers hold, for programs and for people, and how a goal is evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kbcore.reading import Reading
from kbcore.reason.plantext import plan_text
from kbcore.reason.proofforms import MAX_PROOF_NODES, ProofLimits
from kbcore.reason.prooftext import no_answer, proof_text
from kbcore.reason.why import body_proofs, proofs
from kbplanner.printer import print_item
from kbplanner.terms import BodyItem, Literal


class Explaining(Reading):
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
        timeout_ms: int | None = None,
        form: str = "tree",
        nodes: int | None = None,
        depth: int | None = None,
    ) -> list[dict[str, Any]]:
        """The answers `infer` gives, each with its proof: a `tree`, or a `dag` that writes shared lemmas once.

        A proof is cut at `nodes` nodes (None: the setting) and `depth` steps (None: the setting, for a tree; none for a
        dag). Raises BudgetExceeded.
        """
        limits = self._limits(nodes, MAX_PROOF_NODES if depth is None and form == "dag" else depth)
        budget = self._budget(timeout_ms)
        tenant = self._read_tenant()
        found: list[dict[str, Any]] = []
        with tenant.lock.read():
            reasoner = self._runtime.reasoner(tenant)
            for partition, rows in self._answers(tenant, literal, scope, limit, offset, min_confidence, as_of, budget):
                found.extend(proofs(reasoner, partition, literal, rows, form, limits, budget, as_of))
        return found

    def explain(
        self,
        body: Sequence[BodyItem],
        *,
        scope: str | None = None,
        limit: int | None = None,
        offset: int = 0,
        min_confidence: float | None = None,
        as_of: int | None = None,
        timeout_ms: int | None = None,
        nodes: int | None = None,
        depth: int | None = None,
    ) -> str:
        """Why the answers of a goal of one or several literals hold, as text for people.

        `offset` and `min_confidence` are for goals of one literal. Raises BudgetExceeded, and UnsafeRule for several
        literals of which one has a variable that nothing binds.
        """
        limits, budget = self._limits(nodes, depth), self._budget(timeout_ms)
        only = body[0]
        found: list[dict[str, Any]] = []
        tenant = self._read_tenant()
        with tenant.lock.read():
            reasoner = self._runtime.reasoner(tenant)
            if len(body) == 1 and isinstance(only, Literal):
                for partition, rows in self._answers(tenant, only, scope, limit, offset, min_confidence, as_of, budget):
                    found.extend(proofs(reasoner, partition, only, rows, "tree", limits, budget, as_of))
            else:
                for partition in self._partitions(tenant, scope):
                    found.extend(body_proofs(reasoner, partition, body, limit, limits, budget, as_of))
        if not found:
            return no_answer(", ".join(print_item(item) for item in body))
        return "\n\n".join(proof_text(proof) for proof in found)

    def plan(self, body: Sequence[BodyItem], *, scope: str | None = None, timeout_ms: int | None = None) -> str:
        """How a goal is evaluated, as text for people: the plan, what was expected, and what a run of it met."""
        budget = self._budget(timeout_ms)
        tenant = self._read_tenant()
        with tenant.lock.read():
            reasoner = self._runtime.reasoner(tenant)
            return "\n\n".join(plan_text(reasoner, p, body, budget) for p in self._partitions(tenant, scope))

    def _limits(self, nodes: int | None, depth: int | None) -> ProofLimits:
        config = self._runtime.config
        return ProofLimits(nodes or config.proof_nodes, depth or config.proof_depth)
