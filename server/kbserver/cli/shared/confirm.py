"""Confirmation before data is deleted."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from kbserver.cli.shared.exits import fail

Command = Callable[..., None]


def confirmed(question: str, unless: str | None = None) -> Callable[[Command], Command]:
    """Ask a question before a command runs; `--yes` answers it.

    The question may have arguments of the command in braces. It is not asked if the flag `unless`
    of the command is set. Unless the answer is yes, nothing is done and the exit status is 1.
    """

    def decorate(function: Command) -> Command:
        @click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation")
        @functools.wraps(function)
        def command(yes: bool, **options: Any) -> None:
            if not (yes or (unless and options[unless])):
                _ask(question.format(**options))
            function(**options)

        return command

    return decorate


def _ask(question: str) -> None:
    """Ask a question; exit unless the answer is yes."""
    try:
        is_confirmed = click.confirm(question, err=True)
    except click.Abort:  # the end of the input, or Ctrl-C
        click.echo(err=True)
        is_confirmed = False
    if not is_confirmed:
        fail("nothing was changed; scripts answer the question with --yes")
