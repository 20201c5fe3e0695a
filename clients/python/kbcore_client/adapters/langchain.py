"""Retriever and tools for LangChain."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import Field

from kbcore_client import KnowledgeBase
from kbcore_client.adapters.agent_tools import MAX_ANSWERS, AgentTool, agent_tools


class KBRetriever(BaseRetriever):
    """Retriever whose documents are the facts of the context window for a query.

    `options` are those of `KnowledgeBase.context`, such as `goals`, `max_facts` and `scope`. A
    document has the fact as text, and its predicate, arguments, salience and category as metadata.
    """

    kb: Any
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun | None = None
    ) -> list[Document]:
        """Return the documents for a query; raises KBError."""
        window = self.kb.context(**{"query": query, **self.options})
        return [
            Document(
                page_content=entry.text,
                id=entry.key,
                metadata={
                    "predicate": entry.predicate,
                    "args": list(entry.args),
                    "salience": entry.salience,
                    "category": entry.category,
                },
            )
            for entry in window.entries
        ]


def tools(
    kb: KnowledgeBase,
    *,
    writes: bool = True,
    limit: int = MAX_ANSWERS,
    profile: str = "default",
) -> list[BaseTool]:
    """Return the tools of `agent_tools.agent_tools`."""
    return [_tool(each) for each in agent_tools(kb, writes=writes, limit=limit, profile=profile)]


def _tool(tool: AgentTool) -> BaseTool:
    def call(**arguments: Any) -> str:
        return tool.call(arguments)

    return StructuredTool(
        name=tool.name, description=tool.description, args_schema=tool.schema, func=call
    )
