"""Bodies and answers: marshmallow schemas, from which the OpenAPI document is made too."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from operator import attrgetter
from types import NoneType
from typing import Any, ClassVar, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from marshmallow import EXCLUDE, RAISE, Schema, ValidationError
from marshmallow.fields import Field

from kbcore.errors import InvalidInput
from kbplanner.pacing import end_yielding
from kbserver.answers import Objects, present_members
from kbserver.errors import invalid
from kbserver.http.request import ignore
from kbserver.pace import begin_reading
from kbserver.schemas.fields import (
    ByName,
    Choice,
    Count,
    Flag,
    Json,
    Many,
    Number,
    Object,
    One,
    Text,
    Time,
    Value,
)
from kbtypes.records import ABOUT, IS_TIME, SPARSE, Record, camel_case, key_of

S = TypeVar("S", bound=Schema)
_ValueOf = Callable[[Any], Any]

_UNKNOWN = "Unknown field."
"""The message of marshmallow for an unknown key."""

_MISSING = "Missing data for required field."
"""The message of marshmallow for a required key that is missing."""

_UNKNOWN_SHOWN = 20

MAX_LISTED = 200
"""Objects of a list that are made at once; those of a longer one are made while they are
written.
"""


class CamelCased(Schema):
    """An object whose keys in JSON are the names of its fields in camel case."""

    class Meta:
        """Options of marshmallow."""

        unknown = EXCLUDE

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:
        """Name the key of a field."""
        field_obj.data_key = field_obj.data_key or camel_case(field_name)


class Part(CamelCased):
    """An object in a request, described only: the planner reads it. Null is the same as absent."""

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:
        """Allow null where the key may be absent."""
        super().on_bind_field(field_name, field_obj)
        field_obj.allow_none = not field_obj.required


class Body(Part):
    """A request body: the keys it may have, each a field named like the argument of the core.

    marshmallow reports errors. A valid body, the usual case, is read by the same fields without
    marshmallow at a tenth of the cost, because bulk bodies have 100,000 elements.
    """

    requires: ClassVar[Json] = {}
    """JSON Schema keywords about several keys, such as `anyOf`."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self._fields = {
            field.data_key or name: (name, field)
            for name, field in self.fields.items()
            if isinstance(field, Value)
        }
        self._readers = {
            key: (name, None if type(field).read is Value.read else field.read)
            for key, (name, field) in self._fields.items()
        }
        """Name and reader by key; None if the value is taken as it is."""
        self._with_keys = {
            name: (key, field)
            for key, (name, field) in self._fields.items()
            if type(field).unknown_keys is not Value.unknown_keys
        }
        """The fields by name whose values may have unknown keys."""
        self._required = {name for name, field in self.fields.items() if field.required}

    def has(self, key: str) -> bool:
        """Return True if an object may have this key."""
        return key in self._fields

    @property
    def is_optional(self) -> bool:
        """True if an empty object is valid, so that the body may be missing."""
        return not (self._required or self.requires)

    def read(self, data: Mapping[str, Any], *, strict: bool, path: str = "") -> Json:
        """Return the arguments of the core from an object; raises InvalidInput.

        Unknown keys are refused if `strict`, else ignored and noted. `path` is the place of the
        object in the body, with a dot at its end; notes about ignored keys begin with it. Raises
        BudgetExceeded if reading a long text takes longer than the request may. Subclasses extend
        `_read`.
        """
        token = begin_reading(data)
        try:
            return self._read(data, strict, path)
        finally:
            if token is not None:
                end_yielding(token)

    def _read(self, data: Mapping[str, Any], strict: bool, path: str) -> Json:
        if not data.keys() <= self._fields.keys():
            ignore(path + str(key) for key in data if key not in self._fields)
        fields = self._read_valid(data, strict)
        if fields is None:
            fields = self._read_by_schema(data, strict)
        if fields.keys().isdisjoint(self._with_keys):
            pass  # the usual case: no value is an object of its own
        elif not strict:
            ignore(path + inner for inner in self._unknown_keys(fields))
        elif unknown := list(islice(self._unknown_keys(fields), _UNKNOWN_SHOWN)):
            raise InvalidInput(
                f"{unknown[0]}: {_UNKNOWN}", {"fields": {inner: [_UNKNOWN] for inner in unknown}}
            )
        return self._arguments(fields)

    def _arguments(self, fields: Json) -> Json:
        return self.arguments(fields)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of the core from the fields that are given; raises InvalidInput."""
        return fields

    def missing(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the keys that are needed beside those that are given, in the order to report."""
        return ()

    def _unknown_keys(self, fields: Mapping[str, Any]) -> Iterator[str]:
        return chain.from_iterable(
            field.unknown_keys(fields[name], key)
            for name, (key, field) in self._with_keys.items()
            if name in fields
        )

    def _read_valid(self, data: Mapping[str, Any], strict: bool) -> Json | None:
        fields, readers = {}, self._readers
        try:
            for key, value in data.items():
                known = readers.get(key)
                if known is None:
                    if strict:
                        return None
                elif value is not None:
                    name, read = known
                    fields[name] = value if read is None else read(value)
        except ValueError:
            return None
        return fields if self._required <= fields.keys() and not self.missing(fields) else None

    def _read_by_schema(self, data: Mapping[str, Any], strict: bool) -> Json:
        problems: Json = {}
        fields: Json = {}
        try:
            loaded = self.load(data, unknown=RAISE if strict else EXCLUDE)
            fields = {name: value for name, value in loaded.items() if value is not None}
        except ValidationError as error:
            problems = dict(error.messages_dict)
        keys_present = {key: value for key, value in data.items() if value is not None}
        problems |= {key: [_MISSING] for key in self.missing(keys_present)}
        if problems:
            raise invalid(ValidationError(problems)) from None
        return fields


_INSTANCES: dict[type[Schema], Any] = {}


def instance(cls: type[S]) -> S:
    """Return the one instance of a schema; marshmallow takes a millisecond to make one."""
    schema: S | None = _INSTANCES.get(cls)
    if schema is None:
        schema = _INSTANCES[cls] = cls()
    return schema


class JsonObject(CamelCased):
    """An object in an answer, described only: the core writes it as JSON itself.

    Members are always there, unless the field is optional.
    """

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:
        """Say whether the member of a field is always there."""
        super().on_bind_field(field_name, field_obj)
        field_obj.required = not getattr(field_obj, "optional", False)


class Answer(JsonObject):
    """An answer: each field is named like an attribute of the outcome of the core."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        keys: list[str] = []
        sources: list[str | _ValueOf] = []
        self._special: list[tuple[str, _ValueOf | None, bool]] = []
        for name, field in self.fields.items():
            key = field.data_key or name
            keys.append(key)
            sources.append(getattr(field, "of", None) or name)
            write, is_optional = _writer(field), getattr(field, "optional", False)
            if write is not None or is_optional:
                self._special.append((key, write, is_optional))
        self._keys = keys
        self._values_of = _values_of(sources)

    @classmethod
    def write(cls, outcome: Any) -> Json:
        """Return an outcome as JSON."""
        members: Json = instance(cls).dump(outcome)
        return members

    @classmethod
    def write_all(cls, outcomes: Sequence[Any]) -> Sequence[Json]:
        """Return outcomes as JSON."""
        return _dumped(instance(cls), outcomes)

    def dump(self, obj: Any, *, many: bool | None = None) -> Any:
        """Return the object (or objects, if `many`) to be written as JSON.

        Values go out as they are: the serializer of marshmallow takes 12 µs for one entry of a
        window, this method two.
        """
        if many:
            return [self.dump(each) for each in obj]
        members = dict(zip(self._keys, self._values_of(obj), strict=True))
        for key, write, is_optional in self._special:
            value = members[key]
            if value is None:
                if is_optional:
                    del members[key]
            elif write is not None:
                members[key] = write(value)
        return members


ANSWERS: dict[Any, type[Schema]] = {}
"""The answer of each type that a member of a record may have; of several answers, the first."""


def answer_of(record: type[Any], name: str, **instead: Field[Any] | None) -> type[Answer]:
    """Return the answer that a record describes, with the name of a component of the document.

    A record inside has the answer that was declared for it before, by default one of its own name.
    `instead` has the fields that say more than the type of a member, None for members that an
    answer does not have, and the members of the answer that the record does not have. An answer
    that computes most of its members, or that the core writes itself, is a class by hand.
    """
    members: dict[str, Any] = {}
    types = get_type_hints(record)
    for each in dataclasses.fields(record):
        field = (
            instead.pop(each.name) if each.name in instead else _field_of(each, types[each.name])
        )
        if field is not None:
            field.data_key = key_of(each)
            members[each.name] = field
    answer = type(name, (Answer,), {"__doc__": record.__doc__, **members, **instead})
    ANSWERS.setdefault(record, answer)
    return answer


_FIELDS: Mapping[type, type[Value]] = {bool: Flag, int: Count, float: Number, str: Text}


def _field_of(member: dataclasses.Field[Any], type_: Any) -> Field[Any]:
    """Return the field for a member of a record."""
    about = member.metadata.get(ABOUT)
    if member.metadata.get(IS_TIME):
        return Time(about, allow_none=NoneType in get_args(type_))
    if member.metadata.get(SPARSE):
        name, args = member.name, get_args(type_)
        kind = args[0] if NoneType in args else type_
        return _described(
            kind, about, optional=True, of=lambda outcome: getattr(outcome, name) or None
        )
    return _described(type_, about)


def _described(type_: Any, about: str | None = None, **more: Any) -> Field[Any]:
    """Return the field for a type: of a value, of a record, or of several of them."""
    origin, args = get_origin(type_), get_args(type_)
    if NoneType in args:
        return _described(args[0], about, allow_none=True, **more)
    if type_ not in ANSWERS and isinstance(type_, type) and issubclass(type_, Record):
        answer_of(type_, type_.__name__)
    if type_ in ANSWERS:
        return One(ANSWERS[type_], description=about, **more)
    if origin is Literal:
        return Choice(*args, description=about, **more)
    if origin in (list, tuple):
        return Many(_described(args[0]), about, **more)
    if origin is dict:
        return ByName(_described(args[1]), about, **more)
    if origin is Mapping:
        return Object(about, **more)
    return _FIELDS[type_](about, **more)


class LeanAnswer(Answer):
    """An answer whose null members are left out with `Prefer: return=minimal`."""

    def on_bind_field(self, field_name: str, field_obj: Field[Any]) -> None:
        """Say that a member that may be null may be absent."""
        super().on_bind_field(field_name, field_obj)
        field_obj.required = field_obj.required and not field_obj.allow_none

    @classmethod
    def write_minimal(cls, outcome: Any) -> Json:
        """Return an outcome as JSON without the null members of the answer and of its parts."""
        return without_nulls(cls.write(outcome))


def without_nulls(answer: Json) -> Json:
    """Return an answer without its null members and those of the objects in its lists.

    Other values, such as metadata, stay as they are.
    """
    return {
        key: [present_members(each) if isinstance(each, dict) else each for each in value]
        if isinstance(value, list)
        else value.lean()
        if isinstance(value, Objects)
        else value
        for key, value in present_members(answer).items()
    }


def _values_of(sources: list[str | _ValueOf]) -> Callable[[Any], Iterable[Any]]:
    """Return a function that gives the values of the members of an answer."""
    names = [source for source in sources if isinstance(source, str)]
    if len(names) == len(sources) > 1:  # attrgetter returns a tuple only for several names
        return attrgetter(*names)
    getters = [attrgetter(source) if isinstance(source, str) else source for source in sources]
    return lambda outcome: [value_of(outcome) for value_of in getters]


def _writer(field: Field[Any]) -> Callable[[Any], Any] | None:
    """Return the function that writes a value; None if the value goes out as it is."""
    if (own := getattr(field, "write", None)) is not None:
        return cast("_ValueOf", own)
    if (answer := _inner_answer(field)) is not None:
        return answer.dump
    if isinstance(field, Many) and (inner := _inner_answer(field.inner)) is not None:
        return partial(_dumped, inner)
    if isinstance(field, ByName) and (each := _inner_answer(field.value_field)) is not None:
        return lambda values: {name: each.dump(value) for name, value in values.items()}
    return None


def _dumped(answer: Answer, outcomes: Sequence[Any]) -> Sequence[Json]:
    if len(outcomes) <= MAX_LISTED:
        return [answer.dump(each) for each in outcomes]
    return Objects(answer.dump, outcomes)


def _inner_answer(field: Any) -> Answer | None:
    nested = getattr(field, "nested", None)
    return instance(nested) if isinstance(nested, type) and issubclass(nested, Answer) else None


def present(*names: str, without: tuple[str, ...] = ()) -> Json:
    """Return the JSON Schema of objects that have some keys and not others; null is absent."""
    present: Json = {name: {"not": {"type": "null"}} for name in names}
    absent: Json = {name: {"type": "null"} for name in without}
    return {"required": list(names), "properties": {**present, **absent}}


def within(error: InvalidInput, path: str) -> InvalidInput:
    """Return the error with `path` in front of the names of its fields."""
    known = (error.details or {}).get("fields")
    if not known:
        return InvalidInput(
            f"{path}: {error.message}", {**(error.details or {}), "fields": {path: [error.message]}}
        )
    return InvalidInput(
        f"{path}.{error.message}",
        {"fields": {f"{path}.{name}": text for name, text in known.items()}},
    )
