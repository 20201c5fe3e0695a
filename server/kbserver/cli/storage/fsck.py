"""`kbcore fsck`: is a storage folder sound."""

from __future__ import annotations

import json
import sys

import click

from kbcore.config.settings import Config
from kbcore.offline.rescue import check_folder
from kbserver.cli.shared.status import ends_with_status

DAMAGED = 65


@click.command("fsck")
@click.argument("folder", metavar="DIR")
@ends_with_status
def command(folder: str) -> None:
    """Read every file of storage folder DIR and change nothing; no server may have it open.

    Prints a report as JSON. The exit status is 0 when all is sound and 65 when something is damaged.
    """
    report = check_folder(folder, Config.from_env())
    click.echo(json.dumps(report, indent=2, ensure_ascii=False))
    if not report["sound"]:
        sys.exit(DAMAGED)
