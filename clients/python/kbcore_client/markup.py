"""Static HTML of answers and proofs for notebooks; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MAX_ROWS = 100
"""Answers that a table lists."""

MAX_LINES = 500
"""Lines that a proof lists."""


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """Return a table of the first rows, with the number of all of them."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(str(value))}</td>" for value in row) + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    more = len(rows) - MAX_ROWS
    note = f"<p>{more} more</p>" if more > 0 else ""
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table>{note}"
    )


def lines(texts: Iterable[str]) -> str:
    """Return lines of text with their indentation."""
    listed = list(texts)
    more = f"\n({len(listed) - MAX_LINES} more lines)" if len(listed) > MAX_LINES else ""
    return f"<pre>{escape(chr(10).join(listed[:MAX_LINES]))}{more}</pre>"
