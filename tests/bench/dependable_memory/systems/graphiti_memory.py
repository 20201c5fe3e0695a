"""Graphiti without a language model: facts are saved as edges of its graph in Kuzu, `search` finds
them.

Its embedder is a stand-in that hashes words, so the figures are those of its store and its hybrid
search, not of Graphiti with its models: no entities are extracted and no edges invalidated. A
request to forget deletes the hits of a search that name its subject.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Sequence
from datetime import datetime, timezone
from importlib import metadata
from typing import Any, TypeVar

from ..interface import NotAvailable, Passage, within
from ..model import FORGET, Case, Input
from ..reader import names
from ..searching import Searching
from .mem0_memory import DIMENSIONS, TOP, hashed

T = TypeVar("T")


class Graphiti(Searching):
    """A graph in memory; its telemetry is off."""

    def __init__(self) -> None:
        os.environ["GRAPHITI_TELEMETRY_ENABLED"] = "false"
        os.environ["EMBEDDING_DIM"] = str(DIMENSIONS)
        try:
            from graphiti_core import Graphiti as Client
            from graphiti_core.cross_encoder.client import CrossEncoderClient
            from graphiti_core.driver.kuzu_driver import KuzuDriver
            from graphiti_core.edges import EntityEdge
            from graphiti_core.embedder.client import EmbedderClient
            from graphiti_core.llm_client.client import LLMClient
            from graphiti_core.llm_client.config import LLMConfig
            from graphiti_core.nodes import EntityNode
        except ImportError as error:
            raise NotAvailable("pip install graphiti-core kuzu httpx") from error

        class Hashed(EmbedderClient):  # type: ignore[misc]
            async def create(self, input_data: Any) -> list[float]:
                return hashed(input_data if isinstance(input_data, str) else " ".join(input_data))

            async def create_batch(self, input_data_list: list[str]) -> list[list[float]]:
                return [hashed(text) for text in input_data_list]

        class NoModel(LLMClient):  # type: ignore[misc]
            async def _generate_response(self, *args: Any, **options: Any) -> dict[str, Any]:
                raise NotImplementedError("no language model is used")

        class NoRanker(CrossEncoderClient):  # type: ignore[misc]
            async def rank(self, query: str, passages: list[str]) -> list[tuple[str, float]]:
                raise NotImplementedError("no ranking model is used")

        self._embedder = Hashed()
        self._node, self._edge = EntityNode, EntityEdge

        def make() -> Any:
            return Client(
                graph_driver=KuzuDriver(),
                llm_client=NoModel(LLMConfig()),
                embedder=self._embedder,
                cross_encoder=NoRanker(),
            )

        self._make = make
        self._loop = asyncio.new_event_loop()
        self._client: Any = None
        settings = {"embedder": "stand-in: hashed words", "store": "kuzu", "model": "none"}
        super().__init__("graphiti", metadata.version("graphiti-core"), settings)

    def _run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(call)

    def open(self, case: Case) -> None:
        """Begin with an empty graph."""
        super().open(case)
        self._end()
        self._client = self._make()
        driver = self._client.driver
        # The method of the client does nothing for Kuzu, so its word indexes are made here.
        self._run(driver.graph_ops.build_indices_and_constraints(driver))
        self._nodes: dict[tuple[str, str], Any] = {}

    def store(self, entry: Input) -> None:
        """Save the line of an input as an edge from its subject, or delete what a request to
        forget is about.
        """
        if entry.action == FORGET:
            for edge in self._edges(entry.about, entry.user):
                if names(edge.fact, entry.subject):
                    self._run(edge.delete(self._client.driver))
            return
        edge = self._edge(
            group_id=entry.user,
            source_node_uuid=self._saved(entry.subject or entry.source, entry.user),
            target_node_uuid=self._saved(entry.object or entry.source, entry.user),
            name=entry.relation or entry.action,
            fact=entry.line,
            created_at=datetime.now(timezone.utc),
            attributes={"at": entry.at},
        )
        self._run(edge.generate_embedding(self._embedder))
        self._run(edge.save(self._client.driver))

    def _saved(self, name: str, user: str) -> str:
        """Return the id of the node of a name, which is saved if it is new."""
        node = self._nodes.get((user, name))
        if node is None:
            node = self._nodes[user, name] = self._node(name=name, group_id=user, labels=[])
            self._run(node.generate_name_embedding(self._embedder))
            self._run(node.save(self._client.driver))
        return str(node.uuid)

    def _edges(self, text: str, user: str) -> list[Any]:
        found: list[Any] = self._run(self._client.search(text, group_ids=[user], num_results=TOP))
        return found

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return the facts of a search."""
        edges = self._edges(text, user)
        return within([Passage(each.fact, each.attributes["at"]) for each in edges], max_tokens)

    def _end(self) -> None:
        if self._client is not None:
            self._run(self._client.close())
            self._client = None

    def close(self) -> None:
        """Close the graph."""
        self._end()
        self._loop.close()
