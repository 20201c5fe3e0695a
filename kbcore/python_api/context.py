"""Context windows of a knowledge base: what a model reads, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast

from kbcore.context.diff import WindowDiff
from kbcore.context.request import FACTS, STRUCTURED, Goal, WindowRequest, goal_from_text
from kbcore.context.summary import ScopeSummary
from kbcore.context.text.render import render_changes
from kbcore.errors import InvalidInput
from kbcore.language.messages import Source, check_speaker, messages_of
from kbcore.operations.natural_language import Ingestion
from kbcore.python_api.arguments import literal_of, request_limits
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import fraction, instant, named, positive, read_time
from kbcore.python_values import text as text_of
from kbtypes.values import Arg, Instant
from kbtypes.windows import Bucket, ContextDiff, DiffOptions, Entry, Removed, Window, WindowOptions

if TYPE_CHECKING:
    from typing_extensions import Unpack


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


class PythonContext(PythonHandle):
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
    ) -> ScopeSummary:
        """Return a summary of a scope: numbers of facts, predicates and the most salient facts."""
        return self.kb.context_summary(scope, request_limits=request_limits(timeout_ms))

    def clear_session(self, session: str) -> None:
        """Forget the windows of a session, if it exists."""
        self.kb.clear_session(session)

    def ingest(
        self,
        text: str | Sequence[str | Mapping[str, Any]],
        *,
        hint: str | None = None,
        timeout_ms: int | None = None,
        speaker: str | None = None,
        at: Instant | None = None,
        conflict: str | None = None,
        **options: Unpack[WindowOptions],
    ) -> Ingestion[ContextDiff]:
        """Store the facts and rules of a text or of messages, all or none.

        Lines in predicate syntax or the rule language are parsed; prose goes to the language model,
        with `hint`. Without a model, prose is skipped, or stored as facts `said(speaker, text,
        when)` with the setting EXTRACTION_FALLBACK=episode. The result has the `facts` and `rules`,
        the numbers of the `unread` lines, a `window` made with the options of `context`, and its
        `changes` since the last window of the session. `conflict` is the strategy of the facts, by
        default INGEST_CONFLICTS: a new value of a declared `@key` ends the older one.

        A message is a text, or a dict with `role`, `content` (a text, or a list of parts with text)
        and optionally `name`, `at` and `id`. `speaker` (the name of the user), `at` and `session`
        hold for the episodes and facts made from the text; facts are valid from `at` unless the
        text states another time. A message that was stored before, with the same `id` or in the
        conversation with which the session begins, is not stored again.

        Raises InvalidInput, AlreadyExists, BudgetExceeded, ModelNotConfigured, ModelFailed.
        """
        limits = request_limits(timeout_ms)
        if speaker is not None:
            check_speaker("speaker", text_of("speaker", speaker))
        messages = text if isinstance(text, str) else messages_of(text, "text", speaker, read_time)
        with named(**_NAMES):
            request = _request(options)
            ingested = self.kb.ingest(
                messages,
                request,
                hint=hint,
                request_limits=limits,
                source=Source(speaker, instant("at", at), request.session),
                conflict=conflict,
            )
        changes = None if ingested.changes is None else _with_text(ingested.changes)
        return replace(cast("Ingestion[ContextDiff]", ingested), changes=changes)


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
        else goal_from_text(text_of(f"goals[{index}]", goal), f"goals[{index}]")
        for index, goal in enumerate(listed)
    )  # fmt: skip


def _with_text(diff: WindowDiff) -> ContextDiff:
    """Return the changes with their text in the format of the window, empty if there are none."""
    return ContextDiff(
        diff.previous,
        diff.current,
        diff.added,
        tuple(_removed(removal.entry, removal.reason) for removal in diff.removed),
        diff.unchanged,
        diff.refresh,
        diff.reason,
        render_changes(diff, FACTS if diff.format == STRUCTURED else diff.format),
        diff.format,
        diff.index_progress,
        diff.vectors_missing,
    )


def _removed(entry: Entry, reason: str) -> Removed:
    atom = entry.predicate, entry.args, entry.negated
    return Removed(entry.key, *atom, entry.scope, reason, entry)
