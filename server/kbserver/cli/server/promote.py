"""`kbcore promote`: make a follower the leader."""

from __future__ import annotations

from importlib import import_module

import click

from kbserver.cli.shared.client import ServerClient
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.target import api_key_option, cacert_option, url_option

_NEXT_STEP = "Set REPLICATION_MODE=LEADER before the next start."


@command("promote")
@url_option
@api_key_option
@cacert_option
@click.option(
    "--force",
    is_flag=True,
    help="Promote even if the leader still answers; both then accept writes",
)
@click.option(
    "--storage-dir", metavar="FOLDER", help="Promote the stopped follower with this storage folder"
)
@click.option("--storage-url", metavar="URL", help="Promote the stopped follower with this storage")
@reports_errors
def promote(
    url: str,
    api_key: str | None,
    cacert: str | None,
    force: bool,
    storage_dir: str | None,
    storage_url: str | None,
) -> None:
    """Make a follower the leader.

    The follower then accepts writes, in a new term. Stop the old leader first: it is not told, and
    writes it still accepts are lost.
    """
    if storage_url is not None:
        epoch, seq = _raise_term("STORAGE_URL", storage_url)
    elif storage_dir is not None:
        epoch, seq = _raise_term("STORAGE_DIR", storage_dir)
    else:
        server = ServerClient(url, "default", "default", api_key, cacert)
        try:
            answer = server.send("POST", "/admin/promote", {"force": force}).json()
        finally:
            server.close()
        epoch, seq = answer["epoch"], answer["seq"]
    click.echo(f"leader from record {seq + 1} on, in term {epoch}. {_NEXT_STEP}")


def _raise_term(setting: str, value: str) -> tuple[int, int]:
    """Begin a new term in the storage of a stopped follower; return the term and its first
    record.
    """
    settings = import_module("kbcore.config.settings")
    role = import_module("kbcore.replication.role")
    term = role.raise_term(settings.Config.from_env().updated({setting: value}))
    return term.epoch, term.seq
