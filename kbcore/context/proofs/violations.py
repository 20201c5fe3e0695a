"""Violations of declared constraints: the conclusions `contradiction(kind, first, second)`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kbcore.context.capacity import RankedCandidate
from kbcore.reason.ask import Reasoner
from kbcore.reason.budget import Budget
from kbcore.reason.options import GoalOptions
from kbcore.state.facts import Row
from kbcore.state.partition import Partition
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.constraints import CONTRADICTION, DIFFERENT, fact_text
from kbplanner.syntax.printer import print_atom

SCHEMA = RelationSchema(CONTRADICTION, 3)

MAX_SHOWN = 10
"""Violations that a window shows."""

_GOAL = Atom(CONTRADICTION, (Variable("kind"), Variable("first"), Variable("second")))
_OPTIONS = GoalOptions(counts_accesses=False)


class Violation(NamedTuple):
    """A violation: the scope, the kind of the constraint, and the texts of the two facts, or for
    the kind `different` the two names.
    """

    scope: str | None
    kind: str
    first: str
    second: str

    @property
    def text(self) -> str:
        """The violation as an atom in the rule language."""
        return print_atom(Atom(CONTRADICTION, self[1:]))

    @property
    def row(self) -> Row:
        """The violation as an answer."""
        return {
            "predicate": CONTRADICTION,
            "args": list(self[1:]),
            "negated": False,
            "scope": self.scope,
            "metadata": {},
            "createdAt": None,
            "validFrom": None,
            "validUntil": None,
            "ttl": None,
            "confidence": None,
        }


def violations(
    reasoner: Reasoner, partitions: Sequence[Partition], budget: Budget
) -> list[Violation]:
    """Return the violations in some partitions, in answer order.

    Without rules that conclude them this costs nothing. The caller holds the read lock. Raises
    BudgetExceeded.
    """
    listed: list[Violation] = []
    for partition in partitions:
        if SCHEMA not in reasoner.tenant.rules.visible(partition.name).derived:
            continue
        rows, count = reasoner.solve(partition, _GOAL, budget, _OPTIONS)
        texts = reasoner.tenant.engine.texts(rows)
        for part in budget.slices(count):
            listed += [Violation(partition.name, *texts[3 * i : 3 * i + 3]) for i in part]
    return listed


def about(
    violated: Sequence[Violation], facts: Iterable[RankedCandidate], now: int
) -> Iterator[RankedCandidate]:
    """Yield the first violations in which facts take part, as facts for a window.

    In a violation of the kind `different`, facts with both names take part. The violations have no
    provenance: its premises would be the two facts once more. `now` is in epoch milliseconds.
    """
    if not violated:
        return
    named: set[tuple[str | None, str]] = set()
    pairs: set[tuple[str | None, str, str]] = set()
    for fact in facts:
        if not fact.row["negated"]:
            scope, args = fact.row["scope"], tuple(fact.row["args"])
            named.add((scope, fact_text(Atom(fact.row["predicate"], args))))
            if len(args) == 2:
                pairs |= {(scope, *args), (scope, *args[::-1])}
    count_shown = 0
    for each in violated:
        if each.kind == DIFFERENT:
            takes_part = (each.scope, each.first, each.second) in pairs
        else:
            takes_part = not named.isdisjoint(((each.scope, each.first), (each.scope, each.second)))
        if count_shown < MAX_SHOWN and takes_part:
            count_shown += 1
            yield RankedCandidate(each.row, 0.0, now)
