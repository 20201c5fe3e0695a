"""Embedder `static`: the vector of a text is the weighted mean of the vectors of its words.

EMBEDDER_STATIC_MODEL is a file of word vectors (`word_vectors`) or the folder of a Model2Vec model
(`token_vectors`). No model runs, so a text takes about a tenth of a millisecond; the order of the
words of a text does not count.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Embedder
from kbplugins.embedders.token_vectors import TokenVectors
from kbplugins.embedders.word_vectors import WordVectors

NAME = "static"

MODEL = "EMBEDDER_STATIC_MODEL"

MAX_WORDS = 512
"""Words of a text that count; further ones are ignored."""


class TokenVocabulary(Protocol):
    """Vectors of words or of tokens, `dimension` numbers each.

    `revision` changes with them. `common` is the direction that all texts share, of length 1, or
    None if it is not to be removed.
    """

    dimension: int
    vectors: array[float]
    common: list[float] | None
    revision: str

    def weighted_rows(self, text: str, limit: int) -> list[tuple[int, float]]:
        """Return the rows and weights of the first `limit` words of a text that have a vector."""


class StaticEmbedder:
    """Word vectors from a path, in at most `max_mb` MiB of memory.

    Raises ConfigError if the file or folder is missing or malformed, naming the line.
    """

    name = NAME

    def __init__(self, path: Path, max_mb: int) -> None:
        source = f"{MODEL}={path}"
        if not path.exists():
            raise ConfigError(
                f"{source}: this file or folder does not exist; EMBEDDER={NAME} needs it"
            )
        kind = TokenVectors if path.is_dir() else WordVectors
        self._vocabulary: TokenVocabulary = kind(path, max_mb << 20, source)
        self.dimension = self._vocabulary.dimension
        self.revision = self._vocabulary.revision

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vectors of texts: zeros for a text of unknown words."""
        return [self._vector(text) for text in texts]

    def _vector(self, text: str) -> list[float]:
        vocabulary, dimension = self._vocabulary, self.dimension
        total = [0.0] * dimension
        rows = vocabulary.weighted_rows(text, MAX_WORDS)
        for row, weight in rows:
            vector = vocabulary.vectors[row * dimension : (row + 1) * dimension]
            total = [old + weight * number for old, number in zip(total, vector, strict=True)]
        mean = [number / len(rows) for number in total] if rows else total
        if vocabulary.common is None:
            return mean
        share = math.fsum(map(float.__mul__, mean, vocabulary.common))
        return [old - share * number for old, number in zip(mean, vocabulary.common, strict=True)]


@hookimpl
def kb_embedders(config: Config) -> Mapping[str, Any]:
    """Offer the embedder under its name."""

    def make(settings: Config) -> Embedder:
        if not settings.embedder_static_model:
            raise ConfigError(f"EMBEDDER={NAME} needs {MODEL}: a file of word vectors or a folder")
        return StaticEmbedder(Path(settings.embedder_static_model), settings.embedder_static_mb)

    return {NAME: make}
