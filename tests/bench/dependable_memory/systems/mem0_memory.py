"""mem0 without a language model: `add(..., infer=False)` stores texts, `search` finds them.

Its embedder is a stand-in that hashes words, so the figures are those of its store and its
interface, not of mem0 with its models. A request to forget deletes the hits of a search that name
its subject, as its documentation deletes single memories.
"""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from ..interface import NotAvailable, Passage, within
from ..model import FORGET, Case, Input
from ..reader import names
from ..searching import Searching
from .baselines import plain_words

DIMENSIONS, TOP = 512, 20


def hashed(text: str) -> list[float]:
    """Return a vector of length 1 with a component for the hash of each word."""
    vector = [0.0] * DIMENSIONS
    for word in plain_words(text):
        digest = hashlib.sha256(word.encode()).digest()
        vector[int.from_bytes(digest[:4], "big") % DIMENSIONS] += 1.0
    length = math.sqrt(sum(each * each for each in vector)) or 1.0
    return [each / length for each in vector]


class Mem0(Searching):
    """A memory with Qdrant in a folder; its telemetry is off."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        os.environ.setdefault("MEM0_TELEMETRY", "False")
        os.environ.setdefault("MEM0_DIR", self._folder.name)
        try:
            from mem0 import Memory
            from mem0.embeddings.base import EmbeddingBase
        except ImportError as error:
            self._folder.cleanup()
            raise NotAvailable("pip install mem0ai") from error

        class Hashed(EmbeddingBase):  # type: ignore[misc]
            def embed(self, text: str, memory_action: Any = None) -> list[float]:
                return hashed(text)

            def embed_batch(self, texts: Sequence[str], memory_action: Any = None) -> Any:
                return [hashed(text) for text in texts]

        self._make, self._embedder = Memory, Hashed
        self._memory: Any = None
        self._cases = 0
        settings = {"infer": "false", "embedder": "stand-in: hashed words", "store": "qdrant"}
        super().__init__("mem0", metadata.version("mem0ai"), settings)

    def open(self, case: Case) -> None:
        """Begin with an empty store."""
        super().open(case)
        self._end()
        self._cases += 1
        folder = os.path.join(self._folder.name, str(self._cases))
        # No model is called: texts are stored as they are, and the embedder is replaced below.
        unused = {"provider": "openai", "config": {"api_key": "unused"}}
        store = {"path": folder, "collection_name": "memories", "embedding_model_dims": DIMENSIONS}
        self._memory = self._make.from_config(
            {
                "llm": unused,
                "embedder": unused,
                "vector_store": {"provider": "qdrant", "config": store},
                "history_db_path": f"{folder}.db",
            }
        )
        self._memory.embedding_model = self._embedder()

    def store(self, entry: Input) -> None:
        """Add the line of an input, or delete what a request to forget is about."""
        if entry.action == FORGET:
            for hit in self._hits(entry.about, entry.user):
                if names(hit["memory"], entry.subject):
                    self._memory.delete(hit["id"])
            return
        message = {"role": "user", "content": entry.line}
        self._memory.add([message], user_id=entry.user, metadata={"at": entry.at}, infer=False)

    def _hits(self, text: str, user: str) -> list[dict[str, Any]]:
        answer = self._memory.search(text, filters={"user_id": user}, top_k=TOP)
        results: list[dict[str, Any]] = answer["results"]
        return results

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return the memories of a search."""
        hits = self._hits(text, user)
        return within([Passage(hit["memory"], hit["metadata"]["at"]) for hit in hits], max_tokens)

    def _end(self) -> None:
        if self._memory is not None:
            self._memory.vector_store.client.close()
            self._memory = None

    def close(self) -> None:
        """Close the store and remove its folder."""
        self._end()
        self._folder.cleanup()
