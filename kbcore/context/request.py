"""The request for a context window."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from kbcore.errors import InvalidInput
from kbplanner.ir.terms import BodyItem, Literal
from kbplanner.syntax.printer import print_item
from kbplanner.syntax.textform import body_from_text, literal_from_text
from kbtypes.windows import ADAPTER_PREDICATES, Bucket

MAX_FACTS = 100
"""Default maximum number of facts in a window."""

MAX_GOALS = 250
"""Maximum number of goals of a window."""

MAX_BUCKETS = 100
"""Maximum number of buckets of a window."""

MAX_QUERY_BYTES = 64 * 1024
"""Maximum size of a query of a window in UTF-8, and of the name of its asker, as of a goal."""

FILL_NONE = "none"
FILL_SALIENCE = "salience"
FILLS = (FILL_NONE, FILL_SALIENCE)
"""The filling of capacity that goals and query leave: nothing, or the most salient facts."""


STRUCTURED = "structured"
NATURAL = "natural"
FACTS = "facts"
FORMATS = (STRUCTURED, NATURAL, FACTS)
"""The forms in which a window is sent: entries alone, or also a text of sentences or of facts in
the rule language.
"""

DAY = "day"
MINUTE = "minute"
TIMES = (DAY, MINUTE)
"""How exactly the text of a window shows times."""

CITATIONS_TEXT = "text"
"""The value of `citations` with which the text also has the sources."""


@dataclass(frozen=True, slots=True)
class ConjunctiveGoal:
    """A goal of several literals and comparisons, which must hold together.

    Its answers are the facts and conclusions that its positive literals become.
    """

    body: tuple[BodyItem, ...]


Goal = Literal | ConjunctiveGoal
"""A goal of a window."""


def goal_from_text(text: str, path: str) -> Goal:
    """Read a goal of a window: one literal, or several items that must hold together.

    Raises InvalidInput that names `path`, as for a goal without a literal that could be an answer,
    and RuleSyntaxError.
    """
    body = body_from_text(text, path)
    if len(body) == 1:
        return literal_from_text(text, path)
    if all(not isinstance(item, Literal) or item.negated for item in body):
        raise InvalidInput.at(path, "needs at least one literal without `not`")
    return ConjunctiveGoal(body)


def items_of(goal: Goal) -> tuple[BodyItem, ...]:
    """Return the literals and comparisons of a goal."""
    return goal.body if isinstance(goal, ConjunctiveGoal) else (goal,)


def goal_text(goal: Goal) -> str:
    """Return a goal in the rule language."""
    return ", ".join(map(print_item, items_of(goal)))


@dataclass(frozen=True, slots=True)
class SaidIn:
    """The conversations of which a window has facts: one session, those of one agent, or both."""

    session: str | None = None
    agent: str | None = None


@dataclass(frozen=True, slots=True)
class AllBut(Container[str]):
    """All names but some."""

    names: frozenset[str]

    def __contains__(self, name: object) -> bool:
        return name not in self.names


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """The parameters of a context window.

    The window holds at most `max_facts` facts, `max_tokens` tokens of the text in `format` (None:
    no limit; `structured` is measured as the text of `facts`) and `max_per_predicate` facts per
    predicate. Facts below `min_salience` (0 to 1) are left out unless a goal depends on them.

    `query` is free text: matching facts come first, best match first. Facts below `min_relevance`
    (0 to 1, a share of the best match) do not count as matches. Unless some fact has `min_coverage`
    (0 to 1) of the words of the query, by their weights, no fact does. `asker` is the constant that
    "I" in the query refers to; its facts `instruction(asker, text)` come first, in at most a
    quarter of the facts and of the text. `fill` selects whether the capacity left by goals and
    query is filled with the most salient facts: FILL_NONE, FILL_SALIENCE, or None, which means
    FILL_NONE if there are goals or a query.

    `goals` are evaluated and their proofs included. `session` names the conversation whose windows
    are compared. `predicates` limits the facts of the window (None: any). `include_rules` adds
    rules to the facts (None: when there are goals). `explain` requests why each entry was selected
    and what was cut. `citations` requests numbers of sources after the facts that have evidence,
    and with CITATIONS_TEXT also the sources, as footnotes. `times` is one of TIMES. With `said_in`,
    only facts with evidence in these conversations match the query.
    """

    max_facts: int = MAX_FACTS
    max_tokens: int | None = None
    min_salience: float = 0.0
    predicates: tuple[str, ...] | None = None
    scope: str | None = None
    goals: Sequence[Goal] = ()
    session: str | None = None
    buckets: Sequence[Bucket] = ()
    max_per_predicate: int | None = None
    auto_resolve: bool = True
    include_rules: bool | None = None
    format: str = STRUCTURED
    query: str | None = None
    asker: str | None = None
    min_relevance: float = 0.0
    min_coverage: float = 0.0
    fill: str | None = None
    explain: bool = False
    citations: bool | str = False
    times: str = DAY
    said_in: SaidIn | None = None

    @property
    def admitted(self) -> Container[str]:
        """The predicates that the window may have: `predicates`, by default all but
        ADAPTER_PREDICATES that no goal and no bucket names.
        """
        if self.predicates is not None:
            return frozenset(self.predicates)
        items = (item for goal in self.goals for item in items_of(goal))
        asked = {item.atom.predicate for item in items if isinstance(item, Literal)}
        return AllBut(
            ADAPTER_PREDICATES.difference(asked, *(each.predicates or () for each in self.buckets))
        )

    @property
    def with_rules(self) -> bool:
        """True if rules are included with the facts."""
        return bool(self.goals) if self.include_rules is None else self.include_rules

    @property
    def fills_by_salience(self) -> bool:
        """Return whether facts that match neither goals nor the query may fill the window."""
        if self.fill is None:
            return not self.goals and self.query is None
        return self.fill == FILL_SALIENCE

    @property
    def fills_buckets_by_salience(self) -> bool:
        """Return whether buckets accept facts that match neither goals nor the query.

        If `fill` is None, they do unless there is a query, because a bucket names its own facts.
        """
        return self.fills_by_salience or (self.fill is None and self.query is None)

    @property
    def optimizes(self) -> bool:
        """True if the request has goals, a session or buckets."""
        return bool(self.goals or self.session is not None or self.buckets)
