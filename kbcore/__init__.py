"""A knowledge base: what programs that embed one, and authors of plugins, import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbcore.config.settings import Config
    from kbcore.embed import EmbeddedKB, LoadOutcome, open_kb
    from kbcore.errors import KBError
    from kbcore.node.runtime import Runtime, open_runtime
    from kbcore.plug.hookspecs import hookimpl
    from kbcore.python_values import AnswerSet
    from kbcore.state.facts import Fact
    from kbplanner.ir.terms import Atom, Rule, Variable

__version__ = "0.1.0"

_HOMES = {
    "AnswerSet": "kbcore.python_values",
    "Atom": "kbplanner.ir.terms",
    "Config": "kbcore.config.settings",
    "Conflict": "kbcore.errors",
    "EmbeddedKB": "kbcore.embed",
    "Fact": "kbcore.state.facts",
    "KBError": "kbcore.errors",
    "LoadOutcome": "kbcore.embed",
    "Rule": "kbplanner.ir.terms",
    "Runtime": "kbcore.node.runtime",
    "Variable": "kbplanner.ir.terms",
    "hookimpl": "kbcore.plug.hookspecs",
    "open_kb": "kbcore.embed",
    "open_runtime": "kbcore.node.runtime",
}

__all__ = [
    "AnswerSet",
    "Atom",
    "Config",
    "Conflict",
    "EmbeddedKB",
    "Fact",
    "KBError",
    "LoadOutcome",
    "Rule",
    "Runtime",
    "Variable",
    "__version__",
    "hookimpl",
    "open_kb",
    "open_runtime",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: a plugin that needs an error class does not load the engine."""
    if name not in _HOMES:
        raise AttributeError(f"module 'kbcore' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
