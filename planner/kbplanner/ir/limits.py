"""Limits on predicates, constants and rules.

Text and JSON have the same limits, so that everything one form accepts can be written in the other.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbplanner.ir.operators import Function

MAX_DEPTH = 64
"""Maximum nesting depth of brackets and operators in one expression."""


MAX_TOKENS = 50_000
"""Maximum number of tokens in one statement, well above what the other limits allow."""

MAX_NAME = 255
"""Maximum number of characters in the name of a rule."""


MAX_COLUMNS = 64
"""Maximum number of columns of an engine relation."""


MAX_REGISTERS = 1 << 16
"""Maximum number of registers of a plan: its constants, and the variables of one rule."""


MAX_METADATA_BYTES = 32 * 1024
"""Maximum size of the metadata of a fact, as JSON in UTF-8."""

MAX_METADATA_DEPTH = 64
"""Maximum nesting depth of objects and arrays in metadata."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on input; each is a server setting."""

    predicate_chars: int = 255
    args: int = 64
    arg_bytes: int = 64 * 1024
    body_items: int = 64

    def predicate_problem(self, predicate: str) -> str | None:
        """Return what is wrong with a predicate, or None."""
        if not predicate:
            return "a predicate needs at least one character"
        if len(predicate) > self.predicate_chars:
            return f"a predicate has at most {self.predicate_chars} characters, this one has {len(predicate)}"
        return text_problem(predicate)

    def name_problem(self, predicate: str) -> str | None:
        """Return what is wrong with the name of a predicate in JSON or in storage; None if it is
        fine.

        A name that looks like an atom or a variable is refused, because it is always a mistake.
        Text may still quote such a name, so that facts stored by earlier versions can be queried
        and removed.
        """
        problem = self.predicate_problem(predicate)
        if problem is None and ("(" in predicate or ")" in predicate or predicate.startswith("?")):
            return (
                f'a name has no parentheses and does not start with "?", found "{shortened(predicate)}"; '
                'send a whole atom as text, in the field "text" in place of "predicate" and "args"'
            )
        return problem

    def constant_problem(self, text: str) -> str | None:
        """Return what is wrong with a constant, or None."""
        if text.isascii() and "\0" not in text and len(text) <= self.arg_bytes:
            return None  # most constants, without another call
        problem = text_problem(text)
        # A code point takes at most four bytes: so most texts need not be encoded.
        if (
            problem is None
            and len(text) * 4 > self.arg_bytes
            and len(text.encode()) > self.arg_bytes
        ):
            return (
                f"an argument has at most {self.arg_bytes} bytes, this one has {len(text.encode())}"
            )
        return problem

    def args_problem(self, count: int) -> str | None:
        """Return an error message if an atom has too many arguments, else None."""
        return (
            f"an atom has at most {self.args} arguments, this one has {count}"
            if count > self.args
            else None
        )

    def call_problem(self, function: Function, count: int) -> str | None:
        """Return an error message if a function does not take this number of arguments, else
        None.
        """
        if function.takes(count) and count <= self.args:
            return None
        most = self.args if function.most is None else function.most
        expected = str(most) if function.least == most else f"{function.least} to {most}"
        return f"{function.name} takes {expected} argument{'s' * (expected != '1')}, found {count}"

    def body_problem(self, count: int) -> str | None:
        """Return an error message if a body is too long, else None."""
        if count > self.body_items:
            return f"a rule body has at most {self.body_items} atoms, this one has {count}"
        return None


DEFAULT_LIMITS = Limits()


def shortened(text: str, max_chars: int = 40) -> str:
    """Return a text for a message, cut to a maximum length."""
    return text if len(text) <= max_chars else text[: max_chars - 1] + "…"


def plain_texts(texts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> bool:
    """Return True if all texts are valid ASCII constants and no variables, checked without a Python
    loop.

    Raises TypeError where one is not a text. False means that each text must be checked separately.
    """
    joined = "\0".join(texts)
    return (
        joined.isascii()
        and joined.count("\0") == max(len(texts) - 1, 0)
        and not joined.startswith("?")
        and "\0?" not in joined
        and (len(joined) <= limits.arg_bytes or max(map(len, texts)) <= limits.arg_bytes)
    )


def text_problem(text: str) -> str | None:
    """Return which character makes a text unfit to store, or None.

    NUL and halves of surrogate pairs are refused: neither survives every store, log and client.
    """
    if text.isascii():
        return "the character NUL is not allowed" if "\0" in text else None
    if "\0" in text:
        return "the character NUL is not allowed"
    for char in text:
        if "\ud800" <= char <= "\udfff":
            return f"half a surrogate pair (U+{ord(char):04X}) is not a character"
    return None


def metadata_problem(metadata: Mapping[str, Any]) -> str | None:
    """Return what makes an object unfit as the metadata of a fact, or None.

    Metadata is stored as JSON, so that it holds only values that JSON and every client can hold.
    """
    if problem := _json_problem(metadata, MAX_METADATA_DEPTH):
        return problem
    size = len(json.dumps(metadata, ensure_ascii=False, separators=(",", ":")).encode())
    if size > MAX_METADATA_BYTES:
        return f"has at most {MAX_METADATA_BYTES} bytes as JSON, this one has {size}"
    return None


def _json_problem(value: Any, depth_left: int) -> str | None:
    """Return what makes a value unfit for metadata, or None."""
    if isinstance(value, dict | list | tuple):
        if not depth_left:
            return f"is nested more than {MAX_METADATA_DEPTH} deep"
        if isinstance(value, dict) and not all(isinstance(key, str) for key in value):
            return "has a key that is not a text"
        parts = (*value, *value.values()) if isinstance(value, dict) else value
        problems = (_json_problem(part, depth_left - 1) for part in parts)
        return next(filter(None, problems), None)
    if isinstance(value, str):
        halves = not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value)
        return "holds half a surrogate pair, which is not a character" if halves else None
    if isinstance(value, float):
        return None if math.isfinite(value) else f"holds {value}, which is not a number in JSON"
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        fits = -(1 << 63) <= value < 1 << 64
        return None if fits else "holds an integer of more than 64 bits; write it as a text"
    return f"holds a value of type {type(value).__name__}, which JSON does not have"
