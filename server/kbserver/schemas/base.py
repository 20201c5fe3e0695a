"""What every body has in common: it is read from JSON, judged, and turned into what a method of the core takes."""

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
    """A kind of body: how an object, of a request that may be strict, becomes a value."""

    def __call__(self, data: dict[str, Any], *, strict: bool) -> T_co:
        """Read the object; raises InvalidInput."""


def load(shape: Shape[T_co]) -> T_co:
    """Read the body of the request being served; its headers are judged first."""
    strict = current().strict
    with ignored_fields() as g.ignored:
        return shape(_object(), strict=strict)


_UNKNOWN = "Unknown field."
"""What marshmallow says of a key that it does not know."""

_MISSING = "Missing data for required field."
"""The message of marshmallow for a required key that is missing."""

ATOM = ("predicate", "args")
"""The keys of an atom that is not given as text."""

_STRAYS_SHOWN = 20

_BODIES: dict[Shape[Any], Envelope] = {}


def envelope_of(shape: Shape[Any]) -> Envelope:
    """Give the envelope a shape reads; raises LookupError where none is marked with `Envelope.shapes`."""
    try:
        return _BODIES[shape]
    except KeyError:
        raise LookupError(f"{shape} is no shape of an envelope: mark it with @<envelope>.shapes") from None


class Envelope:
    """The keys a body may have, each with its reader; null is the same as absent.

    A marshmallow schema defines it and reports what is wrong. A sound body, the usual case, is read by the same readers
    without going through the schema, at a tenth of the cost: bulk bodies have 100,000 elements.
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
        """With `or_text`, `predicate` and `args` are required unless the atom is given as `text`."""
        self._atom = frozenset(ATOM if or_text else ())
        self._more = {"anyOf": [given("text"), given(*ATOM)]} if or_text else dict(more or {})
        self._readers: dict[str, Reader] = {**readers, "text": atom_text} if or_text else dict(readers)
        self._required = frozenset(required) - self._atom
        self.optional = not (self._required or self._more)
        """Whether it takes an empty object, so that there may be no body at all."""
        shape: dict[str, Field[Any]] = {
            key: Read(reader, required=key in self._required) for key, reader in self._readers.items()
        }
        self.schema = Schema.from_dict(shape, name=name)()
        self.ref = component(name, self.json_schema)

    def json_schema(self) -> dict[str, Any]:
        """Describe what it takes; `more` are keywords for what no single key can say."""
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
        found = self._sound(data, strict)
        if found is None:
            found = self._judged(data, strict)
        if not strict:
            ignore(path + inner for inner in self._strays(found))
        elif unknown := list(islice(self._strays(found), _STRAYS_SHOWN)):
            raise InvalidInput(f"{unknown[0]}: {_UNKNOWN}", {"fields": {inner: [_UNKNOWN] for inner in unknown}})
        return found

    def _strays(self, found: Mapping[str, Any]) -> Iterator[str]:
        return chain.from_iterable(strays(self._readers[key], value, key) for key, value in found.items())

    def _sound(self, data: Mapping[str, Any], strict: bool) -> dict[str, Any] | None:
        found = {}
        try:
            for key, value in data.items():
                reader = self._readers.get(key)
                if reader is None:
                    if strict:
                        return None
                elif value is not None:
                    found[key] = reader(value)
        except ValueError:
            return None
        return found if self._required <= found.keys() and not self._absent(found) else None

    def _absent(self, found: Mapping[str, Any]) -> frozenset[str]:
        """Return the keys of the atom that are missing, where it is not given as text either."""
        return frozenset() if "text" in found else self._atom - found.keys()

    def _judged(self, data: Mapping[str, Any], strict: bool) -> dict[str, Any]:
        wrong: dict[str, Any] = {}
        found: dict[str, Any] = {}
        try:
            loaded = self.schema.load(data, unknown=RAISE if strict else EXCLUDE)
            found = {key: value for key, value in loaded.items() if value is not None}
        except ValidationError as error:
            wrong = dict(error.messages_dict)
        given_keys = {key: value for key, value in data.items() if value is not None}
        wrong |= {key: [_MISSING] for key in ATOM if key in self._absent(given_keys)}
        if wrong:
            raise invalid(ValidationError(wrong)) from None
        return found


_nothing = Envelope("Nothing", {})


@_nothing.shapes
def nothing(data: dict[str, Any], *, strict: bool) -> None:
    """Read the body of a route that needs none: an empty object, or nothing at all."""
    _nothing.load(data, strict)


def within(error: InvalidInput, path: str) -> InvalidInput:
    """Place the fields an error names inside `path`."""
    known = (error.details or {}).get("fields")
    if not known:
        return InvalidInput(f"{path}: {error.message}", {**(error.details or {}), "fields": {path: [error.message]}})
    return InvalidInput(f"{path}.{error.message}", {"fields": {f"{path}.{name}": text for name, text in known.items()}})


def scope_asked(query: Mapping[str, str], default: str | None) -> str | None:
    """Read the scope in a query string."""
    if "scope" not in query:
        return default
    try:
        return scope_to_read(query["scope"])
    except ValueError as error:
        raise InvalidInput.at("scope", str(error)) from error


def sign(found: Mapping[str, Any]) -> bool | None:
    """Whether a body asks for positive facts, for negative ones, or (None) says nothing.

    Negative if `negated` is true or `truthVal` is false, whatever the other says: published clients send defaults.
    """
    negated, truth = found.get("negated"), found.get("truthVal")
    if negated is None and truth is None:
        return None
    return not (negated is True or truth is False)


def atom_given(found: Mapping[str, Any], *, nulls: bool = False) -> tuple[Atom, bool | None]:
    """Return the fact or pattern of a body, and its sign as `sign` does: from `text`, or from `predicate` and `args`.

    With `nulls`, null among `args` matches anything. The atom is negative if the text or the other keys say so.
    """
    if "text" in found:
        _refuse_beside_text(found)
        atom = atom_from_text(found["text"])
        return atom, sign(found) if atom.positive else False
    args = wildcards(found["args"]) if nulls else found["args"]
    return atom_from_json({"predicate": found["predicate"], "args": args}), sign(found)


def constants_of(atom: Atom, found: Mapping[str, Any], problem: str) -> tuple[str, ...]:
    """Return the arguments of a fact; where one is a variable, raises InvalidInput with `problem` at its field."""
    args = []
    for index, arg in enumerate(atom.args):
        if not isinstance(arg, str):
            raise InvalidInput.at("text" if "text" in found else f"args[{index}]", problem)
        args.append(arg)
    return tuple(args)


def literal_given(found: Mapping[str, Any]) -> Literal:
    """Return the goal of a body: from `text`, or from `predicate`, `args`, `polarity` and the keys of `sign`."""
    negated = sign(found) is False
    if "text" in found:
        _refuse_beside_text(found)
        literal = literal_from_text(found["text"])
        atom = literal.atom
        positive = atom.positive and found.get("polarity") != "negative"
        return Literal(Atom(atom.predicate, atom.args, positive), literal.negated or negated)
    goal: dict[str, Any] = {key: found[key] for key in (*ATOM, "polarity") if key in found}
    return goal_from_json({**goal, "negated": negated}).literal


def _refuse_beside_text(found: Mapping[str, Any]) -> None:
    for key in ATOM:
        if key in found:
            raise InvalidInput.at(key, 'is given beside "text", which is the whole atom; send one of them')


def wildcards(args: Any) -> Any:
    """Write the nulls of a pattern as the anonymous variable they stand for."""
    return ["?" if arg is None else arg for arg in args] if type(args) is list else args


def atom_terms(atom: Atom) -> tuple[Term, ...]:
    """Give the arguments of an atom that is no rule head, so that no aggregate is among them."""
    return tuple(arg for arg in atom.args if not isinstance(arg, Aggregate))


def proof_asked(found: Mapping[str, Any]) -> bool:
    """Whether proofs are asked for, in the body or the query string."""
    return bool(found.get("withProof")) or (has_request_context() and request.args.get("proof", "").lower() in ("true", "1"))


def budget_wanted(found: Mapping[str, Any]) -> BudgetWanted:
    """The limits a request sets for itself: in the body, and its time in `Prefer: wait` as well; the lower one counts."""
    timeout = found.get("timeoutMs")
    if has_request_context() and (wait := wait_wanted()) is not None:
        timeout = wait if timeout is None else min(timeout, wait)
    rest = (found.get(key) for key in ("maxRows", "maxSteps", "maxBytes", "maxAnswers"))
    return BudgetWanted(timeout, *rest)


def _object() -> dict[str, Any]:
    config = runtime().config
    environ = request.environ
    if environ.get("CONTENT_LENGTH") not in (None, "", "0") or "HTTP_TRANSFER_ENCODING" in environ:
        check_media(environ)
    return parse_object(read_body(environ, config.max_body_bytes, bodies()), config.max_json_depth)


def check_media(environ: Mapping[str, Any]) -> None:
    """Refuse a body that is not JSON in UTF-8; raises UnsupportedMedia."""
    stated = environ.get("CONTENT_TYPE", "")
    if stated != "application/json":
        kind, *parameters = stated.split(";")
        if kind.strip().lower() != "application/json":
            raise UnsupportedMedia("a body needs Content-Type: application/json", {"header": "Content-Type"})
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip().lower() == "charset" and value.strip().strip('"').lower() not in ("utf-8", "utf8"):
                raise UnsupportedMedia("the only charset of a body is utf-8", {"header": "Content-Type"})
    if environ.get("HTTP_CONTENT_ENCODING", "identity").lower() not in ("identity", ""):
        raise UnsupportedMedia("a body is not compressed", {"header": "Content-Encoding"})
