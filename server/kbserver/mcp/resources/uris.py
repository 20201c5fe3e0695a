"""URIs of resources, and the topics whose changes affect a resource."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import parse_qs, quote, unquote, urlsplit

from kbcore.state.changes import Change, WriteSet
from kbcore.state.names import is_name

SCHEME = "kb"

FACTS, RULES, PREDICATES, SCOPES, SUMMARY, CONTEXT, PROOF = (
    "facts",
    "rules",
    "predicates",
    "scopes",
    "summary",
    "context",
    "proof",
)

_MAX_URI_CHARS = 8192
_DIGITS = 9

Topic = tuple[str, ...]
"""Kinds of changes: all facts of a scope, facts of one predicate in it, rules, the set of scopes,
anything."""

ANYTHING: Topic = ("anything",)


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed resource URI: kind, name of the predicate, session or proof, scope, and offset of
    the page.
    """

    kind: str
    name: str | None = None
    args: tuple[str, ...] = ()
    scope: str | None = None
    offset: int = 0

    @property
    def topic(self) -> Topic:
        """The topic whose changes affect this resource."""
        if self.kind == FACTS:
            return (FACTS, self.scope or "", *((self.name,) if self.name else ()))
        return (self.kind,) if self.kind in (RULES, SCOPES) else ANYTHING


def read_uri(uri: str) -> Address | None:
    """Parse a resource URI; returns None if it cannot name a resource."""
    try:
        parts = urlsplit(uri)
        pages = parse_qs(parts.query, strict_parsing=bool(parts.query))
    except ValueError:
        return None
    if (
        parts.scheme != SCHEME
        or len(uri) > _MAX_URI_CHARS
        or parts.fragment
        or set(pages) - {"offset"}
    ):
        return None
    offset = pages.get("offset", ["0"])[-1]
    if not (offset.isascii() and offset.isdigit() and len(offset) <= _DIGITS):
        return None
    path = [unquote(step) for step in parts.path.split("/")[1:]] if parts.path else []
    address = _named(parts.netloc, path, int(offset))
    return address if address is None or address.kind == FACTS or not pages else None


def _named(kind: str, path: list[str], offset: int) -> Address | None:
    if not path:
        return (
            Address(kind, offset=offset)
            if kind in (FACTS, RULES, PREDICATES, SCOPES, SUMMARY)
            else None
        )
    if not path[0]:
        return None
    if kind == FACTS and len(path) == 1:
        return Address(FACTS, path[0], offset=offset)
    if kind == SCOPES and len(path) == 3 and path[1] == FACTS and is_name(path[0]) and path[2]:
        return Address(FACTS, path[2], scope=path[0], offset=offset)
    if kind == CONTEXT and len(path) == 1 and is_name(path[0]):
        return Address(CONTEXT, path[0])
    return Address(PROOF, path[0], tuple(path[1:])) if kind == PROOF else None


def facts_uri(predicate: str | None = None, scope: str | None = None, offset: int = 0) -> str:
    """Return the URI of the facts of a predicate, or of all facts."""
    name = (
        f"{SCHEME}://{FACTS}"
        if scope is None
        else f"{SCHEME}://{SCOPES}/{quote(scope, safe='')}/{FACTS}"
    )
    if predicate is not None:
        name += f"/{quote(predicate, safe='')}"
    return f"{name}?offset={offset}" if offset else name


def topics(changes: Iterable[Change]) -> set[Topic] | None:
    """Return the topics of changes; None if they concern everything."""
    write_set = WriteSet()
    write_set.add(changes)
    if write_set.anything:
        return None
    changed: set[Topic] = {ANYTHING}
    for scope, predicate, _ in write_set.asserted | write_set.removed:
        changed |= {(FACTS, scope or ""), (FACTS, scope or "", predicate)}
        if scope is not None:
            changed.add((SCOPES,))
    if write_set.rules:
        changed |= {(RULES,), (SCOPES,)}
    return changed
