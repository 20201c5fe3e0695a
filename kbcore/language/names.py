"""Canonical names, which map the names in a model's answer to those of the knowledge base.

A predicate becomes lower-case words joined by `_`, unless the same words with the same arity are
known in another spelling. In an argument, surrounding and repeated white space is removed; if it
differs from a known name only in case, spaces or joining characters, it becomes that name.
Arguments do not change otherwise, because they are data.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from kbcore.context.text.phrases import words

_JOINTS = re.compile(r"[\s_\-.]+")
_BLANKS = re.compile(r"\s+")
_NUMBER = re.compile(r"[+-]?[\d.,:/\-\s]+%?")


def name_key(text: str) -> str:
    """Return a key that is equal for all spellings of a name."""
    return _JOINTS.sub(" ", unicodedata.normalize("NFKC", text)).strip().casefold()


def predicate_name(text: str) -> str:
    """Return a predicate in canonical spelling: `Works At`, `worksAt` and `works-at` give
    `works_at`.
    """
    plain = _JOINTS.sub("_", text.strip()).strip("_")
    parts = words(plain)
    return "_".join(parts).lower() if parts else plain


class NameTable:
    """The known names; of several spellings the first one added is canonical."""

    def __init__(self) -> None:
        self._predicates: dict[tuple[str, int], str] = {}
        self._names: dict[str, str] = {}

    def know_predicate(self, name: str, arity: int) -> None:
        """Add a predicate."""
        self._predicates.setdefault((predicate_name(name), arity), name)

    def know(self, names: Iterable[str]) -> None:
        """Add names of things."""
        for name in names:
            if not _NUMBER.fullmatch(name):
                self._names.setdefault(name_key(name), name)

    def predicate(self, text: str, arity: int) -> str:
        """Return the canonical name of a predicate."""
        usual = predicate_name(text)
        return self._predicates.get((usual, arity), usual)

    def name(self, text: str) -> str:
        """Return the canonical name of a thing."""
        plain = _BLANKS.sub(" ", text).strip()
        return (
            self._names.get(name_key(plain), plain)
            if plain and not _NUMBER.fullmatch(plain)
            else plain
        )

    def listed(self) -> list[str]:
        """Return the names of known things, oldest first."""
        return list(self._names.values())
