"""`kbcore backup`: the state of a running server or of a storage folder in one file."""

from __future__ import annotations

from pathlib import Path

import click

from kbcore.config.settings import Config
from kbcore.offline.rescue import backup_storage, folder_config, keep
from kbserver.cli.shared.status import ends_with_status
from kbserver.cli.shared.target import Failed, Server


@click.command("backup")
@click.option("--url", envvar="KBCORE_URL", help="address of a running server")
@click.option(
    "--dir", "folder", metavar="DIR", help="a storage folder instead; no server may have it open"
)
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="file with the server's key",
)
@click.option(
    "--to",
    required=True,
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="the backup; it must not be there",
)
@ends_with_status
def command(url: str | None, folder: str | None, key_file: Path | None, to: Path) -> None:
    """Write a backup of everything: from a running server (--url), or from a folder (--dir).

    The file gets its name when it is whole and was read back: checksums over each part, CRC-32 and SHA-256 over all of it.
    """
    if folder is not None:
        info = backup_storage(to, folder_config(Config.from_env(), folder))
    elif url is not None:
        key = key_file.read_text(encoding="utf-8").strip() if key_file else None
        server = Server(url, "default", "default", key)
        try:
            with server.stream("/admin/backup") as parts:
                info = keep(parts, to)
        finally:
            server.close()
    else:
        raise Failed("say which: --url of a running server, or --dir of a folder")
    click.echo(f"{to}: backup of record {info.seq}, {to.stat().st_size} bytes")
