"""`kbcore lsp`: serve the Language Server Protocol on standard input and output."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from kbplanner.ir.schema import RelationSchema
from kbserver.cli.shared.exits import Failed, reports_errors
from kbserver.cli.shared.external import external_options, provided
from kbserver.cli.shared.groups import command


@command("lsp")
@external_options
@reports_errors
def lsp(external: Sequence[tuple[RelationSchema, str]], plugins: bool) -> None:
    """Serve rule files to an editor.

    Speaks the Language Server Protocol on standard input and output; editors start it. It reports
    mistakes while you type, completes, renames and formats, shows where predicates are defined and
    used, and runs tests. The .kb files of a folder belong together. Predicates that plugins provide
    are named with --external, or loaded with --plugins. Needs kbcore[lsp].
    """
    try:
        module = import_module("kbserver.cli.lsp.server")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("pygls", "lsprotocol"):
            raise
        raise Failed("the language server needs pygls: pip install 'kbcore[lsp]'", 2) from None
    module.make_server(provided(external, plugins)).start_io()
