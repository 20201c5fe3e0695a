"""`kbcore config`: settings, looked at before a start."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from kbcore.config import SETTINGS, Config, Setting, environment
from kbcore.doubts import doubts
from kbcore.errors import ConfigError
from kbcore.storage_urls import redacted

UNUSABLE = 78
"""The exit status of settings that cannot be used, by the names of sysexits; that of `kbcore serve` as well."""


@click.group("config")
def command() -> None:
    """Settings, looked at before a start."""


@command.command("check")
@click.option("--env-file", metavar="FILE", help="NAME=VALUE lines, as systemd has them, instead of the environment")
@click.option("--all", "every", is_flag=True, help="show settings that have their default, too")
@click.option("--strict", is_flag=True, help="end with 1 where something is odd")
def check(env_file: str | None, every: bool, strict: bool) -> None:
    """Read all settings, show those that are set, without secrets, and say what is odd about them.

    Ends with 0 where a server could start with them, with 78 where not.
    """
    try:
        environ = environment() if env_file is None else read_env_file(env_file)
        config = Config.from_env(environ)
    except ConfigError as error:
        click.echo(f"kbcore: {error.message}", err=True)
        sys.exit(UNUSABLE)
    for setting in SETTINGS:
        value = getattr(config, setting.field)
        if every or value != setting.default:
            click.echo(f"{setting.name}={shown(setting, value)}")
    found = list(doubts(config, environ, ours=env_file is not None))
    for doubt in found:
        click.echo(f"WARNING: {doubt}", err=True)
    click.echo(f"settings can be used, {len(found)} warnings", err=True)
    sys.exit(1 if strict and found else 0)


def read_env_file(path: str) -> dict[str, str]:
    """The settings of a file of NAME=VALUE lines; `#` begins a comment line, quotes around a value are taken off.

    Raises ConfigError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {type(error).__name__}") from error
    found: dict[str, str] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith(("#", ";")):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier():
            raise ConfigError(f"{path}, line {number}: not NAME=VALUE")  # the line itself may be half a secret
        value = value.strip()
        if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
            value = value[1:-1]
        found[name.strip()] = value
    return found


def shown(setting: Setting, value: object) -> str:
    """Give what may be shown of the value of a setting."""
    if setting.secret:
        return "(not shown)" if value else ""
    if setting.name == "STORAGE_URL":
        return redacted(str(value)) if value else ""
    if isinstance(value, tuple):
        return ("/" if setting.name.startswith("RATE_LIMIT") else ",").join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
