"""The systems that `run.py` measures, by name."""

from __future__ import annotations

from collections.abc import Callable

from ..interface import System
from .baselines import LastMention, bm25, bm25_stems


def _kbcore(name: str) -> Callable[[], System]:
    def make() -> System:
        from . import kbcore_systems

        return getattr(kbcore_systems, name)()  # type: ignore[no-any-return]

    return make


def _graphiti() -> System:
    from .graphiti_memory import Graphiti

    return Graphiti()


def _langgraph() -> System:
    from .langgraph_store import LangGraphStore

    return LangGraphStore()


def _mcp_memory() -> System:
    from .mcp_memory import MCPMemory

    return MCPMemory()


def _mem0() -> System:
    from .mem0_memory import Mem0

    return Mem0()


def _vectors() -> System:
    from .vectors import Vectors

    return Vectors()


SYSTEMS: dict[str, Callable[[], System]] = {
    "bm25": bm25,
    "bm25-stems": bm25_stems,
    "last-mention": LastMention,
    "vectors": _vectors,
    "langgraph-store": _langgraph,
    "mcp-memory": _mcp_memory,
    "mem0": _mem0,
    "graphiti": _graphiti,
    "kbcore-memory": _kbcore("Texts"),
    "kbcore-words": _kbcore("Words"),
    "kbcore-keys": _kbcore("Keys"),
    "kbcore-rules": _kbcore("Rules"),
}
"""A system of your own is one more entry. A factory raises NotAvailable where it cannot run."""
