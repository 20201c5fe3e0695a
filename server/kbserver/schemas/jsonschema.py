"""JSON Schema 2020-12: what bodies take and what answers look like, in a few words; for OpenAPI and the tool protocol.

A body says it by its marshmallow schema (`of_body`), an answer by what is written here: answers never go through a schema
on their way out. Schemas with a name are components, written once and referred to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from marshmallow import Schema as Marshmallow

Schema = dict[str, Any]

PLACE = "#/components/schemas/"

TEXT: Schema = {"type": "string"}
FLAG: Schema = {"type": "boolean"}
WHOLE: Schema = {"type": "integer"}
NUMBER: Schema = {"type": "number"}
COUNT: Schema = {"type": "integer", "minimum": 0}
FRACTION: Schema = {"type": "number", "minimum": 0, "maximum": 1}
INSTANT: Schema = {"type": "integer", "description": "Epoch milliseconds."}
ANYTHING: Schema = {}
TEXTS: Schema = {"type": "array", "items": TEXT}

COMPONENTS: dict[str, Callable[[], Schema]] = {}
"""The function that builds the schema of each named component."""


def component(name: str, make: Callable[[], Schema]) -> Schema:
    """Give a schema a name, and the reference to it; raises ValueError where another has the name."""
    if name in COMPONENTS:
        raise ValueError(f"two schemas have the name {name}")
    COMPONENTS[name] = make
    return ref(name)


def named(name: str, schema: Schema) -> Schema:
    """Give a schema that is written out a name, and the reference to it."""
    return component(name, lambda: schema)


def ref(name: str) -> Schema:
    """Refer to a schema by its name."""
    return {"$ref": PLACE + name}


def resolved(schema: Schema) -> Schema:
    """The schema itself where it is a reference to one with a name."""
    return COMPONENTS[schema["$ref"].removeprefix(PLACE)]() if "$ref" in schema else schema


def obj(properties: Mapping[str, Schema], **more: Any) -> Schema:
    """Describe an object; a key that ends in `?` may be absent."""
    return {
        "type": "object",
        "properties": {key.removesuffix("?"): schema for key, schema in properties.items()},
        "required": [key for key in properties if not key.endswith("?")],
        **more,
    }


def array(items: Schema, **more: Any) -> Schema:
    """Describe an array."""
    return {"type": "array", "items": items, **more}


def given(*names: str, without: Iterable[str] = ()) -> Schema:
    """Say of an object that some keys are there and others are not; null is as good as absent."""
    there: dict[str, Schema] = {name: {"not": {"type": "null"}} for name in names}
    return {
        "required": list(names),
        "properties": {**there, **{name: {"type": "null"} for name in without}},
    }


def mapping(values: Schema) -> Schema:
    """Describe an object whose keys are not known beforehand."""
    return {"type": "object", "additionalProperties": values}


def words(*known: str) -> Schema:
    """Describe a text that is one of some words."""
    return {"type": "string", "enum": list(known)}


def nullable(schema: Schema) -> Schema:
    """Describe what may be null as well."""
    kind = schema.get("type")
    if isinstance(kind, str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"]}
    return {"anyOf": [schema, {"type": "null"}]} if schema else schema


def said(schema: Schema, description: str) -> Schema:
    """Add what a value means."""
    return {**schema, "description": description}


def of_body(schema: Marshmallow) -> Schema:
    """Describe what a marshmallow schema takes; a field may say it itself, as `json_schema`. Other keys are ignored."""
    found: Schema = _converter().schema2jsonschema(schema)
    found.pop("additionalProperties", None)
    return found


def standalone(schema: Schema) -> Schema:
    """Return a self-contained schema: the components it refers to are included as `$defs`."""
    found: Schema = _moved(schema)
    known: dict[str, Schema] = {}
    todo = sorted(references(schema))
    while todo:
        name = todo.pop()
        if name not in known:
            body_schema = COMPONENTS[name]()
            known[name] = _moved(body_schema)
            todo += sorted(references(body_schema))
    return {**found, "$defs": dict(sorted(known.items()))} if known else found


def references(value: Any) -> Iterator[str]:
    """The names a schema refers to, those it refers to more than once as often."""
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target.removeprefix(PLACE)
        for below in value.values():
            yield from references(below)
    elif isinstance(value, list):
        for below in value:
            yield from references(below)


def _moved(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            key: "#/$defs/" + below.removeprefix(PLACE)
            if key == "$ref" and isinstance(below, str)
            else _moved(below)
            for key, below in value.items()
        }
    return [_moved(below) for below in value] if isinstance(value, list) else value


def _own(self: object, field: Any, ret: Schema, **kwargs: Any) -> Schema:
    """What a field says of itself, in place of what apispec takes it for."""
    own = getattr(field, "json_schema", None)
    if own is None:
        return {}
    ret.clear()
    return copy.deepcopy(nullable(own) if field.allow_none else own)


@lru_cache(maxsize=1)
def _converter() -> Any:
    from apispec import APISpec
    from apispec.ext.marshmallow import MarshmallowPlugin

    plugin = MarshmallowPlugin()
    APISpec("", "", "3.1.0", plugins=[plugin])
    converter: Any = plugin.converter
    converter.add_attribute_function(_own)
    return converter
