"""Memory block, retriever and tools for LlamaIndex."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from llama_index.core.base.llms.types import ChatMessage, MessageRole
from llama_index.core.memory import BaseMemoryBlock
from llama_index.core.retrievers import BaseRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.core.tools import FunctionTool
from llama_index.core.utils import get_tokenizer
from pydantic import Field

from kbcore_client import KBError, KnowledgeBase
from kbcore_client.adapters.agent_tools import MAX_ANSWERS, tool_functions

_log = logging.getLogger("kbcore_client")


class KBMemoryBlock(BaseMemoryBlock[str]):
    """Memory block for `Memory.from_defaults(memory_blocks=[...])` that reads and stores facts.

    What a model reads is the text of the context window for the last message of the user. `options`
    are those of `KnowledgeBase.context`. Messages that leave the short-term memory are read by the
    language model of the knowledge base, and the facts in them stored, unless `store` is False. If
    that fails, the reason is logged as a warning of the logger `kbcore_client`. Calls run in
    threads.
    """

    name: str = "knowledge"
    kb: Any
    options: dict[str, Any] = Field(default_factory=dict)
    store: bool = True

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Return the text of the window for the last question; raises KBError."""
        options = dict(self.options)
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
        """Store the facts in messages of the user and of the model."""
        spoken = (MessageRole.USER, MessageRole.ASSISTANT)
        text = "\n".join(
            f"{message.role.value}: {line}"
            for message in messages
            if message.role in spoken
            for line in (message.content or "").splitlines()
            if line.strip()
        )
        if not (self.store and text):
            return
        try:
            await asyncio.to_thread(self.kb.ingest, text, hint="a conversation with an assistant")
        except KBError as error:
            _log.warning("the conversation was not stored: %s: %s", error.code, error.message)

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
    kb: KnowledgeBase, *, writes: bool = True, limit: int = MAX_ANSWERS
) -> list[FunctionTool]:
    """Return the functions of `agent_tools.tool_functions` as tools."""
    functions = tool_functions(kb, writes=writes, limit=limit)
    return [FunctionTool.from_defaults(each) for each in functions]
