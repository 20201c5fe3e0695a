"""Routes of plugins, under `/x/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Blueprint, Flask

from kbcore.errors import ConfigError
from kbserver import hookspecs

if TYPE_CHECKING:
    from kbcore.node.runtime import Runtime


def mount(app: Flask, runtime: Runtime) -> None:
    """Mount the blueprints of plugins under `/x/`.

    Raises ConfigError naming the plugin at fault.
    """
    runtime.plugins.specify(hookspecs)
    owners: dict[str, str] = {}
    outer = Blueprint("x", __name__, url_prefix="/x")
    for plugin, blueprints in runtime.plugins.gather("kb_http_blueprints", runtime=runtime):
        for blueprint in blueprints or ():
            if not isinstance(blueprint, Blueprint):
                raise ConfigError(
                    f"plugin {plugin}: kb_http_blueprints gave {blueprint!r}, not a Flask blueprint"
                )
            if blueprint.name in owners:
                raise ConfigError(
                    f"plugins {owners[blueprint.name]} and {plugin} both mount a blueprint {blueprint.name!r}"
                )
            owners[blueprint.name] = plugin
            outer.register_blueprint(blueprint)
    if owners:
        app.register_blueprint(outer)
