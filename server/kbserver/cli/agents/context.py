"""`kbcore context`: facts for the prompt of a language model."""

from __future__ import annotations

from typing import Any

import click

from kbplanner.syntax.diagnostics import printable_lines
from kbserver.cli.shared.exits import errors_in
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import OutputOption, print_json
from kbserver.cli.shared.target import CommandTarget, note, target_options

NATURAL, FACTS = "natural", "facts"


@command(
    "context",
    "kbcore context --max-tokens 500 --goal 'colleague(ann, ?who)'",
    "kbcore context --query 'Where does Ann work?'",
)
@click.option("--goal", "goals", multiple=True, help="Include the answers of a goal; repeatable")
@click.option("--query", help="Include facts that match this text")
@click.option("--asker", help="Constant that 'I' and 'we' in the query stand for")
@click.option("--predicate", "predicates", multiple=True, help="Only this predicate; repeatable")
@click.option("--scope", help="Scope to read; '*' for all; default: the base")
@click.option("--session", help="Session that remembers the window, for /context/diff")
@click.option(
    "--max-facts", type=click.IntRange(1, 10_000), help="Maximum number of facts; default: 100"
)
@click.option("--max-tokens", type=click.IntRange(1), help="Maximum number of tokens of the text")
@click.option(
    "--format",
    type=click.Choice((FACTS, NATURAL)),
    default=FACTS,
    show_default=True,
    cls=OutputOption,
    help="Facts and rules in the rule language, or sentences",
)
@click.option(
    "--json", "as_json", is_flag=True, cls=OutputOption, help="Print the JSON of the HTTP API"
)
@target_options
def context(target: CommandTarget, format: str, as_json: bool, **options: Any) -> None:
    """Select the facts that a prompt should contain.

    Prints the text for the prompt: the answers of the goals with the facts they depend on, facts
    that match the query, and without both the most salient facts. Needs no language model.
    """
    body = {
        "goals": list(options["goals"]) or None,
        "query": options["query"],
        "asker": options["asker"],
        "predicates": list(options["predicates"]) or None,
        "scope": options["scope"],
        "sessionId": options["session"],
        "maxFacts": options["max_facts"],
        "maxTokens": options["max_tokens"],
        "format": format,
        "compat": False,
    }
    with errors_in("goal"):
        window = target.send("POST", "/memory/context", body).json()
    if as_json:
        print_json(window)
    elif window["formattedText"]:
        click.echo(printable_lines(window["formattedText"].rstrip("\n")))
    else:
        note("no fact was selected")
