"""MCP tools as `tools/list` shows them, made from the operations that have one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

from marshmallow import Schema

from kbcore.errors import InvalidInput
from kbcore.operations.tenant_kb import TenantKB
from kbcore.state.keys import READER
from kbserver.http.json_body import parse_object
from kbserver.mcp.work import cut
from kbserver.operations import Operation, operations
from kbserver.operations import Tool as Declared
from kbserver.schemas.base import Answer, instance
from kbserver.schemas.fields import Json
from kbserver.schemas.json_schema import inline
from kbserver.schemas.requests import KNOWN_AT, seen

TRANSACTION = "transactionId"
"""The argument that makes a tool part of a transaction."""

LARGE = 1 << 40
"""Larger bounds are not shown: no caller reaches them."""


@dataclass(frozen=True)
class McpTool:
    """The tool of an operation; see `kbserver.operations.Tool` for what is declared."""

    operation: Operation
    declared: Declared

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.declared.name

    @property
    def needs(self) -> str:
        """The role that a caller needs."""
        return self.operation.role

    @property
    def writes(self) -> bool:
        """True if the tool changes what is stored."""
        return self.needs != READER

    @cached_property
    def answer(self) -> type[Schema]:
        """The schema of the result."""
        answer = self.declared.answer or self.operation.answer
        if answer is None:
            raise TypeError(f"tool {self.name} needs an answer")
        return answer

    @cached_property
    def shown(self) -> Json:
        """The tool as `tools/list` shows it."""
        return {
            "name": self.name,
            "description": self.declared.description,
            "inputSchema": self._input(),
            "outputSchema": self._output(),
            "annotations": self._hints(),
        }

    def work(self, kb: TenantKB, data: Json, strict: bool, now: int) -> Json:
        """Read the arguments, call the core and return the result."""
        if self.declared.work is not None:
            return self.declared.work(kb, data, strict, now)
        body, core, answer = self.operation.body_reader, self.operation.core, self.answer
        if body is None or core is None or not issubclass(answer, Answer):
            raise TypeError(f"tool {self.name} needs work, or an operation with body and answer")
        arguments = body.read(data, strict=strict)
        return cut(answer.write(core(seen(kb, arguments), **arguments)))

    def typed(self, arguments: Json, max_depth: int) -> Json:
        r"""Return the arguments with texts read as JSON where the schema takes no text.

        Some clients send `"5"` for an integer, `"true"` for a boolean or `"[\"a\"]"` for an array.
        A text that is no JSON of a type that the schema takes stays as it is and is refused later.
        """
        return {
            name: _read_as(value, self._types.get(name, ()), max_depth)
            if type(value) is str
            else value
            for name, value in arguments.items()
        }

    @cached_property
    def _types(self) -> Mapping[str, frozenset[str]]:
        """The JSON types that each argument takes."""
        body = self.declared.body or self.operation.body
        properties = inline(body)["properties"] if body is not None else {}
        return {name: frozenset(_types_of(schema)) for name, schema in properties.items()}

    @cached_property
    def is_historic(self) -> bool:
        """True if the arguments may name an instant whose knowledge answers."""
        body = self.declared.body or self.operation.body
        return body is not None and instance(body).has(KNOWN_AT)

    def _input(self) -> Json:
        body = self.declared.body or self.operation.body
        schema = inline(body) if body is not None else {"properties": {}}
        properties = {key: brief(schema["properties"][key]) for key in self.declared.takes}
        if self.writes and self.operation.transaction:
            properties[TRANSACTION] = {"type": "string"}
        required = [key for key in self.declared.takes if key in schema.get("required", ())]
        arguments: Json = {"type": "object", "properties": properties}
        return {**arguments, "required": required} if required else arguments

    def _output(self) -> Json:
        properties = inline(self.answer)["properties"]
        members = [name.removesuffix("?") for name in self.declared.gives]
        return {
            "type": "object",
            "properties": {name: _type_only(properties[name]) for name in members},
            "required": [name for name in self.declared.gives if not name.endswith("?")],
        }

    def _hints(self) -> dict[str, bool]:
        if not self.writes:
            return {"readOnlyHint": True, "openWorldHint": self.declared.model}
        hints = {
            "destructiveHint": self.declared.destroys,
            "openWorldHint": self.declared.model,
        }
        return {**hints, "idempotentHint": True} if self.declared.repeats else hints


@lru_cache(maxsize=1)
def all_tools() -> Mapping[str, McpTool]:
    """Return every tool by its name, in the order of names."""
    tools = [McpTool(each, declared) for each in operations() for declared in each.tools]
    return {tool.name: tool for tool in sorted(tools, key=lambda tool: tool.name)}


def tools_of(profile: str, model: bool = False) -> dict[str, McpTool]:
    """Return the tools of a profile, a value of MCP_TOOLS; some only if there is a language
    model.
    """
    return {
        name: tool
        for name, tool in all_tools().items()
        if profile in (tool.declared.profile, "all") and (model or not tool.declared.model)
    }


FORMATS: Mapping[str, Callable[[Json], Json]] = {
    "openai": lambda tool: {"type": "function", "function": _function(tool)},
    "openai-responses": lambda tool: {"type": "function", **_function(tool)},
    "anthropic": lambda tool: {
        "name": tool["name"],
        "description": tool["description"],
        "input_schema": tool["inputSchema"],
    },
    "mcp": dict,
}
"""Conversions of a tool as `tools/list` shows it to the form that a model API takes."""


def _function(tool: Json) -> Json:
    return {
        "name": tool["name"],
        "description": tool["description"],
        "parameters": tool["inputSchema"],
    }


PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "array": (list,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
}
"""The types of values that a JSON parser returns for each type of a schema but text."""


def _types_of(schema: Json) -> Iterator[str]:
    for form in schema.get("anyOf", (schema,)):
        kind = form.get("type", "string" if "enum" in form else "object")
        yield from [kind] if isinstance(kind, str) else kind


def _read_as(text: str, types: Collection[str], max_depth: int) -> Any:
    """Return the JSON value in a text if it has one of the types of a schema that takes no text."""
    if "string" in types or not types:
        return text
    try:
        fields = parse_object(b'{"value":%b}' % text.encode(), max_depth + 1)
    except (InvalidInput, UnicodeEncodeError):
        return text
    allowed = {each for name in types for each in PYTHON_TYPES.get(name, ())}
    value = fields.get("value")
    return value if len(fields) == 1 and type(value) in allowed else text


def brief(schema: Json) -> Json:
    """Return a schema in fewer words: no descriptions, no null, no members of objects."""
    forms = [brief(form) for form in schema.get("anyOf", ()) if form.get("type") != "null"]
    if len(forms) == 1:
        return forms[0]
    if forms:
        types = [form["type"] if type(form["type"]) is list else [form["type"]] for form in forms]
        # The elements of `type` must be unique.
        kinds = list(dict.fromkeys(chain.from_iterable(types)))
        return {"type": kinds if len(kinds) > 1 else kinds[0]}
    kind = schema.get("type", "object")
    if isinstance(kind, list):
        kind = "string" if "string" in kind else kind[0]
    short: Json = {"type": kind}
    if kind == "array":
        short["items"] = brief(schema.get("items", {}))
    if "enum" in schema:
        short["enum"] = [word for word in schema["enum"] if word is not None]
    bounds = {key: schema[key] for key in ("minimum", "maximum") if key in schema}
    return {**short, **{key: bound for key, bound in bounds.items() if abs(bound) < LARGE}}


def _type_only(schema: Json) -> Json:
    """Return a schema with types only; one of a value that may be null allows anything."""
    if "null" in schema.get("type", ()) or {"type": "null"} in schema.get("anyOf", ()):
        return {}
    kind = brief(schema)["type"]
    return (
        {"type": kind, "items": _type_only(schema["items"])} if kind == "array" else {"type": kind}
    )
