"""Rows as a table, CSV, JSON or lines of text, and the options that choose one."""

from __future__ import annotations

import csv
import functools
import json
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from kbplanner.syntax.diagnostics import BIDI_CONTROLS, counted, printable, width

LINES, TABLE, CSV, JSON = "lines", "table", "csv", "json"

Cells = Sequence[object]

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_HIDDEN = re.compile(f"[\x7f-\x9f\u2028\u2029{BIDI_CONTROLS}]")
"""Characters that JSON need not escape, and that can change a terminal's state or order of text."""
_MIN_CELL = 8
"""Narrowest column that a table is cut to, in terminal cells."""
_GAP = "  "


@dataclass(frozen=True, slots=True)
class Listing:
    """Rows to print: `records` as JSON has them, and how each becomes cells and a line of text."""

    records: Sequence[Any]
    columns: Sequence[str]
    cells: Callable[[Any], Cells]
    line: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Output:
    """Options of the output: the format (None: a table on a terminal, otherwise lines), the maximum
    number of rows, and `count` to print their number only.
    """

    format: str | None = None
    limit: int | None = None
    count: bool = False

    def show(self, listing: Listing) -> None:
        """Print rows."""
        records = listing.records[: self.limit]
        if self.count:
            click.echo(len(records))
            return
        on_terminal = _is_terminal()
        format = self.format or (TABLE if on_terminal else LINES)
        if format == JSON:
            print_json(records)
        elif format == CSV:
            _write_csv(listing, records, _csv_on_terminal if on_terminal else _csv_value)
        elif format == LINES:
            for record in records:
                click.echo(printable(listing.line(record)))
        elif records:
            columns = shutil.get_terminal_size().columns if on_terminal else None
            for line in table_lines(listing.columns, map(listing.cells, records), columns):
                click.echo(line)
            if on_terminal:
                click.secho(_total(len(records), len(listing.records)), dim=True)
        elif on_terminal:
            click.secho("no rows", dim=True)


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _total(printed: int, total: int) -> str:
    return counted(printed, "row") + (f" of {total:,}" if printed < total else "")


def names_listing(names: Sequence[str], column: str) -> Listing:
    """Return names as rows of one column."""
    return Listing(names, (column,), lambda name: (name,), str)


def print_json(value: object) -> None:
    """Print a value as JSON."""
    click.echo(escaped_json(json.dumps(value, ensure_ascii=False, indent=2)))


def escaped_json(text: str) -> str:
    """Return JSON with the same value, in which nothing can change the state of a terminal."""
    return _HIDDEN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def table_lines(
    columns: Sequence[str], rows: Iterable[Cells], terminal_columns: int | None = None
) -> Iterable[str]:
    """Yield the lines of a table with aligned columns; numbers stand to the right.

    With `terminal_columns`, the widest cells are cut so that a line fits the terminal.
    """
    texts = [[text_of(value) for value in row] for row in rows]
    widths = [
        max(width(name), *(width(row[index]) for row in texts)) if texts else width(name)
        for index, name in enumerate(columns)
    ]
    if terminal_columns is not None:
        _shrink(widths, terminal_columns - len(_GAP) * (len(widths) - 1))
    right = [
        bool(texts) and all(_NUMBER.fullmatch(row[index]) for row in texts)
        for index in range(len(columns))
    ]
    head = [_aligned(*each) for each in zip(columns, widths, right, strict=True)]
    yield click.style(_GAP.join(head).rstrip(), bold=True)
    yield _GAP.join("-" * each for each in widths)
    for row in texts:
        yield _GAP.join(_aligned(*each) for each in zip(row, widths, right, strict=True)).rstrip()


def _write_csv(listing: Listing, records: Sequence[Any], value: Callable[[object], object]) -> None:
    """Write rows, each value as `value` returns it."""
    writer = csv.writer(sys.stdout, lineterminator="\n")
    # Readers take a carriage return for the end of a row, and the writer does not quote it.
    quoting = csv.writer(sys.stdout, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(listing.columns)
    for record in records:
        row = [value(cell) for cell in listing.cells(record)]
        has_return = any(isinstance(cell, str) and "\r" in cell for cell in row)
        (quoting if has_return else writer).writerow(row)


def _csv_value(value: object) -> object:
    """Return a value of a CSV row: truth values and objects as JSON writes them."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, (bool, dict, list)) else value


def _csv_on_terminal(value: object) -> object:
    """Return a value of a CSV row for a terminal; a file or a pipe gets it unchanged."""
    cell = _csv_value(value)
    return printable(cell) if isinstance(cell, str) else cell


def text_of(value: object) -> str:
    """Return a value as one line of a table cell."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (dict, list)) else str(value)
    return printable(text.replace("\n", "\\n").replace("\t", "\\t").replace("\r", "\\r"))


def _shrink(widths: list[int], room: int) -> None:
    """Lower the largest widths until their sum fits; none below _MIN_CELL."""
    while sum(widths) > room and max(widths) > _MIN_CELL:
        widest = max(range(len(widths)), key=widths.__getitem__)
        others = max((each for at, each in enumerate(widths) if at != widest), default=0)
        excess = sum(widths) - room
        widths[widest] = max(_MIN_CELL, widths[widest] - excess, min(others, widths[widest] - 1))


def _aligned(text: str, cells: int, right: bool) -> str:
    if width(text) > cells:
        prefix, used = "", 0
        for char in text:
            if used + width(char) > cells - 1:
                break
            prefix, used = prefix + char, used + width(char)
        text = prefix + "…"
    pad = " " * (cells - width(text))
    return pad + text if right else text + pad


class OutputOption(click.Option):
    """An option about the output; the help of a command lists these together."""

    section = "Output"


Command = Callable[..., None]

_FORMATS = (
    (TABLE, "Print an aligned table (default on a terminal)"),
    (LINES, "Print one line of text per row (default otherwise)"),
    (CSV, "Print comma-separated values with a header"),
    (JSON, "Print one JSON array"),
)


def output_options(function: Command) -> Command:
    """Add the options of a command that lists rows, as its argument `output`."""

    @functools.wraps(function)
    def command(format: str | None, limit: int | None, count: bool, **rest: Any) -> None:
        function(output=Output(format, limit, count), **rest)

    options = [
        click.option(f"--{name}", "format", flag_value=name, cls=OutputOption, help=help)
        for name, help in _FORMATS
    ]
    options += [
        click.option(
            "--limit",
            type=click.IntRange(1),
            metavar="N",
            cls=OutputOption,
            help="Print at most N rows",
        ),
        click.option(
            "--count", is_flag=True, cls=OutputOption, help="Print only the number of rows"
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def retraction_text(cascaded: int) -> str:
    """Return how many conclusions no longer hold, to follow a count of facts; empty for none."""
    verb = "holds" if cascaded == 1 else "hold"
    return f", {counted(cascaded, 'conclusion')} no longer {verb}" if cascaded else ""
