"""Text embeddings from a plugin's embedder, computed without holding any lock.

If the embedder fails, ranking falls back to words; no request fails because of it.
"""

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

BATCH_SIZE = 64
"""Texts per call of the embedder."""

MAX_FAILURES = 3
PAUSE_SECONDS = 30.0
"""After `MAX_FAILURES` consecutive failures the embedder is not called for `PAUSE_SECONDS`."""

Vector: TypeAlias = "array[float]"
"""A vector of length 1, or all zeros."""

log = logging.getLogger("kbcore.embedder")


class Embedding:
    """The embedder of a runtime.

    `on_call` is called for each batch with its size and whether it succeeded.
    """

    def __init__(
        self,
        embedder: Embedder,
        clock: Clock,
        offload: Callable[[Callable[[], Any]], Any],
        on_call: Callable[[int, bool], None],
    ) -> None:
        self._embedder = embedder
        self._offload = offload
        self._on_call = on_call
        self._breaker = Breaker(MAX_FAILURES, PAUSE_SECONDS, clock)
        self.dimension = int(embedder.dimension)
        self.name = f"{embedder.name} {getattr(embedder, 'revision', '')}".strip()
        """The name of the model: vectors of different names are not compared."""

    def vectors(self, texts: Sequence[str]) -> list[Vector]:
        """Return the vectors of the texts, normalised.

        Only those of the first texts if the embedder fails.
        """
        vectors: list[Vector] = []
        while len(vectors) < len(texts):
            if self._breaker.admit() is not None:
                break
            batch = list(texts[len(vectors) : len(vectors) + BATCH_SIZE])
            try:
                raw_vectors = self._offload(partial(self._embedder.embed, batch))
                batch_vectors = [self._checked(vector) for vector in raw_vectors]
                if len(batch_vectors) != len(batch):
                    raise ValueError(f"{len(batch_vectors)} vectors for {len(batch)} texts")
            except (
                Exception
            ):  # a plugin may raise anything; the window is then built without vectors
                self._breaker.failed()
                self._on_call(len(batch), False)
                log.warning(
                    "embedder %s failed; ranking uses words only",
                    self._embedder.name,
                    exc_info=True,
                )
                break
            except BaseException:
                self._breaker.passed()
                raise
            self._breaker.succeeded()
            self._on_call(len(batch), True)
            vectors += batch_vectors
        return vectors

    def _checked(self, vector: Sequence[float]) -> Vector:
        numbers = array("f", vector)
        if len(numbers) != self.dimension:
            raise ValueError(f"a vector has {len(numbers)} numbers instead of {self.dimension}")
        length = math.sqrt(sum(map(float.__mul__, numbers, numbers)))
        if not math.isfinite(length):
            raise ValueError("a vector has numbers that are not finite")
        return array("f", [number / length for number in numbers]) if length else numbers
