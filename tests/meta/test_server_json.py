"""`server.json`, the description of this server for the registry of MCP, fits the code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import jsonschema
import pytest

import kbcore
from kbserver.cli.agents.mcp import mcp
from kbserver.http.cors import HEADERS
from kbserver.mcp.protocol import SERVER
from kbserver.operations import routes
from kbserver.routes import every  # noqa: F401  declares the operations

DESCRIPTION = json.loads(
    (Path(__file__).resolve().parents[2] / "server.json").read_text(encoding="utf-8")
)


def _closed(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


TEXT = {"type": "string", "minLength": 1}
INPUT = {
    "description": TEXT,
    "isRequired": {"type": "boolean"},
    "isSecret": {"type": "boolean"},
    "format": {"enum": ["string", "number", "boolean", "filepath"]},
    "value": TEXT,
    "default": TEXT,
    "placeholder": TEXT,
}
ARGUMENT = {
    "oneOf": [
        _closed(("type", "value"), type={"const": "positional"}, **INPUT),
        _closed(("type", "name"), type={"const": "named"}, name={"pattern": "^--"}, **INPUT),
    ]
}
PACKAGE = _closed(
    ("registryType", "identifier", "version", "transport"),
    registryType={"const": "pypi"},
    identifier=TEXT,
    version={"pattern": r"^\d+\.\d+\.\d+$"},
    runtimeHint={"const": "uvx"},
    transport=_closed(("type",), type={"const": "stdio"}),
    packageArguments={"type": "array", "items": ARGUMENT},
)
REMOTE = _closed(
    ("type", "url"),
    type={"const": "streamable-http"},
    url={"pattern": "^https://"},
    variables={"type": "object", "additionalProperties": _closed((), **INPUT)},
    headers={"type": "array", "items": _closed(("name",), name=TEXT, **INPUT)},
)
SHAPE = _closed(
    ("$schema", "name", "description", "version"),
    **{
        "$schema": {
            "const": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
        },
        "name": {"type": "string", "pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "maxLength": 200},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"pattern": r"^\d+\.\d+\.\d+$"},
        "packages": {"type": "array", "items": PACKAGE},
        "remotes": {"type": "array", "items": REMOTE},
    },
)
"""The part of the registry's schema that the description uses; unknown members are refused."""


def test_the_description_has_the_shape_of_the_registry() -> None:
    jsonschema.validate(DESCRIPTION, SHAPE)


@pytest.mark.parametrize(
    "change", [{"description": "x" * 101}, {"name": "kbcore"}, {"version": "latest"}, {"more": 1}]
)
def test_the_shape_refuses_mistakes(change: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**DESCRIPTION, **change}, SHAPE)


def test_the_description_has_the_version_and_the_title_of_the_code() -> None:
    (package,) = DESCRIPTION["packages"]
    assert DESCRIPTION["version"] == package["version"] == kbcore.__version__
    assert DESCRIPTION["title"] == SERVER["title"]


def test_the_transports_exist() -> None:
    (package,), (remote,) = DESCRIPTION["packages"], DESCRIPTION["remotes"]
    command, *options = package["packageArguments"]
    assert command["value"] == mcp.name
    known = {name for each in mcp.params for name in each.opts}
    assert {each["name"] for each in options} <= known
    url = remote["url"].replace("{host}", "kb.example")
    assert ("POST", urlsplit(url).path) in routes()
    assert set(remote["variables"]) == {"host"}
    assert {each["name"] for each in remote["headers"]} <= set(HEADERS.split(", "))
