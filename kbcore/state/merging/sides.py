"""Both sides of a merge conflict: the facts of each scope, and which of them the target keeps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Keep(Enum):
    """The facts that remain in the target after a conflict.

    SOURCE and TARGET: exactly those of that scope. BOTH: those of both; two facts of the same sign
    become one with the higher confidence (unknown counts as 1), the metadata of both (the source
    wins for a key in both), the earlier creation time, and the smallest window that contains both
    windows. FACTS: a given list of facts. REFUSE: the merge is rejected.
    """

    SOURCE = "source"
    TARGET = "target"
    BOTH = "both"
    FACTS = "facts"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class ConflictingFact:
    """One fact at the predicate and arguments of a conflict: its sign and its attributes.

    Times are epoch milliseconds: the fact is valid from `valid_from` up to, but not at,
    `valid_until` (None: no end). `confidence` is 0 to 1, None for unknown.
    """

    positive: bool
    created_at: int
    valid_from: int
    valid_until: int | None = None
    confidence: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
