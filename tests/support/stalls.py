"""Hostile texts, and the count of the steps that a node makes between two turns of other
requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kbplanner.syntax.scanner import MAX_STATEMENT_CHARS
from kbserver.operations import Operation, operations
from kbserver.schemas.base import Body
from kbserver.schemas.fields import (
    Choice,
    Duration,
    Flag,
    Fraction,
    Instant,
    Number,
    Value,
    Whole,
)

CALLS_BETWEEN = 2 * MAX_STATEMENT_CHARS
"""Calls of functions between two turns of others, at most: two for each token of the longest
statement, some ten milliseconds. Texts of any shape take more in all.
"""

SIZE = 80 * 1024


def grown(text: str, size: int = SIZE) -> str:
    return (text * (size // len(text) + 1))[:size]


SHAPES = {
    "calls": grown("p("),
    "brackets": grown("("),
    "lists": grown("["),
    "quotes": grown('"'),
    "unclosed lines": grown('"\n'),
    "comments": grown("%\n"),
    "block comments": grown("/**/"),
    "one comment": "%" * SIZE,
    "blanks": " " * SIZE,
    "not": grown("not ") + "p(a)",
    "signs": grown("~"),
    "minus": grown("-"),
    "arguments": "p(" + grown("a,") + "a)",
    "variables": "p(" + ",".join(f"?v{i}" for i in range(8000)) + ")",
    "conjunction": grown("p(?x),") + "p(?x)",
    "sum": "p(?x), ?x = " + grown("1+") + "1",
    "escapes": 'p("' + grown("\\n") + '").',
    "one word": "a" * SIZE,
    "word with dashes": grown("a-"),
    "facts": grown("p(a).\n", 8000),
    "rules": grown("p(?x) :- q(?x).\n", 8000),
    "keys": grown("@key p(?x, _).\n", 8000),
    "errors": grown("p(.\n", 8000),
    "lines": grown("p(a, b)\n", 8000),
    "arrows": grown("a :- b\n", 8000),
    "tests": grown('test "a" { p(a). ?- p(a). }\n', 8000),
}


# ---- the fields of bodies that hold texts ----

WITHOUT_TEXT: Mapping[type[Value], str] = {
    Flag: "true or false",
    Whole: "a whole number",
    Duration: "a number or a duration, which has some 20 characters",
    Number: "a number",
    Fraction: "a number",
    Choice: "one of a few words",
    Instant: "a number or an instant, which has some 30 characters",
}
"""Classes of fields that refuse a long text at once, and what they hold instead."""

FORMS: Mapping[str, Callable[[str], Any]] = {
    "text": lambda text: text,
    "list": lambda text: [text],
    "lines": lambda text: text.split("\n"),
    "words": lambda text: text.split(","),
    "object": lambda text: {"text": text, "predicate": text},
    "objects": lambda text: [{"text": line, "speaker": line} for line in text.split("\n")],
    "atoms": lambda text: [{"predicate": "p", "args": text.split(",")}],
}
"""Values of a field that hold a text in one of the places where some field has it."""

COMPANIONS: Mapping[str, Mapping[str, Any]] = {
    "args": {"predicate": "p"},
    "body": {"head": {"predicate": "h", "args": ["?x"]}},
    "head": {"body": [{"predicate": "p", "args": ["?x"]}]},
    "new": {"old": "p(a)"},
    "old": {"new": "p(a)"},
    "webhook": {"goal": "p(?x)"},
    "contains": {"predicate": "p", "args": ["?x"]},
}
"""Other fields of a body that a field needs, so that it is read."""


def fields_with_texts(body: Body) -> list[str]:
    """Return the keys of a body whose values hold texts, or parts with texts."""
    return [
        field.data_key or name
        for name, field in body.fields.items()
        if type(field) not in WITHOUT_TEXT
    ]


def operations_with_texts() -> dict[str, Operation]:
    """Return the operations with a text in the body, by their first route."""
    from kbserver.app import create_app  # noqa: F401 - declares all operations

    return {
        each.routes[0]: each
        for each in operations()
        if each.body_reader is not None and fields_with_texts(each.body_reader)
    }


def body_with(body: Body, key: str, value: Any) -> dict[str, Any]:
    """Return a body with a value for a key, and what the key needs."""
    needed = COMPANIONS.get(key, {"text": "p(a)"} if key != "text" else {})
    more = {name: other for name, other in needed.items() if name != key and body.has(name)}
    return {**more, key: value}
