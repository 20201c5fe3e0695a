"""`kbcore extract` and `kbcore synthesize`: commands that use a language model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

import click

from kbplanner.syntax.diagnostics import printable, printable_lines
from kbplanner.syntax.printer import print_row
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.target import CommandTarget, instant_of, note, target_options

_CONTRADICTED = {
    "stored": "a stored fact",
    "derived": "a derived fact",
    "text": "another fact of the text",
}
"""What an extracted fact contradicts, by `known` in the answer."""


@command("extract", "kbcore extract --assert notes.txt")
@click.argument("file", type=click.File(encoding="utf-8"), default="-")
@click.option("--assert", "store", is_flag=True, help="Store the extracted facts and rules")
@click.option("--rules", is_flag=True, help="Extract rules too")
@click.option("--scope", help="Scope of the facts")
@click.option("--context", help="Hint about the text, for the model")
@click.option("--speaker", help="Speaker of the text")
@click.option("--at", help="Time at which the text was said, such as 2026-09-01; default: now")
@click.option("--session", help="Session of the text")
@target_options
def extract(
    target: CommandTarget, file: TextIO, store: bool, at: str | None, **options: Any
) -> None:
    """Extract facts from a text with the language model.

    Reads FILE or standard input. Prints facts and rules in the rule language. Prints
    contradictions, rejected facts and passages that could not be read on standard error. Exits with
    status 1 if a passage could not be read.
    """
    try:
        text = file.read()
    except UnicodeDecodeError as error:
        raise click.ClickException(f"not UTF-8 at byte {error.start}") from error
    session = options.pop("session")
    body = {"text": text, "assert": store, "at": instant_of(at), "sessionId": session, **options}
    answer = target.send("POST", "/extract", body).json()
    for line in _statements(answer):
        click.echo(printable(line))
    for line in _problems(answer):
        note(line)
    if store:
        click.echo(
            f"kbcore: {answer['asserted']} stored, {answer['known']} already known", err=True
        )
    if answer["failures"]:
        raise SystemExit(1)


@command("synthesize", "kbcore synthesize 'Where does Ann work?'")
@click.argument("question")
@click.option("--scope", help="Scope to query; '*' for all")
@target_options
def synthesize(target: CommandTarget, question: str, scope: str | None) -> None:
    """Answer a question in words with the language model.

    Prints the answer, the facts and rules it depends on, and the queries that were run. Exits with
    status 1 if the knowledge base has no answer.
    """
    answer = target.send("POST", "/synthesize", {"question": question, "scope": scope}).json()
    click.echo(printable_lines(answer["answer"]))
    for step in answer["derivation"]:
        source = step["type"].replace("_", " ") + (f" by {step['rule']}" if step["rule"] else "")
        click.echo(printable(f"  {step['fact']}  ({source})"))
    for query in answer["queriesExecuted"]:
        click.echo(printable(f"  ?- {query}."))
    for failed in answer["queriesFailed"]:
        note(f"query failed: {failed['query']}: {failed['reason']}")
    if all(step["type"] == "llm_reported" for step in answer["derivation"]):
        raise SystemExit(1)


def _statements(answer: dict[str, Any]) -> Iterator[str]:
    """Yield the extracted facts and rules in the rule language, as input for `kbcore load`."""
    for fact in answer["facts"]:
        confidence = fact["confidence"]
        suffix = "" if confidence is None else f" [confidence={confidence:g}]"
        yield f"{print_row(fact['predicate'], fact['args'], fact['negated'])}{suffix}."
    for rule in answer["rules"]:
        yield rule["text"]


def _problems(answer: dict[str, Any]) -> Iterator[str]:
    """Yield contradictions, rejected facts and passages that could not be read."""
    for fact in answer["contradictions"]:
        text = print_row(fact["predicate"], fact["args"], fact["negated"])
        yield f"{text} contradicts {_CONTRADICTED[fact['known']]}"
    for rejected in answer["rejected"]:
        yield f"rejected: {rejected['said']}: {rejected['reason']}"
    for failure in answer["failures"]:
        yield f"not read: characters {failure['start']} to {failure['end']}: {failure['reason']}"
    if answer["truncated"]:
        yield "the text has more than EXTRACTION_MAX_FACTS facts"
