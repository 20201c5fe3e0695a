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
from kbserver.operations import Operation, operation_at
from kbserver.schemas.fields import Json
from kbserver.schemas.json_schema import new_document

_PATH_PARAMETER = re.compile(r"<(?:\w+:)?(\w+)>")
_NOT_LISTED = frozenset({"HEAD", "OPTIONS"})


def document(app: Flask) -> Json:
    """Return the document of an application; routes of plugins are left out."""
    spec = new_document(
        "kbcore",
        __version__,
        info={
            "description": "Facts, rules, backward chaining with proofs, truth maintenance and "
            "context windows.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        servers=[{"url": "/"}],
    )
    examples = json.loads((files("kbserver.openapi") / "examples.json").read_text("utf-8"))
    for name, header in common.HEADERS.items():
        spec.components.header(name, header)
    for name, scheme in common.SECURITY.items():
        spec.components.security_scheme(name, scheme)
    for name, parameter in common.PARAMETERS.items():
        spec.components.parameter(name, "header", {"name": name, **parameter})
    tags: dict[str, str] = {}
    statuses: set[int] = set()
    for path, method, declared in listed(app):
        tags.setdefault(declared.group, _first_line(declared))
        statuses.update(common.statuses(declared))
        operation = _operation(path, method, declared, _example(examples, method, declared))
        spec.path(path, operations={method.lower(): operation})
    for status in sorted(statuses):
        spec.components.schema(f"Error{status}", common.error_schema(status))
        refused = common.error(status, examples["errors"].get(str(status)))
        spec.components.response(f"Error{status}", refused)
    for tag, description in tags.items():
        spec.tag({"name": tag, "description": description})
    described: Json = spec.to_dict()
    return described


def listed(app: Flask) -> Iterator[tuple[str, str, Operation]]:
    """Yield every documented path and method with its operation."""
    for path, method, template in routes(app):
        declared = operation_at(method, template)
        if declared is not None and declared.listed:
            yield path, method, declared


def routes(app: Flask) -> Iterator[tuple[str, str, str]]:
    """Yield every path in OpenAPI form, method and path template of an application."""
    for rule in app.url_map.iter_rules():
        for method in sorted((rule.methods or set()) - _NOT_LISTED):
            yield _in_openapi(rule.rule), method, rule.rule


def operation_id(path: str, method: str) -> str:
    """Return the operation id: the words of the path, after the method unless it is POST."""
    words = [word for word in re.split(r"[^A-Za-z0-9]+", path) if word]
    if method != "POST":
        words.insert(0, method.lower())
    return words[0] + "".join(word[0].upper() + word[1:] for word in words[1:])


def _operation(path: str, method: str, declared: Operation, example: Mapping[str, Any]) -> Json:
    summary, description = declared.documentation
    described: Json = {"operationId": operation_id(path, method), "summary": summary}
    if description:
        described["description"] = description
    described["x-role"], described["security"] = declared.role, common.security(declared)
    described["parameters"] = list(common.parameters(path, declared))
    if declared.body is not None and declared.body_reader is not None:
        body: Json = {"schema": declared.body}
        if "request" in example:
            body["example"] = example["request"]
        is_required = not declared.body_reader.is_optional
        described["requestBody"] = {"required": is_required, "content": {JSON: body}}
    described["responses"] = common.responses(declared, example)
    return {**described, "tags": [declared.group]}


def _example(examples: Mapping[str, Any], method: str, declared: Operation) -> Mapping[str, Any]:
    """Return the example of the operation, under any of its paths."""
    for route in declared.routes:
        own, template = route.split()
        name = f"{own} {_in_openapi(template)}"
        if own == method and name in examples["operations"]:
            example: Mapping[str, Any] = examples["operations"][name]
            return example
    return {}


def _in_openapi(template: str) -> str:
    return _PATH_PARAMETER.sub(r"{\1}", template)


def _first_line(declared: Operation) -> str:
    documentation = inspect.getdoc(inspect.getmodule(declared.respond)) or ""
    return documentation.split("\n\n")[0].replace("\n", " ")
