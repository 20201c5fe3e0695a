"""Options of queries: those of a request, and those of one goal in one partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from kbcore.reason.budget import RequestLimits


@dataclass(frozen=True, slots=True)
class AnswerOptions:
    """Options of a query: where it is evaluated, as of when, and which answers are returned.

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
    `counts_accesses` says whether stored answers count as accessed.
    """

    as_of: int | None = None
    first: int | None = None
    include_undefined: bool = False
    returns_all: bool = False
    counts_accesses: bool = True


DEFAULT_OPTIONS = AnswerOptions()
DEFAULT_GOAL = GoalOptions()
