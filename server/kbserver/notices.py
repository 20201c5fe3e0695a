"""Notices about a request that was accepted: ignored fields, instants that look like seconds,
predicates that do not exist. Answers carry them in headers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from kbcore.reason.predicates import MissingPredicate

IGNORED_HEADER = "X-Ignored-Fields"
TIMES_HEADER = "X-Time-Warnings"
UNKNOWN_HEADER = "X-Unknown-Predicates"
MAX_NAMES = 20
"""Ignored fields that are named; `...` stands for the others."""

MAX_NAME_CHARS = 100
_MORE = "..."


@dataclass(slots=True)
class IgnoredFields:
    """The paths of the unknown fields of one request, such as `confidense` or `goals[0].scoep`."""

    paths: dict[str, None] = field(default_factory=dict)
    is_cut: bool = False

    def add(self, paths: Iterable[str]) -> None:
        """Add paths up to the limit."""
        for path in islice(paths, MAX_NAMES + 1):
            if len(self.paths) >= MAX_NAMES and path not in self.paths:
                self.is_cut = True
                return
            self.paths[path if len(path) <= MAX_NAME_CHARS else path[:MAX_NAME_CHARS] + _MORE] = (
                None
            )

    def names(self) -> list[str]:
        """Return the paths, with `...` at the end if there are more."""
        return [*self.paths, _MORE] if self.is_cut else list(self.paths)

    def headers(self) -> list[tuple[str, str]]:
        """Return the header that names the fields; none if no field was ignored."""
        return (
            [(IGNORED_HEADER, ", ".join(encoded(name, "%,") for name in self.names()))]
            if self.paths
            else []
        )


def time_header(warnings: Iterable[str]) -> tuple[str, str]:
    """Return the header that has the warnings of instants."""
    return TIMES_HEADER, "; ".join(encoded(warning, "%;") for warning in warnings)


def unknown_headers(unknown: Sequence[MissingPredicate]) -> dict[str, str]:
    """Return the header that names the predicates without facts and rules; none if all exist."""
    if not unknown:
        return {}
    names = [encoded(str(each), "%,") for each in unknown[:MAX_NAMES]]
    return {UNKNOWN_HEADER: ", ".join(names)}


def shown_unknown(unknown: Sequence[MissingPredicate]) -> dict[str, list[dict[str, Any]]]:
    """Return the member of a tool result that names the predicates without facts and rules; none if
    all exist.
    """
    rows = [
        {"name": each.name, "arity": each.arity, "didYouMean": each.suggestion}
        for each in unknown[:MAX_NAMES]
    ]
    return {"unknownPredicates": rows} if rows else {}


def encoded(text: str, reserved: str) -> str:
    """Percent-encode the characters that a header cannot hold, and the `reserved` ones."""
    return "".join(
        char
        if " " <= char <= "~" and char not in reserved
        else "".join(f"%{byte:02X}" for byte in char.encode())
        for char in text
    )
