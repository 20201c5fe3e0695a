"""Goals and patterns of Python programs: a text, or a predicate with arguments."""

from __future__ import annotations

from collections.abc import Sequence

from kbcore.errors import InvalidInput
from kbcore.python_values import positive, refuse_atom, text
from kbcore.reason.budget import RequestLimits
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.syntax.jsonform import literal_from_json
from kbplanner.syntax.parser import parse_body
from kbplanner.syntax.textform import literal_from_text
from kbtypes.values import Arg


def body_of(goal: str, args: Sequence[Arg] | None) -> tuple[BodyItem, ...]:
    """Return the items of a goal: a text of one or more, or a predicate with arguments.

    Raises InvalidInput, RuleSyntaxError.
    """
    if args is not None:
        return (literal_of(goal, args),)
    return parse_body(text("goal", goal))


def literal_of(goal: str, args: Sequence[Arg] | None, field: str = "goal") -> Literal:
    """Return a goal of one atom: a text, or a predicate with arguments.

    Raises InvalidInput that names `field` for a text.
    """
    if args is None:
        return literal_from_text(text(field, goal), field)
    if isinstance(args, str):
        raise InvalidInput.at("args", "must be a list, not one string")
    refuse_atom(field, goal)
    return literal_from_json(goal, list(args))


def request_limits(timeout_ms: int | None) -> RequestLimits | None:
    """Return the limits of a call, None for those of the settings; raise InvalidInput."""
    return None if timeout_ms is None else RequestLimits(positive("timeout_ms", timeout_ms))
