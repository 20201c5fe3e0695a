"""The option `--preview` of commands that change facts and rules."""

from __future__ import annotations

from typing import Any

import click

from kbserver.cli.shared.target import CommandTarget, ask_target

preview_option = click.option(
    "--preview",
    is_flag=True,
    help="Change nothing; print what would become true (+), false (-) or undefined (?)",
)

_LISTS = (("becomesTrue", "+"), ("becomesFalse", "-"), ("becomesUndefined", "?"))


def show_preview(target: CommandTarget, change: dict[str, Any]) -> bool:
    """Print what a change, the body of `POST /preview`, would make true, false or undefined.

    Return True if there are warnings about its rules.
    """
    answer = ask_target(target, "/preview", change).json()
    hidden = 0
    for name, sign in _LISTS:
        for row in answer[name]:
            scope = f" [scope={row['scope']}]" if row["scope"] != change.get("scope") else ""
            click.echo(f"{sign} {row['text']}{scope}")
        hidden += answer["counts"][name] - len(answer[name])
    true, false, undefined = (answer["counts"][name] for name, _ in _LISTS)
    more = f", {undefined} undefined" if undefined else ""
    cut = f" ({hidden} not shown)" if hidden else ""
    click.echo(f"{true} would become true, {false} false{more}{cut}; nothing was changed")
    if answer["truncated"]:
        click.echo("the preview reached its limit and is not complete", err=True)
    return bool(answer["warnings"])
