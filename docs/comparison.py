"""The table of measured times on the comparison page, made from the table of the benchmarks."""

from __future__ import annotations

import re
from pathlib import Path

ROWS = {
    ("sparse cyclic, right ff", "2,000/3,000"): "closure of a sparse cyclic graph",
    ("sparse cyclic, right bf", "2,000/3,000"): "the same from one node",
    ("three-way join, ff", ""): "join of three tables",
    ("three-way join, bf", ""): "the same with one argument bound",
    ("same generation, bf", ""): "same generation with one argument bound",
    ("win/move, cyclic", ""): "win/move game, cyclic",
}
"""Rows of the benchmarks by workload and size ("": any), with the words for them."""

COLUMNS = ("answers", "ours", "named", "sqlite", "duckdb", "swipl", "clingo")
TITLES = ("answers", "ours", "named", "SQLite", "DuckDB", "SWI-Prolog", "clingo")
BEGIN, END = "<!-- measured: written by docs/generate.py -->", "<!-- end of measured -->"


def with_table(page: str, performance: str) -> str:
    """Return the comparison page with the times of the page about performance."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the comparison page has no marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{measured(performance)}\n\n{END}{after}"


def measured(performance: str) -> str:
    """Return the table; raise ValueError if a row is missing in the benchmarks."""
    lines = re.findall(r"^\| (.*) \|$", performance, re.M)
    cells = [[cell.strip() for cell in line.split("|")] for line in lines]
    header = next(row for row in cells if row[0] == "workload" and set(COLUMNS) <= set(row))
    rows = {(row[0], size): row for row in cells for size in ("", row[1] if row[1:] else "")}
    table = [f"| workload | {' | '.join(TITLES)} |", "|---|" + "---:|" * len(TITLES)]
    for key, words in ROWS.items():
        if key not in rows:
            raise ValueError(f"the benchmarks have no row {key}; change ROWS in docs/comparison.py")
        row = dict(zip(header, rows[key], strict=False))
        table.append(f"| {words} | {' | '.join(row[column] for column in COLUMNS)} |")
    return "\n".join(table)


def update(docs: Path, *, write: bool) -> bool:
    """Return True if the page is out of date; write it if asked to."""
    path = docs / "explanation" / "compare.md"
    page = path.read_text(encoding="utf-8")
    performance = (docs / "reference" / "performance.md").read_text(encoding="utf-8")
    current = with_table(page, performance)
    if write and page != current:
        path.write_text(current, encoding="utf-8")
    return page != current
