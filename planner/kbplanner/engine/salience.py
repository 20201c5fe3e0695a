"""Salience of a stored row, with the same formula as in the C engine."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_COUNTED_ACCESSES = 99
"""Number of accesses from which the frequency is 1."""


@dataclass(frozen=True, slots=True)
class Salience:
    """Weights (finite, not negative), the half-life of recency in milliseconds, and now in epoch
    milliseconds.
    """

    recency: float
    frequency: float
    priority: float
    half_life_ms: float
    now_ms: int

    def is_valid(self) -> bool:
        """Return True if the weights are finite and not negative, and the half-life is positive."""
        weights = self.recency, self.frequency, self.priority, self.half_life_ms
        return all(0 <= weight <= 1e300 for weight in weights) and self.half_life_ms > 0

    def score(
        self, created_at: int, last_access: int, accesses: int, priority: float, confidence: float
    ) -> float:
        """Return the salience of a row, 0 to 1; `last_access` 0 means at creation, `confidence` NaN
        unknown.
        """
        age = max(0, self.now_ms - (last_access or created_at))
        recency = 2.0 ** -(age / self.half_life_ms)
        frequency = (
            1.0
            if accesses >= MAX_COUNTED_ACCESSES
            else math.log(1 + max(accesses, 0)) / math.log(100)
        )
        value = clamp(
            self.recency * recency + self.frequency * frequency + self.priority * priority
        )
        return value if math.isnan(confidence) else value * clamp(confidence)


def clamp(value: float) -> float:
    """Return the value limited to 0 to 1; NaN becomes 0."""
    return min(value, 1.0) if value > 0 else 0.0
