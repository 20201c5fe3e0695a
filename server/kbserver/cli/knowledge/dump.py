"""`kbcore dump`: all facts, rules and rule sets as a file that `kbcore load` reads back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO
from urllib.parse import quote

import click

from kbcore.language.dump import (
    COMMENT,
    DUMP_FORMATS,
    JSON_LINES,
    KB,
    dump_lines,
    listed_rule,
)
from kbcore.state.labels import from_json, write_labels
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom, Variable
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.parser import parse_declaration
from kbplanner.syntax.printer import print_atom
from kbserver.cli.shared.exits import Failed, describe_os_error
from kbserver.cli.shared.goal_text import EVERY_SCOPE
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import escaped_json
from kbserver.cli.shared.pages import pages
from kbserver.cli.shared.target import (
    CommandTarget,
    folder,
    note,
    query_string,
    target_options,
)
from kbtypes.rule_sets import RuleSetContents


@command("dump", "kbcore dump family.kb", "kbcore dump --format jsonl | gzip > family.jsonl.gz")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option(
    "--format",
    "dump_format",
    type=click.Choice(DUMP_FORMATS),
    help="Rule language or JSON lines; default: by the name of FILE, otherwise kb",
)
@click.option("--scope", default=EVERY_SCOPE, help="Only this scope; default: all scopes")
@target_options
def dump(target: CommandTarget, file: Path | None, dump_format: str | None, scope: str) -> None:
    """Write all facts, rules and rule sets to a file.

    Writes FILE, or standard output. `kbcore load FILE` stores them in an equal knowledge base, with
    signs, scopes, confidence, validity and metadata, and the version in force of each rule set;
    creation times, accesses and priorities are not kept. From a server the dump has the facts that
    are valid now, and fails if facts change while a predicate is read; from a storage folder also
    those that are valid later. For an exact copy of everything use `kbcore backup`.
    """
    dump_to(target, file, dump_format, scope)


def dump_to(
    target: CommandTarget,
    file: Path | None,
    dump_format: str | None = None,
    scope: str = EVERY_SCOPE,
) -> None:
    """Write all facts, rules and rule sets to a file, or to standard output if it is None."""
    if dump_format is None:
        dump_format = JSON_LINES if file is not None and file.suffix == ".jsonl" else KB
    if target.local:
        contents = folder(target).kb.contents(scope)
        declared = [known.declaration for known in contents.declarations]
        rules: list[Definition] = [*(known.rule for known in contents.rules), *declared]
        rule_sets = (captured.written() for captured in contents.rule_sets)
        lines = dump_lines(contents.facts, rules, dump_format, rule_sets)
    else:
        lines = dump_lines(
            _facts(target, scope), _rules(target, scope), dump_format, _rule_sets(target, scope)
        )
    if file is None:
        for line in lines:
            click.echo(escaped_json(line) if dump_format == JSON_LINES else line)
        return
    count = 0
    with _replacing(file) as output:
        for line in lines:
            output.write(line + "\n")
            count += not line.startswith(COMMENT)
    note(f"{file}: {counted(count, 'statement')}")


def _facts(target: CommandTarget, scope: str) -> Iterator[dict[str, Any]]:
    """Yield the facts of a server as rows, predicate by predicate."""
    schema = target.send("GET", f"/predicates?scope={scope}").json()["predicates"]
    signatures = dict.fromkeys((row["predicate"], row["arity"]) for row in schema)
    for predicate, arity in sorted(signatures):
        # As text, which can name every predicate.
        pattern = print_atom(Atom(predicate, (Variable("_"),) * arity))
        changed = "the facts changed during the dump; try again, or use `kbcore backup`"
        for rows in pages(target, "/query", {"text": pattern, "scope": scope}, changed):
            for row in rows:
                yield from row.get("byLabels", (row,))


_DECLARED = "phrases", "inputs", "masks", "dimensions", "requirements"
"""The members of a list of rules that have declarations."""


def _rules(target: CommandTarget, scope: str) -> Iterator[Definition]:
    """Yield the rules and declarations of a server."""
    listed = target.send("GET", f"/rules?scope={scope}").json()
    for row in listed["rules"]:
        if scope in (EVERY_SCOPE, row["scope"]):
            rule = listed_rule(row["id"], row["text"], row["scope"])
            for labels in row.get("labels", [{}]):
                yield replace(rule, labels=write_labels(from_json(labels)))
    declared = (row for kind in _DECLARED for row in listed.get(kind, ()))
    for row in declared:
        if scope in (EVERY_SCOPE, row["scope"]):
            yield replace(parse_declaration(row["text"]), scope=row["scope"])


def _rule_sets(target: CommandTarget, scope: str) -> Iterator[RuleSetContents]:
    """Yield the contents of the rule sets of a server.

    In a view, which shows their facts and rules, there are none; a key that is bound to a view may
    not list them.
    """
    if "X-View" in target.headers:
        return
    try:
        listed = target.send("GET", f"/rulesets{query_string(scope=scope)}").json()["ruleSets"]
    except Failed as error:
        if error.code != "FORBIDDEN":
            raise
        return
    for row in listed:
        path = f"/rulesets/{quote(row['name'], safe='')}{query_string(scope=row['scope'])}"
        yield RuleSetContents.of(target.send("GET", path).json())


@contextmanager
def _replacing(file: Path) -> Iterator[TextIO]:
    """Write a file under a temporary name; it gets its own name only when it is complete."""
    part = file.with_name(f"{file.name}.part")
    try:
        with part.open("w", encoding="utf-8", newline="\n") as output:
            yield output
        part.replace(file)
    except OSError as error:
        raise Failed(
            f"{file}: {describe_os_error(OSError(error.errno, error.strerror))}"
        ) from error
    finally:
        part.unlink(missing_ok=True)
