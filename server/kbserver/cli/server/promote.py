"""`kbcore promote`: make a follower the leader."""

from __future__ import annotations

import click

from kbcore.config.settings import Config
from kbcore.replication.role import raise_term
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.target import SERVER_URL, Server

_NEXT_STEP = "Set REPLICATION_MODE=LEADER before the next start."


@click.command("promote")
@click.option(
    "--url",
    default=SERVER_URL,
    show_default=True,
    envvar="KBCORE_URL",
    help="Address of the follower",
)
@click.option(
    "--api-key",
    envvar="KBCORE_API_KEY",
    help="API key; prefer the environment variable KBCORE_API_KEY",
)
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
    url: str, api_key: str | None, force: bool, storage_dir: str | None, storage_url: str | None
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
        server = Server(url, "default", "default", api_key)
        try:
            answer = server.send("POST", "/admin/promote", {"force": force}).json()
        finally:
            server.close()
        epoch, seq = answer["epoch"], answer["seq"]
    click.echo(f"leader from record {seq + 1} on, in term {epoch}. {_NEXT_STEP}")


def _raise_term(setting: str, value: str) -> tuple[int, int]:
    term = raise_term(Config.from_env().updated({setting: value}))
    return term.epoch, term.seq
