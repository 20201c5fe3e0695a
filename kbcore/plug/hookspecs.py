"""All hooks of the core, nothing else.

Collecting hooks are plural nouns and return name to factory; telling hooks are past tense and return
nothing. A plugin takes only the arguments it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from kbcore.config import Config
    from kbcore.plug.ports import LogStore

hookspec = pluggy.HookspecMarker("kbcore")
hookimpl = pluggy.HookimplMarker("kbcore")


@hookspec
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:  # type: ignore[empty-body]
    """Name durable logs; the factory opens the node's one log."""
