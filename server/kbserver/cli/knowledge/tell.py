"""`kbcore tell`: store facts given as text."""

from __future__ import annotations

import click

from kbcore.errors import InvalidInput
from kbcore.language.files import read_statements
from kbserver.cli.shared.target import Target, target_options


@click.command("tell")
@click.argument("facts", nargs=-1, required=True)
@click.option("--scope", help="partition to store in")
@target_options
def command(target: Target, facts: tuple[str, ...], scope: str | None) -> None:
    """Store FACTS: kbcore tell 'parent(ann, bob).' 'parent(bob, cid) [confidence=0.9].'"""
    text = "\n".join(fact if fact.rstrip().endswith(".") else fact + "." for fact in facts)
    for batch in read_statements([text], scope):
        if batch.rules or batch.goals:
            raise InvalidInput("tell takes facts; use teach for rules and ask for goals")
        new, known = target.assert_facts(batch.facts)
        click.echo(f"{new} stored" + (f", {known} known before" if known else ""))
