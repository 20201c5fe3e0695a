"""`kbcore tell`, `kbcore teach` and `kbcore run`: statements in the rule language."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any, TextIO

import click

from kbplanner.syntax.diagnostics import printable_lines
from kbserver.cli.knowledge.preview import preview_option, show_preview
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import has_goal, join_statements
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.target import (
    CommandTarget,
    QueryOptions,
    ask_target,
    query_options,
    report_warnings,
    strict_failure,
    strict_option,
    target_options,
)

_FACT_LINE = "Fact Asserted: "

_STORED_NOTHING = "; nothing was stored"


@command("tell", "kbcore tell 'parent(ann, bob)' 'age(ann, 41) [confidence=0.9]'")
@click.argument("statements", nargs=-1, required=True)
@click.option("--scope", help="Scope of statements that name none")
@preview_option
@strict_option
@target_options
def tell(
    target: CommandTarget,
    statements: tuple[str, ...],
    scope: str | None,
    preview: bool,
    strict: bool,
) -> None:
    """Store facts and rules, and print the counts.

    Stores all of STATEMENTS or nothing. Each may leave out its final dot. With --preview, prints
    what would become true or false, and stores nothing.
    """
    _store(target, "statements", statements, QueryOptions(scope), strict=strict, preview=preview)


@command("teach", "kbcore teach 'ancestor(?x, ?y) :- parent(?x, ?y)'")
@click.argument("statements", nargs=-1, required=True)
@click.option("--scope", help="Scope the rules apply to; default: all scopes")
@preview_option
@strict_option
@target_options
def teach(
    target: CommandTarget,
    statements: tuple[str, ...],
    scope: str | None,
    preview: bool,
    strict: bool,
) -> None:
    """Store rules and facts, and print the rules.

    Stores all of STATEMENTS or nothing. Each may leave out its final dot. With --preview, prints
    what would become true or false, and stores nothing.
    """
    _store(target, "rules", statements, QueryOptions(scope), strict=strict, preview=preview)


@command("run")
@click.argument("file", type=click.File(encoding="utf-8"))
@query_options("Scope of statements that name none", historic=False)
@strict_option
@target_options
def run(target: CommandTarget, file: TextIO, options: QueryOptions, strict: bool) -> None:
    """Run a file of facts, rules and queries.

    Stores the facts and rules of FILE (`-` for standard input) and answers its queries, in order.
    Stores all of the file or nothing. A query (`?- goal.`) sees the statements before it. Use
    `kbcore load` for large files.
    """
    try:
        text = file.read()
    except UnicodeDecodeError as error:
        raise Failed(f"{file.name}: not UTF-8 at byte {error.start}") from error
    answer = _execute(target, text, file.name, options, strict)
    if answer["result"]:
        click.echo(printable_lines(answer["result"]))


def _store(
    target: CommandTarget,
    source: str,
    statements: tuple[str, ...],
    options: QueryOptions,
    *,
    strict: bool,
    preview: bool,
) -> None:
    """Store statements; print the number of facts, if there are any, and the rules."""
    for statement in statements:
        # `rules.kb` is also two facts without arguments, which is hardly meant.
        if ({".", "/"} & {*statement.strip()[:-1]}) and os.path.isfile(statement):
            raise Failed(
                f"'{statement}' is a file; `kbcore load {statement}` stores its content", 2
            )
    text = join_statements(statements)
    if has_goal(text):
        raise Failed("a query cannot be stored; use `kbcore ask`, or `kbcore run` for a file")
    if preview:
        if strict:
            _refuse_warnings(target, text, source, options)
        with errors_in(source, suffix=_STORED_NOTHING):
            has_warnings = show_preview(target, {"teach": text, **options.body()})
        if has_warnings:
            report_warnings(source, _review(target, text, options.scope))
        return
    answer = _execute(target, text, source, options, strict)
    facts = sum(line.startswith(_FACT_LINE) for line in answer["result"].splitlines())
    if facts:
        known = facts - answer["asserted"]
        click.echo(f"{answer['asserted']} stored" + (f", {known} already known" if known else ""))
    for rule in answer["rules"]:
        click.echo(rule)


def _execute(
    target: CommandTarget, text: str, source: str, options: QueryOptions, strict: bool
) -> dict[str, Any]:
    """Run a text and return the answer of POST /execute; print warnings with their places."""
    if strict:
        _refuse_warnings(target, text, source, options)
    with errors_in(source, suffix=_STORED_NOTHING):
        body = {"command": text, **options.body()}
        answer: dict[str, Any] = ask_target(target, "/execute", body).json()
    if answer["warnings"] and not strict:
        report_warnings(source, _review(target, text, options.scope))
    return answer


def _refuse_warnings(target: CommandTarget, text: str, source: str, options: QueryOptions) -> None:
    """Print the warnings about the rules of a text; raise if there are any."""
    with errors_in(source, suffix=_STORED_NOTHING):
        warnings = _review(target, text, options.scope)
    report_warnings(source, warnings)
    if warnings:
        raise strict_failure(len(warnings))


def _review(target: CommandTarget, text: str, scope: str | None) -> Any:
    """Return the warnings about the rules of a text. Only this needs a parser in this process."""
    return import_module("kbserver.cli.knowledge.review").warnings_of(target, text, scope)
