"""Toolset for Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import FunctionToolset, Tool

from kbcore_client import KnowledgeBase
from kbcore_client.adapters.agent_tools import MAX_ANSWERS, AgentTool, agent_tools


def toolset(
    kb: KnowledgeBase,
    *,
    writes: bool = True,
    limit: int = MAX_ANSWERS,
    profile: str = "default",
) -> FunctionToolset[Any]:
    """Return the tools of `agent_tools.agent_tools` as a toolset."""
    return FunctionToolset(
        [_tool(each) for each in agent_tools(kb, writes=writes, limit=limit, profile=profile)]
    )


def _tool(tool: AgentTool) -> Tool[Any]:
    def call(**arguments: Any) -> str:
        return tool.call(arguments)

    return Tool.from_schema(call, tool.name, tool.description, tool.schema)
