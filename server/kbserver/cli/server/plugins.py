"""`kbcore plugins`: list the plugins a server would load."""

from __future__ import annotations

from typing import Any

import click
import orjson

from kbcore.config.settings import Config
from kbcore.plug.manager import CHOSEN_BY, Plugins
from kbserver import hookspecs
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.groups import command


@command("plugins")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object")
@reports_errors
def plugins(as_json: bool) -> None:
    """List the plugins a server would load.

    Uses the settings of the environment. Shows where each plugin comes from, what it provides, and
    what the settings select. Opens no storage.
    """
    description = described(Config.from_env())
    click.echo(
        orjson.dumps(description, option=orjson.OPT_INDENT_2).decode()
        if as_json
        else _text(description)
    )


def described(config: Config) -> dict[str, Any]:
    """Return the plugins, the selections of the settings, and the disabled plugins; raises
    ConfigError.
    """
    manager = Plugins(config)
    manager.specify(hookspecs)
    rows = []
    for name, hooks in manager.hooks().items():
        source = manager.sources[name]
        rows.append(
            {
                "name": name,
                "distribution": source.distribution,
                "version": source.version,
                "module": source.entry_point.value,
                "hooks": {hook: manager.offers(name, hook) for hook in hooks},
            }
        )
    chosen = {setting: getattr(config, setting.lower()) for setting in CHOSEN_BY.values()}
    return {"plugins": rows, "chosen": chosen, "disabled": list(config.plugins_disabled)}


def _text(description: dict[str, Any]) -> str:
    chosen = {
        (setting, name)
        for setting, value in description["chosen"].items()
        for name in ((value,) if isinstance(value, str) else value)
    }
    lines = []
    for row in description["plugins"]:
        lines.append(f"{row['name']}  {row['distribution']} {row['version']}  {row['module']}")
        for hook, names in row["hooks"].items():
            marked = [
                name + " (chosen)" * ((CHOSEN_BY.get(hook), name) in chosen) for name in names
            ]
            lines.append(f"  {hook}" + (f": {', '.join(marked)}" if marked else ""))
    if description["disabled"]:
        lines.append(f"disabled: {', '.join(description['disabled'])}")
    return "\n".join(lines)
