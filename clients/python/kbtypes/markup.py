"""Static HTML of results for notebooks; every text is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

MAX_ROWS = 100
"""Answers that a table lists."""

MAX_LINES = 500
"""Lines that a proof lists."""


class Report(str):
    """A text of several lines, which a notebook shows as it is."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return lines(self.splitlines())


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


def answers(goal: str, names: Sequence[str], rows: Sequence[Sequence[Any]], number: int) -> str:
    """Return the answers of a goal as a table; of a goal without variables whether it holds."""
    if names:
        return table(names, rows, f"{goal}: {counted(number, 'answer')}")
    outcome = "yes" if number else "no"
    return f"<p>{escape(goal)}: {outcome}</p>"


def lines(texts: Iterable[str]) -> str:
    """Return lines of text with their indentation."""
    listed = list(texts)
    more = f"\n({counted(len(listed) - MAX_LINES, 'more line')})" if len(listed) > MAX_LINES else ""
    return f"<pre>{escape(chr(10).join(listed[:MAX_LINES]))}{more}</pre>"


def changes(added: Sequence[str], removed: Sequence[str], caption: str) -> str:
    """Return a list of what is new, marked with +, and of what is gone, marked with −."""
    marked = [f"+ {text}" for text in added] + [f"− {text}" for text in removed]
    return f"<p>{escape(caption)}</p>{lines(marked) if marked else ''}"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, such as `2 answers`."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
