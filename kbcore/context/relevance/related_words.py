"""Related words of English: synonyms, and words that are derived from each other, from WordNet 3.1,
whose licence is at the beginning of the file.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

_FILE = "related_words.txt"


def related(stem: str) -> list[str]:
    """Return the stems of the words that are related to one; none of a word that is not common."""
    return _table().get(stem, "").split()


@cache
def _table() -> dict[str, str]:
    """Return the related stems of each stem, separated by spaces."""
    table: dict[str, str] = {}
    text = (files(__package__) / _FILE).read_text(encoding="ascii")
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        first, _, rest = line.partition(" ")
        table[first] = f"{table[first]} {rest}" if first in table else rest
        for each in rest.split():
            table[each] = f"{table[each]} {first}" if each in table else first
    return table
