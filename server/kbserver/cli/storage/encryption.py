"""`kbcore encryption`: create a key, encrypt a storage, and change the key."""

from __future__ import annotations

import click

from kbcore.config.settings import Config
from kbcore.encryption.master_key import create_key
from kbcore.offline.encryption import enable, rotate
from kbcore.offline.rescue import folder_config
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.groups import CommandGroup

_folder = click.option(
    "--dir", "folder", metavar="DIR", help="Storage folder; default: that of the settings"
)


@click.group("encryption", cls=CommandGroup)
def encryption() -> None:
    """Encrypt stored data, and change the key.

    The storage is that of STORAGE_DIR or STORAGE_URL, the key that of ENCRYPTION_KEY_FILE or
    ENCRYPTION_KEY_COMMAND.
    """


@encryption.command("create-key")
@click.argument("file", type=click.Path())
@reports_errors
def create(file: str) -> None:
    """Write a new random key to FILE, which must not exist. Only its owner may read it."""
    create_key(file)
    click.echo(f"{file}: new key; keep a copy of it apart from the data")


@encryption.command("enable")
@_folder
@reports_errors
def turn_on(folder: str | None) -> None:
    """Encrypt a storage that no server has open.

    After an interruption, run it again.
    """
    outcome = enable(_settings(folder))
    if outcome.encrypted:
        click.echo(
            f"encrypted {counted(outcome.encrypted, 'log')}; its keys are in {outcome.keys_dir}"
        )
    else:
        click.echo(f"nothing to encrypt: the data is encrypted; its keys are in {outcome.keys_dir}")


@encryption.command("rotate")
@_folder
@click.option(
    "--new-key-file",
    required=True,
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False),
    help="File with the new key, as `kbcore encryption create-key` writes it",
)
@reports_errors
def change_key(folder: str | None, new_key_file: str) -> None:
    """Change the key of a storage; its data is not rewritten.

    Servers may run. After an interruption, run it again.
    """
    path = rotate(_settings(folder), new_key_file)
    click.echo(f"{path}: sealed with the new key; set ENCRYPTION_KEY_FILE to it")


def _settings(folder: str | None) -> Config:
    config = Config.from_env()
    return config if folder is None else folder_config(config, folder)
