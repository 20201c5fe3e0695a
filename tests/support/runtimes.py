"""Runtimes for tests: built-in plugins, a folder or memory, a clock that stands still.

With ENGINE_VERIFY=1 in the environment every answer of a goal table is compared with a fresh one (`tox run -e full`).
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime

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
