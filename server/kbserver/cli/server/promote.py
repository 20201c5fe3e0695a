"""`kbcore promote`: a follower becomes the leader."""

from __future__ import annotations

import click

from kbcore.config.settings import Config
from kbcore.errors import ConfigError, KBError
from kbcore.replication.role import raise_term
from kbserver.cli.shared.target import Failed, Server

_AGAIN = "Set REPLICATION_MODE=LEADER before its next start."


@click.command("promote")
@click.option(
    "--url",
    default="http://127.0.0.1:9300",
    show_default=True,
    envvar="KBCORE_URL",
    help="the follower",
)
@click.option(
    "--api-key", envvar="KBCORE_API_KEY", help="key for it; better given as KBCORE_API_KEY"
)
@click.option(
    "--force", is_flag=True, help="also while its leader still answers: then two nodes take writes"
)
@click.option(
    "--storage-dir", metavar="FOLDER", help="a follower that is not running instead: its folder"
)
@click.option(
    "--storage-url", metavar="URL", help="the same for a storage of any kind, such as sqlite:FILE"
)
def command(
    url: str, api_key: str | None, force: bool, storage_dir: str | None, storage_url: str | None
) -> None:
    """Make a follower take writes, in a later term than the leader it followed.

    Stop that leader first: it knows nothing of this, and what it still takes is lost to the new one.
    """
    try:
        if storage_dir is not None or storage_url is not None:
            texts = (
                {"STORAGE_DIR": storage_dir}
                if storage_url is None
                else {"STORAGE_URL": storage_url}
            )
            found = raise_term(
                Config.from_env().updated({name: text or "" for name, text in texts.items()})
            )
            epoch, seq = found.epoch, found.seq
        else:
            server = Server(url, "default", "default", api_key)
            try:
                answer = server.send("POST", "/admin/promote", {"force": force}).json()
            finally:
                server.close()
            epoch, seq = answer["epoch"], answer["seq"]
    except (Failed, KBError, ConfigError) as error:
        raise click.ClickException(str(error)) from error
    click.echo(f"Leads from record {seq + 1} on, in term {epoch}. {_AGAIN}")
