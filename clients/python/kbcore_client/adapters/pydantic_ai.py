"""Toolset for Pydantic AI."""

from __future__ import annotations

from typing import Any

from pydantic_ai import FunctionToolset

from kbcore_client import KnowledgeBase
from kbcore_client.adapters.agent_tools import MAX_ANSWERS, tool_functions


def toolset(
    kb: KnowledgeBase, *, writes: bool = True, limit: int = MAX_ANSWERS
) -> FunctionToolset[Any]:
    """Return the functions of `agent_tools.tool_functions` as a toolset."""
    return FunctionToolset(
        tool_functions(kb, writes=writes, limit=limit), docstring_format="google"
    )
