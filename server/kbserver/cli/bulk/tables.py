"""`kbcore export` and `kbcore import`: facts as tables that other engines read and write."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from kbcore.bulk.files import TableName, column_names, table_files
from kbcore.bulk.tables import table_facts, table_names
from kbcore.config.settings import Config
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import TableFormat
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_atom
from kbserver.cli.knowledge.storing import store_rows
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import EVERY_SCOPE
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.pages import pages
from kbserver.cli.shared.target import CommandTarget, note, target_options


@dataclass(slots=True)
class _Table:
    """A table to write: a goal to answer, or all stored facts of a predicate, as a request."""

    route: str
    goal: Atom
    name: TableName
    lost: dict[str, int] = field(default_factory=dict)

    def batches(self, target: CommandTarget, scope: str | None) -> Iterator[list[list[str]]]:
        """Yield the rows of arguments; count the attributes that are left out."""
        body = {"text": print_atom(self.goal), "scope": scope}
        again = "the facts changed during the export; try again"
        for rows in pages(target, self.route, body, again):
            own = [row for row in rows if row["negated"] is not self.goal.positive]
            for row in own:
                for attribute in _attributes(row):
                    self.lost[attribute] = self.lost.get(attribute, 0) + 1
            yield [row["args"] for row in own]


def _attributes(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a fact has beside its arguments, for which a table has no place."""
    if row["confidence"] is not None:
        yield "a confidence"
    if row["metadata"]:
        yield "metadata"
    if row["validUntil"] is not None or row["validFrom"] not in (None, row["createdAt"]):
        yield "a validity"


@command("export", "kbcore export --to facts", "kbcore export --to out --goal 'reach(?x, ?y)'")
@click.option(
    "--to",
    "folder",
    required=True,
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the files; created if it does not exist",
)
@click.option(
    "--format", "ending", default="parquet", show_default=True, help="Format: parquet or arrow"
)
@click.option(
    "--predicate", "predicates", multiple=True, metavar="NAME", help="Only this; repeatable"
)
@click.option(
    "--goal",
    "goals",
    multiple=True,
    metavar="ATOM",
    help="Answers of a goal, derived ones too, such as 'reach(?x, ?y)'; repeatable",
)
@click.option("--scope", help="Scope to export; default: the base")
@target_options
def export(
    target: CommandTarget,
    folder: Path,
    ending: str,
    predicates: Sequence[str],
    goals: Sequence[str],
    scope: str | None,
) -> None:
    """Write facts as tables, a file for each predicate, that other engines read.

    Writes all stored facts, or those of --predicate and the answers of --goal. A table has only the
    arguments, as text: how many facts have a confidence, metadata or a validity is printed, and
    `kbcore dump` keeps these. `kbcore import` and `kbcore bulk run` read the files.
    """
    if scope == EVERY_SCOPE:
        raise Failed("--scope '*': a table has no column for the scope; name one scope", 2)
    writer = table_format(ending)
    tables = _tables(target, predicates, goals, scope)
    paths = [folder / f"{table.name}.{ending}" for table in tables]
    for path in paths:
        if path.exists():
            raise Failed(f"{path} exists; remove it, or choose another folder with --to")
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=folder) as unfinished:
        parts = [Path(unfinished) / path.name for path in paths]
        counts = [
            writer.write(str(part), column_names(table.goal), table.batches(target, scope))
            for part, table in zip(parts, tables, strict=True)
        ]
        for part, path in zip(parts, paths, strict=True):
            part.rename(path)
    for table, path, count in zip(tables, paths, counts, strict=True):
        click.echo(f"{path}: {counted(count, 'fact')}")
        for attribute, lost in sorted(table.lost.items()):
            have = "has" if lost == 1 else "have"
            note(f"{path}: {counted(lost, 'fact')} {have} {attribute}, which is not in the file")


def _tables(
    target: CommandTarget, predicates: Sequence[str], goals: Sequence[str], scope: str | None
) -> list[_Table]:
    """Return the tables to write; raise Failed for what does not exist or has one name."""
    atoms = [_goal(text) for text in goals]
    stored: list[tuple[str, bool, int]] = []
    if predicates or not goals:
        path = "/predicates" if scope is None else f"/predicates?scope={scope}"
        known = [
            (row["predicate"], row["arity"])
            for row in target.send("GET", path).json()["predicates"]
            if row["factCount"]
        ]
        if missing := set(predicates) - {name for name, _ in known}:
            raise Failed(f"--predicate {min(missing)}: no stored facts")
        for name, arity in sorted(known):
            if not predicates or name in predicates:
                pattern = Atom(name, (Variable("_"),) * arity)
                signs = _signs(target, pattern, scope)
                stored += [(name, positive, arity) for positive in signs]
    asked = [(atom.predicate, atom.positive, atom.arity) for atom in atoms]
    for index, signature in enumerate(asked):
        if signature in stored or signature in asked[:index]:
            raise Failed(
                f"--goal {goals[index]}: two tables for {signature[0]}/{signature[2]}; "
                "export them to two folders"
            )
    names = table_names([*stored, *asked])
    return [
        *(
            _Table(
                "/query",
                Atom(name, tuple(Variable(f"arg{n}") for n in range(1, arity + 1)), positive),
                names[name, positive, arity],
            )
            for name, positive, arity in stored
        ),
        *(_Table("/ask", atom, names[key]) for atom, key in zip(atoms, asked, strict=True)),
    ]


def _goal(text: str) -> Atom:
    with errors_in("--goal"):
        literal = parse_goal(text).literal
    if literal.negated:
        raise Failed("--goal: an atom without `not`; write a rule and use its head")
    return literal.atom


def _signs(target: CommandTarget, pattern: Atom, scope: str | None) -> list[bool]:
    """Return the signs of the stored facts of a predicate; a pattern matches positive ones
    first.
    """
    signs = []
    for positive in (True, False):
        text = print_atom(Atom(pattern.predicate, pattern.args, positive))
        first = target.send("POST", "/query", {"text": text, "scope": scope, "limit": 1}).json()
        signs += [positive for row in first if row["negated"] is not positive]
    return signs


@command("import", "kbcore import facts", "kbcore import out --scope derived")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--predicate", "predicates", multiple=True, metavar="NAME", help="Only this; repeatable"
)
@click.option("--scope", help="Scope of the facts; default: the base")
@target_options
def import_(
    target: CommandTarget, folder: Path, predicates: Sequence[str], scope: str | None
) -> None:
    """Store the facts of tables: a Parquet or Arrow file, or a folder of them, per predicate.

    Reads the files of `kbcore export` and the answers of `kbcore bulk run`. Columns hold text or
    integers. Facts are stored in batches; facts that are stored already are counted, so an import
    can be repeated.
    """
    formats = Plugins(Config.from_env()).table_formats()
    tables = table_files(folder, {f".{name}" for name in formats})
    if missing := set(predicates) - {table.predicate for table in tables}:
        raise Failed(f"--predicate {min(missing)}: {folder} has no file of its facts")
    if not tables:
        endings = " or ".join(f".{name}" for name in sorted(formats))
        raise Failed(f"{folder} has no file that ends in {endings}")
    for table, paths in tables.items():
        if not predicates or table.predicate in predicates:
            click.echo(store_table(target, formats, table, paths, scope))


def store_table(
    target: CommandTarget,
    formats: dict[str, TableFormat],
    table: TableName,
    paths: Sequence[Path],
    scope: str | None,
) -> str:
    """Store the facts of files; return a line with the counts."""
    start = time.monotonic()
    asserted = known = 0
    for path in paths:
        for rows in table_facts(formats, path, table, scope):
            new, old = store_rows(target, [rows])
            asserted, known = asserted + new, known + old
    seconds = time.monotonic() - start
    text = f"{table}: {counted(asserted, 'fact')}"
    return f"{text}{f', {known:,} already known' if known else ''} in {seconds:.1f} s"


def table_format(name: str) -> TableFormat:
    """Return a format by its name; raise Failed naming the choices."""
    formats = Plugins(Config.from_env()).table_formats()
    if name not in formats:
        choices = ", ".join(sorted(formats))
        raise Failed(f"--format {name!r}: no plugin offers it; choose from: {choices}", 2)
    return formats[name]
