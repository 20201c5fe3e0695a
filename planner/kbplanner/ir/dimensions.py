"""Dimensions of labels: the levels and groups that stored items can be labelled with."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

from kbplanner.ir.limits import DEFAULT_LIMITS, Limits

LEVELS, GROUPS = "levels", "groups"
"""The words of the declarations."""

MAX_VALUES = 64
"""Maximum number of levels or groups of a dimension."""

FACT_OPTIONS = ("confidence", "ttl", "scope", "validFrom", "validUntil", "metadata")
RULE_OPTIONS = ("confidence", "scope")
"""The options of statements, which no dimension can be named like."""

_RESERVED = frozenset((*FACT_OPTIONS, *RULE_OPTIONS, "strict"))

_NAME = re.compile(r"[a-z][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Dimension:
    """A dimension of labels, such as trust or team, with its values.

    If it is ordered the values are levels, the lowest first, and a label has one of them;
    otherwise they are groups, and a label has some of them. It is declared for the whole tenant:
    `scope` is None.
    """

    name: str
    values: tuple[str, ...]
    is_ordered: bool
    scope: str | None = None

    @property
    def signature(self) -> str:
        """The name, which identifies the dimension in its tenant."""
        return self.name


class WrittenLabel(NamedTuple):
    """An option of a statement that may be a label, as written: `trust=web`, `team=(hr, eng)`.

    The knowledge base in which the statement is stored declares what it means. Line and columns are
    those of its name, counted from 1; the last column is exclusive.
    """

    name: str
    values: tuple[str, ...]
    is_list: bool = False
    line: int = 1
    column: int = 1
    end_column: int = 2


def dimension_problem(dimension: Dimension, limits: Limits = DEFAULT_LIMITS) -> str | None:
    """Return what is wrong with a dimension; None if nothing is."""
    kind = LEVELS if dimension.is_ordered else GROUPS
    for name in (dimension.name, *dimension.values):
        if not _NAME.fullmatch(name):
            return (
                f"the names of {kind} begin with a lower-case letter and have at most 63 letters, "
                "digits and underscores"
            )
    if dimension.name in _RESERVED:
        return f'"{dimension.name}" is an option of statements, and cannot name {kind}'
    if dimension.scope is not None:
        return f"{kind} are declared for the whole tenant, without a scope"
    if len(set(dimension.values)) < len(dimension.values):
        return f"{kind} of a dimension have different names"
    if len(dimension.values) > MAX_VALUES:
        return f"a dimension has at most {MAX_VALUES} {kind}"
    if dimension.is_ordered and len(dimension.values) < 2:
        return "a dimension has two levels or more, the lowest first"
    return None
