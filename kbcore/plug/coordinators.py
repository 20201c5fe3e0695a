"""Opening of a coordinator by its URL."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType

from kbcore.config.settings import Config
from kbcore.plug.coordination import Coordinator
from kbcore.plug.manager import Plugins


def open_coordinator(url: str, plugins: Iterable[ModuleType | object] = ()) -> Coordinator:
    """Open the coordinator that a URL names.

    `file:/folder`, `postgresql://user@host/database`, `etcd://host:2379`, or `NAME:...` of a
    plugin. `plugins` are those to use beside the installed ones.

    Raises ConfigError for an unusable URL, with its secrets hidden, and NotReady if the server does
    not answer.
    """
    return Plugins(Config(), plugins).open_coordinator(url)
