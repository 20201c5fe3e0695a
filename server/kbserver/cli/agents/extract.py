"""`kbcore extract`: have the language model read a text into facts."""

from __future__ import annotations

from typing import TextIO

import click

from kbserver.cli.shared.language import extracted, extracted_lines, trouble_lines
from kbserver.cli.shared.target import Target, target_options


@click.command("extract")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@click.option("--assert", "store", is_flag=True, help="store what is found")
@click.option("--rules", is_flag=True, help="take rules from the text as well")
@click.option("--scope", help="partition the facts belong to")
@click.option("--context", help="a hint about the text, for the model")
@target_options
def command(
    target: Target, file: TextIO, store: bool, rules: bool, scope: str | None, context: str | None
) -> None:
    """Read the text FILE (default: standard input) into facts: kbcore extract --assert notes.txt.

    Prints facts and rules in the rule language. What contradicts, was refused or could not be read is printed on standard
    error; with a piece that could not be read the exit status is 1.
    """
    try:
        text = file.read()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"not UTF-8 at byte {error.start}") from error
    lines = extracted(target, text, store, rules, scope, context)
    for line in extracted_lines(lines):
        click.echo(line)
    for line in trouble_lines(lines):
        click.echo(f"kbcore: {line}", err=True)
    if store:
        click.echo(f"kbcore: {lines['asserted']} stored, {lines['known']} known before", err=True)
    if lines["failures"]:
        raise SystemExit(1)
