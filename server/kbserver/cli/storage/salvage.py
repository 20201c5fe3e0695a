"""`kbcore salvage`: what is sound of a damaged storage folder, in a new one."""

from __future__ import annotations

import json

import click

from kbcore.config.settings import Config
from kbcore.offline.rescue import salvage_folder
from kbserver.cli.shared.status import ends_with_status


@click.command("salvage")
@click.argument("folder", metavar="DIR")
@click.option("--to", required=True, metavar="NEW", help="an empty or new folder")
@click.option("--skip-damaged", is_flag=True, help="keep also what is sound after the damage")
@ends_with_status
def command(folder: str, to: str, skip_damaged: bool) -> None:
    """Copy what is sound of storage folder DIR to a new folder; DIR stays as it is.

    What is kept is the longest prefix of the log without damage. Prints a report as JSON: which records are lost, of which
    tenants. The copy is in a new term: followers start over.
    """
    report = salvage_folder(folder, to, skip_damaged=skip_damaged, config=Config.from_env())
    click.echo(json.dumps(report, indent=2, ensure_ascii=False))
