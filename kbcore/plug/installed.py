"""Plugins that are installed: entry points of our group, with the distributions they come from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Any

from kbcore.errors import ConfigError
from kbcore.plug.ports import API_VERSION

GROUP = "kbcore"
"""Entry point group and pluggy project name."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a plugin comes from: its entry point, and name and version of the distribution that has it."""

    name: str
    distribution: str
    version: str
    entry_point: EntryPoint

    @property
    def said(self) -> str:
        """How it is called in messages."""
        return f"{self.name} ({self.distribution} {self.version})"

    def load(self) -> Any:
        """Import it; raises ConfigError saying which plugin failed and why."""
        try:
            return self.entry_point.load()
        except Exception as error:
            raise ConfigError(
                f"plugin {self.said} cannot be loaded: {type(error).__name__}: {error}; "
                f"PLUGINS_DISABLED={self.name} leaves it out"
            ) from error


def installed(disabled: Collection[str]) -> list[Source]:
    """What is installed and not disabled, by name; raises ConfigError where two distributions give one name."""
    found: dict[str, Source] = {}
    for distribution in distributions():
        for point in distribution.entry_points:
            if point.group != GROUP or point.name in disabled:
                continue
            source = Source(point.name, _name(distribution), distribution.version, point)
            known = found.setdefault(point.name, source)
            if known.distribution != source.distribution:
                raise ConfigError(
                    f"{known.distribution} and {source.distribution} both have a plugin {point.name!r}; uninstall one"
                )
    return [found[name] for name in sorted(found)]


def check_version(said: str, plugin: object) -> None:
    """Refuse a plugin whose `KB_API_VERSION`, 1 or a text like "1.2", is of another major version; raises ConfigError."""
    stated = getattr(plugin, "KB_API_VERSION", API_VERSION)
    if str(stated).partition(".")[0] != str(API_VERSION):
        raise ConfigError(f"plugin {said} is made for version {stated} of the plugin protocols, not {API_VERSION}")


def _name(distribution: Distribution) -> str:
    return str(distribution.metadata["Name"] or "?")
