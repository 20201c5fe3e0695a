"""Context windows: what a model reads, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypedDict

from kbcore_client import markup
from kbcore_client.errors import InvalidInput
from kbcore_client.results import Json
from kbcore_client.values import Arg, arguments, written_atom

if TYPE_CHECKING:
    from typing_extensions import Unpack  # noqa: F401  for type checkers that read this module


@dataclass(frozen=True, slots=True)
class Bucket:
    """A share of a window for facts of some predicates (None: any), by weight among all buckets."""

    name: str
    predicates: tuple[str, ...] | None = None
    weight: float = 1.0


class DiffOptions(TypedDict, total=False):
    """Keyword arguments of `context_diff`, and of `context`; all are optional."""

    goals: str | Sequence[str | tuple[str, Sequence[Arg]]]
    """Questions of the agent, as texts or as pairs of a predicate and its arguments."""

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
    """Keyword arguments of `context`; all are optional."""

    session: str | None
    """Name of the conversation whose windows are compared."""


class IngestOptions(TypedDict, total=False):
    """Keyword arguments of `ingest`; all are optional."""

    goals: str | Sequence[str | tuple[str, Sequence[Arg]]]
    """Questions of the agent, as texts or as pairs of a predicate and its arguments."""

    max_facts: int
    """Maximum number of facts; initially 100."""

    scope: str | None
    """The scope that the facts are stored in."""

    session: str | None
    """Name of the conversation whose windows are compared."""

    auto_resolve: bool
    """Leave out the side of a contradiction that matters less; initially True."""


FIELDS = {
    "goals": "goals",
    "query": "query",
    "max_facts": "maxFacts",
    "max_tokens": "maxTokens",
    "max_per_predicate": "maxFactsPerPredicate",
    "scope": "scope",
    "format": "format",
    "predicates": "predicates",
    "buckets": "relevanceBuckets",
    "fill": "fill",
    "include_rules": "includeRules",
    "asker": "asker",
    "min_salience": "minSalience",
    "min_relevance": "minRelevance",
    "min_coverage": "minCoverage",
    "auto_resolve": "autoResolveContradictions",
    "explain": "explain",
    "citations": "citations",
    "session": "sessionId",
}
"""Fields of a request by the options that set them."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """The origin of a conclusion: the text of a rule and of the premises of one instance."""

    rule: str
    premises: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """A fact in a window; times in epoch milliseconds.

    `contradicted` is True if the opposite is stored or derivable too. `why` is the reason for the
    selection, if requested. `key` is set in diffs. `citations` are numbers of sources of the
    window.
    """

    predicate: str
    args: tuple[str, ...]
    negated: bool
    scope: str | None
    salience: float
    category: str
    char_count: int
    created_at: int
    provenance: Provenance | None = None
    valid_from: int | None = None
    valid_until: int | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    contradicted: bool = False
    why: dict[str, Any] | None = None
    key: str | None = None
    citations: tuple[int, ...] = ()

    @property
    def text(self) -> str:
        """The fact in the rule language."""
        return "~" * self.negated + written_atom(self.predicate, self.args)

    @classmethod
    def of(cls, answer: Json) -> Entry:
        """Return the entry that an answer describes."""
        source = answer.get("provenance")
        return cls(
            answer["predicate"],
            tuple(answer["args"]),
            answer["negated"],
            answer.get("scope"),
            answer["salience"],
            answer["category"],
            answer["charCount"],
            answer["createdAt"],
            None if source is None else Provenance(source["rule"], tuple(source["premises"])),
            answer.get("validFrom"),
            answer.get("validUntil"),
            answer.get("metadata", {}),
            answer.get("contradicted", False),
            answer.get("why"),
            answer.get("key"),
            tuple(answer.get("citations", ())),
        )


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
    """A context window; `generated_at` in epoch milliseconds.

    `available` is the number of candidate facts. `text` is the window in the requested format, and
    `tokens` its number of tokens. `savings`, the contradictions and `buckets` are those of windows
    with goals, a session or buckets. `cut` says, if requested, what was left out and why, `sources`
    what was said: the cited spans of episodes with their text.
    """

    id: str
    entries: tuple[Entry, ...]
    rules: tuple[str, ...]
    available: int
    savings: int
    contradictions: tuple[Contradiction, ...]
    contradictions_found: int
    resolved: int
    buckets: dict[str, BucketStats]
    goal_driven: bool
    generation: int | None
    generated_at: int
    cut: dict[str, Any] | None
    text: str
    tokens: int
    chars: int
    sources: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def of(cls, answer: Json) -> Window:
        """Return the window that an answer describes."""
        return cls(
            answer["windowId"],
            tuple(map(Entry.of, answer["entries"])),
            tuple(answer["relevantRules"]),
            answer["totalFactsAvailable"],
            answer.get("deduplicationSavings", 0),
            tuple(
                Contradiction(
                    each["predicate"],
                    tuple(each["args"]),
                    each["positiveSalience"],
                    each["negativeSalience"],
                )
                for each in answer.get("contradictions", ())
            ),
            answer.get("contradictionsFound", 0),
            answer.get("contradictionsResolved", 0),
            {
                name: BucketStats(
                    each["factsIncluded"],
                    each["maxAllocation"],
                    each["minSalience"],
                    each["maxSalience"],
                )
                for name, each in answer.get("bucketStats", {}).items()
            },
            answer.get("goalDriven", False),
            answer.get("knowledgeGeneration"),
            answer["generatedAt"],
            answer.get("cut"),
            answer.get("formattedText", ""),
            answer["tokenEstimate"],
            answer["totalCharCount"],
            answer.get("sources", []),
        )

    def _repr_html_(self) -> str:
        """Return the entries as a table for notebooks, and the text that a model reads."""
        rows = [
            (each.text, f"{each.salience:.2f}", each.category, "contradicted" * each.contradicted)
            for each in self.entries
        ]
        caption = f"{len(rows)} of {markup.counted(self.available, 'fact')}, {markup.counted(self.tokens, 'token')}"
        text = markup.lines(self.text.splitlines()) if self.text else ""
        return markup.table(("fact", "salience", "category", ""), rows, caption) + text


@dataclass(frozen=True, slots=True)
class Removed:
    """An entry that the new window does not have, and why."""

    key: str
    predicate: str
    args: tuple[str, ...]
    negated: bool
    scope: str | None
    reason: str

    @classmethod
    def of(cls, answer: Json) -> Removed:
        """Return the entry that an answer describes."""
        return cls(
            answer["key"],
            answer["predicate"],
            tuple(answer["args"]),
            answer["negated"],
            answer.get("scope"),
            answer["reason"],
        )

    @property
    def text(self) -> str:
        """The fact in the rule language, and why it is no longer in the window."""
        return "~" * self.negated + written_atom(self.predicate, self.args) + f"  ({self.reason})"


@dataclass(frozen=True, slots=True)
class ContextDiff:
    """Changes between two windows of a session, with their text for a prompt.

    `previous` is None if the session is unknown. With `refresh` a whole window is better than the
    changes; `reason` says why.
    """

    previous: str | None
    current: str
    added: tuple[Entry, ...]
    removed: tuple[Removed, ...]
    unchanged: int
    refresh: bool
    reason: str | None
    text: str

    @classmethod
    def of(cls, answer: Json) -> ContextDiff:
        """Return the changes that an answer describes."""
        return cls(
            answer.get("previousWindowId"),
            answer["currentWindowId"],
            tuple(map(Entry.of, answer["added"])),
            tuple(map(Removed.of, answer["removed"])),
            answer["unchanged"],
            answer["fullRefreshRecommended"],
            answer.get("reason"),
            answer.get("formattedText", ""),
        )

    def _repr_html_(self) -> str:
        """Return the changes for notebooks."""
        advice = f"; a whole window is better: {self.reason}" if self.refresh else ""
        return markup.changes(
            [each.text for each in self.added],
            [each.text for each in self.removed],
            f"{len(self.added)} added, {len(self.removed)} removed, {self.unchanged} unchanged{advice}",
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """The current stored facts of a scope.

    `predicates` are the most frequent names with their numbers of facts, `salient` the most salient
    facts, `chars` the characters of all facts as text. `violations` is the number of violations of
    declared constraints, and `top_violations` has the first of them as text.
    """

    facts: int
    predicate_count: int
    predicates: tuple[tuple[str, int], ...]
    with_ttl: int
    expiring: int
    contradictions: int
    salient: tuple[Entry, ...]
    chars: int
    generation: int
    generated_at: int
    violations: int = 0
    top_violations: tuple[str, ...] = ()

    @classmethod
    def of(cls, answer: Json) -> Summary:
        """Return the summary that an answer describes."""
        return cls(
            answer["totalFacts"],
            answer["predicateCount"],
            tuple((each["predicate"], each["count"]) for each in answer["topPredicates"]),
            answer["factsWithTtl"],
            answer["factsExpiringWithin1h"],
            answer["contradictions"],
            tuple(map(Entry.of, answer["topSalientFacts"])),
            answer["totalCharCount"],
            answer["knowledgeGeneration"],
            answer["generatedAt"],
            answer.get("constraintViolations", 0),
            tuple(answer.get("topViolations", ())),
        )


@dataclass(frozen=True, slots=True)
class IngestedFact:
    """A fact that was read in a text."""

    predicate: str
    args: tuple[str, ...]
    negated: bool
    confidence: float | None


@dataclass(frozen=True, slots=True)
class Ingested:
    """Result of reading a text: its facts and rules as stored, and a window.

    `unread` are the numbers of lines that could not be read. `provider` names the reader of the
    prose, `predicate-syntax` if no language model was called; `model` is its model. `episode_ids`
    are those of the text, if facts were read in it. `discarded` counts the facts that a conflict
    strategy did not store.
    """

    facts: tuple[IngestedFact, ...]
    rules: tuple[str, ...]
    unread: tuple[int, ...]
    provider: str
    model: str | None
    window: Window
    episode_ids: tuple[str, ...] = ()
    discarded: int = 0

    @classmethod
    def of(cls, answer: Json) -> Ingested:
        """Return the result that an answer describes."""
        return cls(
            tuple(
                IngestedFact(
                    each["predicate"], tuple(each["args"]), each["negated"], each["confidence"]
                )
                for each in answer["extracted"]
            ),
            tuple(answer["rules"]),
            tuple(answer["unreadLines"]),
            answer["extractionProvider"],
            answer.get("extractionModel"),
            Window.of(answer["context"]),
            tuple(answer.get("episodeIds", ())),
            answer.get("discarded", 0),
        )


def window_fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a request for the options of a window; raise InvalidInput."""
    fields: dict[str, Any] = {}
    for name, value in options.items():
        if name not in FIELDS:
            known = ", ".join(FIELDS)
            raise InvalidInput.at(name, f"is not an option of a context window, which has {known}")
        if name == "goals" and value is not None:
            value = _goals(value)
        elif name == "buckets" and value is not None:
            value = _buckets(value)
        elif name == "predicates" and value is not None:
            if isinstance(value, str):
                raise InvalidInput.at(name, "must be a list of names, not one string")
            value = list(value)
        fields[FIELDS[name]] = value
    return fields


def _goals(goals: str | Sequence[str | tuple[str, Sequence[Arg]]]) -> list[Any]:
    listed = [goals] if isinstance(goals, str) else list(goals)
    return [
        goal if isinstance(goal, str) else {"predicate": goal[0], "args": arguments(goal[1])}
        for goal in listed
    ]


def _buckets(buckets: Sequence[Bucket] | Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    if isinstance(buckets, Mapping):
        return [{"name": name, "predicates": list(names)} for name, names in buckets.items()]
    return [
        {
            "name": bucket.name,
            "predicates": None if bucket.predicates is None else list(bucket.predicates),
            "weight": bucket.weight,
        }
        for bucket in buckets
    ]
