"""Context windows: bodies and answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from kbcore.context.diff import WindowDiff
from kbcore.context.removed import REASONS
from kbcore.context.request import (
    CITATIONS_TEXT,
    FACTS,
    FILLS,
    FORMATS,
    MAX_GOALS,
    STRUCTURED,
    TIMES,
    Goal,
    WindowRequest,
    goal_from_text,
)
from kbcore.context.text.render import render_changes
from kbcore.errors import InvalidInput
from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.budget import RequestLimits
from kbplanner.pacing import current_yield, paced
from kbplanner.syntax.jsonform import goal_from_json
from kbserver.http.request_context import runtime
from kbserver.schemas.atoms import predicates_given
from kbserver.schemas.base import Body, LeanAnswer, Part, answer_of
from kbserver.schemas.facts import QuotationShown
from kbserver.schemas.fields import (
    ByName,
    Choice,
    Count,
    Flag,
    Fraction,
    Json,
    ListOfForms,
    Many,
    Name,
    Number,
    Object,
    One,
    Predicates,
    ReadScope,
    Text,
    Time,
    Value,
    Whole,
)
from kbserver.schemas.requests import Budgeted, Historic, request_limits
from kbserver.schemas.rules import AsText, BodyAtom
from kbtypes import windows
from kbtypes.windows import Bucket, Window

TEXT = "text"
"""The format of an answer that is only the text for a prompt."""

MAX_FACTS = 10_000
"""Limit on the facts of a window."""


GOALS_PER_YIELD = 10
"""Goals read between two calls of `yield_now`: a millisecond or two."""


class Goals(ListOfForms):
    """The goals of a window, checked one by one."""

    def __init__(self) -> None:
        super().__init__(
            BodyAtom,
            AsText,
            {"type": "string"},
            description="Goals, as objects or as text such as `ancestor(ann, ?who)` or, with several "
            "literals and comparisons, `lived_in(ann, ?city, ?year), ?year < 2020`; the window "
            "holds what their answers depend on.",
        )


class Compat(Flag):
    """The choice between an answer for older clients and one that has each fact once."""

    def __init__(self) -> None:
        super().__init__(
            "False: the window has each fact and rule once, in `entries` and `relevantRules`. "
            "Default: the setting CONTEXT_COMPAT."
        )


def compat_of(fields: Json) -> bool:
    """Remove `compat` from the fields of a body and return it, or the setting if it is absent."""
    compat: bool | None = fields.pop("compat", None)
    return runtime().config.context_compat if compat is None else compat


class Citations(Value):
    """A boolean, or CITATIONS_TEXT."""

    schema: ClassVar[Json] = {
        "anyOf": [{"type": "boolean"}, {"type": "string", "enum": [CITATIONS_TEXT]}]
    }

    def read(self, value: Any) -> bool | str:
        """Return the value."""
        if type(value) is not bool and value != CITATIONS_TEXT:
            raise ValueError(f'must be true, false or "{CITATIONS_TEXT}"')
        choice: bool | str = value
        return choice


class BucketPart(Part):
    """A share of a window."""

    name = Text(required=True, schema={"minLength": 1})
    predicates = Predicates()
    weight = Number(above=0, high=1e9, schema={"default": 1.0})


class OptimizeBody(Budgeted):
    """A window for goals, as the route that `/memory/context` replaces takes it."""

    max_facts = Whole(1, MAX_FACTS)
    goals = Goals()
    buckets = ListOfForms(
        BucketPart,
        data_key="relevanceBuckets",
        description="Shares of the window, in order; `predicates` null is any.",
    )
    scope = ReadScope()
    predicates = Predicates()
    session = Name("a session", data_key="sessionId")
    auto_resolve = Flag(data_key="autoResolveContradictions")
    max_per_predicate = Whole(1, data_key="maxFactsPerPredicate")

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `select`."""
        compat = compat_of(fields)
        as_text = fields.get("format") == TEXT
        if as_text:
            fields["format"] = FACTS
        return {
            "request": WindowRequest(**window_fields(fields)),
            "request_limits": request_limits(fields),
            "compat": compat,
            "as_text": as_text,
        }


class WindowBody(OptimizeBody):
    """All parameters of a window."""

    max_tokens = Whole(1)
    min_salience = Fraction()
    format = Choice(*FORMATS)
    include_rules = Flag()
    query = Text()
    asker = Text()
    fill = Choice(*FILLS)
    min_relevance = Fraction()
    min_coverage = Fraction()
    explain = Flag()
    citations = Citations(
        "True: facts with evidence cite the `sources` of the answer. `text`: the text has them too."
    )
    times = Choice(*TIMES, description="How exactly the text shows times, in UTC; default: `day`.")


class ContextBody(WindowBody, Historic):
    """A window to select, and the form of the answer."""

    format = Choice(*FORMATS, TEXT)
    compat = Compat()

    def _arguments(self, fields: Json) -> Json:
        if "known_at" in fields and "session" in fields:
            raise InvalidInput.at(
                "knownAt", "cannot be combined with 'sessionId': sessions are of the present"
            )
        return super()._arguments(fields)


class ContextDiffBody(WindowBody):
    """A session, and the parameters that differ from those of its last window."""

    session = Name("a session", data_key="sessionId", required=True)

    def arguments(self, fields: Json) -> Json:
        """Return the arguments of `TenantKB.context_diff`."""
        changes = window_fields(fields)
        session = changes.pop("session")
        return {"session": session, "changes": changes, "request_limits": request_limits(fields)}


class ContextClearBody(Body):
    """A session whose last window is to be deleted."""

    session = Name("a session", data_key="sessionId", required=True)


def window_fields(fields: Json) -> Json:
    """Return the fields of a WindowRequest that a body gives; raises InvalidInput."""
    arguments = {name: value for name, value in fields.items() if name not in _BUDGET}
    if "predicates" in arguments:
        arguments["predicates"] = predicates_given(arguments["predicates"], "predicates")
    if "goals" in arguments:
        arguments["goals"] = _goals(arguments["goals"])
    if "buckets" in arguments:
        arguments["buckets"] = _buckets(arguments["buckets"])
    return arguments


_BUDGET = frozenset(Budgeted().fields)

_Salience = partial(Number, "0 to 1, and above for facts that goals depend on.")


Provenance = answer_of(windows.Provenance, "Provenance", tests=None)


class Entry(LeanAnswer):
    """A fact in a window."""

    predicate = Text()
    args = Many(Text())
    negated = Flag()
    scope = Text(allow_none=True)
    salience = _Salience()
    category = Text(
        "The name of a bucket, or such as `goal_relevant`, `inferred`, `recent`, `asserted`."
    )
    char_count = Count()
    provenance = One(Provenance, allow_none=True)
    created_at = Time()
    valid_from = Time(allow_none=True)
    valid_until = Time(allow_none=True)
    metadata = Object(write=dict)
    contradicted = Flag(
        "The opposite is stored or derivable too; this side was kept or neither was left out."
    )
    why = Object(write=dict, optional=True)
    citations = Many(Count(), "Numbers of the sources of the fact.", write=list, optional=True)
    excerpt = Text(
        "The part of a text that was said which the text of the window has, if it is not all.",
        optional=True,
    )


class SourceShown(QuotationShown):
    """A cited span of an episode."""

    number = Count()


ContradictionShown = answer_of(windows.Contradiction, "ContradictionShown")
BucketShown = answer_of(windows.BucketStats, "BucketShown")


@dataclass(frozen=True, slots=True)
class SelectedWindow:
    """A window, the request it was selected for, and the form of the answer.

    `compat` repeats members under the names that older clients read; `as_text` asks for the text of
    the window alone.
    """

    window: Window
    request: WindowRequest
    compat: bool = True
    as_text: bool = False

    @property
    def optimized(self) -> Window | None:
        """The window if its request needs the optimizer, otherwise None."""
        return self.window if self.request.optimizes else None

    @property
    def text(self) -> str | None:
        """The text of the window if a text was requested."""
        return None if self.request.format == STRUCTURED else self.window.text

    @property
    def distribution(self) -> dict[str, int]:
        """The number of entries of each predicate."""
        return dict(Counter(entry.predicate for entry in self.window.entries))

    @property
    def cut(self) -> Json | None:
        """The facts that were left out, if the request asks for explanations."""
        return None if self.window.cut is None else dict(self.window.cut)


_ALIAS = "Unless `compat` is false, the same as"


RuleInSetShown = answer_of(windows.RuleInSet, "RuleInSet")


def _alias(value_of: Callable[[Window], Any]) -> Callable[[SelectedWindow], Any]:
    """Return a function that gives a value of a window for older clients, else None."""
    return lambda selected: value_of(selected.window) if selected.compat else None


class WindowBase(LeanAnswer):
    """The members that every window has."""

    window_id = Text(of="window.id")
    entries = Many(Entry, of="window.entries")
    facts = Many(Entry, f"{_ALIAS} `entries`.", of=_alias(lambda window: ()), optional=True)
    relevant_rules = Many(Text(), of="window.rules")
    rules = Many(
        Text(), f"{_ALIAS} `relevantRules`.", of=_alias(lambda window: window.rules), optional=True
    )
    rule_sets = Many(
        RuleInSetShown,
        "The rule sets of the rules that belong to any.",
        of="window.rule_sets",
        optional=True,
    )
    total_facts_available = Count(of="window.available")
    total_available = Count(
        f"{_ALIAS} `totalFactsAvailable`.",
        of=_alias(lambda window: window.available),
        optional=True,
    )
    total_facts_included = Count(of=lambda selected: len(selected.window.entries))
    window_size = Count(
        f"{_ALIAS} `totalFactsIncluded`.",
        of=_alias(lambda window: len(window.entries)),
        optional=True,
    )
    predicate_distribution = ByName(Count(), of="distribution")
    total_char_count = Count(of="window.chars")
    token_estimate = Count(
        "Tokens of the text in the requested format; of `structured` that of `facts`.",
        of="window.tokens",
    )
    generated_at = Time(of="window.generated_at")
    index_progress = Number(
        "While the word index is made: the share of facts in which the words of `query` were "
        "searched, 0 to 1.",
        of="window.index_progress",
        optional=True,
    )
    vectors_missing = Count(
        "With an embedder: the facts that have no vector yet, and are found by their words only.",
        of="window.vectors_missing",
        optional=True,
    )

    def dump(self, obj: Any, *, many: bool | None = None) -> Any:
        """Return the window as JSON; `facts` is `entries` once more."""
        window = super().dump(obj, many=many)
        if "facts" in window:
            window["facts"] = window["entries"]
        return window


def _optimized(name: str) -> Any:
    return lambda selected: selected.optimized and getattr(selected.window, name)


class AnyWindow(WindowBase):
    """A window; one that goals, a session or buckets ask for has every member of Window."""

    deduplication_savings = Count(of=_optimized("savings"), optional=True)
    contradictions_found = Count(of=_optimized("contradictions_found"), optional=True)
    contradictions_resolved = Count(of=_optimized("resolved"), optional=True)
    contradictions = Many(ContradictionShown, of=_optimized("contradictions"), optional=True)
    bucket_stats = ByName(BucketShown, of=_optimized("buckets"), optional=True)
    goal_driven = Flag(of=_optimized("goal_driven"), optional=True)
    knowledge_generation = Count(of=_optimized("generation"), optional=True)
    formatted_text = Text("With `format: natural` or `facts`.", of="text", optional=True)
    cut = Object("With `explain: true`: what was left out, and why.", optional=True)
    sources = Many(
        SourceShown, "With `citations: true`: what was said.", of="window.sources", optional=True
    )


class WindowAnswer(WindowBase):
    """A window with every member."""

    deduplication_savings = Count(of="window.savings")
    contradictions_found = Count(of="window.contradictions_found")
    contradictions_resolved = Count(of="window.resolved")
    contradictions = Many(ContradictionShown, of="window.contradictions")
    bucket_stats = ByName(BucketShown, of="window.buckets")
    goal_driven = Flag(of="window.goal_driven")
    knowledge_generation = Count(of="window.generation")
    formatted_text = Text("With `format: natural` or `facts`.", of="text", optional=True)
    cut = Object("With `explain: true`: what was left out, and why.", optional=True)


class AddedEntry(Entry):
    """An entry that the earlier window did not have."""

    key = Text()


class RemovedEntry(LeanAnswer):
    """An entry that the new window does not have."""

    key = Text()
    predicate = Text(of="entry.predicate")
    args = Many(Text(), of="entry.args")
    negated = Flag(of="entry.negated")
    scope = Text(of="entry.scope", allow_none=True)
    reason = Choice(
        *REASONS,
        description="Why it is not in the new window. With `superseded` and `not_selected` it is "
        "still true.",
    )


def _text_of_changes(diff: WindowDiff) -> str | None:
    return None if diff.format == STRUCTURED else render_changes(diff, diff.format)


class WindowDiffAnswer(LeanAnswer):
    """The changes since the last window of a session."""

    previous_window_id = Text(of="previous", allow_none=True)
    current_window_id = Text(of="current")
    added = Many(AddedEntry)
    removed = Many(RemovedEntry)
    unchanged = Count()
    full_refresh_recommended = Flag(of="refresh")
    reason = Text(allow_none=True)
    formatted_text = Text(
        "With `format: natural` or `facts`: the changes as text.",
        of=_text_of_changes,
        optional=True,
    )
    index_progress = Number("That of the current window.", optional=True)
    vectors_missing = Count("That of the current window.", optional=True)


def _goals(goals: Any) -> tuple[Goal, ...]:
    if type(goals) is not list:
        raise InvalidInput.at("goals", "must be an array of goals")
    if len(goals) > MAX_GOALS:  # before any of them is read
        raise InvalidInput.at(
            "goals", f"has {len(goals)} elements; a window has at most {MAX_GOALS}"
        )
    return tuple(
        _goal(goal, f"goals[{index}]")
        for index, goal in enumerate(paced(goals, current_yield(), GOALS_PER_YIELD))
    )


def _goal(goal: Any, path: str) -> Goal:
    if type(goal) is str:
        return goal_from_text(goal, path)
    if type(goal) is dict and goal.keys() == {"text"} and type(goal["text"]) is str:
        return goal_from_text(goal["text"], f"{path}.text")
    return goal_from_json(goal, path)


def _buckets(values: Any) -> tuple[Bucket, ...]:
    if type(values) is not list:
        raise InvalidInput.at("relevanceBuckets", "must be an array of buckets")
    buckets: dict[str, Bucket] = {}
    for index, value in enumerate(values):
        path = f"relevanceBuckets[{index}]"
        if type(value) is not dict:
            raise InvalidInput.at(path, "must be an object")
        name, weight = value.get("name"), value.get("weight")
        weight = 1.0 if weight is None else weight
        if type(name) is not str or not name:
            raise InvalidInput.at(f"{path}.name", "must be a text that is not empty")
        if name in buckets:
            raise InvalidInput.at(f"{path}.name", "is the name of another bucket")
        if type(weight) not in (int, float) or not 0 < weight <= 1e9:
            raise InvalidInput.at(f"{path}.weight", "must be a number above 0")
        predicates = value.get("predicates")
        if predicates is not None:
            predicates = predicates_given(predicates, f"{path}.predicates")
        buckets[name] = Bucket(name, predicates, float(weight))
    return tuple(buckets.values())


def select(
    kb: TenantKB,
    *,
    request: WindowRequest,
    request_limits: RequestLimits | None = None,
    compat: bool = True,
    as_text: bool = False,
) -> SelectedWindow:
    """Return the window that a request selects."""
    window = kb.context(request, request_limits=request_limits)
    return SelectedWindow(window, request, compat, as_text)
