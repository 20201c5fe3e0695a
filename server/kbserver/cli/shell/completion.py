"""Completion in the shell: predicates, constants, variables, dot commands, scopes and files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kbcore.errors import KBError
from kbplanner.authoring.cursor import cursor_at
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.printer import print_atom, print_constant
from kbserver.cli.shared.exits import Failed
from kbserver.cli.shared.goal_text import EVERY_SCOPE
from kbserver.cli.shared.target import CommandTarget
from kbserver.cli.shell.dot_commands import COMMANDS
from kbserver.cli.shell.entries import is_command
from kbserver.cli.shell.session import ShellSession

MAX_ROWS = 500
"""Stored facts that are read for the constants of an argument."""

KEYWORDS = ("not",)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A text that replaces the last `size` characters before the cursor, and a remark about it."""

    text: str
    size: int
    remark: str = ""


def candidates(session: ShellSession, text: str) -> list[Candidate]:
    """Return the completions of the text before the cursor, in order.

    There are none if the knowledge base does not answer: the entry itself will say why.
    """
    try:
        return list(_candidates(session, text))
    except (Failed, KBError):
        return []


def _candidates(session: ShellSession, text: str) -> Iterator[Candidate]:
    if not is_command(text):
        yield from _in_statement(session.target, text)
        return
    name, space, argument = text.lstrip()[1:].partition(" ")
    if not space:
        for each, command in COMMANDS.items():
            if each.startswith(name):
                yield Candidate(f".{each}", len(name) + 1, command.summary)
    elif name in ("load", "save"):
        yield from _files(argument)
    elif name == "scope":
        scopes = session.target.send("GET", "/scopes").json()["scopes"]
        yield from _starting(["base", EVERY_SCOPE, *scopes], argument)
    elif name in COMMANDS:
        yield from _in_statement(session.target, argument)


def _in_statement(target: CommandTarget, text: str) -> Iterator[Candidate]:
    cursor = cursor_at(text)
    word = cursor.word
    if word.startswith("?"):
        yield from _starting(cursor.variables, word)
        return
    predicates = target.send("GET", f"/predicates?scope={EVERY_SCOPE}").json()["predicates"]
    if cursor.argument is not None:
        name, index = cursor.argument
        for row in predicates:
            if row["predicate"] == name and index < row["arity"]:
                yield from _constants(target, name, row["arity"], index, word)
    elif cursor.takes_atom:
        arities: dict[str, list[str]] = {}
        for row in sorted(predicates, key=lambda row: (row["predicate"], row["arity"])):
            arities.setdefault(print_constant(row["predicate"]), []).append(str(row["arity"]))
        for name, numbers in arities.items():
            if name.startswith(word):
                yield Candidate(f"{name}(", len(word), f"{name}/{', '.join(numbers)}")
        if word:
            yield from _starting(KEYWORDS, word)


def _constants(
    target: CommandTarget, predicate: str, arity: int, index: int, word: str
) -> Iterator[Candidate]:
    """Yield the constants of an argument of stored facts that begin with a word."""
    pattern = print_atom(Atom(predicate, (Variable("_"),) * arity))
    body = {"text": pattern, "scope": EVERY_SCOPE, "limit": MAX_ROWS, "contains": word}
    rows = target.send("POST", "/query", body).json()
    yield from _starting(sorted({print_constant(row["args"][index]) for row in rows}), word)


def _starting(texts: Sequence[str], word: str) -> Iterator[Candidate]:
    for text in texts:
        if text.startswith(word) and text != word:
            yield Candidate(text, len(word))


def _files(typed: str) -> Iterator[Candidate]:
    """Yield the files and folders whose paths begin with a text."""
    folder, _, start = typed.rpartition("/")
    directory = Path(folder or ("/" if typed.startswith("/") else ".")).expanduser()
    if not directory.is_dir():
        return
    for path in sorted(directory.iterdir()):
        if path.name.startswith(start) and (start or not path.name.startswith(".")):
            yield Candidate(path.name + "/" * path.is_dir(), len(start))
