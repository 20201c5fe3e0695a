"""Fields of bodies and answers: marshmallow fields with a reader of JSON values and a JSON
Schema.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from marshmallow import Schema, ValidationError, fields

from kbcore.language.messages import MEMBERS
from kbcore.state.episodes.episodes import MAX_SPEAKER_CHARS
from kbcore.state.intervals import RESERVED_KEYS
from kbcore.state.names import NAME_PATTERN, NAME_RULE, is_name
from kbcore.timestamps import LAST_INSTANT, duration, instant, seconds_warning
from kbplanner.ir.limits import DEFAULT_LIMITS, MAX_METADATA_BYTES
from kbplanner.pacing import current_yield, paced
from kbserver.http.request import warn_of_time

if TYPE_CHECKING:
    BaseField = fields.Field[Any]
    BaseList = fields.List[Any]
else:
    # Of marshmallow 3, which packages beside the server may need, neither takes a type argument.
    BaseField, BaseList = fields.Field, fields.List

Json = dict[str, Any]
Shape = type[Schema] | Callable[[], Schema] | BaseField

EVERY_SCOPE = "*"

WEBHOOK_SHOWN = (
    "The address of the webhook; for others than its owner and administrators without all after "
    "the first segment of its path."
)


class Described(BaseField):
    """A field with a JSON Schema, which apispec takes from marshmallow's `metadata`.

    `of` is the attribute of the outcome that has the value in an answer, or a function that
    computes the value; by default the attribute is named like the field. An `optional` member of an
    answer is left out where its value is None. `write` converts the value of the outcome to JSON.
    """

    def __init__(
        self,
        *args: Any,
        description: str | None = None,
        of: Callable[[Any], Any] | str | None = None,
        optional: bool = False,
        write: Callable[[Any], Any] | None = None,
        schema: Json | None = None,
        **more: Any,
    ) -> None:
        described = {} if description is None else {"description": description}
        super().__init__(*args, metadata={**(schema or {}), **described}, **more)
        self.of = of
        self.optional = optional
        self.write = write


class Value(Described):
    """A JSON value. `read` converts the value in a body, or raises ValueError; null counts as
    absent.
    """

    schema: ClassVar[Json] = {}

    def __init__(self, description: str | None = None, **more: Any) -> None:
        schema = {**self.schema, **more.pop("schema", {})}
        super().__init__(description=description, schema=schema, **more)

    def read(self, value: Any) -> Any:
        """Return the value as the core takes it; without an own reader it is checked later."""
        return value

    def unknown_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the paths of the keys in the value that no form of it has."""
        return iter(())

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> Any:
        try:
            return self.read(value)
        except ValueError as error:
            raise ValidationError(str(error)) from error


class One(Described, fields.Nested):
    """An answer inside an answer."""


class Many(Described, BaseList):
    """A list of answers of one class, or of the values of one field."""

    def __init__(self, shape: Shape, description: str | None = None, **more: Any) -> None:
        inner = shape if isinstance(shape, fields.Field) else One(shape)
        super().__init__(inner, description=description, **more)


class ByName(Described, fields.Dict):
    """An object whose keys are not known beforehand, with values of one shape."""

    def __init__(self, shape: Shape, description: str | None = None, **more: Any) -> None:
        inner = shape if isinstance(shape, fields.Field) else One(shape)
        super().__init__(values=inner, description=description, **more)


class Flag(Value):
    """A boolean."""

    schema: ClassVar[Json] = {"type": "boolean"}

    def read(self, value: Any) -> bool:
        """Return the boolean."""
        if type(value) is not bool:
            raise ValueError("must be true or false")
        return value


class Text(Value):
    """A text, of at most `most` characters if that is given."""

    schema: ClassVar[Json] = {"type": "string"}

    def __init__(
        self, description: str | None = None, *, most: int | None = None, **more: Any
    ) -> None:
        if most is not None:
            more["schema"] = {**more.get("schema", {}), "maxLength": most}
        super().__init__(description, **more)
        self._most = most

    def read(self, value: Any) -> str:
        """Return the text."""
        if type(value) is not str:
            raise ValueError("must be a text")
        if self._most is not None and len(value) > self._most:
            raise ValueError(f"has {len(value)} characters, and may have {self._most}")
        return value


class Number(Value):
    """A number from `low` (or `above` it) to `high`, if it has bounds."""

    schema: ClassVar[Json] = {"type": "number"}

    def __init__(
        self,
        description: str | None = None,
        *,
        low: float | None = None,
        above: float | None = None,
        high: float | None = None,
        **more: Any,
    ) -> None:
        bounds = {"minimum": low, "exclusiveMinimum": above, "maximum": high}
        schema = {keyword: bound for keyword, bound in bounds.items() if bound is not None}
        schema |= more.pop("schema", {})
        super().__init__(description, schema=schema, **more)
        self._low, self._above, self._high = low or 0.0, above, high or 0.0

    def read(self, value: Any) -> float:
        """Return the number; only fields with bounds are read."""
        low = self._low if self._above is None else self._above
        if (
            type(value) not in (int, float)
            or not low <= value <= self._high
            or value == self._above
        ):
            over = "from" if self._above is None else "over"
            raise ValueError(f"must be a number {over} {low:g} up to {self._high:g}")
        return float(value)


class Fraction(Number):
    """A number from 0 to 1."""

    def __init__(self, description: str | None = None, **more: Any) -> None:
        super().__init__(description, low=0, high=1, **more)

    def read(self, value: Any) -> float:
        """Return the number."""
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise ValueError("must be a number from 0 to 1")
        return float(value)


class Whole(Value):
    """An integer from `low` to `high`; a body may write it as `3.0`."""

    schema: ClassVar[Json] = {"type": "integer"}

    def __init__(
        self, low: int, high: int = LAST_INSTANT, description: str | None = None, **more: Any
    ) -> None:
        super().__init__(description, schema={"minimum": low, "maximum": high}, **more)
        self._low, self._high = low, high

    def read(self, value: Any) -> int:
        """Return the integer."""
        if type(value) is float and value.is_integer():
            value = int(value)
        if type(value) is not int or not self._low <= value <= self._high:
            low, high = self._low, self._high
            bounds = f"of at least {low}" if high == LAST_INSTANT else f"from {low} to {high}"
            if type(value) is int and low <= value and high == LAST_INSTANT:
                raise ValueError(f"must be at most {high}")
            raise ValueError(f"must be a whole number {bounds}")
        return value


class Count(Value):
    """A number of things, in an answer."""

    schema: ClassVar[Json] = {"type": "integer", "minimum": 0}


class Choice(Value):
    """One of some words."""

    schema: ClassVar[Json] = {"type": "string"}

    def __init__(self, *words: str, description: str | None = None, **more: Any) -> None:
        super().__init__(description, schema={"enum": list(words)}, **more)
        self._words = words

    def read(self, value: Any) -> str:
        """Return the word."""
        if type(value) is not str or value not in self._words:
            raise ValueError(f"must be one of {', '.join(self._words)}")
        return value


class Anything(Value):
    """Any value; the body reader checks it later."""


class Object(Value):
    """An object of any content, in an answer."""

    schema: ClassVar[Json] = {"type": "object"}


class Time(Value):
    """A point in time in an answer."""

    schema: ClassVar[Json] = {"type": "integer", "description": "Epoch milliseconds."}


class Instant(Value):
    """A point in time in a body, read as epoch milliseconds."""

    schema: ClassVar[Json] = {
        "anyOf": [
            {"type": "integer", "minimum": -LAST_INSTANT, "maximum": LAST_INSTANT},
            {"type": "string"},
        ],
        "description": "Epoch milliseconds, or an ISO 8601 time or date, in UTC if it has no offset.",
    }

    def read(self, value: Any) -> int:
        """Return the epoch milliseconds; note a number that looks like seconds."""
        if (warning := seconds_warning(value)) is not None:
            warn_of_time(warning)
        return instant(value)


class Duration(Value):
    """A duration in a body, read as milliseconds, between two bounds."""

    schema: ClassVar[Json] = {
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "description": "Milliseconds, or a text such as `30d` or `12h`.",
    }

    def __init__(
        self, low: int = 1, high: int = LAST_INSTANT, description: str | None = None
    ) -> None:
        whole = {"type": "integer", "minimum": low, "maximum": high}
        super().__init__(description, schema={"anyOf": [whole, {"type": "string"}]})
        self._low, self._high = low, high

    def read(self, value: Any) -> int:
        """Return the milliseconds."""
        milliseconds = duration(value)
        if not self._low <= milliseconds <= self._high:
            raise ValueError(f"must be from {self._low} to {self._high} milliseconds")
        return milliseconds


NAME: Json = {"type": "string", "pattern": f"^{NAME_PATTERN}$", "not": {"enum": [".", ".."]}}
"""The JSON Schema of the name of a database, tenant, scope or session."""


class Messages(Value):
    """Messages of a conversation, each a text or a chat message; `messages_of` checks them."""

    schema: ClassVar[Json] = {
        "type": "array",
        "items": {
            "anyOf": [
                {"type": "string"},
                {
                    "type": "object",
                    "description": "The speaker is `name`, else the user for the role `user`, "
                    "else `assistant`.",
                    "properties": {
                        "role": {"type": "string"},
                        "content": {
                            "anyOf": [
                                {"type": "string"},
                                {"type": "null"},
                                {
                                    "type": "array",
                                    "items": {
                                        "anyOf": [
                                            {"type": "string"},
                                            {
                                                "type": "object",
                                                "properties": {"text": {"type": "string"}},
                                            },
                                        ]
                                    },
                                },
                            ]
                        },
                        "name": {"type": "string", "minLength": 1, "maxLength": MAX_SPEAKER_CHARS},
                        "at": Instant.schema,
                        "id": NAME,
                    },
                    "required": ["role", "content"],
                },
            ]
        },
    }

    def read(self, value: Any) -> Any:
        """Return the array."""
        if type(value) is not list:
            raise ValueError("must be an array of texts or messages")
        return value

    def unknown_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the members of messages that are not read."""
        for index, message in enumerate(
            paced(value, current_yield(), ELEMENTS_PER_YIELD) if type(value) is list else ()
        ):
            if type(message) is dict:
                yield from (
                    f"{path}[{index}].{member}" for member in message if member not in MEMBERS
                )


class TextOrMessages(Messages):
    """A text, or messages of a conversation."""

    schema: ClassVar[Json] = {"anyOf": [{"type": "string"}, Messages.schema]}

    def read(self, value: Any) -> Any:
        """Return the text, or the array."""
        if type(value) not in (str, list):
            raise ValueError("must be a text or an array of messages")
        return value


class Name(Value):
    """The name of a `kind` of thing: a database, tenant or session."""

    schema: ClassVar[Json] = NAME

    def __init__(self, kind: str = "", **more: Any) -> None:
        super().__init__(**more)
        self._kind = f" of {kind}" if kind else ""

    def read(self, value: Any) -> str:
        """Return the name."""
        if type(value) is not str or not is_name(value):
            raise ValueError(f"is not a name{self._kind}: it has {NAME_RULE}")
        return value


class Names(Value):
    """Names, which are checked one by one where they are used."""

    schema: ClassVar[Json] = {
        "type": "array",
        "items": NAME,
        "description": "Names; none means all.",
    }

    def read(self, value: Any) -> tuple[str, ...]:
        """Return the names."""
        if type(value) is not list or not all(type(name) is str for name in value):
            raise ValueError("must be an array of names")
        return tuple(value)


class LabelValues(Value):
    """Levels and groups by dimension, which are checked where they are used."""

    schema: ClassVar[Json] = {
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]
        },
    }

    def read(self, value: Any) -> dict[str, Any]:
        """Return the levels and groups."""
        if type(value) is not dict:
            raise ValueError('must be an object, such as {"trust": "user"}')
        return value


class ReadScope(Value):
    """The name of a scope to read, or `*` for every scope."""

    schema: ClassVar[Json] = {
        "type": "string",
        "pattern": f"^({NAME_PATTERN}|[*])$",
        "description": "A scope, or `*` for every scope; null or absent is the base.",
    }

    def read(self, value: Any) -> str:
        """Return the name."""
        if type(value) is not str or not (is_name(value) or value == EVERY_SCOPE):
            raise ValueError(f"is not a valid name of a scope: names have {NAME_RULE}")
        return value


class Strategy(Text):
    """The name of a conflict strategy; plugins may bring more than those shown."""

    schema: ClassVar[Json] = {
        "type": "string",
        "examples": ["KEEP_BOTH", "REJECT", "NEWEST_WINS", "CONFIDENCE"],
    }


class WriteScope(ReadScope):
    """The name of one scope."""

    schema: ClassVar[Json] = {**NAME, "description": "A scope; null or absent is the base."}

    def read(self, value: Any) -> str:
        """Return the name."""
        if value == EVERY_SCOPE:
            raise ValueError('"*" is every scope, which can be read but not written')
        return super().read(value)


class Metadata(Value):
    """An object of any content and limited size."""

    schema: ClassVar[Json] = {
        "type": "object",
        "description": f"Any object of at most {MAX_METADATA_BYTES} bytes as JSON.",
    }

    def read(self, value: Any) -> Json:
        """Return the object."""
        if type(value) is not dict:
            raise ValueError("must be an object")
        try:
            size = len(orjson.dumps(value))
        except TypeError as error:
            raise ValueError("holds an integer of more than 64 bits; write it as a text") from error
        if not RESERVED_KEYS.isdisjoint(value):
            raise ValueError("has a reserved key; evidence is a member of the fact")
        if size > MAX_METADATA_BYTES:
            raise ValueError(f"has at most {MAX_METADATA_BYTES} bytes as JSON, this one has {size}")
        return value


_CONSTANT: Json = {"type": ["string", "number", "boolean"]}
_PREDICATE: Json = {
    "type": "string",
    "minLength": 1,
    "maxLength": DEFAULT_LIMITS.predicate_chars,
}


class Predicate(Value):
    """The name of a predicate, checked with its arguments."""

    schema: ClassVar[Json] = _PREDICATE


class Predicates(Value):
    """Names of predicates, checked one by one."""

    schema: ClassVar[Json] = {
        "type": "array",
        "items": _PREDICATE,
        "description": "Predicates; null is all of them.",
    }


class Arguments(Value):
    """Arguments of an atom, checked with the predicate."""

    schema: ClassVar[Json] = {
        "type": "array",
        "items": _CONSTANT,
        "maxItems": DEFAULT_LIMITS.args,
        "description": "Arguments; one that begins with `?` is a variable.",
    }


class PatternArguments(Arguments):
    """Arguments of a pattern, checked with the predicate."""

    schema: ClassVar[Json] = {
        "type": "array",
        "items": {"type": ["string", "number", "boolean", "null"]},
        "maxItems": DEFAULT_LIMITS.args,
        "description": "Arguments; null and variables match anything.",
    }


class Forms(Value):
    """A value that may have one of several forms, checked later.

    Its objects may have the keys of any of the `forms` that are schemas.
    """

    def __init__(self, *forms: type[Schema] | Json, **more: Any) -> None:
        super().__init__(**more)
        self.forms = forms
        self._keys: frozenset[str] | None = None

    def unknown_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the paths of the keys in the value that no form of it has."""
        if self._keys is None:
            schemas = (form() for form in self.forms if isinstance(form, type))
            self._keys = frozenset(
                field.data_key or name
                for schema in schemas
                for name, field in schema.fields.items()
            )
        if type(value) is dict:
            yield from (f"{path}.{key}" for key in value if key not in self._keys)


ELEMENTS_PER_YIELD = 2000
"""Elements whose keys are looked at between two calls of `yield_now`: about a millisecond."""


class ListOfForms(Forms):
    """A list whose elements may have one of several forms each, checked later."""

    schema: ClassVar[Json] = {"type": "array"}

    def unknown_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield the paths of the keys in the elements that no form of them has."""
        if type(value) is list:
            for index, element in enumerate(paced(value, current_yield(), ELEMENTS_PER_YIELD)):
                yield from super().unknown_keys(element, f"{path}[{index}]")


class Elements(ListOfForms):
    """A list whose elements are read one by one, later, each by its own schema."""

    def unknown_keys(self, value: Any, path: str) -> Iterator[str]:
        """Yield nothing: the reader of the elements finds the keys."""
        return iter(())


class TextOrElements(Elements):
    """One text, or a list whose elements are read one by one, later."""

    schema: ClassVar[Json] = {}
