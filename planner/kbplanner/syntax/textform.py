"""Atoms and goals given as text where JSON usually has an object: `"parent(ann, ?x)"`.

Every reader names the field that holds the text, and keeps the line and column of each syntax
error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kbplanner.errors import InvalidInput, RuleSyntaxError
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.syntax.parser import parse_atom, parse_body

T = TypeVar("T")


def atom_from_text(text: str, path: str = "text", limits: Limits = DEFAULT_LIMITS) -> Atom:
    """Read a signed atom: a fact or a pattern; `~p(a)` and `not p(a)` are both the explicit
    negative.

    Raises InvalidInput naming `path`, RuleSyntaxError where the text has a position to report.
    """
    return _read(parse_atom, text, path, limits)


def body_from_text(
    text: str, path: str = "text", limits: Limits = DEFAULT_LIMITS
) -> tuple[BodyItem, ...]:
    """Read the items of a goal. Raises as `atom_from_text` does."""
    return _read(parse_body, text, path, limits)


def item_from_text(text: str, path: str = "text", limits: Limits = DEFAULT_LIMITS) -> BodyItem:
    """Read one body item: a literal, a comparison or a string test. Raises as `atom_from_text`
    does.
    """
    body = body_from_text(text, path, limits)
    if len(body) != 1:
        raise InvalidInput.at(path, f"must be one atom, found {len(body)} separated by commas")
    return body[0]


def literal_from_text(text: str, path: str = "text", limits: Limits = DEFAULT_LIMITS) -> Literal:
    """Read a goal of one atom: `p(?x)`, `not p(a)` or `~p(?x)`. Raises as `atom_from_text` does."""
    item = item_from_text(text, path, limits)
    if not isinstance(item, Literal):
        raise InvalidInput.at(
            path,
            "is a builtin, which has no answers of its own; to mean a predicate, quote its name",
        )
    return item


def _read(parse: Callable[[str, Limits], T], text: str, path: str, limits: Limits) -> T:
    try:
        return parse(text, limits)
    except RuleSyntaxError as error:
        raise error.within(path) from None
    except InvalidInput as error:
        raise InvalidInput.at(path, error.message) from None
