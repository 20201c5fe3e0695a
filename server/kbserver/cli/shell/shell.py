"""`kbcore shell`: an interactive session on a knowledge base, or statements from a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import click

from kbcore import __version__
from kbcore.config.storage_urls import redacted
from kbserver.cli.shared.exits import Failed, reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.target import (
    TargetOption,
    api_key_option,
    cacert_option,
    database_option,
    opened,
    storage_options,
    tenant_option,
)
from kbserver.cli.shell.dot_commands import Leave, execute, run_command
from kbserver.cli.shell.entries import is_command, is_complete
from kbserver.cli.shell.session import ShellSession

NOT_INSTALLED = "the shell on a terminal needs prompt_toolkit: pip install 'kbcore[cli]'"


@command(
    "shell", "kbcore shell family.kb", "kbcore shell --storage-dir ./data", "kbcore shell < in.kb"
)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="[FILE]...")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that keeps what is typed; default: shell_history in the user's configuration folder",
)
@click.option(
    "--url",
    envvar="KBCORE_URL",
    show_envvar=True,
    cls=TargetOption,
    help="Use the server at this address",
)
@storage_options
@database_option
@tenant_option
@api_key_option
@cacert_option
@reports_errors
def shell(
    files: tuple[Path, ...],
    history: Path | None,
    url: str | None,
    **where: Any,
) -> None:
    """Type facts, rules and goals, and see answers at once.

    Uses a knowledge base in memory, which ends with the shell, unless an option names another. The
    FILEs are loaded first. `.help` lists the commands of the shell. Statements from a pipe are run
    in order; the exit status is 1 if any of them fails.
    """
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    terminal = _terminal() if on_terminal else None
    with opened(url, **where) as target:
        session = ShellSession(target)
        if terminal is None:
            entries = piped_entries(session, sys.stdin)
        else:
            session.show = terminal.show_paged
            address = where["storage_dir"] or where["storage_url"] or url
            text = "in memory: .save FILE keeps it" if address is None else redacted(address)
            click.secho(f"kbcore {__version__}, {text}; .help lists the commands", dim=True)
            file = history or Path(click.get_app_dir("kbcore")) / "shell_history"
            entries = terminal.entries(
                session, terminal.history_of(file), click.get_current_context().color is not False
            )
        run_all(session, files, entries)
        if session.failed and terminal is None:
            sys.exit(1)


def run_all(session: ShellSession, files: tuple[Path, ...], entries: Iterator[str]) -> None:
    """Load files, then run entries until they end or the user leaves."""
    try:
        for file in files:
            if not session.run(partial(run_command, session, f".load {file}")):
                return
        for entry in entries:
            session.run(partial(run_command if is_command(entry) else execute, session, entry))
    except Leave:
        return


def piped_entries(session: ShellSession, stream: TextIO) -> Iterator[str]:
    """Yield the entries of a stream: one statement or command, or several on a line."""
    entry, first, number = "", 1, 0
    for number, line in enumerate(stream, 1):
        if not entry.strip():
            entry, first = "", number
        entry += line
        if entry.strip() and is_complete(entry):
            session.lines_before = first - 1
            yield entry
            entry = ""
    if entry.strip():
        session.lines_before = first - 1
        yield entry


def _terminal() -> ModuleType:
    """Import what needs prompt_toolkit, which is an extra; raises Failed."""
    try:
        return import_module("kbserver.cli.shell.terminal")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("prompt_toolkit", "pygments"):
            raise
        raise Failed(NOT_INSTALLED, 2) from None
