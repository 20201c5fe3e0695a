"""Tables of results, as text or between two marks of a Markdown page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from .runner import Result

BEGIN = "<!-- agent-memory: written by tests/bench/agent_memory/run.py -->"
END = "<!-- end of agent-memory -->"


def tables(results: Sequence[Result]) -> str:
    """Return a table of all systems, and one of each ability."""
    rows = [
        (
            result.system,
            _share(result.total().first_recall),
            _share(result.total().first_precision),
            _share(result.total().recall),
            _share(result.total().in_window),
            _share(result.total().supported),
            _share(result.total().alone),
            _share(result.total().answered),
            f"{result.total().tokens:,.0f}",
            f"{_ms(result.latency(0.5))} / {_ms(result.latency(0.99))}",
            f"{result.turns / result.ingestion_seconds:,.0f}",
        )
        for result in results
    ]
    header = (
        "system",
        "recall@10",
        "precision@10",
        "evidence recall",
        "answer in window",
        "supported",
        "alone",
        "exact answer",
        "tokens",
        "ms p50 / p99",
        "turns/s",
    )
    parts = [_table(header, rows)]
    abilities = list(results[0].by_ability())
    for title, attribute in (
        ("Recall@10", "first_recall"),
        ("Evidence recall", "recall"),
        ("Supported: the answer in the window, with all its evidence", "supported"),
        ("Alone: supported, without a competing value in the window", "alone"),
        ("Exact answer", "answered"),
    ):
        columns = [result.by_ability() for result in results]
        shown = [
            (
                ability,
                str(columns[0][ability].questions),
                *(_share(getattr(column[ability], attribute)) for column in columns),
            )
            for ability in abilities
        ]
        if any(cell != "" for row in shown for cell in row[2:]):
            names = tuple(result.system for result in results)
            parts.append(f"{title}:\n\n" + _table(("ability", "questions", *names), shown))
    return "\n\n".join(parts)


def write_markdown(path: Path, text: str) -> None:
    """Replace what stands between the marks of a page; raise ValueError if a mark is missing."""
    page = path.read_text(encoding="utf-8")
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if len(pattern.findall(page)) != 1:
        raise ValueError(f"{path} must have the lines {BEGIN} and {END} once")
    path.write_text(pattern.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", page), encoding="utf-8")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    marks = ["---", *("---:" for _ in header[1:])]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, marks, *rows])


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.2f}"
