"""Context windows of a knowledge base: what a model reads, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypedDict

from kbcore.context.diff import WindowDiff
from kbcore.context.request import (
    FACTS,
    STRUCTURED,
    Bucket,
    Goal,
    WindowRequest,
    goal_from_text,
)
from kbcore.context.summary import Summary
from kbcore.context.text.render import render_changes
from kbcore.context.window import Window
from kbcore.errors import InvalidInput
from kbcore.language.reading import first_lines
from kbcore.operations.episodes.recording import Source
from kbcore.operations.natural_language import Ingested
from kbcore.python_api.arguments import literal_of, request_limits
from kbcore.python_api.handle import Handle
from kbcore.python_values import Arg, Instant, fraction, instant, named, positive, text

if TYPE_CHECKING:
    from typing_extensions import Unpack


class DiffOptions(TypedDict, total=False):
    """Keyword arguments of `context_diff`, and of `context` and `ingest`; all are optional."""

    goals: str | Sequence[str | tuple[str, Sequence[Arg]]]
    """Questions of the agent: atoms as text, such as `"grandparent(ann, ?who)"`, or as
    pairs of a predicate and its arguments. The window holds their answers and the facts these
    depend on."""

    query: str | None
    """A question in words; matching facts come first, best match first."""

    max_facts: int
    """Maximum number of facts; initially 100."""

    max_tokens: int | None
    """Maximum number of tokens of the text."""

    max_per_predicate: int | None
    """Maximum number of facts of one predicate."""

    scope: str | None
    """The scope of the facts; `*` for all scopes."""

    format: str
    """The form of `text`: `facts` in the rule language (initially), or `natural` sentences."""

    predicates: Sequence[str] | None
    """Names of the predicates that the window may have; None: all."""

    buckets: Sequence[Bucket] | Mapping[str, Sequence[str]]
    """Shares of the window: buckets, or the predicates of each bucket by its name."""

    fill: str | None
    """`salience` fills the rest of the window with the facts that matter most, `none` does not."""

    include_rules: bool | None
    """Add the rules that the goals use; None: if there are goals."""

    asker: str | None
    """The constant that "I" in `query` stands for."""

    min_salience: float
    """Minimum salience of facts that no goal depends on, 0 to 1."""

    min_relevance: float
    """Minimum relevance of facts that match `query`, 0 to 1, as a share of the best match."""

    min_coverage: float
    """Share of the words of `query` that some fact must have, 0 to 1; otherwise nothing matches."""

    auto_resolve: bool
    """Leave out the side of a contradiction that matters less; initially True."""

    explain: bool
    """Say why each entry was selected (`why`) and what was left out (`cut`)."""

    citations: bool
    """Cite the evidence of facts in the text (`[1]`), and list it in `sources`."""


class WindowOptions(DiffOptions, total=False):
    """Keyword arguments of `context` and `ingest`; all are optional."""

    session: str | None
    """Name of the conversation whose windows are compared."""


_NAMES = {
    "maxFacts": "max_facts",
    "maxTokens": "max_tokens",
    "maxFactsPerPredicate": "max_per_predicate",
    "minSalience": "min_salience",
    "minRelevance": "min_relevance",
    "minCoverage": "min_coverage",
}
"""Options by the fields of JSON that errors of the core name."""

_NULLABLE = frozenset(field.name for field in fields(WindowRequest) if field.default is None)
"""Options for which None is a value, and not the same as leaving them out."""


@dataclass(frozen=True, slots=True)
class ContextDiff(WindowDiff):
    """Changes between two windows of a session, with their text for a prompt."""

    @property
    def text(self) -> str:
        """The changes in the format of the window, a line each; empty if there are none."""
        return render_changes(self, FACTS if self.format == STRUCTURED else self.format)


class Context(Handle):
    """Context windows of a knowledge base."""

    def context(self, *, timeout_ms: int | None = None, **options: Unpack[WindowOptions]) -> Window:
        """Return a context window: the facts that a model should read, within a budget.

        `kb.context(goals=["grandparent(ann, ?who)"], max_facts=5, session="s1").text` is the text
        for a prompt; `entries` and `rules` are its parts, `tokens` its size. The options are those
        of `WindowOptions`.

        Raises InvalidInput and BudgetExceeded.
        """
        limits = request_limits(timeout_ms)
        with named(**_NAMES):
            return self.kb.context(_request(options), request_limits=limits)

    def context_diff(
        self, session: str, *, timeout_ms: int | None = None, **options: Unpack[DiffOptions]
    ) -> ContextDiff:
        """Make a new window of a session and return the changes since its last window.

        The options of `context` that are not given are those of the last window. `text` of the
        result has the changes for a prompt; `refresh` is True if a whole window is better, as for
        an unknown session.
        """
        changes = _fields(options)
        limits = request_limits(timeout_ms)
        with named(**_NAMES):
            return _with_text(self.kb.context_diff(session, changes, request_limits=limits))

    def context_summary(
        self, scope: str | None = None, *, timeout_ms: int | None = None
    ) -> Summary:
        """Return a summary of a scope: numbers of facts, predicates and the most salient facts."""
        return self.kb.context_summary(scope, request_limits=request_limits(timeout_ms))

    def clear_session(self, session: str) -> None:
        """Forget the windows of a session, if it exists."""
        self.kb.clear_session(session)

    def ingest(
        self,
        text: str | Sequence[str],
        *,
        hint: str | None = None,
        timeout_ms: int | None = None,
        speaker: str | None = None,
        at: Instant | None = None,
        conflict: str | None = None,
        **options: Unpack[WindowOptions],
    ) -> Ingested:
        """Store the facts and rules of a text or of the turns of a conversation, all or none.

        Lines in predicate syntax or the rule language are parsed; prose goes to the language model,
        with `hint`. Without a model, prose is skipped, or stored as facts `said(speaker, text,
        when)` with the setting EXTRACTION_FALLBACK=episode. The result has the `facts` and `rules`,
        the numbers of the `unread` lines, a `window` made with the options of `context`, and its
        `changes` since the last window of the session. The text is stored as episodes, one for each
        turn, said by `speaker` at `at`, and is the evidence of the facts; a turn may begin with its
        speaker, as in `ann: ...`. `conflict` is the conflict strategy of the facts, as for `tell`;
        by default that of the setting INGEST_CONFLICTS, so that a new value of a declared `@key`
        ends the older one.

        Raises InvalidInput, BudgetExceeded, ModelNotConfigured, ModelFailed.
        """
        starts: tuple[int, ...] = ()
        if not isinstance(text, str):
            turns = list(_turns(text))
            text, starts = "\n".join(turns), first_lines(turns)
        limits = request_limits(timeout_ms)
        with named(**_NAMES):
            request = _request(options)
            ingested = self.kb.ingest(
                text,
                request,
                hint=hint,
                request_limits=limits,
                turns=starts,
                source=Source(speaker, instant("at", at), request.session),
                conflict=conflict,
            )
        if ingested.changes is None:
            return ingested
        return replace(ingested, changes=_with_text(ingested.changes))


def _request(options: WindowOptions) -> WindowRequest:
    return WindowRequest(**_fields(options))


def _fields(options: DiffOptions | WindowOptions) -> dict[str, Any]:
    """Return the fields of a WindowRequest that the options give."""
    values: dict[str, Any] = dict(options)
    known = WindowOptions.__annotations__ | DiffOptions.__annotations__
    for name in values:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else f"; the options are {', '.join(known)}"
            raise InvalidInput.at(name, f"is not an option of a context window{hint}")
    for name in ("max_facts", "max_tokens", "max_per_predicate"):
        positive(name, values.get(name))
    for name in ("min_salience", "min_relevance", "min_coverage"):
        fraction(name, values.get(name))
    values = {
        name: value for name, value in values.items() if value is not None or name in _NULLABLE
    }
    if "goals" in values:
        values["goals"] = _goals(values["goals"])
    if values.get("predicates") is not None:
        if isinstance(values["predicates"], str):
            raise InvalidInput.at("predicates", "must be a list of names, not one string")
        values["predicates"] = tuple(values["predicates"])
    if "buckets" in values:
        values["buckets"] = _buckets(values["buckets"])
    return values


def _buckets(buckets: Sequence[Bucket] | Mapping[str, Sequence[str]]) -> list[Bucket]:
    if isinstance(buckets, Mapping):
        for name, predicates in buckets.items():
            if isinstance(predicates, str) or not isinstance(predicates, Sequence):
                raise InvalidInput.at(f"buckets[{name!r}]", "must be a list of predicates")
        return [Bucket(name, tuple(predicates)) for name, predicates in buckets.items()]
    if isinstance(buckets, str) or not all(isinstance(bucket, Bucket) for bucket in buckets):
        raise InvalidInput.at("buckets", "must be a list of Bucket, or a dict of lists")
    return list(buckets)


def _goals(goals: str | Sequence[str | tuple[str, Sequence[Arg]]]) -> tuple[Goal, ...]:
    listed = (goals,) if isinstance(goals, str) else goals
    if not isinstance(listed, Sequence):
        raise InvalidInput.at("goals", "must be a text or a list of texts")
    return tuple(
        literal_of(*goal) if isinstance(goal, tuple) and len(goal) == 2
        else goal_from_text(text(f"goals[{index}]", goal), f"goals[{index}]")
        for index, goal in enumerate(listed)
    )  # fmt: skip


def _turns(turns: Sequence[str]) -> Sequence[str]:
    if not isinstance(turns, Sequence):
        raise InvalidInput.at("text", "must be a text or a list of texts")
    for index, turn in enumerate(turns):
        if not isinstance(turn, str):
            raise InvalidInput.at(f"text[{index}]", "must be a text")
    return turns


def _with_text(diff: WindowDiff) -> ContextDiff:
    return ContextDiff(*(getattr(diff, field.name) for field in fields(diff)))
