"""`kbcore storage`: copy a knowledge base between storages, and check one."""

from __future__ import annotations

import click

from kbcore.config.settings import Config
from kbcore.config.storage_urls import redacted
from kbcore.offline.logs import LogContents
from kbcore.offline.migrate import check_storage, copy_storage
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.groups import CommandGroup


@click.group("storage", cls=CommandGroup)
def storage() -> None:
    """Copy a knowledge base to another storage, or check one.

    No server may have the storages open. Storages are URLs: wal:FOLDER, sqlite:FILE,
    postgresql://USER@HOST/DATABASE.
    """


@storage.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@click.option(
    "--shards",
    type=click.IntRange(1, 1024),
    help="Number of shards of TO, each a log of its own; default: as many as FROM has",
)
@reports_errors
def copy(source: str, target: str, shards: int | None) -> None:
    """Copy the knowledge base at FROM to the empty storage TO, and compare their contents."""
    contents = copy_storage(source, target, Config.from_env(), shards=shards or 0)
    click.echo(f"copied to {redacted(target)}: {_summary(contents)}")


@storage.command("check")
@click.argument("url")
@reports_errors
def check(url: str) -> None:
    """Read everything in the storage at URL; exit with status 65 if it is damaged."""
    contents = check_storage(url, Config.from_env())
    click.echo(f"{redacted(url)} is sound: {_summary(contents)}")


def _summary(contents: LogContents) -> str:
    start = (
        f"the snapshot at {contents.snapshot} and {counted(contents.records, 'record')} after it"
        if contents.snapshot
        else "all records"
    )
    shards = f"{contents.shards} shards, " if contents.shards > 1 else ""
    return (
        f"{shards}{counted(contents.head, 'record')}, {counted(contents.facts, 'fact')}, recovered from {start}; "
        f"content {contents.digest[:16]}"
    )
