"""Find plugins by entry point, block those switched off, and call hooks with types."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

import pluggy

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug import hookspecs
from kbcore.plug.ports import LogStore

GROUP = "kbcore"
"""Entry point group and pluggy project name."""


class Plugins:
    """The plugins of one runtime: built-ins and guests through the same entry points, plus those passed in."""

    def __init__(self, config: Config, extra: Iterable[ModuleType | object] = ()) -> None:
        self._config = config
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        for name in config.plugins_disabled:
            self._manager.set_blocked(name)
        self._manager.load_setuptools_entrypoints(GROUP)
        for plugin in extra:
            self._manager.register(plugin)
        self._manager.check_pending()
        if config.plugins_trace:
            self._manager.trace.root.setwriter(_trace)
            self._manager.enable_tracing()

    def names(self) -> list[str]:
        """Names of the plugins that are loaded, sorted."""
        return sorted(name for name, plugin in self._manager.list_name_plugin() if plugin is not None)

    def open_storage(self) -> LogStore:
        """Open the log that STORAGE_BACKEND names; raises ConfigError naming the choices."""
        factory: Callable[[Config], LogStore] = self._pick(
            "kb_storage_backends", "STORAGE_BACKEND", self._config.storage_backend
        )
        return factory(self._config)

    def _pick(self, hook: str, setting: str, wanted: str) -> Any:
        offers = self._collect(hook)
        if wanted not in offers:
            raise ConfigError(f"{setting}={wanted!r}: no plugin offers it; there are: {', '.join(sorted(offers))}")
        return offers[wanted]

    def _collect(self, hook: str) -> dict[str, Any]:
        offers: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            for name, offer in implementation.function(config=self._config).items():
                if name in offers:
                    raise ConfigError(
                        f"plugins {owners[name]} and {implementation.plugin_name} both offer {name!r} ({hook})"
                    )
                offers[name] = offer
                owners[name] = implementation.plugin_name
        return offers


def _trace(text: str) -> None:
    logging.getLogger("kbcore.plugins").debug(text.rstrip())
