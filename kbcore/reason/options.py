"""Options of queries: those of a request, and those of one goal in one partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kbcore.reason.budget import RequestLimits
from kbplanner.evaluate.deferred import DeferredRows


@dataclass(frozen=True, slots=True)
class FactOptions:
    """Options of a search for stored facts: where, as of when, and which facts are returned.

    `scope`, `limit`, `offset`, `as_of` and `request_limits` are as in `AnswerOptions`. `contains`
    selects the facts of which an argument contains this text, whatever the case of its letters; an
    empty text selects every fact.
    """

    scope: str | None = None
    limit: int | None = None
    offset: int = 0
    as_of: int | None = None
    contains: str = ""
    request_limits: RequestLimits | None = None

    @property
    def folded(self) -> str:
        """The text that an argument contains, case-folded."""
        return self.contains.casefold()

    @property
    def is_page(self) -> bool:
        """True if a part of the matching facts is requested, so that other parts may follow."""
        return self.limit is not None or self.offset > 0


class AnswerOptions(NamedTuple):
    """Options of a query: where it is evaluated, as of when, and which answers are returned.

    A named tuple, because some are made for every query and a dataclass takes longer to make.

    `scope` is a partition, None for the base partition, or "*" for every partition, each evaluated
    separately; `limit` and `offset` apply to the answers of all partitions together. Answers with a
    confidence below `min_confidence` are left out. `as_of` (epoch milliseconds) evaluates validity
    at that point in time. `include_undefined` adds the answers that recursion through negation
    leaves undefined; their metadata has `truth` "undefined". `request_limits` lowers the limits of
    the settings for this query.
    """

    scope: str | None = None
    limit: int | None = None
    offset: int = 0
    min_confidence: float | None = None
    as_of: int | None = None
    include_undefined: bool = False
    request_limits: RequestLimits | None = None


class GoalOptions(NamedTuple):
    """Options of one goal in one partition.

    A named tuple, because some are made for every goal and a dataclass takes longer to make.

    `first` is the number of leading answers that are read; None means all. With `returns_all` all
    answers are returned to the client, so that their number is checked before they are sorted.
    `counts_accesses` says whether stored answers count as accessed, `uses_tables` whether goal
    tables are read and stored. Many answers may be left in `deferred`, in place of their rows.
    """

    as_of: int | None = None
    first: int | None = None
    include_undefined: bool = False
    returns_all: bool = False
    counts_accesses: bool = True
    uses_tables: bool = True
    deferred: DeferredRows | None = None


DEFAULT_OPTIONS = AnswerOptions()
DEFAULT_FACTS = FactOptions()
DEFAULT_GOAL = GoalOptions()
