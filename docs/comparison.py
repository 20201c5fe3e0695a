"""Measured figures on pages, from the results of the benchmarks: the table of the comparison page,
and tables that the page about performance shows.
"""

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


COPIED = {
    "RESULTS.md": ("changes", "storage", "commands", "bulk"),
    "MEMORY.md": ("agent-memory", "dependable-memory"),
}
"""Sections of the results, by file, that the page about performance shows."""


def section(text: str, name: str) -> tuple[int, int]:
    """Return where the content of a marked section begins and ends."""
    mark = re.search(rf"<!-- {name}: [^>]*-->", text)
    if mark is None or f"<!-- end of {name} -->" not in text:
        raise ValueError(f"there is no section {name}")
    return mark.end(), text.index(f"<!-- end of {name} -->", mark.end())


def with_sections(page: str, bench: Path) -> str:
    """Return the page about performance: each section up to the end of its first table."""
    for file, names in COPIED.items():
        results = (bench / file).read_text(encoding="utf-8")
        for name in names:
            start, end = section(results, name)
            table = re.match(r".*?^\|.*?(?=^\n|\Z)", results[start:end].strip() + "\n", re.M | re.S)
            if table is None:
                raise ValueError(f"section {name} of {file} has no table")
            start, end = section(page, name)
            page = f"{page[:start]}\n\n{table[0].strip()}\n\n{page[end:]}"
    return page


def update(docs: Path, *, write: bool) -> list[str]:
    """Return the names of the pages that are out of date; write them if asked to."""
    bench = docs.parent / "tests" / "bench"
    compare, performance = (
        docs / "explanation" / "compare.md",
        docs / "reference" / "performance.md",
    )
    results = (bench / "RESULTS.md").read_text(encoding="utf-8")
    current = {
        compare: with_table(compare.read_text(encoding="utf-8"), results),
        performance: with_sections(performance.read_text(encoding="utf-8"), bench),
    }
    stale = [path for path, text in current.items() if path.read_text(encoding="utf-8") != text]
    if write:
        for path in stale:
            path.write_text(current[path], encoding="utf-8")
    return [path.name for path in stale]
