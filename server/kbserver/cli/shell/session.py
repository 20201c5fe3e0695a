"""A session of the shell: statements are stored, goals answered, in order."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import click

from kbcore.errors import KBError
from kbplanner.syntax.diagnostics import RuleWarning, counted
from kbserver.cli.knowledge.goals import answers_of
from kbserver.cli.knowledge.review import warnings_of
from kbserver.cli.shared.exits import Failed, errors_in, print_failure
from kbserver.cli.shared.goal_text import read_goal
from kbserver.cli.shared.output import Listing, Output
from kbserver.cli.shared.target import (
    CommandTarget,
    QueryOptions,
    ask_target,
    note,
    report_warnings,
)
from kbserver.cli.shell.entries import pieces_of
from kbserver.cli.shell.interrupts import deferred_interrupts, interrupts
from kbserver.cli.shell.undo import MAX_FACTS, ChangeTooLarge, UndoChange, change_of_storing

_FACT_LINE = "Fact Asserted: "
_UNKNOWN = "unknown-predicate"
_UNKNOWN_PREFIX = "no facts or rules for "


@dataclass(slots=True)
class Watched:
    """A goal that is answered after each change, and its answers then, as lines."""

    text: str
    lines: list[str]


@dataclass(slots=True)
class LoadedFile:
    """The text of a file that was loaded, and what it changed."""

    text: str
    change: UndoChange


@dataclass(slots=True)
class ShellSession:
    """State of a session: settings, the last goal, and how to undo its changes.

    `show` prints a listing. `files` has the loaded files by name. `lines_before` is the number
    of lines of the input before the entry, for the places of errors. `failed` is True once an entry
    has failed.
    """

    target: CommandTarget
    show: Callable[[Listing], None] = field(default=Output().show)
    scope: str | None = None
    as_of: str | None = None
    shows_time: bool = False
    last_goal: str | None = None
    last_answers: list[str] = field(default_factory=list)
    changes: list[UndoChange] = field(default_factory=list)
    files: dict[str, LoadedFile] = field(default_factory=dict)
    watched: list[Watched] = field(default_factory=list)
    lines_before: int = 0
    failed: bool = False

    @property
    def options(self) -> QueryOptions:
        """The options of queries."""
        return QueryOptions(self.scope, as_of=self.as_of)

    def run(self, run: Callable[[], None]) -> bool:
        """Run an entry; print its failure, if any, and the time it took; return True if it
        worked.
        """
        start = time.perf_counter()
        try:
            with deferred_interrupts():
                run()
        except (Failed, KBError, OSError) as error:
            self.failed = True
            print_failure(error)
            return False
        except KeyboardInterrupt:
            self.failed = True
            note("interrupted")
            return False
        finally:
            if self.shows_time:
                click.secho(f"{(time.perf_counter() - start) * 1000:.1f} ms", dim=True)
        return True

    def execute(self, text: str, source: str = "input") -> UndoChange:
        """Store the statements of a text and answer its goals, in order; return what changed.

        Raises Failed and KBError; what was stored before stays and can be undone.
        """
        done = UndoChange()
        try:
            for piece in pieces_of(text):
                if piece.is_goal:
                    self.answer(piece.text, source)
                else:
                    done.extend(self._store(piece.text, source))
        finally:
            self.changed(done)
        return done

    def store(self, text: str, source: str = "input") -> UndoChange:
        """Store the statements of a text without answering its goals; return what changed."""
        done = UndoChange()
        for piece in pieces_of(text):
            if not piece.is_goal:
                done.extend(self._store(piece.text, source))
        return done

    def answer(self, text: str, source: str = "goal") -> None:
        """Answer a goal, and print the answers."""
        goal = read_goal(text)
        before = "\n" * self.lines_before + goal.before
        with errors_in(source, before=before), interrupts():
            listing = answers_of(self.target, goal, self.options)
        self.last_goal = goal.text
        self.last_answers = [listing.line(record) for record in listing.records]
        if listing.records:
            self.show(listing)
        else:
            click.echo("no")

    def changed(self, change: UndoChange) -> None:
        """Remember a change for `.undo`, and print the changes of the watched goals."""
        if change.is_empty:
            return
        self.changes.append(change)
        self.report_watched()

    def report_watched(self) -> None:
        """Print what has been added to and removed from the answers of the watched goals."""
        for watched in self.watched:
            lines = self.lines_of(watched.text)
            old, new = set(watched.lines), set(lines)
            for line in watched.lines:
                if line not in new:
                    click.secho(f"- {line}", fg="red")
            for line in lines:
                if line not in old:
                    click.secho(f"+ {line}", fg="green")
            watched.lines = lines

    def lines_of(self, goal: str) -> list[str]:
        """Return the answers of a goal as lines."""
        with errors_in("goal"), interrupts():
            listing = answers_of(self.target, read_goal(goal), self.options)
        return [listing.line(record) for record in listing.records]

    def _store(self, text: str, source: str) -> UndoChange:
        """Store facts and rules, all or none; return what changed."""
        before = "\n" * self.lines_before
        with errors_in(source, suffix="; nothing was stored", before=before):
            try:
                change = change_of_storing(self.target, text, self.scope)
            except ChangeTooLarge:
                change = UndoChange()
                note(f"more than {MAX_FACTS:,} facts: .undo leaves them")
            warnings = warnings_of(self.target, text, self.scope)
            body = {"command": text, "scope": self.scope}
            answer = ask_target(self.target, "/execute", body).json()
        facts = sum(line.startswith(_FACT_LINE) for line in answer["result"].splitlines())
        click.secho(stored_text(answer["asserted"], facts, len(answer["rules"])), dim=True)
        self._report(warnings, source)
        return change

    def _report(self, warnings: Sequence[RuleWarning], source: str) -> None:
        """Print warnings; predicates that may be defined later make one line together."""
        missing = [each for each in warnings if each.code == _UNKNOWN and not each.hint]
        others = [each for each in warnings if each not in missing]
        report_warnings(source, [self._placed(each) for each in others])
        if missing:
            names = ", ".join(each.message.removeprefix(_UNKNOWN_PREFIX) for each in missing)
            click.secho(f"{_UNKNOWN_PREFIX}{names} yet", dim=True, err=True)

    def _placed(self, warning: RuleWarning) -> RuleWarning:
        """Return a warning with its line in the whole input."""
        if warning.span is None:
            return warning
        moved = warning.span._replace(
            line=warning.span.line + self.lines_before,
            end_line=warning.span.end_line + self.lines_before,
        )
        return replace(warning, span=moved)


def stored_text(new: int, facts: int, rules: int) -> str:
    """Return what was stored, such as `2 facts (1 known already), 1 rule`."""
    parts: list[str] = []
    if facts:
        known = facts - new
        parts.append(counted(facts, "fact") + (f" ({known:,} known already)" if known else ""))
    if rules:
        parts.append(counted(rules, "rule"))
    return "stored " + ", ".join(parts or ["nothing new"])
