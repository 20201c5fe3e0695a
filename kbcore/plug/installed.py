"""Installed plugins: entry points of the group, with the distributions they come from."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import EntryPoint, distributions
from typing import Any

from kbcore.errors import ConfigError
from kbcore.plug.ports import API_VERSION

GROUP = "kbcore"
"""Entry point group and pluggy project name."""


@dataclass(frozen=True, slots=True)
class PluginSource:
    """Origin of a plugin: its entry point, and the name and version of its distribution."""

    name: str
    distribution: str
    version: str
    entry_point: EntryPoint

    @property
    def label(self) -> str:
        """Name of the plugin in messages."""
        return f"{self.name} ({self.distribution} {self.version})"

    def load(self) -> Any:
        """Import the plugin; raise ConfigError naming the plugin and the reason."""
        try:
            return self.entry_point.load()
        except Exception as error:
            raise ConfigError(
                f"plugin {self.label} cannot be loaded: {type(error).__name__}: {error}; "
                f"PLUGINS_DISABLED={self.name} leaves it out"
            ) from error


def installed(disabled: Collection[str]) -> list[PluginSource]:
    """Return the installed and enabled plugins, by name.

    Raise ConfigError if two distributions offer the same name.
    """
    sources: dict[str, PluginSource] = {}
    for distribution in distributions():
        points = [point for point in distribution.entry_points if point.group == GROUP]
        if not points:
            continue
        metadata = distribution.metadata  # parsed again at each access
        name, version = str(metadata["Name"] or "?"), str(metadata["Version"])
        for point in points:
            if point.name in disabled:
                continue
            source = PluginSource(point.name, name, version, point)
            known = sources.setdefault(point.name, source)
            if known.distribution != source.distribution:
                raise ConfigError(
                    f"{known.distribution} and {source.distribution} both have a plugin {point.name!r}; uninstall one"
                )
    return [sources[name] for name in sorted(sources)]


def check_version(label: str, plugin: object) -> None:
    """Refuse a plugin whose `KB_API_VERSION`, 1 or a text like "1.2", is of another major version.

    Raises ConfigError.
    """
    version = getattr(plugin, "KB_API_VERSION", API_VERSION)
    if str(version).partition(".")[0] != str(API_VERSION):
        raise ConfigError(
            f"plugin {label} is made for version {version} of the plugin protocols, not {API_VERSION}"
        )
