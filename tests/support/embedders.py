"""An embedder that hashes words, and the plugin that offers it."""

from __future__ import annotations

import hashlib

import kbcore

SAME = {"physician": "doctor", "employed": "works", "automobile": "car"}
"""What the embedder of the tests knows of meaning."""


class Hashing:
    """Each word turns one number up; words of the same meaning turn the same.

    `seen` has the batches. `spoil` replaces a batch of vectors, `watch` is called before each.
    """

    name = "hashing"
    dimension = 64

    def __init__(self) -> None:
        self.seen: list[list[str]] = []
        self.spoil = None
        self.watch = None

    def embed(self, texts):
        self.seen.append(list(texts))
        if self.watch is not None:
            self.watch()
        found = [self.vector(text) for text in texts]
        return found if self.spoil is None else self.spoil(found)

    def vector(self, text):
        numbers = [0.0] * self.dimension
        for word in text.lower().split():
            digest = hashlib.blake2b(SAME.get(word, word).encode(), digest_size=2).digest()
            numbers[int.from_bytes(digest, "big") % self.dimension] += 1.0
        return numbers


class Plugin:
    def __init__(self, embedder):
        self.embedder = embedder

    @kbcore.hookimpl
    def kb_embedders(self):
        return {"hashing": lambda config: self.embedder}
