"""`kbcore synthesize`: answer a question in words from what is known."""

from __future__ import annotations

import click

from kbserver.cli.shared.language import synthesized
from kbserver.cli.shared.target import Target, target_options


@click.command("synthesize")
@click.argument("question")
@click.option("--scope", help="partition to ask; '*' for every one")
@target_options
def command(target: Target, question: str, scope: str | None) -> None:
    """Answer QUESTION from the knowledge base: kbcore synthesize 'Where does Ann work?'.

    Prints the answer, the facts and rules it depends on, and the queries that were run. The exit status
    is 1 if nothing is known.
    """
    lines = synthesized(target, question, scope)
    click.echo(lines["answer"])
    for one in lines["derivation"]:
        how = one["type"].replace("_", " ") + (f" by {one['rule']}" if one["rule"] else "")
        click.echo(f"  {one['fact']}  ({how})")
    for query in lines["queriesExecuted"]:
        click.echo(f"  ?- {query}.")
    for failed in lines["queriesFailed"]:
        click.echo(f"kbcore: not asked: {failed['query']}: {failed['reason']}", err=True)
    if not any(one["type"] != "llm_reported" for one in lines["derivation"]):
        raise SystemExit(1)
