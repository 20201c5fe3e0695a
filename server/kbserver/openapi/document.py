"""The OpenAPI 3.1 document of an application.

Contains every listed route with its bodies, responses, headers, errors and examples.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from flask import Flask

from kbcore import __version__
from kbserver.answers import JSON
from kbserver.openapi import common
from kbserver.operations import Operation, operation_of
from kbserver.schemas.base import envelope_of
from kbserver.schemas.jsonschema import COMPONENTS, references

_UNDER_BLUEPRINT = re.compile(r"<(?:\w+:)?(\w+)>")
_NOT_LISTED = frozenset({"HEAD", "OPTIONS"})


def document(app: Flask) -> dict[str, Any]:
    """Return the document of an application; routes without a declaration are left out."""
    from apispec import APISpec

    spec = APISpec(
        "kbcore",
        __version__,
        "3.1.0",
        info={
            "description": "Facts, rules, backward chaining with proofs, truth maintenance and context windows.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        servers=[{"url": "/"}],
    )
    examples = _examples()
    for name, header in common.HEADERS.items():
        spec.components.header(name, header)
    for name, scheme in common.SECURITY.items():
        spec.components.security_scheme(name, scheme)
    for name, parameter in common.PARAMETERS.items():
        spec.components.parameter(name, "header", {"name": name, **parameter})
    used: set[str] = set()
    statuses: set[int] = set()
    tags: dict[str, str] = {}
    for path, method, view, declared, endpoint in listed(app):
        tag = endpoint.split(".")[0]
        tags.setdefault(tag, _first_line(inspect.getmodule(view)))
        known = examples["operations"].get(f"{method} {path}") or _of_alias(
            examples, app, endpoint, method
        )
        operation = _operation(path, method, view, declared, known)
        used.update(references(operation))
        statuses.update(common.statuses(path, method, declared))
        spec.path(path, operations={method.lower(): {**operation, "tags": [tag]}})
    for status in sorted(statuses):
        refused = common.error(status, examples["errors"].get(str(status)))
        used.update(references(refused))
        spec.components.response(f"Error{status}", refused)
    for name in sorted(_closure(used)):
        spec.components.schema(name, COMPONENTS[name]())
    for tag, description in tags.items():
        spec.tag({"name": tag, "description": description})
    words: dict[str, Any] = spec.to_dict()
    return words


def listed(app: Flask) -> Iterator[tuple[str, str, Any, Operation, str]]:
    """Yield every documented path and method, with its function and its declaration."""
    for path, method, endpoint in routes(app):
        view = app.view_functions[endpoint]
        declared = operation_of(view)
        if declared is not None and declared.listed:
            yield path, method, view, declared, endpoint


def routes(app: Flask) -> Iterator[tuple[str, str, str]]:
    """Yield every path in OpenAPI form, method and endpoint of an application."""
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - _NOT_LISTED):
            yield _UNDER_BLUEPRINT.sub(r"{\1}", rule.rule), method, rule.endpoint


def operation_id(path: str, method: str) -> str:
    """Return the operation id: the words of the path, after the method unless it is POST."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path) if word]
    if method != "POST":
        words.insert(0, method.lower())
    return words[0] + "".join(word[0].upper() + word[1:] for word in words[1:])


def _operation(
    path: str, method: str, view: Any, declared: Operation, example: Mapping[str, Any]
) -> dict[str, Any]:
    first, _, rest = inspect.cleandoc(view.__doc__ or "").partition("\n\n")
    words: dict[str, Any] = {
        "operationId": operation_id(path, method),
        "summary": first.rstrip("."),
    }
    if rest:
        words["description"] = rest
    words["x-role"], words["security"] = common.needed(path, method)
    words["parameters"] = list(common.parameters(path, method, declared))
    if declared.body is not None:
        envelope = envelope_of(declared.body)
        shown: dict[str, Any] = {"schema": envelope.ref}
        if "request" in example:
            shown["example"] = example["request"]
        words["requestBody"] = {"required": not envelope.optional, "content": {JSON: shown}}
    words["responses"] = common.answers(path, method, declared, example)
    return words


def _closure(names: set[str]) -> set[str]:
    words: set[str] = set()
    todo = [name for name in names if name in COMPONENTS]
    while todo:
        name = todo.pop()
        if name not in words:
            words.add(name)
            todo += references(COMPONENTS[name]())
    return words


def _of_alias(
    examples: Mapping[str, Any], app: Flask, endpoint: str, method: str
) -> Mapping[str, Any]:
    """Return the example of another path of the same function."""
    for path, other, same in routes(app):
        if (other, same) == (method, endpoint) and f"{method} {path}" in examples["operations"]:
            words: Mapping[str, Any] = examples["operations"][f"{method} {path}"]
            return words
    return {}


def _first_line(module: Any) -> str:
    return (
        inspect.cleandoc(getattr(module, "__doc__", None) or "").split("\n\n")[0].replace("\n", " ")
    )


def _examples() -> dict[str, Any]:
    words: dict[str, Any] = json.loads(
        (files("kbserver.openapi") / "examples.json").read_text(encoding="utf-8")
    )
    return words
