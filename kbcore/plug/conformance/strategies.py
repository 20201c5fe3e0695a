"""Conformance tests of merge strategies and salience scorers."""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import ClassVar

import pytest

from kbcore.config.settings import Config
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import (
    ConflictingFact,
    FactUse,
    Keep,
    MergeConflict,
    MergeStrategy,
    Resolution,
    SalienceScorer,
)
from kbplanner.engine.salience import Salience

YES, NO = (
    ConflictingFact(True, 1, 1, None, 0.5, {"k": 1}),
    ConflictingFact(False, 2, 5, 9, None, {}),
)
CONFLICTS = (
    MergeConflict("p", ("a", "b"), (YES,), (ConflictingFact(True, 3, 3, None, 0.5, {"k": 2}),)),
    MergeConflict("p", (), (NO,), (YES,)),
    MergeConflict("p", ("a",), (NO,), (ConflictingFact(False, 2, 4, 8),)),
    MergeConflict("p", ("a",), (YES, NO), (ConflictingFact(False, 1, 1),)),
)
"""One conflict of each kind: metadata, sign, window, both signs against one."""


class MergeStrategyConformance(Conformance, abstract=True):
    """Tests of the contract of `MergeStrategy`.

    Subclass it, name it `Test...`, and implement `make_strategy`.
    """

    factory = "make_strategy"

    @abstractmethod
    def make_strategy(self) -> MergeStrategy:
        """Return the strategy under test."""

    @pytest.mark.parametrize(
        "conflict", CONFLICTS, ids=["metadata", "sign", "window", "three facts"]
    )
    def test_it_decides_every_conflict(self, conflict: MergeConflict) -> None:
        """Check that the result is a Resolution, with facts of different signs only for
        `Keep.FACTS`.
        """
        resolution = self.make_strategy().resolve(conflict)
        assert isinstance(resolution, Resolution)
        assert isinstance(resolution.keep, Keep)
        assert all(isinstance(fact, ConflictingFact) for fact in resolution.facts)
        assert len({fact.positive for fact in resolution.facts}) == len(resolution.facts)
        assert not resolution.facts or resolution.keep is Keep.FACTS

    @pytest.mark.parametrize(
        "conflict", CONFLICTS, ids=["metadata", "sign", "window", "three facts"]
    )
    def test_it_is_pure(self, conflict: MergeConflict) -> None:
        """Check that repeated calls and another instance return the same, and leave the conflict
        unchanged.
        """
        before = repr(conflict)
        strategy = self.make_strategy()
        assert (
            strategy.resolve(conflict)
            == strategy.resolve(conflict)
            == self.make_strategy().resolve(conflict)
        )
        assert repr(conflict) == before

    @pytest.mark.parametrize(
        "conflict", CONFLICTS, ids=["metadata", "sign", "window", "three facts"]
    )
    def test_what_it_always_decides_it_decides_here(self, conflict: MergeConflict) -> None:
        """Check that `always` is None, or the decision of `resolve` for every conflict."""
        strategy = self.make_strategy()
        assert strategy.always is not Keep.FACTS
        assert strategy.always in (None, strategy.resolve(conflict).keep)


class SalienceScorerConformance(Conformance, abstract=True):
    """Tests of the contract of `SalienceScorer`.

    Subclass it, name it `Test...`, and implement `make_scorer`.
    """

    factory = "make_scorer"

    NOW: ClassVar[int] = 1_700_000_000_000

    @abstractmethod
    def make_scorer(self, config: Config) -> SalienceScorer:
        """Return the scorer under test."""

    @pytest.fixture
    def scorer(self) -> SalienceScorer:
        """Return the scorer under test, with default settings."""
        return self.make_scorer(Config())

    def facts(self) -> Iterable[FactUse]:
        """Yield facts of every age, use, priority and confidence, also from the future and with
        huge access counts.
        """
        for age in (-60_000, 0, 1, 3_600_000, 86_400_000, 10**12):
            for accesses in (1, 2, 98, 99, 2**63 - 1):
                for priority, confidence in ((0.5, None), (0.0, 0.0), (1.0, 1.0), (0.25, 0.5)):
                    created = self.NOW - age
                    last = min(self.NOW, created + 500)
                    yield FactUse(
                        "p", age % 2 == 0, None, created, last, accesses, priority, confidence
                    )

    def test_scores_are_from_0_to_1(self, scorer: SalienceScorer) -> None:
        """Check the range of scores for every fact."""
        assert [fact for fact in self.facts() if not 0 <= scorer.score(fact, self.NOW) <= 1] == []

    def test_a_score_depends_on_nothing_else(self, scorer: SalienceScorer) -> None:
        """Check that repeated calls and another scorer with the same settings return the same."""
        twin = self.make_scorer(Config())
        for fact in self.facts():
            assert (
                scorer.score(fact, self.NOW)
                == scorer.score(fact, self.NOW)
                == twin.score(fact, self.NOW)
            )

    def test_weights_stay_and_say_the_same_as_scores(self, scorer: SalienceScorer) -> None:
        """Check that the engine's formula and `score` agree, if there are weights."""
        weights = scorer.weights
        assert scorer.weights == weights
        if weights is None:
            return
        salience = Salience(
            weights.recency, weights.frequency, weights.priority, weights.half_life_ms, self.NOW
        )
        assert salience.is_valid()
        for fact in self.facts():
            known = float("nan") if fact.confidence is None else fact.confidence
            formula = salience.score(
                fact.created_at, fact.last_access, fact.accesses, fact.priority, known
            )
            assert scorer.score(fact, self.NOW) == pytest.approx(formula, abs=1e-12)
