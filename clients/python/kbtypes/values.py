"""Conversion between Python values and those of the HTTP interface, and a reader of single
atoms.
"""

from __future__ import annotations

import math
import re
import unicodedata
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Any
from typing import Literal as OneOf
from uuid import UUID

from kbtypes.errors import InvalidInput

Arg = str | int | float | bool | date | Decimal | UUID
"""An argument of a fact or goal; in goals a text that starts with `?` is a variable. Dates,
decimals and UUIDs are texts in their standard form."""

Instant = int | str | date
"""A point in time: epoch milliseconds, an ISO 8601 text, a datetime, or a date, which means its
first instant. Without an offset from UTC, a text or datetime is in UTC.
"""

Duration = int | str | timedelta
"""A duration: milliseconds, a text such as `30d`, or a timedelta."""

_SECONDS = range(500_000_000, 10_000_000_000)
"""Numbers that are rather seconds of the years 1985 to 2286 than milliseconds of 1970."""

Value = str | int | float | bool
"""A value in an answer: a text, or with `values="python"` also a number or a boolean."""

Values = OneOf["text", "python"]
"""The form of values in answers: all as texts, or numbers and booleans as Python has them."""

Row = dict[str, Any]
"""A fact or answer with the keys of the HTTP interface: predicate, args, negated, scope, metadata,
createdAt, validFrom, validUntil, ttl, confidence. Times are epoch milliseconds or None."""

_IN_WORD = r"(?:\w|[^\x00-\u02ff\s])"
_WORD = rf"[^\W\d_]{_IN_WORD}*(?:(?:-+|:+){_IN_WORD}+)*"
"""A word, or a text with other characters in it, which `_is_word` tells apart: `re` has no class
for combining marks.
"""
_STRING = r"\"[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'[^'\\\n]*(?:\\.[^'\\\n]*)*'"
_NUMBER = r"-?\s*[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?!\w)"
_SPACE = r"(?:\s+|(?:%|\#|//)[^\n]*|/\*.*?\*/)*"

_HEAD = re.compile(
    rf"{_SPACE}(?P<naf>not{_SPACE}(?=[^\s(]))?(?P<sign>~{_SPACE})?(?P<name>{_WORD}|{_STRING})"
    rf"{_SPACE}(?P<open>\(?){_SPACE}",
    re.DOTALL,
)
_TERM = re.compile(
    rf"(?:(?P<variable>\?[A-Za-z_]\w*)|(?P<anonymous>\?|_(?!\w))|(?P<word>{_WORD})"
    rf"|(?P<string>{_STRING})|(?P<number>{_NUMBER})){_SPACE}(?P<next>[,)]){_SPACE}",
    re.DOTALL,
)
_TAIL = re.compile(rf"{_SPACE}\.?{_SPACE}", re.DOTALL)
_VARIABLE_OR_STRING = re.compile(rf"\?(?P<name>[A-Za-z]\w*)|{_STRING}")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r"}
_ESCAPES = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\"}
_PLAIN = re.compile(_WORD)
_NUMERIC = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_UNQUOTED_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
"""A number as rules have it, which may begin with zeros: `007` is not `7`."""

_KEYWORDS = frozenset({"not", "div", "mod"})
_MAX_DIGITS = 4300
"""Digits of the longest integer that Python converts from text."""

_BOOLEANS = {"true": True, "false": False}
_VALUES = ("text", "python")


@dataclass(frozen=True, slots=True)
class ReadAtom:
    """One atom of a goal or pattern as text: its predicate, arguments and sign.

    In `args` variables are texts with their question mark and numbers are numbers; `variables` has
    the name of the variable at each position, or None.
    """

    predicate: str
    args: tuple[Arg, ...]
    variables: tuple[str | None, ...]
    negative: bool = False
    naf: bool = False


def _is_word(text: str) -> bool:
    """Return True if the rule language has a text without quotes: letters, digits and marks."""
    return bool(_PLAIN.fullmatch(text)) and all(
        char.isalnum() or char in "_-:" or unicodedata.category(char) in ("Mn", "Mc")
        for char in text
    )


def read_atom(text: str) -> ReadAtom | None:
    """Return the atom that a text consists of, None for any other text."""
    head = _HEAD.match(text)
    if head is None:
        return None
    args: list[Arg] = []
    variables: list[str | None] = []
    position, closed = head.end(), not head["open"]
    if head["open"] and text[position : position + 1] == ")":
        position, closed = position + 1, True
    while not closed:
        term = _TERM.match(text, position)
        if term is None or (term["word"] and not _is_word(term["word"])):
            return None
        name = term["variable"]
        named = name is not None and name != "?_"
        variables.append(name[1:] if named else None)
        args.append("?" if name == "?_" or term["anonymous"] else _value_of(term))
        position, closed = term.end(), term["next"] == ")"
    if _TAIL.fullmatch(text, position) is None:
        return None
    is_quoted = head["name"][0] in "\"'"
    if not is_quoted and not _is_word(head["name"]):
        return None
    predicate = _unquoted(head["name"]) if is_quoted else head["name"]
    negative, naf = head["sign"] is not None, head["naf"] is not None
    return ReadAtom(predicate, tuple(args), tuple(variables), negative, naf)


def atom_of(field: str, goal: str, args: Sequence[Arg] | None) -> ReadAtom:
    """Return the atom of a text, or of a predicate with arguments; raise InvalidInput at
    `field`.
    """
    if args is None:
        atom = read_atom(text_of(field, goal))
        if atom is None:
            raise InvalidInput.at(field, "must be one atom, such as parent(ann, ?x)")
        return atom
    listed = tuple(arguments(args))
    return ReadAtom(text_of(field, goal), listed, tuple(map(_variable, listed)))


def check_constants(field: str, atom: ReadAtom) -> None:
    """Raise InvalidInput for a constant that a request with `args` would take for a variable."""
    for arg, name in zip(atom.args, atom.variables, strict=True):
        if isinstance(arg, str) and arg.startswith("?") and arg not in ("?", f"?{name}"):
            raise InvalidInput.at(field, f"cannot match {arg!r}: a constant that begins with ?")


def variables_of(text: str) -> list[str]:
    """Return the named variables of a text in the rule language, without `?`, each once, in
    order.
    """
    names = (match["name"] for match in _VARIABLE_OR_STRING.finditer(text))
    return list(dict.fromkeys(name for name in names if name is not None))


def columns(variables: Iterable[str | None]) -> dict[str, int]:
    """Return the index of the first position of each named variable."""
    indexes: dict[str, int] = {}
    for index, name in enumerate(variables):
        if name is not None:
            indexes.setdefault(name, index)
    return indexes


def written_atom(predicate: str, args: Sequence[Arg]) -> str:
    """Return a predicate with arguments in the rule language."""
    is_plain = _is_word(predicate) and predicate not in _KEYWORDS
    name = predicate if is_plain else _quoted(predicate, "'")
    return f"{name}({', '.join(map(_written, args))})" if args else name


def row_text(row: Row) -> str:
    """Return a row as a literal in the rule language."""
    return "~" * bool(row["negated"]) + written_atom(row["predicate"], row["args"])


def plain(value: Any) -> Any:
    """Return a date, a decimal or a UUID as text, any other value as it is."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) and value.is_finite():
        return f"{value:f}"
    return str(value) if isinstance(value, UUID) else value


def arguments(args: Sequence[Arg]) -> list[Arg]:
    """Return the arguments of a fact or goal as a list; raise InvalidInput."""
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise InvalidInput.at("args", f"must be a list, found {type(args).__name__}")
    listed = list(map(plain, args))
    for index, arg in enumerate(listed):
        if not isinstance(arg, str | int | float):
            kind = type(arg).__name__
            raise InvalidInput.at(
                f"args[{index}]", f"must be a text, a number or a boolean, found {kind}"
            )
        if isinstance(arg, float) and not math.isfinite(arg):
            raise InvalidInput.at(f"args[{index}]", "must be a finite number")
    return listed


def text_of(field: str, value: str) -> str:
    """Return the argument `field`, a text; raise InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput.at(field, f"must be a text, found {type(value).__name__}")
    return value


def texts_of(field: str, texts: str | Sequence[str]) -> list[str]:
    """Return one or several texts as a list; raise InvalidInput."""
    several = [texts] if isinstance(texts, str) else list(texts)
    return [text_of(field, text) for text in several]


def instant(value: Instant | None) -> int | str | None:
    """Return a point in time as JSON has it."""
    if isinstance(value, int) and abs(value) in _SECONDS:
        warnings.warn(f"{value} looks like seconds, but is read as milliseconds", stacklevel=3)
    return value.isoformat() if isinstance(value, date) else value


def duration(value: Duration | None) -> int | str | None:
    """Return a duration as JSON has it."""
    return value // timedelta(milliseconds=1) if isinstance(value, timedelta) else value


def messages_of(messages: object, field: str = "text") -> list[Any]:
    """Return texts and chat messages as JSON has them; raise InvalidInput at `field`."""
    if isinstance(messages, Mapping | bytes) or not isinstance(messages, Iterable):
        raise InvalidInput.at(field, "must be a text or a list of texts or messages")
    return [
        {**each, "at": instant(each["at"])}
        if isinstance(each, Mapping) and "at" in each
        else dict(each)
        if isinstance(each, Mapping)
        else each
        for each in messages
    ]


def checked_values(values: str) -> bool:
    """Return True if `values` asks for Python values; raise InvalidInput if it is unknown."""
    if values not in _VALUES:
        raise InvalidInput.at("values", f"must be one of {', '.join(_VALUES)}")
    return values == "python"


def python_value(text: str) -> Value:
    """Return a constant as a number or a boolean if it is one, else the text.

    Numbers are those of the rule language: `007` and `1e999` are texts. Whole numbers of any
    length are exact, up to the digits that Python reads.
    """
    if not _NUMERIC.fullmatch(text):
        return _BOOLEANS.get(text, text)
    if _INTEGER.fullmatch(text):
        return int(text) if len(text) <= _MAX_DIGITS else text
    value = float(text)
    mantissa = text.lower().partition("e")[0]
    is_read = math.isfinite(value) and (value != 0 or not mantissa.strip("-0."))
    return value if is_read or (value == 0 and mantissa == text) else text


def present(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a body that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _value_of(term: re.Match[str]) -> Arg:
    if term["string"] is not None:
        return _unquoted(term["string"])
    if term["number"] is not None:
        return python_value("".join(term["number"].split()))
    return term["variable"] or term["word"]


def _unquoted(text: str) -> str:
    plain = _ESCAPE.sub(_unescaped, text[1:-1])
    # Two halves written as \\u escapes are one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped[0] == "u" and len(escaped) > 1:
        return chr(int(escaped[1:], 16))
    return _ESCAPED.get(escaped, escaped)


def _variable(arg: Arg) -> str | None:
    return arg[1:] if isinstance(arg, str) and arg.startswith("?") and len(arg) > 1 else None


def _written(arg: Arg) -> str:
    arg = plain(arg)
    if isinstance(arg, bool):
        return "true" if arg else "false"
    if not isinstance(arg, str):
        return repr(arg)
    if arg.startswith("?") or _UNQUOTED_NUMBER.fullmatch(arg):
        return arg
    if _is_word(arg) and arg not in _KEYWORDS:
        return arg
    return _quoted(arg, '"')


def _quoted(text: str, quote: str) -> str:
    return quote + "".join(_escape(char, quote) for char in text) + quote


def _escape(char: str, quote: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char == quote:
        return "\\" + char
    return char if char.isprintable() or ord(char) > 0xFFFF else f"\\u{ord(char):04x}"
