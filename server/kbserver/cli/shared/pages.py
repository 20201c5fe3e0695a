"""Long answers of a target, page by page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from kbserver.cli.shared.client import ServerAnswer
from kbserver.cli.shared.exits import Failed
from kbserver.cli.shared.target import CommandTarget

PAGE_ROWS = 50_000
"""Rows in one answer of the server."""

_CONFLICT = "CONFLICT"


def pages(
    target: CommandTarget, route: str, body: Mapping[str, Any], changed: str
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of an answer in pages.

    Raises Failed with the text `changed` if the knowledge base changes between two pages.
    """
    path: str | None = f"{route}?limit={PAGE_ROWS}"
    while path is not None:
        try:
            answer = target.send("POST", path, body)
        except Failed as error:
            if error.code != _CONFLICT:
                raise
            raise Failed(changed) from error
        yield answer.json()
        path = _next_page(answer)


def _next_page(answer: ServerAnswer) -> str | None:
    """Return the address of the next page; None after the last one."""
    address = answer.headers.get("link", "").partition("<")[2].partition(">")[0]
    if not address:
        return None
    parts = urlsplit(address)
    return f"{parts.path}?{parts.query}"
