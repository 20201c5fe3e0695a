"""`kbcore restore`: a storage folder from a backup."""

from __future__ import annotations

from pathlib import Path

import click

from kbcore.config.settings import Config
from kbcore.offline.rescue import restore_file
from kbserver.cli.shared.status import ends_with_status


@click.command("restore")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--to", required=True, metavar="DIR", help="an empty or new folder")
@ends_with_status
def command(file: Path, to: str) -> None:
    """Make storage folder DIR from backup FILE, which is verified first; a folder that is not empty is refused.

    The folder is in a new term: followers of the server that was backed up start over.
    """
    info, kept = restore_file(file, to, Config.from_env())
    click.echo(
        f"{to}: {kept.facts} facts of {kept.tenants} tenants in {kept.databases} databases, as of record {info.seq}"
    )
