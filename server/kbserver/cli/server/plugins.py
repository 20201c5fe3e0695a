"""`kbcore plugins`: what is loaded, where it comes from, what it offers, what is chosen."""

from __future__ import annotations

from typing import Any

import click
import orjson

from kbcore.config.settings import Config
from kbcore.errors import KBError
from kbcore.plug.manager import CHOSEN_BY, Plugins
from kbserver import hookspecs

_MISUSE = 78


@click.command("plugins")
@click.option("--json", "as_json", is_flag=True, help="one JSON object instead of text")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """List the plugins that a server started now would load, by the settings of the environment; nothing is opened."""
    try:
        plugin_rows = described(Config.from_env())
    except KBError as error:
        click.echo(f"kbcore: {error.message}", err=True)
        ctx.exit(_MISUSE)
    click.echo(
        orjson.dumps(plugin_rows, option=orjson.OPT_INDENT_2).decode()
        if as_json
        else _text(plugin_rows)
    )


def described(config: Config) -> dict[str, Any]:
    """The plugins, what settings pick from what they offer, and what is switched off; raises ConfigError."""
    plugins = Plugins(config)
    plugins.specify(hookspecs)
    rows = []
    for name, hooks in plugins.hooks().items():
        source = plugins.sources[name]
        rows.append(
            {
                "name": name,
                "distribution": source.distribution,
                "version": source.version,
                "module": source.entry_point.value,
                "hooks": {hook: plugins.offers(name, hook) for hook in hooks},
            }
        )
    chosen = {setting: getattr(config, setting.lower()) for setting in CHOSEN_BY.values()}
    return {"plugins": rows, "chosen": chosen, "disabled": list(config.plugins_disabled)}


def _text(plugin_rows: dict[str, Any]) -> str:
    chosen = {
        (setting, name)
        for setting, value in plugin_rows["chosen"].items()
        for name in _listed(value)
    }
    lines = []
    for row in plugin_rows["plugins"]:
        lines.append(f"{row['name']}  {row['distribution']} {row['version']}  {row['module']}")
        for hook, names in row["hooks"].items():
            marked = [
                name + " (chosen)" * ((CHOSEN_BY.get(hook), name) in chosen) for name in names
            ]
            lines.append(f"  {hook}" + (f": {', '.join(marked)}" if marked else ""))
    if plugin_rows["disabled"]:
        lines.append(f"disabled: {', '.join(plugin_rows['disabled'])}")
    return "\n".join(lines)


def _listed(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value
