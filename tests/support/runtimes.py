"""Runtimes for tests: built-in plugins, a folder or memory, a clock that stands still.

With ENGINE_VERIFY=1 in the environment every answer of a goal table is compared with a fresh one
(`tox run -e full`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from support.reference.engine import ReferenceEngine

BASE = Config.from_env({"ENGINE_VERIFY": os.environ.get("ENGINE_VERIFY", "0")})


def runtime(
    folder: Path | None = None, *, clock: ManualClock | None = None, **settings: Any
) -> Runtime:
    """A runtime on a folder, or in memory; settings by their field names in Config."""
    if folder is None:
        config = replace(BASE, storage_backend="memory", **settings)
    else:
        config = replace(BASE, storage_dir=str(folder), min_free_mb=0, **settings)
    return open_runtime(config, clock=clock or ManualClock())


@contextmanager
def engine_of_nodes(name: str) -> Iterator[None]:
    """Nodes that are open in this block have the C engine ("c") or the reference engine
    ("python").
    """
    with pytest.MonkeyPatch.context() as patch:
        if name == "python":
            patch.setattr("kbcore.node.shard.CEngine", lambda threads: ReferenceEngine())
        yield


@contextmanager
def runtime_on(engine: str, **settings: Any) -> Iterator[Runtime]:
    """A runtime in memory whose tenants have the engine "c" or "python"; settings as for
    `runtime`.
    """
    with engine_of_nodes(engine), runtime(**settings) as node:
        yield node
