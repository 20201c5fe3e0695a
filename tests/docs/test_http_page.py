"""The page on HTTP is written by hand: it names every route and every field, and no unknown
route.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.http import serve_in_memory

from kbserver.openapi.document import routes
from kbserver.operations import operations

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "http.md"
CODE = re.compile(r"`([^`\n]+)`")
ROUTE = re.compile(r"([A-Z]+) (/[^\s?`]*)(?:\?.*)?")


def named(text: str) -> set[str]:
    """The routes a page names: a method and a path, alone in code; what follows the path of one is
    not looked at.
    """
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
    assert sorted(known - shown) == [], "routes the page does not name"
    assert sorted(shown - known) == [], "the page names unknown routes"


def test_the_page_lists_the_routes_with_views() -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition("\n## Views and labels\n")[2].partition("\n## ")[0]
    listed = named(section.partition("take views and labels:")[2].partition(".\n\n")[0])
    viewed = (each for each in operations() if each.viewed and each.listed)
    with serve_in_memory():
        assert listed == {
            re.sub(r"<(?:path:)?(\w+)>", r"{\1}", route) for each in viewed for route in each.routes
        }


ROW = {
    "predicate",
    "args",
    "negated",
    "scope",
    "metadata",
    "createdAt",
    "validFrom",
    "validUntil",
    "ttl",
    "confidence",
    "evidence",
    "labels",
    "trust",
}
"""The fields of a row, which the page lists once."""


class Fields:
    """The names in the schemas of a document."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def operations(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield each route and its operation."""
        for path, methods in self.document["paths"].items():
            for method, operation in methods.items():
                yield f"{method.upper()} {path}", operation

    def resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return a schema, or what it refers to."""
        while "$ref" in schema:
            node: Any = self.document
            for key in schema["$ref"].removeprefix("#/").split("/"):
                node = node[key]
            schema = node
        return schema

    def names(
        self, schema: dict[str, Any], *, nested: bool, seen: tuple[int, ...] = ()
    ) -> set[str]:
        """Return the names of the properties; without `nested` of the object or of array
        elements.
        """
        schema = self.resolved(schema)
        if id(schema) in seen:
            return set()
        seen = (*seen, id(schema))
        parts = [schema["items"]] if "items" in schema else []
        parts += [part for key in ("oneOf", "anyOf", "allOf") for part in schema.get(key, ())]
        properties = schema.get("properties", {})
        if nested:
            parts += properties.values()
            parts += [x for x in [schema.get("additionalProperties")] if isinstance(x, dict)]
        return set(properties).union(*(self.names(x, nested=nested, seen=seen) for x in parts))

    def answers(self, operation: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the schemas of the answers with a status of success."""
        replies = [
            self.resolved(reply)
            for status, reply in operation["responses"].items()
            if status.startswith("2")
        ]
        return [part["schema"] for reply in replies for part in reply.get("content", {}).values()]

    def requests(self, operation: dict[str, Any]) -> set[str]:
        """Return the names in the body and in the query string of a request."""
        body = self.resolved(operation.get("requestBody", {})).get("content", {})
        parameters = map(self.resolved, operation.get("parameters", ()))
        query = {each["name"] for each in parameters if each["in"] == "query"}
        return query.union(*(self.names(part["schema"], nested=True) for part in body.values()))


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


def test_the_page_names_every_field_of_answers_and_requests() -> None:
    """The section of a route names the fields of its answer; the page the others."""
    page = PAGE.read_text(encoding="utf-8")
    sections = [(named(text), words(text)) for text in re.split(r"^(?=##+ )", page, flags=re.M)]
    anywhere = words(page)
    with serve_in_memory() as served:
        fields = Fields(served.app.test_client().get("/openapi.json").get_json())
    missing = {}
    for route, operation in fields.operations():
        own = ROW.union(*(names for shown, names in sections if route in shown))
        answers = fields.answers(operation)
        unnamed = {
            *(set().union(*(fields.names(each, nested=False) for each in answers)) - own),
            *(set().union(*(fields.names(each, nested=True) for each in answers)) - anywhere),
            *(fields.requests(operation) - anywhere),
        }
        if unnamed:
            missing[route] = sorted(unnamed)
    assert missing == {}
