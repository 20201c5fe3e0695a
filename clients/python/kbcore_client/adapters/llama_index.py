"""Memory block, retriever and tools for LlamaIndex."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool, ToolMetadata
from llama_index.core.utils import get_tokenizer
from pydantic import Field

from kbcore_client import KnowledgeBase
from kbcore_client._sync.user_memory import store_messages
from kbcore_client.adapters.agent_tools import MAX_ANSWERS, AgentTool, agent_tools


class KBMemoryBlock(BaseMemoryBlock[str]):
    """Memory block for `Memory.from_defaults(memory_blocks=[...])` that reads and stores facts.

    What a model reads is the text of the context window for the last message of the user, in plain
    words. `options` are those of `KnowledgeBase.context`. Messages that leave the short-term memory
    are stored by `kb.memory().add`, unless `store` is False: their texts, and the facts that the
    language model of the knowledge base reads in them, if it has one. If that fails, the reason is
    logged as a warning of the logger `kbcore_client`. Calls run in threads.
    """

    name: str = "knowledge"
    kb: Any
    options: dict[str, Any] = Field(default_factory=dict)
    store: bool = True

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Return the text of the window for the last question; raises KBError."""
        options = {"asker": self.kb.memory().user, "format": "natural", **self.options}
        questions = [
            message.content
            for message in messages or ()
            if message.role == MessageRole.USER and message.content
        ]
        if questions and "goals" not in options:
            options.setdefault("query", questions[-1])
        window = await asyncio.to_thread(self.kb.context, **options)
        return str(window.text)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Store messages of the user and of the model, in the session of LlamaIndex."""
        if self.store:
            await asyncio.to_thread(self._store, messages)

    def _store(self, messages: list[ChatMessage]) -> None:
        spoken = (MessageRole.USER, MessageRole.ASSISTANT)
        sessions: dict[str | None, list[dict[str, Any]]] = {}
        for each in messages:
            if each.role in spoken and (each.content or "").strip():
                session = each.additional_kwargs.get("session_id")
                message = {"role": each.role.value, "content": each.content}
                sessions.setdefault(session, []).append(message)
        for session, listed in sessions.items():
            store_messages(self.kb.memory(), listed, session)

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return the text without its last lines, of that many tokens; None if nothing is left.

        The best matches for the question come first in a window, so the last lines matter least.
        """
        tokens = get_tokenizer()
        lines = content.splitlines()
        removed = 0
        while lines and removed < tokens_to_truncate:
            removed += len(tokens(lines.pop() + "\n"))
        return "\n".join(lines) or None


class KBRetriever(BaseRetriever):
    """Retriever whose nodes are the facts of the context window for a query.

    `options` are those of `KnowledgeBase.context`, such as `goals`, `max_facts` and `scope`. A node
    has the fact as text, its salience as score, and its predicate, arguments and category as
    metadata.
    """

    def __init__(self, kb: KnowledgeBase, **options: Any) -> None:
        super().__init__()
        self._kb = kb
        self._options = options

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Return the nodes for a query; raises KBError."""
        window = self._kb.context(**{"query": query_bundle.query_str, **self._options})
        return [
            NodeWithScore(
                node=TextNode(
                    text=entry.text,
                    metadata={
                        "predicate": entry.predicate,
                        "args": list(entry.args),
                        "category": entry.category,
                    },
                ),
                score=entry.salience,
            )
            for entry in window.entries
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        """Return the nodes for a query; raises KBError."""
        return await asyncio.to_thread(self._retrieve, query_bundle)


def tools(
    kb: KnowledgeBase,
    *,
    writes: bool = True,
    limit: int = MAX_ANSWERS,
    profile: str = "default",
) -> list[FunctionTool]:
    """Return the tools of `agent_tools.agent_tools`."""
    return [_tool(each) for each in agent_tools(kb, writes=writes, limit=limit, profile=profile)]


@dataclass
class _Metadata(ToolMetadata):
    """Description of a tool whose arguments have a JSON Schema of their own."""

    schema: dict[str, Any] = field(default_factory=dict)

    def get_parameters_dict(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments."""
        return self.schema


def _tool(tool: AgentTool) -> FunctionTool:
    def call(**arguments: Any) -> str:
        return tool.call(arguments)

    metadata = _Metadata(tool.description, tool.name, schema=tool.schema)
    return FunctionTool.from_defaults(call, tool_metadata=metadata)
