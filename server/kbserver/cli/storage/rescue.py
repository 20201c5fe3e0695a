"""`kbcore backup`, `restore`, `fsck` and `salvage`: backups and repair of storage folders."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import click

from kbcore.config.settings import Config
from kbcore.offline.rescue import (
    backup_storage,
    check_folder,
    folder_config,
    keep,
    restore_file,
    salvage_folder,
)
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.client import ServerClient
from kbserver.cli.shared.exits import Failed, reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.target import cacert_option

DAMAGED = 65
"""Exit status of `fsck` for a damaged folder."""


@command("backup")
@click.option("--url", envvar="KBCORE_URL", help="Address of a running server")
@click.option("--dir", "folder", metavar="DIR", help="Storage folder that no server has open")
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the API key of the server",
)
@cacert_option
@click.option(
    "--to",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Backup file to create; it must not exist",
)
@reports_errors
def backup(
    url: str | None, folder: str | None, key_file: Path | None, cacert: str | None, to: Path
) -> None:
    """Write a backup file.

    Backs up a running server (--url) or a storage folder (--dir). The file gets its name only after
    it is complete and its checksums have been verified (CRC-32 of each part, SHA-256 of the whole
    file).
    """
    if folder is not None:
        info = backup_storage(to, folder_config(Config.from_env(), folder))
    elif url is not None:
        key = key_file.read_text(encoding="utf-8").strip() if key_file else None
        server = ServerClient(url, "default", "default", key, cacert)
        try:
            info = keep(server.stream("/admin/backup"), to)
        finally:
            server.close()
    else:
        raise Failed("missing source: use --url for a running server or --dir for a storage folder")
    click.echo(f"{to}: backup of record {info.seq}, {counted(to.stat().st_size, 'byte')}")


@command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", required=True, metavar="DIR", help="Storage folder to create; must be empty")
@click.option("--skip-lost-keys", is_flag=True, help="Leave out tenants whose keys are lost")
@reports_errors
def restore(file: Path, to: str, skip_lost_keys: bool) -> None:
    """Create a storage folder from a backup.

    The backup is verified first. The folder starts a new term: followers of the server that was
    backed up copy all data again.
    """
    info, contents = restore_file(file, to, Config.from_env(), skips_lost=skip_lost_keys)
    click.echo(
        f"{to}: {counted(contents.facts, 'fact')} of {counted(contents.tenants, 'tenant')} in "
        f"{counted(contents.databases, 'database')}, "
        f"as of record {info.seq}"
    )


@command("fsck")
@click.argument("folder", metavar="DIR")
@reports_errors
def fsck(folder: str) -> None:
    """Check the files of a storage folder.

    Changes nothing; no server may have the folder open. Prints a report as JSON. Exits with status
    65 if something is damaged.
    """
    report = check_folder(folder, Config.from_env())
    _print(report)
    if not report["sound"]:
        sys.exit(DAMAGED)


@command("salvage")
@click.argument("folder", metavar="DIR")
@click.option("--to", required=True, metavar="NEW", help="Storage folder to create; must be empty")
@click.option("--skip-damaged", is_flag=True, help="Also copy undamaged records after the damage")
@reports_errors
def salvage(folder: str, to: str, skip_damaged: bool) -> None:
    """Copy the undamaged records of a storage folder.

    Copies the records before the first damage to a new folder; DIR is not changed. Prints a report
    as JSON: up to which record and time the copy goes, the lost records with their tenants and
    times, and the lost keys, whose tenants are left out. The copy starts a new term: followers copy
    all data again.
    """
    _print(salvage_folder(folder, to, skip_damaged=skip_damaged, config=Config.from_env()))


def _print(report: dict[str, Any]) -> None:
    click.echo(json.dumps(report, indent=2, ensure_ascii=False))
