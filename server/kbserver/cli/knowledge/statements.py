"""`kbcore tell`, `kbcore teach` and `kbcore run`: statements in the rule language."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

import click

from kbcore.errors import InvalidInput
from kbcore.language.files import read_statements
from kbcore.language.rule_review import RuleReview
from kbserver.cli.shared.target import (
    QueryOptions,
    Target,
    query_options,
    report_warnings,
    strict_option,
    target_options,
)


@click.command("tell")
@click.argument("facts", nargs=-1, required=True)
@click.option("--scope", help="Scope to store the facts in")
@target_options
def tell(target: Target, facts: tuple[str, ...], scope: str | None) -> None:
    """Store facts.

    Example: kbcore tell 'parent(ann, bob)' 'age(ann, 41) [confidence=0.9]'
    """
    for batch in read_statements([_joined(facts)], scope):
        if batch.rules or batch.goals:
            raise InvalidInput("tell takes facts; use teach for rules and ask for goals")
        new, known = target.assert_facts(batch.facts)
        click.echo(f"{new} stored" + (f", {known} already known" if known else ""))


@click.command("teach")
@click.argument("rules", nargs=-1, required=True)
@click.option("--scope", help="Scope the rules apply to; default: all scopes")
@strict_option
@target_options
def teach(target: Target, rules: tuple[str, ...], scope: str | None, strict: bool) -> None:
    """Store rules.

    Example: kbcore teach 'ancestor(?x, ?y) :- parent(?x, ?y)'
    """
    review = RuleReview(target.known_predicates)
    batches = list(read_statements([_joined(rules)], scope))
    for batch in batches:
        if batch.facts or batch.goals:
            raise InvalidInput("teach takes rules; use tell for facts and ask for goals")
        review.add(batch)
    report_warnings("rules", review.all(target.rules()), strict)
    for batch in batches:
        for stored in target.assert_rules(batch.rules):
            click.echo(stored)


@click.command("run")
@click.argument("file", type=click.File(encoding="utf-8"))
@query_options("Scope of statements that name none")
@strict_option
@target_options
def run(target: Target, file: TextIO, options: QueryOptions, strict: bool) -> None:
    """Run a file of facts, rules and queries.

    Stores the facts and rules of FILE (`-` for standard input) and answers its queries, in order.
    Stores all of the file or nothing. A query (`?- goal.`) sees the statements before it. Use
    `kbcore load` for large files.
    """
    text = file.read()
    review = RuleReview(target.known_predicates)
    for batch in read_statements([text], options.scope):
        review.add(batch)
    if review.has_rules:
        report_warnings(file.name, review.all(target.rules()), strict)
    output = target.execute(text, options)
    if output:
        click.echo(output)


def _joined(statements: Iterable[str]) -> str:
    """Return statements as one text; the final full stop of a statement may be left out."""
    return "\n".join(text if text.rstrip().endswith(".") else text + "." for text in statements)
