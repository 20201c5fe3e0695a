"""The request for a context window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbplanner.ir.terms import Literal

MAX_FACTS = 100
"""Facts in a window where nobody says."""

FILL_NONE = "none"
FILL_SALIENCE = "salience"
FILLS = (FILL_NONE, FILL_SALIENCE)
"""The filling of capacity that goals and query leave: nothing, or the most salient facts."""


STRUCTURED = "structured"
NATURAL = "natural"
FACTS = "facts"
FORMATS = (STRUCTURED, NATURAL, FACTS)
"""The forms in which a window is sent: entries alone, or also a text of sentences or of facts in the rule language."""


@dataclass(frozen=True, slots=True)
class Bucket:
    """A share of the window: facts of some predicates (None: of any), by weight among all buckets."""

    name: str
    predicates: tuple[str, ...] | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """How a window is to be made.

    At most `max_facts` facts, `max_tokens` tokens of the text in `format` (None: no such limit; `structured` is measured as
    the text that `facts` gives) and `max_per_predicate` facts of one predicate; none below `min_salience` (0 to 1) except
    those that goals depend on.

    `query` is free text: the facts that match it come first, the best matches at the head. Those below `min_relevance` (0 to
    1, a share of the best match) do not count as matches. `asker` is the constant that "I" in the query stands for. `fill`
    says whether the room that goals and query leave is filled with the most salient facts: FILL_NONE, FILL_SALIENCE, or None
    for FILL_NONE where there are goals or a query.

    `goals` are to be proved, `session` names the window that later ones are compared with. `predicates` are those whose
    facts may be in the window (None: any). `include_rules` says whether rules come with the facts (None: when there are
    goals). `explain` asks for why each entry was taken and what was cut.
    """

    max_facts: int = MAX_FACTS
    max_tokens: int | None = None
    min_salience: float = 0.0
    predicates: tuple[str, ...] | None = None
    scope: str | None = None
    goals: Sequence[Literal] = ()
    session: str | None = None
    buckets: Sequence[Bucket] = ()
    max_per_predicate: int | None = None
    auto_resolve: bool = True
    include_rules: bool | None = None
    format: str = STRUCTURED
    query: str | None = None
    asker: str | None = None
    min_relevance: float = 0.0
    fill: str | None = None
    explain: bool = False

    @property
    def with_rules(self) -> bool:
        """True if rules are included with the facts."""
        return bool(self.goals) if self.include_rules is None else self.include_rules

    @property
    def fills_by_salience(self) -> bool:
        """Whether facts that neither goals nor the query ask for may enter."""
        if self.fill is None:
            return not self.goals and self.query is None
        return self.fill == FILL_SALIENCE

    @property
    def fills_buckets_by_salience(self) -> bool:
        """Whether buckets take facts that neither goals nor the query ask for: a bucket asks for facts of its own."""
        return self.fills_by_salience or (self.fill is None and self.query is None)

    @property
    def optimizes(self) -> bool:
        """True if the request has goals, a session or buckets."""
        return bool(self.goals or self.session is not None or self.buckets)
