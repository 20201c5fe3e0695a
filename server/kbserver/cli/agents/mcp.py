"""`kbcore mcp`: the tool protocol over standard input and output, for clients that start a program."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import click

from kbserver.cli.shared.stdio_bridge import Bridge, open_http

PATH = "/mcp"

STOP_SECONDS = 20
"""Time that a server started by this command has to stop."""


@click.command("mcp")
@click.option(
    "--url",
    default="http://127.0.0.1:9300",
    show_default=True,
    envvar="KBCORE_URL",
    help="address of the server",
)
@click.option(
    "--storage-dir", metavar="FOLDER", help="start a server on this folder, and stop it at the end"
)
@click.option("--database", default="default", show_default=True, help="database on the server")
@click.option("--tenant", default="default", show_default=True, help="tenant")
@click.option(
    "--api-key", envvar="KBCORE_API_KEY", help="key for the server; better given as KBCORE_API_KEY"
)
def command(
    url: str, storage_dir: str | None, database: str, tenant: str, api_key: str | None
) -> None:
    """Speak the tool protocol (MCP) over standard input and output.

    Messages are passed on to a running server, or to one that is started on a folder no other server has open.
    """
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with (
        own_server(storage_dir) if storage_dir else nullcontext(url) as address,
        open_http(address.rstrip("/"), database, tenant, api_key) as http,
    ):
        Bridge(http, PATH, sys.stdout).run(iter(sys.stdin.readline, ""))


@contextmanager
def own_server(folder: str) -> Iterator[str]:
    """Start a server on a folder and a free port, yield its address, and stop it at the end."""
    program = [
        sys.executable,
        "-m",
        "kbserver.cli",
        "serve",
        "--port",
        "0",
        "--host",
        "127.0.0.1",
        "--storage-dir",
        folder,
    ]
    program += ["--log-level", "WARN"]
    server = subprocess.Popen(  # noqa: S603  # nosec B603
        program, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    with server as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            match = re.search(r"https?://\S+", line)
            if match is None:
                sys.exit(process.wait() or 1)  # the server printed the reason
            yield match[0]
        finally:
            process.terminate()
            process.wait(STOP_SECONDS)
