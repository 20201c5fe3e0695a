"""`kbcore teach`: teach rules given as text."""

from __future__ import annotations

import click

from kbcore.errors import InvalidInput
from kbcore.language.files import read_statements
from kbcore.language.rule_review import RuleReview
from kbserver.cli.shared.target import Target, report_warnings, strict_option, target_options


@click.command("teach")
@click.argument("rules", nargs=-1, required=True)
@click.option("--scope", help="partition the rules hold in; everywhere if left out")
@strict_option
@target_options
def command(target: Target, rules: tuple[str, ...], scope: str | None, strict: bool) -> None:
    """Teach RULES: kbcore teach 'ancestor(?x, ?y) :- parent(?x, ?y).'"""
    text = "\n".join(rule if rule.rstrip().endswith(".") else rule + "." for rule in rules)
    review = RuleReview(target.known_predicates)
    batches = list(read_statements([text], scope))
    for batch in batches:
        if batch.facts or batch.goals:
            raise InvalidInput("teach takes rules; use tell for facts and ask for goals")
        review.add(batch)
    report_warnings("rules", review.all(target.rules()), strict)
    for batch in batches:
        for stored in target.assert_rules(batch.rules):
            click.echo(stored)
