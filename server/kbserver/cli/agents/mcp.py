"""`kbcore mcp`: an MCP server on standard input and output, for clients that start a program."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import click

from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.stdio_bridge import Bridge, open_http
from kbserver.cli.shared.target import (
    TargetOption,
    api_key_option,
    cacert_option,
    database_option,
    tenant_option,
    url_option,
)

PATH = "/mcp"

STOP_SECONDS = 20
"""Time limit for a server started by this command to stop."""


@command("mcp")
@url_option
@click.option(
    "--storage-dir",
    metavar="FOLDER",
    cls=TargetOption,
    help="Start a server on this folder; stop it at the end",
)
@database_option
@tenant_option
@api_key_option
@cacert_option
@reports_errors
def mcp(
    url: str,
    storage_dir: str | None,
    database: str,
    tenant: str,
    api_key: str | None,
    cacert: str | None,
) -> None:
    """Serve MCP on standard input and output.

    Forwards messages of the Model Context Protocol to a running server (--url), or to a server that
    is started for a storage folder (--storage-dir).
    """
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8")  # type: ignore[union-attr]
    with (
        own_server(storage_dir) if storage_dir else nullcontext(url) as address,
        open_http(address.rstrip("/"), database, tenant, api_key, cacert) as http,
    ):
        Bridge(http, PATH, sys.stdout).run(iter(sys.stdin.readline, ""))


@contextmanager
def own_server(folder: str) -> Iterator[str]:
    """Start a server on a folder and a free port, yield its address, and stop it at the end."""
    program = [sys.executable, "-m", "kbserver.cli", "serve", "--storage-dir", folder]
    program += ["--host", "127.0.0.1", "--port", "0", "--log-level", "WARN"]
    program += ["--tls-cert", "", "--tls-key", ""]  # nothing leaves this machine
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
