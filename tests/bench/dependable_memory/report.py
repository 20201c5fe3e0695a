"""Results as JSON and as tables between two marks of a Markdown page."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .runner import RAN, Result
from .scoring import Score, total

BENCHMARK, VERSION = "dependable-memory", "1"
BEGIN = "<!-- dependable-memory: written by tests/bench/dependable_memory/run.py -->"
END = "<!-- end of dependable-memory -->"
MAX_ERRORS = 5


def as_json(results: Sequence[Result], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the content of a results file, which `results.schema.json` describes."""
    rows = [
        {
            "system": each.system,
            "status": each.status,
            "reason": each.reason,
            "form": each.form,
            "version": each.version,
            "settings": each.settings,
            "inputs": each.inputs,
            "storeSeconds": round(each.store_seconds, 3),
            "answerSeconds": round(each.answer_seconds, 3),
            "errors": [
                {"text": text, "count": count}
                for text, count in each.errors.most_common(MAX_ERRORS)
            ],
            "tasks": [asdict(score) for score in each.scores],
        }
        for each in results
    ]
    return {"benchmark": BENCHMARK, "version": VERSION, "data": dict(data), "rows": rows}


def with_rows_of(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return results with the rows of a file on the same data whose systems were not measured.

    So systems that need environments of their own share one file.
    """
    if not path.exists():
        return content
    old = json.loads(path.read_text(encoding="utf-8"))
    same = [name for name in content["data"] if name != "python"]
    if any(content["data"][name] != old["data"].get(name) for name in same):
        return content
    measured = {row["system"]: row for row in content["rows"] if row["status"] == RAN}
    rows = [measured.pop(row["system"], row) for row in old["rows"]]
    named = {row["system"] for row in rows}
    rows += [row for row in content["rows"] if row["system"] not in named]
    return {**content, "rows": rows}


def tables(content: Mapping[str, Any]) -> str:
    """Return the tables of a results file, the systems in the order of the file."""
    rows = [row for row in content["rows"] if row["status"] == RAN]
    scores = {row["system"]: [Score(**task) for task in row["tasks"]] for row in rows}
    parts = [_systems(rows, scores)]
    missing = [row for row in content["rows"] if row["status"] != RAN]
    if missing:
        lines = [f"- `{row['system']}`: {row['status']}: {row['reason']}" for row in missing]
        parts.append("Without figures:\n\n" + "\n".join(lines))
    errors = [
        f"- `{row['system']}`, {error['count']} times: {error['text']}"
        for row in rows
        for error in row["errors"]
    ]
    if errors:
        parts.append("Errors of systems, counted as failed:\n\n" + "\n".join(errors))
    if rows:
        parts.append(_tasks("Right answers", rows, scores, _right))
        parts.append(_tasks("Wrong answers", rows, scores, _wrong))
        texts = [row for row in rows if any(score.windows for score in scores[row["system"]])]
        if texts:
            title = "Windows that name a value which is replaced, erased or of another user"
            parts.append(_tasks(title, texts, scores, _leaking))
    return "\n\n".join(parts)


def _systems(rows: Sequence[Mapping[str, Any]], scores: Mapping[str, Sequence[Score]]) -> str:
    header = (
        "system", "version", "form", "questions", "right", "wrong", "abstained", "failed",
        "all answers in window", "window leaks", "tokens", "inputs/s", "ms per question",
    )  # fmt: skip
    lines = []
    for row in rows:
        each = total(scores[row["system"]], "")
        seconds = row["storeSeconds"] or 0.001
        lines.append(
            (
                row["system"],
                row["version"],
                row["form"],
                f"{each.questions:,}",
                share(each.right, each.questions),
                share(each.wrong, each.questions),
                share(each.abstained, each.questions),
                share(each.failed, each.questions),
                share(each.full, each.windows_with_answer),
                share(each.leaking, each.windows_with_gone),
                f"{each.tokens / each.windows:,.0f}" if each.windows else "",
                f"{row['inputs'] / seconds:,.0f}",
                f"{1000 * row['answerSeconds'] / max(1, each.questions):.2f}",
            )
        )
    return _table(header, lines, left=3)


def _tasks(title: str, rows: Sequence[Mapping[str, Any]], scores: Any, cell: Any) -> str:
    names = [row["system"] for row in rows]
    keys = [(score.ability, score.task) for score in scores[names[0]]]
    lines = []
    for ability, task in keys:
        of_task = [
            next(each for each in scores[name] if (each.ability, each.task) == (ability, task))
            for name in names
        ]
        cells = [cell(each) for each in of_task]
        if any(cells):
            lines.append((ability, task, str(of_task[0].questions), *cells))
    return f"{title}:\n\n" + _table(("ability", "task", "questions", *names), lines, left=2)


def _right(score: Score) -> str:
    return share(score.right, score.questions)


def _wrong(score: Score) -> str:
    return share(score.wrong, score.questions)


def _leaking(score: Score) -> str:
    return share(score.leaking, score.windows_with_gone)


def share(part: float, whole: int) -> str:
    """Return a share in percent; an empty text for a share of nothing."""
    return f"{part / whole:.0%}" if whole else ""


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> str:
    marks = ["---" if number < left else "---:" for number in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, marks, *rows])


def write_markdown(path: Path, text: str) -> None:
    """Replace what stands between the marks of a page; raise ValueError if a mark is missing."""
    page = path.read_text(encoding="utf-8")
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end or BEGIN in after:
        raise ValueError(f"{path} must have the lines {BEGIN} and {END} once")
    path.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


def heading(content: Mapping[str, Any]) -> str:
    """Return a line about the data of a results file."""
    data = content["data"]
    return (
        f"{data['questions']:,} questions about {data['inputs']:,} inputs, size {data['size']},"
        f" seed {data['seed']}, sentences `{data['part']}`, Python {data['python']}."
    )
