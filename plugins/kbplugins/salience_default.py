"""The default salience scorer: recency, frequency of use, declared priority."""

from __future__ import annotations

from collections.abc import Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import FactUse, SalienceScorer, SalienceWeights
from kbplanner.engine.salience import Salience


class DefaultScorer:
    """The default formula with configurable weights and half-life."""

    def __init__(self, weights: SalienceWeights) -> None:
        self._weights = weights

    @property
    def weights(self) -> SalienceWeights:
        """The parameters of the formula."""
        return self._weights

    def score(self, fact: FactUse, now_ms: int) -> float:
        """Return the salience of a fact at a time in epoch milliseconds."""
        parts = self._weights
        how = Salience(parts.recency, parts.frequency, parts.priority, parts.half_life_ms, now_ms)
        certain = float("nan") if fact.confidence is None else fact.confidence
        return how.score(fact.created_at, fact.last_access, fact.accesses, fact.priority, certain)


@hookimpl
def kb_salience_scorers(config: Config) -> Mapping[str, SalienceScorer]:
    """Offer the default formula, with the weights and the half-life of the settings, under the name
    `default`.
    """
    recency, frequency, priority = config.salience_weights
    return {
        "default": DefaultScorer(
            SalienceWeights(recency, frequency, priority, config.salience_half_life_ms)
        )
    }
