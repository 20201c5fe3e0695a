"""Names made canonical, so that what a model calls things meets what the knowledge base calls them.

A predicate becomes words of small letters joined by `_`, unless one of those words and this arity is known under another
spelling. An argument loses white space around and doubled inside; one that differs from a known name only in case, spaces
or joining signs becomes that name. Nothing else changes: arguments are data.
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
    """What two spellings of a name have in common."""
    return _JOINTS.sub(" ", unicodedata.normalize("NFKC", text)).strip().casefold()


def predicate_name(text: str) -> str:
    """A predicate in the usual spelling: `Works At`, `worksAt` and `works-at` are `works_at`."""
    plain = _JOINTS.sub("_", text.strip()).strip("_")
    found = words(plain)
    return "_".join(found).lower() if found else plain


class Names:
    """The names there are; what is told first counts."""

    def __init__(self) -> None:
        self._predicates: dict[tuple[str, int], str] = {}
        self._names: dict[str, str] = {}

    def know_predicate(self, name: str, arity: int) -> None:
        """There is a predicate of this name and arity."""
        self._predicates.setdefault((predicate_name(name), arity), name)

    def know(self, names: Iterable[str]) -> None:
        """There are things of these names."""
        for name in names:
            if not _NUMBER.fullmatch(name):
                self._names.setdefault(name_key(name), name)

    def predicate(self, text: str, arity: int) -> str:
        """The canonical name of a predicate."""
        usual = predicate_name(text)
        return self._predicates.get((usual, arity), usual)

    def name(self, text: str) -> str:
        """The canonical name of a thing."""
        plain = _BLANKS.sub(" ", text).strip()
        return self._names.get(name_key(plain), plain) if plain and not _NUMBER.fullmatch(plain) else plain

    def listed(self) -> list[str]:
        """The things that are known, first ones first."""
        return list(self._names.values())
