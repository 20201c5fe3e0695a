"""Context window: the facts for a prompt, in order, and the omitted facts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

GOAL_RELEVANT = "goal_relevant"
INFERRED = "inferred"
CONSOLIDATED = "consolidated"
EPHEMERAL = "ephemeral"
RECENT = "recent"
ASSERTED = "asserted"
OVERFLOW = "overflow"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a conclusion: the text of a rule and of the premises of one instance.

    `tests` are the positions of premises that are no facts, such as comparisons and absences.
    """

    rule: str
    premises: tuple[str, ...]
    tests: frozenset[int] = frozenset()

    @property
    def signed(self) -> tuple[str, ...]:
        """The premises with `~` before explicit negatives, so that `not` is only before conditions
        that hold because nothing is known.
        """
        return tuple(
            f"~{text.removeprefix('not ')}"
            if text.startswith("not ") and index not in self.tests
            else text
            for index, text in enumerate(self.premises)
        )


ABSENCE = "negation as failure"
"""Rule text in the provenance of a negated goal that holds because its opposite cannot be
derived.
"""

UNPROVED = Provenance("", ())
"""Provenance of a conclusion whose proof exceeds the limits of the request."""

MATCH, OTHER, VIOLATION = "match", "other", "violation"
"""Roles of entries without a goal: they match the query, fill the window, or report a violation."""


QUERY = ""
"""In place of the goal of a note: the note is about the query."""


@dataclass(frozen=True, slots=True)
class GoalNote:
    """A remark of the text of a window about a goal, or about its query, besides its facts.

    A remark that nothing matches the query has QUERY in place of the goal. `unanswered` is True if
    the goal has no answer, `denied` if it is negated and does not hold;
    `unmet` are the conditions that are not met, for each of its rules. `elsewhere` are answers
    whose entries are listed for another goal, and `elsewhere_more` is the number of further ones.
    `cut` is True if answers are not in the window because of its limits, `maybe_more` if the window
    was full before all answers were looked for. `contradicted` is the number of answers on the
    losing side of a contradiction. `unproved` is True if answers have no premises, because their
    proofs exceed the limits of the request.
    """

    goal: str
    unanswered: bool = False
    denied: bool = False
    unmet: tuple[str, ...] = ()
    elsewhere: tuple[str, ...] = ()
    elsewhere_more: int = 0
    cut: bool = False
    maybe_more: bool = False
    contradicted: int = 0
    unproved: bool = False


SpanKey = tuple[str, int | None, int | None]
"""Id of an episode, and start and end in it, None for the whole episode."""


class Entry(NamedTuple):
    """A fact in a window; times in epoch milliseconds.

    `text` is the fact in the rule language, `char_count` its length. `why` is the reason for the
    selection, if requested. `confidence` is 0 to 1, None if unknown. `contradicted` is True if the
    opposite is stored or derivable too. `goal` is the text of the goal that the entry was selected
    for, `role` says what selected an entry without a goal. `evidence` are the spans that support a
    stored fact, or the facts that a conclusion depends on, `citations` their numbers among the
    sources of the window, None unless they are requested and the fact has any.
    """

    predicate: str
    args: tuple[str, ...]
    negated: bool
    scope: str | None
    salience: float
    category: str
    text: str
    created_at: int
    provenance: Provenance | None = None
    valid_from: int | None = None
    valid_until: int | None = None
    metadata: Mapping[str, Any] = MappingProxyType({})
    why: Mapping[str, Any] | None = None
    confidence: float | None = None
    contradicted: bool = False
    goal: str | None = None
    evidence: tuple[SpanKey, ...] = ()
    citations: tuple[int, ...] | None = None
    role: str = MATCH

    @property
    def signed(self) -> str:
        """The fact in the rule language, an explicit negative with `~`."""
        return f"~{self.text.removeprefix('not ')}" if self.negated else self.text

    @property
    def char_count(self) -> int:
        """Number of characters of the text."""
        return len(self.text)

    @property
    def key(self) -> str:
        """Key in diffs: `predicate/arg1/arg2`, prefixed `not:` if negative, with the suffix
        `@scope`.

        The suffix is omitted in the default partition. `/` and `%` inside an argument are
        percent-encoded.
        """
        return fact_key(self.predicate, self.args, negated=self.negated, scope=self.scope)


@dataclass(frozen=True, slots=True)
class Contradiction:
    """An atom known with both signs, with the salience of each."""

    predicate: str
    args: tuple[str, ...]
    positive_salience: float
    negative_salience: float


@dataclass(frozen=True, slots=True)
class BucketStats:
    """The outcome of a bucket."""

    facts_included: int
    max_allocation: int
    min_salience: float
    max_salience: float


@dataclass(frozen=True, slots=True)
class Window:
    """A completed window; `generated_at` in epoch milliseconds.

    `available` is the number of candidate facts. `savings` counts the facts that were left out
    because another entry has the same content. `contradictions` lists the first ones detected; for
    `resolved` ones the losing sign was left out. `cut` says, if requested, what else was left out
    and why. `text` is the window in the requested format (`structured`: the text of `facts`), and
    `tokens` is its number of tokens. `notes` are what the text says about goals. `sources` are the
    cited spans with `number` and text, if citations are requested. `index_progress` is the share of
    facts in which the words of the query were searched, 0 to 1, None if it is all.
    `vectors_missing` is the number of facts that have no vector yet, None if all have one or there
    is no embedder.
    """

    id: str
    entries: tuple[Entry, ...]
    rules: tuple[str, ...]
    available: int
    savings: int
    contradictions: tuple[Contradiction, ...]
    contradictions_found: int
    resolved: int
    buckets: Mapping[str, BucketStats]
    goal_driven: bool
    generation: int
    generated_at: int
    cut: Mapping[str, Any] | None = None
    text: str = ""
    tokens: int = 0
    sources: tuple[Mapping[str, Any], ...] | None = None
    notes: tuple[GoalNote, ...] = ()
    index_progress: float | None = None
    vectors_missing: int | None = None

    @property
    def chars(self) -> int:
        """Number of characters of all entries."""
        return sum(entry.char_count for entry in self.entries)


def is_absence(entry: Entry) -> bool:
    """Return whether an entry says that a fact cannot be derived."""
    return entry.provenance is not None and entry.provenance.rule == ABSENCE


def fact_key(predicate: str, args: Sequence[str], *, negated: bool, scope: str | None) -> str:
    """Return the key of a fact: `predicate/arg1/arg2`, prefixed `not:`, with the suffix
    `@scope`.
    """
    path = "/".join([predicate, *map(quote_part, args)])
    return ("not:" if negated else "") + path + ("" if scope is None else f"@{scope}")


def quote_part(arg: str) -> str:
    """Return an argument encoded as part of a key."""
    return arg.replace("%", "%25").replace("/", "%2F")
