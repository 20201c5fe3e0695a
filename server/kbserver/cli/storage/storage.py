"""`kbcore storage`: a knowledge base moved between storages, and one read from end to end."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click

from kbcore.config.settings import Config
from kbcore.config.storage_urls import redacted
from kbcore.errors import KBError
from kbcore.offline.migrate import Contents, check_storage, copy_storage
from kbserver.cli.shared.exits import EXIT_CODES


@click.group("storage")
def command() -> None:
    """Move a knowledge base to another storage, or check one. No server may have it open.

    Storages are named by URLs: wal:FOLDER, sqlite:FILE, postgresql://USER@HOST/DATABASE.
    """


@command.command("copy")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy(source: str, target: str) -> None:
    """Copy the knowledge base at FROM into the empty storage TO, and compare what both come to."""
    found = _run(lambda: copy_storage(source, target, Config.from_env()))
    click.echo(f"copied to {redacted(target)}: {_told(found)}")


@command.command("check")
@click.argument("url")
def check(url: str) -> None:
    """Read everything that the storage at URL keeps; damage ends with status 65."""
    found = _run(lambda: check_storage(url, Config.from_env()))
    click.echo(f"{redacted(url)} is sound: {_told(found)}")


def _told(found: Contents) -> str:
    start = (
        f"the snapshot at {found.snapshot} and {found.records} records after it"
        if found.snapshot
        else "all records"
    )
    return f"{found.head} records, {found.facts} facts, recovered from {start}; content {found.digest[:16]}"


def _run(action: Callable[[], Contents]) -> Contents:
    try:
        return action()
    except KBError as error:
        click.echo(f"kbcore: {error}", err=True)
        sys.exit(EXIT_CODES.get(type(error), 1))
