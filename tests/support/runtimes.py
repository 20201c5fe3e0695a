"""Runtimes for tests: built-in plugins, a folder or memory, a clock that stands still."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.runtime import Runtime, open_runtime


def runtime(folder: Path | None = None, *, clock: ManualClock | None = None, **settings: Any) -> Runtime:
    """A runtime on a folder, or in memory; settings by their field names in Config."""
    if folder is None:
        config = replace(Config(), storage_backend="memory", **settings)
    else:
        config = replace(Config(), storage_dir=str(folder), min_free_mb=0, **settings)
    return open_runtime(config, clock=clock or ManualClock())
