"""What a predicate, a constant and a rule may be at most, and which names are taken.

Text and JSON obey the same bounds, so that whatever one form accepts the other can say as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbplanner.ir.terms import ARITHMETIC, COMPARISONS, STRING_FUNCTIONS, STRING_TESTS

BUILTINS = (*COMPARISONS, *STRING_TESTS, *STRING_FUNCTIONS)
"""Names of the builtins that can be body items."""

RESERVED = frozenset((*BUILTINS, *ARITHMETIC))
"""Names that mean a builtin in text unless they are quoted."""

MAX_DEPTH = 64
"""How deep brackets and operators of one expression may nest."""


MAX_TOKENS = 50_000
"""Most words and signs of one statement: well above what the other bounds let through."""

MAX_NAME = 255
"""Most characters of a rule's name."""


MAX_COLUMNS = 64
"""Most columns of a relation of the engine."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The bounds on what is read; every one is a setting of the server."""

    predicate_chars: int = 255
    args: int = 64
    arg_bytes: int = 64 * 1024
    body_items: int = 64

    def predicate_problem(self, predicate: str) -> str | None:
        """Say what is wrong with a predicate, or None."""
        if not predicate:
            return "a predicate needs at least one character"
        if len(predicate) > self.predicate_chars:
            return f"a predicate has at most {self.predicate_chars} characters, this one has {len(predicate)}"
        return text_problem(predicate)

    def name_problem(self, predicate: str) -> str | None:
        """Return what is wrong with the name of a predicate in JSON, or of one that is stored; None if it is fine.

        A name that looks like an atom or a variable is refused, because it is always a mistake. Text may still
        quote such a name, so that facts stored by earlier versions can be asked for and removed.
        """
        problem = self.predicate_problem(predicate)
        if problem is None and ("(" in predicate or ")" in predicate or predicate.startswith("?")):
            shown = predicate if len(predicate) <= 40 else predicate[:39] + "…"
            return (
                f'a name has no parentheses and does not start with "?", found "{shown}"; '
                'send a whole atom as text, in the field "text" in place of "predicate" and "args"'
            )
        return problem

    def constant_problem(self, text: str) -> str | None:
        """Say what is wrong with a constant, or None."""
        problem = text_problem(text)
        # A code point takes at most four bytes: most texts need no encoding to be judged.
        if problem is None and len(text) * 4 > self.arg_bytes and len(text.encode()) > self.arg_bytes:
            return f"an argument has at most {self.arg_bytes} bytes, this one has {len(text.encode())}"
        return problem

    def args_problem(self, count: int) -> str | None:
        """Say that an atom has too many arguments, or None."""
        return f"an atom has at most {self.args} arguments, this one has {count}" if count > self.args else None

    def body_problem(self, count: int) -> str | None:
        """Say that a body is too long, or None."""
        if count > self.body_items:
            return f"a rule body has at most {self.body_items} atoms, this one has {count}"
        return None


DEFAULT_LIMITS = Limits()


def plain_texts(texts: Sequence[str], limits: Limits = DEFAULT_LIMITS) -> bool:
    """Whether all texts are ASCII constants within the limits, none of which reads as a variable: seen without a loop.

    Raises TypeError where one is no text. False says nothing: each wants a look of its own.
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
    """Say which character makes a text unfit to store, or None.

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
