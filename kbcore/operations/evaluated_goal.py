"""Goals that were evaluated, for the logs of slow goals and of decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from typing import NamedTuple

from kbcore.reason.budget import Budget
from kbcore.reason.options import AnswerOptions
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import BodyItem, Literal

KEY_NAME: ContextVar[str | None] = ContextVar("kbcore-key-name", default=None)
"""The name of the API key of the current request; each request sets it."""

Masks = Mapping[tuple[str, int], frozenset[int]]
"""The masked arguments, numbered from 0, by name and arity of the predicate."""


class InForce(NamedTuple):
    """Members of lines of the decision log about a tenant and a scope, as JSON, and the masks. Both
    change only with rules and declarations. `hides_all` is for a goal none of whose constants may
    be shown.
    """

    members: bytes
    masks: Masks
    hides_all: bool = False


class EvaluatedGoal(NamedTuple):
    """A goal that was evaluated: the kind of read, its duration, its budget, and its error if it
    failed.

    `options` are those of a goal whose answers were returned, of which there were `answers`;
    `in_force` and `generation` are of the state that answered; None and 0 if decisions are not
    logged.
    """

    kind: str
    goal: Sequence[BodyItem]
    seconds: float
    budget: Budget
    error: BaseException | None = None
    options: AnswerOptions | None = None
    in_force: InForce | None = None
    generation: int = 0
    answers: int = 0

    @property
    def outcome(self) -> str:
        """`answered`, or the name of the error."""
        return "answered" if self.error is None else type(self.error).__name__


def names_unknown(
    tenant: Tenant,
    goal: Sequence[BodyItem],
    scope: str | None,
    known: Collection[tuple[str, int]],
) -> bool:
    """Return True if a goal has a predicate that has neither facts, nor rules, nor a declared input
    in a scope, and is none of `known`. The caller holds the read lock.
    """
    signatures = {
        (item.atom.predicate, len(item.atom.args)) for item in goal if isinstance(item, Literal)
    }
    unknown = signatures.difference(known)
    if not unknown:
        return False
    with tenant.unnoted():
        return not all(_is_known(tenant, signature, scope) for signature in unknown)


def _is_known(tenant: Tenant, signature: tuple[str, int], scope: str | None) -> bool:
    rules, is_all = tenant.rules, scope == ALL_SCOPES
    schemas = [RelationSchema(*signature, positive) for positive in (True, False)]
    for partition in tenant.partitions(scope):
        for schema in schemas:
            stored = partition.get(schema)
            if stored is not None and stored.relation.counts().live:
                return True
    scopes: Sequence[str | None] = (None, *tenant.scopes()) if is_all else (scope,)
    if any(not rules.visible(each).derived.isdisjoint(schemas) for each in scopes):
        return True
    return signature in rules.inputs(scope, all_scopes=is_all)
