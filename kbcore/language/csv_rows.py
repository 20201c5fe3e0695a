"""The rows of a CSV file: its delimiter, header detection, and the check that rows have the same
length.

Without a predicate, the first cell of each row is the predicate and the other cells are its
arguments. With one, all cells are arguments.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from textwrap import shorten
from typing import Any, Literal

from kbcore.errors import InvalidInput, LoadError
from kbplanner.ir.values.numbers import is_number
from kbplanner.syntax.diagnostics import counted

BATCH_ROWS = 5000
"""Rows of one batch; the first batch is the sample for header detection."""

MAX_SHOWN = 120
"""Characters of a first row that are shown in messages."""

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t"}
"""Delimiters by name; the first one that fits is used."""

SNIFFED_LINES = 50
"""Lines of a file that decide on its delimiter."""

Delimiter = Literal["auto", "comma", "semicolon", "tab"]
DELIMITER_MODES: tuple[Delimiter, ...] = ("auto", "comma", "semicolon", "tab")

HeaderMode = Literal["auto", "yes", "no"]
HEADER_MODES: tuple[HeaderMode, ...] = ("auto", "yes", "no")

_NAME = re.compile(r"[^\W\d][\w .()\[\]/$€£%#&+:'°*-]{0,63}")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.]+(?:Z|[+-]\d{2}:?\d{2})?)?")
_COLUMN_NAMES = re.compile(
    r"(?:arg|args|argument|column|col|field)[ _-]?\d*|id|name|key|value"
    r"|source|target|src|dst|from|to|subject|predicate|object",
    re.IGNORECASE,
)
_PREDICATE_COLUMN = ("predicate", "relation")
_COMMA_OF_CELLS = re.compile(r"(?<!\d),|,(?!\d)")
_QUOTED = re.compile(r'"[^"]*"')
_BYTE_ORDER_MARK = "\ufeff"


@dataclass(frozen=True, slots=True)
class CsvHeader:
    """The decision on the first row of a CSV file: skipped as a header, or loaded as a fact;
    `cells` are its cells.

    `detected` is True if the mode was "auto".
    """

    skipped: bool
    detected: bool
    line: int
    cells: tuple[str, ...]

    def describe(self) -> str:
        """Return one sentence for the person who loads the file."""
        names = shorten(", ".join(self.cells), MAX_SHOWN, placeholder=" …")
        if self.skipped:
            return f"line {self.line} is a header and was skipped: {names}"
        return f"no header detected, line {self.line} was loaded as a fact: {names}"


@dataclass(frozen=True, slots=True)
class CsvBatch:
    """Rows that are not empty, with their line numbers.

    `header` is set in the first batch of a file.
    """

    rows: list[list[str]]
    lines: list[int]
    header: CsvHeader | None = None


def header_mode(text: str) -> HeaderMode:
    """Return the header mode of this name; raises InvalidInput for an unknown name."""
    if text not in HEADER_MODES:
        raise InvalidInput.at("header", f'must be one of {", ".join(HEADER_MODES)}, not "{text}"')
    return text


def delimiter_mode(text: str) -> Delimiter:
    """Return the delimiter of this name; raises InvalidInput for an unknown name."""
    if text not in DELIMITER_MODES:
        names = ", ".join(DELIMITER_MODES)
        raise InvalidInput.at("delimiter", f'must be one of {names}, not "{text}"')
    return text


def _delimiter_of(lines: list[str]) -> str:
    """Return the first delimiter that is in every row; without one, the comma.

    The comma is the last one where it stands between digits only, as in the decimals of many
    languages: `ann;1,5`.
    """
    delimiters = list(DELIMITERS.values())
    if not any(_COMMA_OF_CELLS.search(_QUOTED.sub("", line)) for line in lines):
        delimiters.sort(key=",".__eq__)
    for delimiter in delimiters:
        try:
            rows = [row for row in csv.reader(lines, delimiter=delimiter) if row]
        except csv.Error:  # a cell that is too long, perhaps only with this delimiter
            continue
        if rows and all(len(row) > 1 for row in rows):
            return delimiter
    return ","


class _Lines:
    """The lines of a file, which remembers those of the row that is being read."""

    def __init__(self, lines: Iterable[str], delimiter: str) -> None:
        self._lines = iter(lines)
        self._delimiter = delimiter
        self._row: list[str] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self._row.append(line)
        return line

    def next_row(self) -> None:
        """Forget the lines of the row that was read."""
        self._row.clear()

    def open_quotes(self) -> int | None:
        """Return how many lines before the last one quotes open that are not closed; None: none
        do.
        """
        opened, is_open = 0, False
        before = self._delimiter
        for index, line in enumerate(self._row):
            for char in line:
                if char == '"' and is_open:
                    is_open = False
                elif char == '"' and before == '"':  # two quotes in a cell are one
                    is_open = True
                elif char == '"' and before in (self._delimiter, "\n", "\r"):
                    opened, is_open = index, True
                before = char
        return len(self._row) - 1 - opened if is_open else None


def csv_batches(
    file: Iterable[str],
    mode: HeaderMode,
    predicate: str | None,
    delimiter: Delimiter = "auto",
) -> Iterator[tuple[CsvBatch, LoadError | None]]:
    """Read a CSV file in batches, each with the error that ends the file after its rows, or None.

    A row that does not have as many cells as the first row of the same predicate is such an error.
    """
    lines_of_file = without_mark(file)
    sample = list(islice(lines_of_file, SNIFFED_LINES))
    sign = _delimiter_of(sample) if delimiter == "auto" else DELIMITERS[delimiter]
    source = _Lines(chain(sample, lines_of_file), sign)
    reader = csv.reader(source, delimiter=sign, strict=True)
    lengths: dict[str, tuple[int, int]] = {}
    header: CsvHeader | None = None
    is_first = True
    while True:
        rows, lines, error = _read_rows(reader, source)
        if is_first and rows:
            is_header = mode == "yes" or (mode == "auto" and _is_header(rows, predicate))
            header = CsvHeader(is_header, mode == "auto", lines[0], tuple(rows[0]))
        is_full = len(rows) == BATCH_ROWS
        if is_first and header is not None and header.skipped:
            rows, lines = rows[1:], lines[1:]
        ragged = _ragged(rows, lines, lengths, predicate)
        if ragged is not None:
            valid_count = lines.index(ragged.line)
            rows, lines, error = rows[:valid_count], lines[:valid_count], ragged
        yield CsvBatch(rows, lines, header if is_first else None), error
        if error is not None or not is_full:
            return
        is_first = False


def without_mark(file: Iterable[str]) -> Iterator[str]:
    """Return the lines or chunks of a file without the byte order mark at its start."""
    lines = iter(file)
    for first in lines:
        return chain([first.removeprefix(_BYTE_ORDER_MARK)], lines)
    return iter(())


def _read_rows(reader: Any, source: _Lines) -> tuple[list[list[str]], list[int], LoadError | None]:
    rows: list[list[str]] = []
    lines: list[int] = []
    try:
        for row in reader:
            source.next_row()
            if row:
                rows.append(row)
                lines.append(reader.line_num)
                if len(rows) == BATCH_ROWS:
                    break
    except csv.Error as error:
        back = source.open_quotes()
        if back is not None:
            message = "the quotes that open here are never closed"
            return rows, lines, LoadError(reader.line_num - back, message)
        return rows, lines, LoadError(reader.line_num, str(error))
    return rows, lines, None


def _ragged(
    rows: list[list[str]],
    lines: list[int],
    lengths: dict[str, tuple[int, int]],
    predicate: str | None,
) -> LoadError | None:
    """Return the error for the first row whose length differs from that of the first row of its
    predicate.

    `lengths` has the length and line of the first row of each predicate; new predicates are added.
    """
    new: dict[str, set[int]] = {}
    if predicate is None:
        for name, length in {(row[0], len(row)) for row in rows}:
            new.setdefault(name, set()).add(length)
    elif rows:
        new[predicate] = set(map(len, rows))
    if all(name in lengths and counts == {lengths[name][0]} for name, counts in new.items()):
        return None
    for row, line in zip(rows, lines, strict=True):
        name = row[0] if predicate is None else predicate
        length, first = lengths.setdefault(name, (len(row), line))
        if length != len(row):
            of = f' of "{name}"' if predicate is None else ""
            extra = 1 if predicate is None else 0
            return LoadError(
                line,
                f"{counted(len(row) - extra, 'argument')}, but line {first}{of} has {length - extra}",
            )
    return None


def _is_header(rows: list[list[str]], predicate: str | None) -> bool:
    """Decide whether the first row holds column names; a row of data must not be lost, so doubt
    means no.

    All cells have to look like names, differ from each other and not occur in the rows below. In
    addition, one of these must be true: all of them are usual column names; or (with a predicate) a
    column has only numbers or dates below its name; or (without one) the first cell is "predicate"
    or "relation".
    """
    first, rest = rows[0], rows[1:]
    if len(set(first)) != len(first) or not all(_NAME.fullmatch(cell) for cell in first):
        return False
    if predicate is None:
        is_column = first[0].lower() in _PREDICATE_COLUMN
        return is_column and all(row[0] != first[0] for row in rest)
    if not set(first).isdisjoint(chain.from_iterable(rest)):
        return False
    if all(_COLUMN_NAMES.fullmatch(cell) for cell in first):
        return True
    return any(
        _is_typed([row[at] for row in rest if at < len(row) and row[at]])
        for at in range(len(first))
    )


def _is_typed(cells: list[str]) -> bool:
    return bool(cells) and all(is_number(cell) or _DATE.fullmatch(cell) for cell in cells)
