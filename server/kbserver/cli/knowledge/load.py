"""`kbcore load`: load files of facts and rules."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import click

from kbcore.language.csv_rows import DELIMITER_MODES, HEADER_MODES, CsvHeader, Delimiter, HeaderMode
from kbcore.language.dumped_sets import DumpedSet
from kbcore.language.files import FORMATS, Batch, read_text
from kbcore.language.rule_review import RuleReview
from kbcore.state.rulebook import rule_shape, stored_rule
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Rule
from kbplanner.syntax.diagnostics import RuleWarning, counted
from kbplanner.syntax.printer import print_item, print_rule
from kbserver.cli.knowledge.goals import answers_of
from kbserver.cli.knowledge.review import review_of, stored_rules
from kbserver.cli.knowledge.storing import deploy_dumped, store_facts, store_rows, store_rules
from kbserver.cli.shared.exits import Failed, errors_in
from kbserver.cli.shared.goal_text import read_goal
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.target import (
    CommandTarget,
    QueryOptions,
    note,
    report_warnings,
    strict_failure,
    strict_option,
    target_options,
)

_STORED_NOTHING = " (nothing was stored)"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of the command that apply to each file."""

    scope: str | None
    predicate: str | None = None
    header: HeaderMode = "auto"
    delimiter: Delimiter = "auto"
    quiet: bool = False


@command("load")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--scope", help="Scope of facts and rules that name none")
@click.option(
    "--predicate", help="CSV: predicate of all rows, whose columns are then the arguments"
)
@click.option(
    "--header",
    type=click.Choice(HEADER_MODES),
    default="auto",
    show_default=True,
    help="CSV: first row is a header; auto skips it only if the other rows leave no doubt",
)
@click.option(
    "--delimiter",
    type=click.Choice(DELIMITER_MODES),
    default="auto",
    show_default=True,
    help="CSV: sign between cells; auto takes the first of these that is in every row",
)
@click.option("--quiet", is_flag=True, help="No progress bar and no queries")
@strict_option
@target_options
def load(  # noqa: PLR0913  one parameter for each option of the command
    target: CommandTarget,
    files: tuple[Path, ...],
    scope: str | None,
    predicate: str | None,
    header: HeaderMode,
    delimiter: Delimiter,
    quiet: bool,
    strict: bool,
) -> None:
    """Load files of facts and rules.

    File types: .kb (rule language), .jsonl (one object per line), .csv and .tsv (one fact per row).
    Files are read in batches; each batch is stored completely or not at all. After an error, the
    batches before it stay stored. The queries of a .kb file run after it is loaded. With --strict,
    all files are checked for warnings first.
    """
    for path in files:
        if path.suffix not in FORMATS:
            raise Failed(f"{path}: unknown file type; the name must end in {', '.join(FORMATS)}")
    options = Options(scope, predicate, header, delimiter, quiet)
    if strict:
        _refuse_warnings(target, files, options)
    reviews = {path: review_of(target) for path in files}
    for path, review in reviews.items():
        _load(target, path, options, review)
    if not strict:
        for path, warnings in _whole_warnings(target, reviews):
            report_warnings(str(path), warnings)


def _refuse_warnings(target: CommandTarget, files: tuple[Path, ...], options: Options) -> None:
    """Read all files and raise Failed if there are warnings about their rules; nothing is
    stored.
    """
    reviews = {path: review_of(target) for path in files}
    for path, review in reviews.items():
        if not path.is_file():
            raise Failed(f"{path}: not a regular file; --strict reads each file twice")
        try:
            with errors_in(str(path)), _decoding():
                for batch in _batches(path, options):
                    review.add(batch)
        except Failed as error:
            raise error.in_file(str(path), _STORED_NOTHING) from error
    count = 0
    for path, warnings in _whole_warnings(target, reviews, with_batches=True):
        report_warnings(str(path), warnings)
        count += len(warnings)
    if count:
        raise strict_failure(count)


def _whole_warnings(
    target: CommandTarget, reviews: dict[Path, RuleReview], with_batches: bool = False
) -> Iterator[tuple[Path, list[RuleWarning]]]:
    """Yield the warnings that depend on all files; `with_batches` adds those about single rules."""
    if not any(review.has_rules for review in reviews.values()):
        return
    stored = stored_rules(target)
    for path, review in reviews.items():
        others = [
            defined
            for other in reviews.values()
            if other is not review
            for defined in other.defined
        ]
        yield path, review.all(stored, others) if with_batches else review.whole(stored, others)


def load_file(target: CommandTarget, path: Path, scope: str | None) -> None:
    """Load one file, and print what it stored and the answers of its queries."""
    review = review_of(target)
    _load(target, path, Options(scope), review)
    for file, warnings in _whole_warnings(target, {path: review}):
        report_warnings(str(file), warnings)


class KnownRules:
    """The rules of the target before a load, read when a file has the first rule."""

    def __init__(self, target: CommandTarget) -> None:
        self._target = target
        self._ids: set[tuple[str | None, str]] | None = None
        self._by_shape: dict[tuple[str | None, str], dict[tuple[str | None, str], str]] = {}

    def count(self, source: str, rules: Iterable[Definition]) -> int:
        """Return how many rules of a batch are stored already; warn about one that differs in
        constants only from a stored rule that the batch does not have.
        """
        if self._ids is None:
            self._ids = set()
            for rule in stored_rules(self._target):
                key = rule.scope, rule.name or ""
                self._ids.add(key)
                similar = self._by_shape.setdefault((rule.scope, rule_shape(rule)), {})
                similar[key] = print_rule(rule, bare=True)
        batch = {
            (rule.scope, stored_rule(rule).id): rule for rule in rules if isinstance(rule, Rule)
        }
        for key, rule in batch.items():
            if key in self._ids or rule.name is not None:
                continue
            similar = self._by_shape.get((rule.scope, rule_shape(rule)), {})
            text = next((similar[other] for other in similar if other not in batch), None)
            if text is not None:
                note(
                    f"{source}: {print_rule(rule)} differs in constants only from the stored"
                    f" {text} Both are in force then; did you mean `kbcore deploy`?"
                )
        return sum(key in self._ids for key in batch)


@dataclass(slots=True)
class LoadProgress:
    """Numbers of the new facts and rules of a file, and of those that were stored before."""

    facts: int = 0
    rules: int = 0
    known: int = 0
    known_rules: int = 0

    def add(self, counts: tuple[int, int]) -> None:
        """Add the numbers of new and of known facts of a batch."""
        self.facts += counts[0]
        self.known += counts[1]


def _load(target: CommandTarget, path: Path, options: Options, review: RuleReview) -> None:
    start = time.monotonic()
    done = LoadProgress()
    rules_before = KnownRules(target)
    goals: list[str] = []
    try:
        with errors_in(str(path)), _decoding():
            for batch in _batches(path, options):
                report_warnings(str(path), batch.warnings)
                review.add(batch)
                if batch.rule_set is not None:
                    _deploy(target, str(path), batch.rule_set, done)
                    continue
                known = rules_before.count(str(path), batch.rules) if batch.rules else 0
                _store(target, batch, done, known)
                header = batch.header
                if header is not None and header.detected and (header.skipped or not options.quiet):
                    _report_header(path, header)  # only after the rows are stored
                goals += (", ".join(map(print_item, goal.body)) for goal in batch.goals)
    except Failed as error:
        before = (
            f" ({counted(done.facts, 'fact')} and {counted(done.rules, 'rule')} were stored before)"
        )
        raise error.in_file(str(path), before) from error
    seconds = time.monotonic() - start
    parts = [counted(done.facts, "fact"), counted(done.rules, "rule")] + [
        f"{counted(count, noun)} already known"
        for count, noun in ((done.known, "fact"), (done.known_rules, "rule"))
        if count
    ]
    click.echo(f"{path}: {', '.join(parts)} in {seconds:.1f} s")
    if not options.quiet:
        for text in goals:
            click.echo(f"?- {text}")
            answers = answers_of(target, read_goal(text), QueryOptions(options.scope))
            for record in answers.records:
                click.echo(f"   {answers.line(record)}")
            if not answers.records:
                click.echo("   no")


def _deploy(target: CommandTarget, path: str, rule_set: DumpedSet, done: LoadProgress) -> None:
    """Deploy a rule set of a dump, and add its numbers to those of the file."""
    with errors_in(path, before="\n" * (rule_set.line - 1)):
        deployed = deploy_dumped(target, rule_set)
    done.facts += deployed["facts"]["addedCount"]
    done.rules += len(deployed["added"])


def _store(target: CommandTarget, batch: Batch, done: LoadProgress, known_rules: int) -> None:
    """Store a batch, and add its numbers to those of the file."""
    if batch.rules:
        store_rules(target, batch.rules)
        done.rules += len(batch.rules) - known_rules
        done.known_rules += known_rules
    if batch.facts:
        done.add(store_facts(target, batch.facts))
    if batch.rows:
        done.add(store_rows(target, batch.rows))


@contextmanager
def _decoding() -> Iterator[None]:
    """Report bytes that are not UTF-8 as a failure."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise Failed("not UTF-8") from error


def _report_header(path: Path, header: CsvHeader) -> None:
    other = "no" if header.skipped else "yes"
    click.echo(f"{path}: {header.describe()} (--header {other} if this is wrong)", err=True)


def _batches(path: Path, options: Options) -> Iterator[Batch]:
    """Yield the batches of a file; on a terminal, show the bytes read as a progress bar."""
    size = path.stat().st_size
    with path.open("rb") as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
        batches = read_text(
            text,
            path.suffix,
            scope=options.scope,
            predicate=options.predicate,
            header=options.header,
            delimiter=options.delimiter,
        )
        with click.progressbar(
            length=size,
            label=path.name,
            file=sys.stderr,
            hidden=options.quiet or not sys.stderr.isatty(),
        ) as bar:
            done = 0
            for batch in batches:
                yield batch
                bar.update(raw.tell() - done)
                done = raw.tell()
