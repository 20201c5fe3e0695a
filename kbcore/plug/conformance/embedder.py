"""Tests for authors of an embedder to subclass.

    from kbcore.plug.conformance.embedder import EmbedderConformance

    class TestMine(EmbedderConformance):
        def make_embedder(self):
            return Mine(...)

Like `conformance`, this module imports pytest, and nothing of the core imports it.
"""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import math
import threading
from abc import abstractmethod

import pytest

from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import Embedder

TEXTS = ["ann works at acme", "", "naïve café 東京", "a " * 5000, "ann works at acme"]


class EmbedderConformance(Conformance, abstract=True):
    """Tests of the contract of `Embedder`.

    Subclass it, name it `Test...`, and implement `make_embedder`.
    """

    factory = "make_embedder"

    @abstractmethod
    def make_embedder(self) -> Embedder:
        """Return the embedder under test."""

    @pytest.fixture
    def embedder(self) -> Embedder:
        """Return the embedder under test."""
        return self.make_embedder()

    def test_it_has_a_name_and_a_dimension(self, embedder: Embedder) -> None:
        """Check that both are the same every time."""
        assert embedder.name
        assert embedder.dimension >= 1
        assert (embedder.name, embedder.dimension) == (embedder.name, embedder.dimension)

    def test_a_vector_for_each_text(self, embedder: Embedder) -> None:
        """Check the order, and that each vector has `dimension` finite numbers."""
        vectors = list(embedder.embed(TEXTS))
        assert len(vectors) == len(TEXTS)
        assert all(len(vector) == embedder.dimension for vector in vectors)
        assert all(math.isfinite(number) for vector in vectors for number in vector)

    def test_the_same_text_has_the_same_vector(self, embedder: Embedder) -> None:
        """Check that a vector does not depend on the other texts of a call."""
        first, *_, last = embedder.embed(TEXTS)
        (alone,) = embedder.embed(TEXTS[:1])
        assert list(first) == pytest.approx(list(last), abs=1e-4)
        assert list(first) == pytest.approx(list(alone), abs=1e-4)

    def test_no_text_no_vector(self, embedder: Embedder) -> None:
        """Check that an empty list returns an empty list."""
        assert list(embedder.embed([])) == []

    def test_several_threads_at_a_time(self, embedder: Embedder) -> None:
        """Check that each thread gets its own vectors."""
        vectors: dict[int, list[float]] = {}

        def ask(number: int) -> None:
            vectors[number] = list(next(iter(embedder.embed([f"text {number}"]))))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for number in range(4):
            (alone,) = embedder.embed([f"text {number}"])
            assert vectors[number] == pytest.approx(list(alone), abs=1e-4)
