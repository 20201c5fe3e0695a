"""Predicates that plugins provide, for commands that check rules without a server."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kbplanner.ir.modes import Modes
from kbplanner.ir.schema import RelationSchema

Command = TypeVar("Command", bound=Callable[..., Any])


class ProvidedPredicate(click.ParamType[tuple[RelationSchema, str]]):
    """A predicate of a plugin: `price/2`, or with a mode, `price(in, out)`."""

    name = "PREDICATE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[RelationSchema, str]:
        """Return the predicate and a mode of it; fails for anything else."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        signature = re.fullmatch(r"([^()]+)/(\d+)", text)
        if signature:
            arity = int(signature[2])
            return RelationSchema(signature[1], arity), "f" * arity
        call = re.fullmatch(r"([^()]+)\(((?:in|out)(?:\s*,\s*(?:in|out))*)\)", text)
        if not call:
            self.fail(f"{text!r} is not like price/2 or 'price(in, out)'", param, ctx)
        uses = [use.strip() for use in call[2].split(",")]
        mode = "".join("b" if use == "in" else "f" for use in uses)
        return RelationSchema(call[1].strip(), len(uses)), mode


def external_options(function: Command) -> Command:
    """Add the options `--external` and `--plugins` to a command, for `provided`."""
    external = click.option(
        "--external",
        type=ProvidedPredicate(),
        multiple=True,
        help="A predicate that a plugin provides, such as price/2 or 'price(in, out)'; repeatable",
    )
    plugins = click.option(
        "--plugins",
        is_flag=True,
        help="Load the installed plugins, with the settings of the server",
    )
    return external(plugins(function))


def provided(external: Sequence[tuple[RelationSchema, str]], plugins: bool) -> Modes:
    """Return the modes of the predicates that are named, and of those of installed plugins."""
    modes: dict[RelationSchema, tuple[str, ...]] = {}
    if plugins:
        from kbcore.config.settings import Config
        from kbcore.plug.manager import Plugins
        from kbcore.reason.external.predicates import modes_of

        loaded = Plugins(Config.from_env()).predicates().values()
        modes.update({RelationSchema(each.name, each.arity): modes_of(each) for each in loaded})
    for schema, mode in external:
        modes[schema] = (*modes.get(schema, ()), mode)
    return modes
