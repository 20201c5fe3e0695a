"""A plugin for kbcore: a merge strategy, a salience scorer, a tokenizer, a metrics sink, and a
listener.

Each of the functions at the end is one hook. Delete those you do not need.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kbcore import Config, hookimpl
from kbcore.metrics import Kind, MetricSpec
from kbcore.plug.ports import FactUse, Keep, MergeConflict, Resolution

KB_API_VERSION = 1

log = logging.getLogger("kb_example")

TOKEN = re.compile(r"\w+|[^\w\s]")


class LatestTold:
    """A merge strategy: the fact asserted last wins; in a tie the target wins."""

    always = None  # it depends on the conflict

    def resolve(self, conflict: MergeConflict) -> Resolution:
        """Return the winner."""
        source = max((fact.created_at for fact in conflict.source), default=0)
        target = max((fact.created_at for fact in conflict.target), default=0)
        return Resolution(Keep.SOURCE if source > target else Keep.TARGET)


class Newest:
    """A salience scorer: a fact matters less with each day since it was asserted, however often it
    is used.
    """

    weights = None  # a formula of its own

    def score(self, fact: FactUse, now_ms: int) -> float:
        """Return a score from 1 for a fact asserted now down to 0."""
        days = max(0, now_ms - fact.created_at) / 86_400_000
        return 1 / (1 + days)


class Words:
    """A tokenizer: every run of letters or digits is a token, and so is every other character that
    is not a space.

    Models split rare words further. For one model, wrap its own tokenizer in a class with the same
    two members.
    """

    name = "words"

    def count(self, text: str) -> int:
        """Return the number of tokens of a text."""
        return sum(1 for _ in TOKEN.finditer(text))


class SlowLog:
    """A metrics sink: logs everything that took longer than a second."""

    pushes = False

    def __init__(self, specs: Sequence[MetricSpec], seconds: float = 1.0) -> None:
        self.seconds = seconds

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Return a function that takes the values of a family."""
        if spec.kind is not Kind.HISTOGRAM or not spec.name.endswith("_seconds"):
            return lambda value: None
        what = " ".join((spec.name, *labels))

        def tell(value: float) -> None:
            if value >= self.seconds:
                log.warning("%s: %.3f s", what, value)

        return tell

    def expose(self) -> bytes | None:
        """Return None: there is nothing to fetch."""
        return None

    def close(self) -> None:
        """Do nothing: there is nothing to send."""


@hookimpl
def kb_merge_strategies() -> Mapping[str, Any]:
    """Offer the strategy as LATEST_TOLD."""
    return {"LATEST_TOLD": LatestTold()}


@hookimpl
def kb_salience_scorers() -> Mapping[str, Any]:
    """Offer the scorer as `newest`, for SALIENCE_SCORER."""
    return {"newest": Newest()}


@hookimpl
def kb_tokenizers() -> Mapping[str, Callable[[Config], Any]]:
    """Offer the tokenizer as `words`, for TOKENIZER."""
    return {"words": lambda config: Words()}


@hookimpl
def kb_metrics_sinks() -> Mapping[str, Callable[[Sequence[MetricSpec]], Any]]:
    """Offer the sink as `slow-log`, for METRICS_SINKS."""
    return {"slow-log": SlowLog}


@hookimpl
def kb_changes_committed(database: str, tenant: str, delta: Any) -> None:
    """Log what was retracted; the server does not wait for this hook."""
    for removed in delta.removed:
        for row in removed.rows:
            log.info(
                "%s/%s lost %s(%s)", database, tenant, row["predicate"], ", ".join(row["args"])
            )
