"""Memory of a knowledge base: salience, decay, consolidation, priorities and recall."""

from __future__ import annotations

from collections.abc import Sequence

from kbcore import python_values
from kbcore.errors import InvalidInput
from kbcore.operations.salience import DECAY_THRESHOLD, LEAST_GROUP
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import integer, moment, named
from kbcore.state.facts import Row
from kbtypes.results import ConsolidateOutcome, DecayOutcome
from kbtypes.values import Arg, Instant


class PythonMemory(PythonHandle):
    """Memory of a knowledge base. Transactions do not support these writes."""

    def decay(
        self, threshold: float = DECAY_THRESHOLD, *, scope: str | None = None, dry_run: bool = False
    ) -> DecayOutcome:
        """Evict expired facts, and facts whose salience is below `threshold` (0 to 1).

        With `dry_run` nothing changes.
        """
        return self.kb.decay(threshold, scope=scope, dry_run=dry_run)

    def consolidate(
        self,
        *,
        min_group_size: int = LEAST_GROUP,
        predicates: Sequence[str] | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ConsolidateOutcome:
        """Store a summary for each group of facts with equal predicate, arity and first argument.

        The summary is `<predicate>_consolidated(<first argument>, <count>)`. Groups smaller than
        `min_group_size` get none. With `dry_run` nothing changes.
        """
        with named(minGroupSize="min_group_size"):
            return self.kb.consolidate(
                min_group_size=min_group_size, predicates=predicates, scope=scope, dry_run=dry_run
            )

    def prioritize(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        priority: float | None = None,
        *,
        scope: str | None = None,
    ) -> None:
        """Set the priority of a stored fact, 0 to 1 (initially 0.5).

        The fact is `prioritize("allergy(ann, nuts)", priority=1.0)` or a predicate with arguments;
        without a sign, the facts of both signs are meant. Raises NotFound.
        """
        if priority is None:
            raise InvalidInput.at(
                "priority", "is required: write priority=..., a number from 0 to 1"
            )
        name, terms, positive = python_values.atom(predicate, args)
        self.kb.prioritize(
            name, python_values.ground(name, terms), priority, positive=positive, scope=scope
        )

    def salient(
        self,
        predicate: str | None = None,
        args: Sequence[Arg] | None = None,
        *,
        limit: int = 50,
        minimum: float = 0.0,
        scope: str | None = None,
    ) -> list[Row]:
        """Return the stored facts with the highest salience, best first, with their `salience`.

        `predicate` is a name, a pattern as text, or a name with `args`; None means all predicates.
        The returned facts count as accessed.
        """
        pattern = None if args is None else python_values.terms(args)
        if predicate is not None and args is None and "(" in predicate:
            predicate, pattern, _ = python_values.atom(predicate, None)
        with named(minSalience="minimum"):
            return self.kb.salient(predicate, pattern, limit=limit, minimum=minimum, scope=scope)

    def recall(
        self,
        predicate: str,
        args: Sequence[Arg] | None = None,
        at: Instant | None = None,
        *,
        scope: str | None = None,
        limit: int | None = None,
    ) -> list[Row]:
        """Return the matching facts that were valid at a point in time, as they are stored now.

        The pattern is that of `query`, with facts of both signs unless the text begins with `~`.
        `at` has the forms of times in `tell`.
        """
        if at is None:
            raise InvalidInput.at("at", "is required: write at=..., a point in time")
        name, terms, positive = python_values.atom(predicate, args)
        return self.kb.recall(
            name,
            terms,
            moment("at", at),
            positive=positive,
            scope=scope,
            limit=integer("limit", limit),
        )
