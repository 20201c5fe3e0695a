"""Knowledge base inside a Python program: no server, no event loop, the same operations.

>>> import kbcore
>>> with kbcore.open_kb() as kb:
...     kb.tell("parent", ["ann", "bob"])
...     kb.teach("ancestor(?x, ?y) :- parent(?x, ?y).")
...     list(kb.ask("ancestor(ann, ?who)"))
[('ann', 'bob')]
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from kbcore.config.settings import Config
from kbcore.node.knowledge_base import KnowledgeBase
from kbcore.node.opening import open_runtime
from kbcore.plug.ports import LLMProvider
from kbcore.python_api.answers import AnswerSet
from kbcore.python_api.writes import LoadOutcome
from kbcore.state.catalog import DEFAULT
from kbplanner.ir.terms import ANONYMOUS, Variable

EmbeddedKB = KnowledgeBase
"""Earlier name of KnowledgeBase."""


def open_kb(
    storage: str | None = None,
    path: str | os.PathLike[str] | None = None,
    tenant: str = DEFAULT,
    *,
    config: Config | None = None,
    plugins: Iterable[object] = (),
    llm: LLMProvider | None = None,
) -> KnowledgeBase:
    """Open a knowledge base in this process.

    With `path` the data is in that folder, or in that file for `open_kb("sqlite", path=...)`.
    Otherwise `storage` is a URL, such as `sqlite:FILE` or `postgresql://USER@HOST/DATABASE`, or the
    name of a storage plugin; the default keeps the data in memory only. `config` has all other
    settings. `llm` is the language model, in place of the one that LLM_PROVIDER names. Raises
    ConfigError, StorageBusy, LogCorrupted.
    """
    settings = (config or Config()).with_storage(storage, None if path is None else os.fspath(path))
    return KnowledgeBase(open_runtime(settings, plugins=plugins, llm=llm), tenant)


__all__ = [
    "ANONYMOUS",
    "AnswerSet",
    "EmbeddedKB",
    "KnowledgeBase",
    "LoadOutcome",
    "Variable",
    "open_kb",
]
