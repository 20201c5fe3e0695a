"""The page on HTTP is written by hand: it names no unknown route.

Every route is named there or in the generated list of operations.
"""

from __future__ import annotations

import re
from pathlib import Path

from support.http import serve_in_memory

from kbserver.openapi.document import routes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"
CODE = re.compile(r"`([^`\n]+)`")
ROUTE = re.compile(r"([A-Z]+) (/[^\s?`]*)(?:\?.*)?")


def named(text: str) -> set[str]:
    """The routes a page names: a method and a path, alone in code; what follows the path of one is not looked at."""
    fences = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return {
        " ".join(found.groups())
        for code in CODE.findall(fences)
        if (found := ROUTE.fullmatch(code))
    }


def there() -> set[str]:
    with serve_in_memory() as served:
        return {f"{method} {path}" for path, method, _ in routes(served.app)}


def test_names_are_found_in_text_headings_and_tables() -> None:
    text = "### `POST /tell`, `POST /x/{id}`\n| `GET /log?a&b` | `/not/one` |\n```\n`GET /in/a/fence`\n```\nand `get /low`."
    assert named(text) == {"POST /tell", "POST /x/{id}", "GET /log"}


def test_the_page_names_every_route_and_no_other() -> None:
    known, shown = there(), named(PAGE.read_text(encoding="utf-8"))
    listed = named(PAGE.with_name("operations.md").read_text(encoding="utf-8"))
    assert sorted(known - shown - listed) == [], "routes the page does not name"
    assert sorted(shown - known) == [], "the page names unknown routes"
