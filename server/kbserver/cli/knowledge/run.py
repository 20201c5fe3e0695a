"""`kbcore run`: carry out a text in the rule language."""

from __future__ import annotations

from typing import TextIO

import click

from kbcore.language.files import read_statements
from kbcore.language.rule_review import RuleReview
from kbserver.cli.shared.target import (
    Target,
    report_warnings,
    strict_option,
    target_options,
    timeout_option,
)


@click.command("run")
@click.argument("file", type=click.File(encoding="utf-8"))
@click.option("--scope", help="partition for what names none")
@timeout_option
@strict_option
@target_options
def command(
    target: Target, file: TextIO, scope: str | None, timeout_ms: int | None, strict: bool
) -> None:
    """Carry out FILE (`-` is standard input) from top to bottom: clauses are told, questions (?- goal.) are asked.

    All of it or nothing; a question sees the clauses before it. `kbcore load` is for large files.
    """
    text = file.read()
    review = RuleReview(target.known_predicates)
    for batch in read_statements([text], scope):
        review.add(batch)
    if review.has_rules:
        report_warnings(file.name, review.all(target.rules()), strict)
    found = target.execute(text, scope, timeout_ms)
    if found:
        click.echo(found)
