"""JSON Schemas of the marshmallow schemas, made by apispec's marshmallow plugin."""

from __future__ import annotations

from typing import Any

from apispec import APISpec, BasePlugin
from apispec.ext.marshmallow import MarshmallowPlugin
from apispec.ext.marshmallow.openapi import OpenAPIConverter
from marshmallow import Schema
from marshmallow.fields import Field

from kbserver.schemas.fields import Forms, Json, ListOfForms, TextOrElements

VERSION = "3.1.0"
"""The version of OpenAPI."""

_SUFFIXES = ("Body", "Answer", "Shown")


def component_name(schema: Any) -> str:
    """Return the name of a schema in the document."""
    cls = schema if isinstance(schema, type) else type(schema)
    name: str = cls.__name__
    for suffix in _SUFFIXES:
        name = name.removesuffix(suffix) or name
    return name


class _Converter(OpenAPIConverter):
    """A converter that knows fields of several forms, and null among the words of a choice."""

    def init_attribute_functions(self) -> None:
        """Add the members of fields with several forms before null is added."""
        super().init_attribute_functions()  # type: ignore[no-untyped-call]
        self.attribute_functions.insert(-1, type(self).forms2properties.__get__(self))

    def forms2properties(self, field: Field[Any], ret: Json, **_: Any) -> Json:
        """Return the forms of a field."""
        if not isinstance(field, Forms):
            return {}
        forms = [
            self.resolve_nested_schema(form)  # type: ignore[no-untyped-call]
            if isinstance(form, type)
            else dict(form)
            for form in field.forms
        ]
        shape = {"anyOf": forms} if len(forms) > 1 else forms[0]
        if isinstance(field, TextOrElements):
            return {"anyOf": [{"type": "string"}, {"type": "array", "items": shape}]}
        return {"items": shape} if isinstance(field, ListOfForms) else shape

    def field2nullable(self, field: Field[Any], ret: Json) -> Json:
        """Return the members that allow null."""
        if field.allow_none and "enum" in ret:
            words = [*ret["enum"], *([] if None in ret["enum"] else [None])]
            kind = {"type": [ret["type"], "null"]} if "type" in ret else {}
            return {"enum": words, **kind}
        if field.allow_none and "anyOf" in ret:
            return {"anyOf": [*ret["anyOf"], {"type": "null"}]}
        nullable: Json = super().field2nullable(field, ret)
        return nullable


class _Schemas(MarshmallowPlugin):
    """The marshmallow plugin with this converter."""

    Converter = _Converter


class _Requirements(BasePlugin):
    """Adds the keywords about several keys of a body."""

    def schema_helper(self, name: str, definition: Json, **more: Any) -> Json:
        """Return the keywords."""
        return dict(getattr(more.get("schema"), "requires", {}))


def new_document(title: str, version: str, **more: Any) -> APISpec:
    """Return an empty document, to which marshmallow schemas can be added."""
    plugins = [_Schemas(schema_name_resolver=component_name), _Requirements()]
    return APISpec(title, version, VERSION, plugins=plugins, **more)


def inline(schema: type[Schema]) -> Json:
    """Return the JSON Schema of a schema without references to others.

    A schema that contains itself is described once; inside, it is any object.
    """
    document = new_document("", "")
    document.components.schema("Root", schema=schema)
    components = document.to_dict()["components"]["schemas"]

    def resolved(value: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(value, list):
            return [resolved(each, inside) for each in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            name = value["$ref"].rpartition("/")[2]
            return (
                {"type": "object"}
                if name in inside
                else resolved(components[name], (*inside, name))
            )
        return {key: resolved(each, inside) for key, each in value.items()}

    root: Json = resolved(components["Root"], ("Root",))
    return root
