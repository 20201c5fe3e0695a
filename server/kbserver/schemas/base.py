"""Request bodies: read from JSON, validated, and converted to the arguments of a method of the core."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any, Protocol, TypeVar

from flask import g, has_request_context, request
from marshmallow import EXCLUDE, RAISE, Schema, ValidationError
from marshmallow.fields import Field

from kbcore.errors import InvalidInput
from kbcore.reason.budget import BudgetWanted
from kbplanner.ir.terms import Aggregate, Atom, Literal, Term
from kbplanner.syntax.jsonform import atom_from_json, goal_from_json
from kbplanner.syntax.textform import atom_from_text, literal_from_text
from kbserver.errors import UnsupportedMedia, invalid
from kbserver.http.json_body import parse_object, read_body
from kbserver.http.request_context import bodies, current, runtime, wait_wanted
from kbserver.notices import ignore, ignored_fields
from kbserver.schemas.fields import Read, Reader, atom_text, scope_to_read, strays
from kbserver.schemas.jsonschema import component, given, of_body

T_co = TypeVar("T_co", covariant=True)
S = TypeVar("S", bound="Shape[Any]")


class Shape(Protocol[T_co]):
    """A reader of one kind of body: converts a JSON object to a value; `strict` refuses unknown keys."""

    def __call__(self, data: dict[str, Any], *, strict: bool) -> T_co:
        """Read the object; raises InvalidInput."""


def load(shape: Shape[T_co]) -> T_co:
    """Read the body of the current request; its headers are checked first."""
    strict = current().strict
    with ignored_fields() as g.ignored:
        return shape(_object(), strict=strict)


_UNKNOWN = "Unknown field."
"""The message of marshmallow for an unknown key."""

_MISSING = "Missing data for required field."
"""The message of marshmallow for a required key that is missing."""

ATOM = ("predicate", "args")
"""The keys of an atom that is not given as text."""

_STRAYS_SHOWN = 20

_BODIES: dict[Shape[Any], Envelope] = {}


def envelope_of(shape: Shape[Any]) -> Envelope:
    """Return the envelope that a shape reads; raises LookupError if it is not marked with `Envelope.shapes`."""
    try:
        return _BODIES[shape]
    except KeyError:
        raise LookupError(
            f"{shape} is no shape of an envelope: mark it with @<envelope>.shapes"
        ) from None


class Envelope:
    """The keys a body may have, each with its reader; null is the same as absent.

    A marshmallow schema defines it and reports errors. A valid body, the usual case, is read by the same readers
    without the schema at a tenth of the cost, because bulk bodies have 100,000 elements.
    """

    def __init__(
        self,
        name: str,
        readers: Mapping[str, Reader],
        required: Iterable[str] = (),
        more: Mapping[str, Any] | None = None,
        *,
        or_text: bool = False,
    ) -> None:
        """Define the keys. With `or_text`, `predicate` and `args` are required unless the body has `text`."""
        self._atom = frozenset(ATOM if or_text else ())
        self._more = {"anyOf": [given("text"), given(*ATOM)]} if or_text else dict(more or {})
        self._readers: dict[str, Reader] = (
            {**readers, "text": atom_text} if or_text else dict(readers)
        )
        self._required = frozenset(required) - self._atom
        self.optional = not (self._required or self._more)
        """True if an empty object is valid, so that the body may be missing."""
        shape: dict[str, Field[Any]] = {
            key: Read(reader, required=key in self._required)
            for key, reader in self._readers.items()
        }
        self.schema = Schema.from_dict(shape, name=name)()
        self.ref = component(name, self.json_schema)

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the body, with the keywords of `more` that concern several keys."""
        return {**of_body(self.schema), **self._more}

    def shapes(self, shape: S) -> S:
        """Mark a shape as one that reads this envelope."""
        _BODIES[shape] = self
        return shape

    def load(self, data: Mapping[str, Any], strict: bool, path: str = "") -> dict[str, Any]:
        """Read an object; unknown keys are refused if `strict`, else ignored and noted. Raises InvalidInput.

        `path` is the place of the object in the body, with a dot at its end; notes about ignored keys begin with it.
        """
        if not data.keys() <= self._readers.keys():
            ignore(path + str(key) for key in data if key not in self._readers)
        fields = self._read_valid(data, strict)
        if fields is None:
            fields = self._read_by_schema(data, strict)
        if not strict:
            ignore(path + inner for inner in self._strays(fields))
        elif unknown := list(islice(self._strays(fields), _STRAYS_SHOWN)):
            raise InvalidInput(
                f"{unknown[0]}: {_UNKNOWN}", {"fields": {inner: [_UNKNOWN] for inner in unknown}}
            )
        return fields

    def _strays(self, fields: Mapping[str, Any]) -> Iterator[str]:
        return chain.from_iterable(
            strays(self._readers[key], value, key) for key, value in fields.items()
        )

    def _read_valid(self, data: Mapping[str, Any], strict: bool) -> dict[str, Any] | None:
        fields = {}
        try:
            for key, value in data.items():
                reader = self._readers.get(key)
                if reader is None:
                    if strict:
                        return None
                elif value is not None:
                    fields[key] = reader(value)
        except ValueError:
            return None
        return fields if self._required <= fields.keys() and not self._absent(fields) else None

    def _absent(self, fields: Mapping[str, Any]) -> frozenset[str]:
        """Return the missing keys of the atom; none if the atom is given as text."""
        return frozenset() if "text" in fields else self._atom - fields.keys()

    def _read_by_schema(self, data: Mapping[str, Any], strict: bool) -> dict[str, Any]:
        problems: dict[str, Any] = {}
        fields: dict[str, Any] = {}
        try:
            loaded = self.schema.load(data, unknown=RAISE if strict else EXCLUDE)
            fields = {key: value for key, value in loaded.items() if value is not None}
        except ValidationError as error:
            problems = dict(error.messages_dict)
        given_keys = {key: value for key, value in data.items() if value is not None}
        problems |= {key: [_MISSING] for key in ATOM if key in self._absent(given_keys)}
        if problems:
            raise invalid(ValidationError(problems)) from None
        return fields


_nothing = Envelope("Nothing", {})


@_nothing.shapes
def nothing(data: dict[str, Any], *, strict: bool) -> None:
    """Read the body of a route without arguments: an empty object or no body."""
    _nothing.load(data, strict)


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


def scope_asked(query: Mapping[str, str], default: str | None) -> str | None:
    """Read the scope in a query string."""
    if "scope" not in query:
        return default
    try:
        return scope_to_read(query["scope"])
    except ValueError as error:
        raise InvalidInput.at("scope", str(error)) from error


def sign(fields: Mapping[str, Any]) -> bool | None:
    """Return the sign a body asks for: True positive, False negative, None unspecified.

    Negative if `negated` is true or `truthVal` is false, even if the other key disagrees: published clients
    send defaults for both.
    """
    negated, truth = fields.get("negated"), fields.get("truthVal")
    if negated is None and truth is None:
        return None
    return not (negated is True or truth is False)


def atom_given(fields: Mapping[str, Any], *, nulls: bool = False) -> tuple[Atom, bool | None]:
    """Return the fact or pattern of a body, and its sign as `sign` does: from `text`, or from `predicate` and `args`.

    With `nulls`, null among `args` matches anything. The atom is negative if the text or the other keys say so.
    """
    if "text" in fields:
        _refuse_beside_text(fields)
        atom = atom_from_text(fields["text"])
        return atom, sign(fields) if atom.positive else False
    args = wildcards(fields["args"]) if nulls else fields["args"]
    return atom_from_json({"predicate": fields["predicate"], "args": args}), sign(fields)


def constants_of(atom: Atom, fields: Mapping[str, Any], problem: str) -> tuple[str, ...]:
    """Return the arguments of a fact. Raises InvalidInput with `problem` at the field of a variable."""
    args = []
    for index, arg in enumerate(atom.args):
        if not isinstance(arg, str):
            raise InvalidInput.at("text" if "text" in fields else f"args[{index}]", problem)
        args.append(arg)
    return tuple(args)


def literal_given(fields: Mapping[str, Any]) -> Literal:
    """Return the goal of a body: from `text`, or from `predicate`, `args`, `polarity` and the keys of `sign`."""
    negated = sign(fields) is False
    if "text" in fields:
        _refuse_beside_text(fields)
        literal = literal_from_text(fields["text"])
        atom = literal.atom
        positive = atom.positive and fields.get("polarity") != "negative"
        return Literal(Atom(atom.predicate, atom.args, positive), literal.negated or negated)
    goal: dict[str, Any] = {key: fields[key] for key in (*ATOM, "polarity") if key in fields}
    return goal_from_json({**goal, "negated": negated})


def _refuse_beside_text(fields: Mapping[str, Any]) -> None:
    for key in ATOM:
        if key in fields:
            raise InvalidInput.at(
                key, 'cannot be combined with "text", which is the whole atom; send one of them'
            )


def wildcards(args: Any) -> Any:
    """Replace nulls in the arguments of a pattern by the anonymous variable."""
    return ["?" if arg is None else arg for arg in args] if type(args) is list else args


def atom_terms(atom: Atom) -> tuple[Term, ...]:
    """Return the arguments of an atom outside rule heads, which has no aggregates."""
    return tuple(arg for arg in atom.args if not isinstance(arg, Aggregate))


def proof_asked(fields: Mapping[str, Any]) -> bool:
    """Return True if the body or the query string asks for proofs."""
    if fields.get("withProof"):
        return True
    return has_request_context() and request.args.get("proof", "").lower() in ("true", "1")


def budget_wanted(fields: Mapping[str, Any]) -> BudgetWanted:
    """Return the run budget of a request: limits in the body; the lower of `timeoutMs` and `Prefer: wait` applies."""
    timeout = fields.get("timeoutMs")
    if has_request_context() and (wait := wait_wanted()) is not None:
        timeout = wait if timeout is None else min(timeout, wait)
    limits = (fields.get(key) for key in ("maxRows", "maxSteps", "maxBytes", "maxAnswers"))
    return BudgetWanted(timeout, *limits)


def _object() -> dict[str, Any]:
    config = runtime().config
    environ = request.environ
    if environ.get("CONTENT_LENGTH") not in (None, "", "0") or "HTTP_TRANSFER_ENCODING" in environ:
        check_media(environ)
    return parse_object(read_body(environ, config.max_body_bytes, bodies()), config.max_json_depth)


def check_media(environ: Mapping[str, Any]) -> None:
    """Refuse a body that is not JSON in UTF-8; raises UnsupportedMedia."""
    content_type = environ.get("CONTENT_TYPE", "")
    if content_type != "application/json":
        media_type, *parameters = content_type.split(";")
        if media_type.strip().lower() != "application/json":
            raise UnsupportedMedia(
                "a body needs Content-Type: application/json", {"header": "Content-Type"}
            )
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in (
                "utf-8",
                "utf8",
            ):
                raise UnsupportedMedia(
                    "the only charset of a body is utf-8", {"header": "Content-Type"}
                )
    if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() not in ("identity", ""):
        raise UnsupportedMedia("a body is not compressed", {"header": "Content-Encoding"})
