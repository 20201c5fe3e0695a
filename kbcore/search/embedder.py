"""Texts as vectors, by a plugin's embedder, away from every lock. Where it fails words alone decide: no window is lost."""

from __future__ import annotations

import logging
import math
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from kbcore.clock import Clock
from kbcore.llm.breaker import Breaker
from kbcore.plug.ports import Embedder

BATCH = 64
"""Texts given to an embedder at a time."""

FAILURES = 3
PAUSE_SECONDS = 30.0
"""After so many failures one after the other it is left alone for so long."""

Vector: TypeAlias = "array[float]"
"""Of length 1, or all zeros."""

log = logging.getLogger("kbcore.embedder")


class Embedding:
    """The embedder of a runtime; `told` hears of each call: how many texts, and whether they became vectors."""

    def __init__(
        self,
        embedder: Embedder,
        clock: Clock,
        offload: Callable[[Callable[[], Any]], Any],
        told: Callable[[int, bool], None],
    ) -> None:
        self._embedder = embedder
        self._offload = offload
        self._told = told
        self._breaker = Breaker(FAILURES, PAUSE_SECONDS, clock)
        self.dimension = int(embedder.dimension)

    def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """The vectors of the first texts, of length 1 (or 0): of all of them, or fewer where the embedder fails."""
        found: list[Vector] = []
        while len(found) < len(texts):
            if self._breaker.admit() is not None:
                break
            some = list(texts[len(found) : len(found) + BATCH])
            try:
                given = self._offload(partial(self._embedder.embed, some))
                made = [self._checked(vector) for vector in given]
                if len(made) != len(some):
                    raise ValueError(f"{len(made)} vectors for {len(some)} texts")
            except Exception:  # whatever a plugin raises: the window is made without vectors
                self._breaker.failed()
                self._told(len(some), False)
                log.warning("embedder %s failed, words alone decide", self._embedder.name, exc_info=True)
                break
            except BaseException:
                self._breaker.passed()
                raise
            self._breaker.succeeded()
            self._told(len(some), True)
            found += made
        return found

    def _checked(self, vector: Sequence[float]) -> Vector:
        made = array("f", vector)
        if len(made) != self.dimension:
            raise ValueError(f"a vector of {len(made)} numbers, not {self.dimension}")
        length = math.sqrt(sum(map(float.__mul__, made, made)))
        if not math.isfinite(length):
            raise ValueError("a vector with numbers that are not finite")
        return array("f", [number / length for number in made]) if length else made
