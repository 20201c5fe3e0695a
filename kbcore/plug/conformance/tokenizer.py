"""Tests that the author of a tokenizer subclasses.

    from kbcore.plug.conformance.tokenizer import TokenizerConformance

    class TestMine(TokenizerConformance):
        def make_tokenizer(self):
            return Mine(...)

Like `conformance`, this module imports pytest, and nothing of the core imports it.
"""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import threading
from abc import abstractmethod

import pytest

from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import Tokenizer

TEXTS = (
    "ann works at acme.",
    "",
    "naïve café 東京",
    "a " * 5000,
    "% Goal: p(?x)\np(a).\n",
    "\u0000\ud7ff\U0010ffff",
)
LONG = "works_at(ann, acme).\n" * 10_000
"""A text of 210,000 characters."""


class TokenizerConformance(Conformance, abstract=True):
    """Tests of the contract of `Tokenizer`.

    Subclass it, name it `Test...`, and implement `make_tokenizer`.
    """

    factory = "make_tokenizer"

    @abstractmethod
    def make_tokenizer(self) -> Tokenizer:
        """Return the tokenizer under test."""

    @pytest.fixture
    def tokenizer(self) -> Tokenizer:
        """Return the tokenizer under test."""
        return self.make_tokenizer()

    def test_it_has_a_name(self, tokenizer: Tokenizer) -> None:
        """Check that the name is the same every time."""
        assert tokenizer.name
        assert tokenizer.name == tokenizer.name

    def test_counts_are_whole_numbers(self, tokenizer: Tokenizer) -> None:
        """Check that every text has a count of 0 or more."""
        for text in TEXTS:
            count = tokenizer.count(text)
            assert type(count) is int
            assert count >= 0

    def test_the_same_text_has_the_same_count(self, tokenizer: Tokenizer) -> None:
        """Check that a count depends on nothing but the text."""
        first = [tokenizer.count(text) for text in TEXTS]
        assert [tokenizer.count(text) for text in reversed(TEXTS)] == first[::-1]
        assert [self.make_tokenizer().count(text) for text in TEXTS] == first

    def test_longer_texts_have_more_tokens(self, tokenizer: Tokenizer) -> None:
        """Check that ten thousand lines have more tokens than one."""
        assert 0 < tokenizer.count(LONG[:21]) < tokenizer.count(LONG)

    def test_several_threads_at_a_time(self, tokenizer: Tokenizer) -> None:
        """Check that concurrent counts are those of a single thread."""
        counts: dict[int, int] = {}

        def count(number: int) -> None:
            counts[number] = tokenizer.count("word " * number)

        threads = [threading.Thread(target=count, args=(number,)) for number in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert counts == {number: tokenizer.count("word " * number) for number in range(1, 9)}
