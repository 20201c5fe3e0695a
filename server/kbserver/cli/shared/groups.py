"""Click groups and commands of `kbcore`: sections in the help, suggestions, commands on demand."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

GENERAL = "Options"


@dataclass(frozen=True, slots=True)
class CommandEntry:
    """A command that is imported when it runs: its module and attribute, and its summary."""

    home: str
    summary: str


class SuggestingGroup(click.Group):
    """A group that suggests a similar name for an unknown command and shows whole summaries."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name; fails with a suggestion."""
        name = args[0]
        is_option = name.startswith("-")
        if not (is_option or ctx.resilient_parsing or self.get_command(ctx, name)):
            self._unknown(ctx, name)
        return super().resolve_command(ctx, args)

    def _unknown(self, ctx: click.Context, name: str) -> NoReturn:
        import difflib  # takes milliseconds, which only a mistake should cost

        similar = difflib.get_close_matches(name, self.list_commands(ctx), n=3, cutoff=0.6)
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        ctx.fail(f"no such command: {name}.{hint}")

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands with their whole summaries."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, summary_of(command)) for name, command in commands if command is not None]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class LazyGroup(SuggestingGroup):
    """A group of commands in sections, imported from below `package` when they run."""

    def __init__(
        self,
        *args: Any,
        package: str,
        sections: Mapping[str, Mapping[str, CommandEntry]],
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._package = package
        self._sections = sections
        self._entries = {
            name: entry for section in sections.values() for name, entry in section.items()
        }

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands in order."""
        return sorted(self._entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; return None if it does not exist."""
        if cmd_name not in self._entries:
            return None
        module, _, attribute = self._entries[cmd_name].home.partition(":")
        command: click.Command = getattr(
            importlib.import_module(f"{self._package}.{module}"), attribute
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; no command is imported."""
        widest = max(map(len, self._entries))
        for title, entries in self._sections.items():
            rows = [(name.ljust(widest), entry.summary) for name, entry in entries.items()]
            with formatter.section(title):
                formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with a text, without importing them, and the options."""
        from click.shell_completion import CompletionItem  # as click does: only for completion

        commands = [
            CompletionItem(name, help=self._entries[name].summary)
            for name in self.list_commands(ctx)
            if name.startswith(incomplete)
        ]
        return [*commands, *click.Command.shell_complete(self, ctx, incomplete)]


class SectionedCommand(click.Command):
    """A command whose help lists its options in sections and ends with examples."""

    examples: tuple[str, ...] = ()

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        if self.examples:
            with formatter.section("Example" if len(self.examples) == 1 else "Examples"):
                for example in self.examples:
                    formatter.write(f"  {example}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options, those with a `section` of their own after the others."""
        sections: dict[str, list[tuple[str, str]]] = {GENERAL: []}
        for param in self.get_params(ctx):
            record = None if isinstance(param, click.Argument) else param.get_help_record(ctx)
            if record is not None:
                sections.setdefault(getattr(param, "section", GENERAL), []).append(record)
        for title, rows in sections.items():
            with formatter.section(title):
                formatter.write_dl(rows)


class CommandGroup(SuggestingGroup):
    """A group inside `kbcore`, such as `kbcore memory`."""

    command_class = SectionedCommand


def summary_of(command: click.Command) -> str:
    """Return the first sentence of the help of a command, without the final dot."""
    text = " ".join((command.help or "").partition("\n\n")[0].split())
    return text.partition(". ")[0].removesuffix(".")


def command(name: str, *examples: str) -> Callable[[Callable[..., None]], SectionedCommand]:
    """Make a function a command of `kbcore`; the help ends with the examples."""

    def decorate(function: Callable[..., None]) -> SectionedCommand:
        decorated = click.command(name, cls=SectionedCommand)(function)
        decorated.examples = examples
        return decorated

    return decorate
