"""Readers of fields that several bodies share.

A reader is a function that converts a JSON value, or raises ValueError with the reason; null means absent. The
marshmallow fields wrap readers, and bulk bodies call them directly.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import orjson
from marshmallow import ValidationError, fields

from kbcore.timestamps import LAST_INSTANT, instant
from kbplanner.ir.limits import DEFAULT_LIMITS
from kbplanner.ir.operators import BUILTINS
from kbserver.http.request_context import NAME_PATTERN, NAME_RULE, is_name
from kbserver.schemas.jsonschema import (
    ANYTHING,
    FLAG,
    FRACTION,
    TEXT,
    TEXTS,
    Schema,
    array,
    named,
    nullable,
    obj,
    resolved,
    said,
    words,
)

MAX_METADATA_BYTES = 32 * 1024
EVERY_SCOPE = "*"

Reader = Callable[[Any], Any]
R = TypeVar("R", bound=Reader)

_TAKEN: dict[Reader, Schema] = {}
"""The JSON Schema of each reader."""

_KEYED: set[Reader] = set()
"""Readers made by `keyed`."""


def takes(schema: Schema) -> Callable[[R], R]:
    """Declare the JSON Schema of a reader."""

    def mark(reader: R) -> R:
        _TAKEN[reader] = schema
        return reader

    return mark


def passing(schema: Schema) -> Reader:
    """Return a reader that passes any value on; it is validated later. `schema` describes valid values."""
    return takes(schema)(lambda value: value)


def keyed(schema: Schema) -> Reader:
    """Return a reader like `passing` whose objects may only have the keys of `schema`; see `strays`."""
    reader = passing(schema)
    _KEYED.add(reader)
    return reader


def strays(reader: Reader, value: Any, path: str) -> Iterator[str]:
    """Yield the paths of unknown keys in a value of a `keyed` reader."""
    return _strays(value, taken(reader), path) if reader in _KEYED else iter(())


def _strays(value: Any, schema: Schema, path: str) -> Iterator[str]:
    schema = resolved(schema)
    if type(value) is dict and "anyOf" in schema:
        forms = [resolved(each).get("properties", {}) for each in schema["anyOf"]]
        schema = {"properties": {key: each for form in forms for key, each in form.items()}}
    if type(value) is list and "items" in schema:
        for index, item in enumerate(value):
            yield from _strays(item, schema["items"], f"{path}[{index}]")
    elif type(value) is dict and "properties" in schema:
        yield from (f"{path}.{key}" for key in value if key not in schema["properties"])


def taken(reader: Reader) -> Schema:
    """Return the JSON Schema of a reader; raises LookupError if it declares none."""
    try:
        return _TAKEN[reader]
    except KeyError:
        raise LookupError(f"{reader} has no JSON Schema: declare it with @takes(schema)") from None


class Read(fields.Field[Any]):
    """A field read by one of the functions below; null counts as absent."""

    def __init__(self, reader: Reader, **more: Any) -> None:
        super().__init__(allow_none=not more.get("required", False), **more)
        self.reader = reader

    @property
    def json_schema(self) -> Schema:
        """The JSON Schema of values other than null."""
        return taken(self.reader)

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> Any:
        try:
            return self.reader(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


@takes(FLAG)
def flag(value: Any) -> bool:
    """Read a boolean."""
    if type(value) is not bool:
        raise ValueError("must be true or false")
    return value


@takes(TEXT)
def text(value: Any) -> str:
    """Read a text."""
    if type(value) is not str:
        raise ValueError("must be a text")
    return value


atom_text = takes(
    said(TEXT, "The atom as text, such as `parent(ann, ?who)`, in place of `predicate` and `args`.")
)(lambda value: text(value))
"""Read an atom given as text; its syntax is checked with the rest of the atom."""

NAME: Schema = {"type": "string", "pattern": f"^{NAME_PATTERN}$", "not": {"enum": [".", ".."]}}
"""The name of a database, tenant, scope or session."""


@takes(said(NAME, "A scope; null or absent is the base partition."))
def scope_to_write(value: Any) -> str:
    """Read the name of one scope."""
    if value == EVERY_SCOPE:
        raise ValueError('"*" is every scope, which can be read but not written')
    return scope_to_read(value)


@takes(
    said(
        {**TEXT, "pattern": f"^({NAME_PATTERN}|[*])$"},
        "A scope, `*` for every scope; null or absent is the base.",
    )
)
def scope_to_read(value: Any) -> str:
    """Read the name of a scope, or `*` for every scope."""
    if type(value) is not str or not (is_name(value) or value == EVERY_SCOPE):
        raise ValueError(f"is not a valid name of a scope: names have {NAME_RULE}")
    return value


@takes(FRACTION)
def fraction(value: Any) -> float:
    """Read a number from 0 to 1."""
    if type(value) not in (int, float) or not 0 <= value <= 1:
        raise ValueError("must be a number from 0 to 1")
    return float(value)


def whole(low: int, high: int = LAST_INSTANT) -> Reader:
    """Return a reader of integers from `low` to `high`; it also accepts `3.0`."""

    @takes({"type": "integer", "minimum": low, "maximum": high})
    def read(value: Any) -> int:
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not low <= value <= high:
            bounds = f"of at least {low}" if high == LAST_INSTANT else f"from {low} to {high}"
            raise ValueError(f"must be a whole number {bounds}")
        return value

    return read


def one_of(*known: str) -> Reader:
    """Return a reader that accepts one of the given words."""

    @takes(words(*known))
    def read(value: Any) -> str:
        if type(value) is not str or value not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return value

    return read


BUDGET: dict[str, Reader] = {
    "timeoutMs": whole(1),
    "maxRows": whole(1),
    "maxSteps": whole(1),
    "maxBytes": whole(1),
    "maxAnswers": whole(1),
}
"""Run budget of a request; the limits of the settings cap it. See `budget_wanted`."""


milliseconds = whole(1)
"""Read a positive number of milliseconds."""

moment = takes(
    named(
        "Instant",
        {
            "anyOf": [
                {"type": "integer", "minimum": -LAST_INSTANT, "maximum": LAST_INSTANT},
                {"type": "string", "format": "date-time"},
            ],
            "description": "An instant: epoch milliseconds, or ISO 8601 with an offset.",
        },
    )
)(instant)
"""Read an instant, epoch milliseconds or ISO 8601 with an offset, as epoch milliseconds."""


@takes(
    {"type": "object", "description": f"Any object of at most {MAX_METADATA_BYTES} bytes as JSON."}
)
def metadata(value: Any) -> dict[str, Any]:
    """Read an object of any content and limited size."""
    if type(value) is not dict:
        raise ValueError("must be an object")
    try:
        size = len(orjson.dumps(value))
    except TypeError as error:
        raise ValueError("holds an integer of more than 64 bits; write it as a text") from error
    if size > MAX_METADATA_BYTES:
        raise ValueError(f"has at most {MAX_METADATA_BYTES} bytes as JSON, this one has {size}")
    return value


@takes(ANYTHING)
def anything(value: Any) -> Any:
    """Pass a value on; it is validated later."""
    return value


_PREDICATE = {"type": "string", "minLength": 1, "maxLength": DEFAULT_LIMITS.predicate_chars}
_ARGUMENT = {"type": ["string", "number", "boolean"]}
_PATTERN_ARGUMENT = {"type": ["string", "number", "boolean", "null"]}

predicate = passing(_PREDICATE)
"""The name of a predicate, validated with its arguments."""

args = passing(
    array(
        _ARGUMENT,
        maxItems=DEFAULT_LIMITS.args,
        description="Arguments; one that begins with `?` is a variable.",
    )
)
"""Arguments of an atom, validated with the predicate."""

pattern_args = passing(
    array(
        _PATTERN_ARGUMENT,
        maxItems=DEFAULT_LIMITS.args,
        description="Arguments; null and variables match anything.",
    )
)
"""Arguments of a pattern, validated with the predicate."""

predicates = passing(array(_PREDICATE, description="Predicates; null is all of them."))
"""Names of predicates, validated one by one."""

_ITEM = named(
    "BodyAtom",
    obj(
        {
            "predicate": said(
                _PREDICATE,
                "A predicate of any name. In a rule body a comparison sign is a comparison.",
            ),
            "args": array({"type": ["string", "number", "boolean"]}, maxItems=DEFAULT_LIMITS.args),
            "negated?": nullable(
                said(FLAG, "Negation as failure: holds if the atom cannot be derived.")
            ),
            "naf?": nullable(said(FLAG, "Another spelling of `negated`.")),
            "truthVal?": nullable(said(FLAG, "False is another spelling of `negated`.")),
            "polarity?": {
                "enum": ["positive", "negative", None],
                "description": "Negative: the explicitly negated atom.",
            },
            "builtin?": {
                "enum": [False, None],
                "description": "False: an ordinary atom of any name.",
            },
        }
    ),
)
_BUILTIN = named(
    "Builtin",
    obj(
        {
            "builtin": words(*BUILTINS),
            "args": array(
                {"type": ["string", "number", "boolean"]},
                description="A function's value is its last argument.",
            ),
            "negated?": nullable(FLAG),
            "naf?": nullable(FLAG),
            "truthVal?": nullable(FLAG),
        }
    ),
)

_ITEMS = {"anyOf": [_ITEM, _BUILTIN, obj({"text": TEXT}), TEXT]}

body_items = keyed(array(_ITEMS, minItems=1, maxItems=DEFAULT_LIMITS.body_items))
"""Literals, comparisons and string tests, validated one by one."""

head_atom = keyed(
    obj(
        {
            "predicate": _PREDICATE,
            "args": array(
                {"type": ["string", "number", "boolean"]},
                maxItems=DEFAULT_LIMITS.args,
                description="Constants, variables, and aggregates such as `count(?x)`.",
            ),
            "negated?": nullable(FLAG),
            "truthVal?": nullable(FLAG),
            "polarity?": {"enum": ["positive", "negative", None]},
        }
    )
)
"""The head of a rule."""

goals = keyed(
    array(
        {"anyOf": [_ITEM, obj({"text": TEXT}), TEXT]},
        description="Goals, as objects or as text such as `ancestor(ann, ?who)`; what their answers depend on is wanted.",
    )
)
"""Goals of a context window, validated one by one."""

buckets = keyed(
    array(
        obj(
            {
                "name": {"type": "string", "minLength": 1},
                "predicates?": nullable(array(_PREDICATE)),
                "weight?": {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": 1e9,
                    "default": 1.0,
                },
            }
        ),
        description="Shares of the window, in order; `predicates` null is any.",
    )
)
"""Relevance buckets, validated one by one."""

texts = passing(TEXTS)
"""Texts, validated one by one."""
