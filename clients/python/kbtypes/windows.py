"""Context windows: what a model reads, and what has changed since."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from kbtypes import markup
from kbtypes.errors import InvalidInput
from kbtypes.records import Json, Record, member
from kbtypes.values import Arg, arguments, written_atom

if TYPE_CHECKING:
    from typing_extensions import Unpack  # noqa: F401  for type checkers that read this module


SALIENCE = member(about="0 to 1, and above for facts that goals depend on.")


@dataclass(frozen=True, slots=True)
class Bucket:
    """A share of a window for facts of some predicates (None: any), by weight among all buckets."""

    name: str
    predicates: tuple[str, ...] | None = None
    weight: float = 1.0


class DiffOptions(TypedDict, total=False):
    """Keyword arguments of `context_diff`, and of `context` and `ingest`; all are optional."""

    goals: str | Sequence[str | tuple[str, Sequence[Arg]]]
    """Questions of the agent: atoms as text, such as `"grandparent(ann, ?who)"`, or as pairs of a
    predicate and its arguments. The window holds their answers and the facts these depend on."""

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

    citations: bool | str
    """Cite the evidence of facts in the text (`[1]`), and list it in `sources`; `"text"` also
    writes the sources into the text, as footnotes."""

    times: str
    """Times in the text: `"day"` (initially), or `"minute"` for the hour and minute too, in UTC."""


class WindowOptions(DiffOptions, total=False):
    """Keyword arguments of `context` and `ingest`; all are optional.

    They are the fields of `POST /memory/context` in Python's spelling; `auto_resolve` is
    `autoResolveContradictions`, `buckets` `relevanceBuckets` (or the predicates of each bucket by
    its name), `max_per_predicate` `maxFactsPerPredicate` and `session` `sessionId`. `format` is
    initially `facts`. A goal may be a pair of a predicate and its arguments.
    """

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


ADAPTER_PREDICATES = frozenset(
    {
        "agent_item",
        "agent_item_part",
        "langgraph_item",
        "langgraph_part",
        "langgraph_value",
        "memory_file",
    }
)
"""Predicates in which adapters of agent frameworks keep their data. They are in a window only if
its request names them.
"""

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
    "times": "times",
    "session": "sessionId",
}
"""Fields of a request by the options that set them."""


@dataclass(frozen=True, slots=True)
class Provenance(Record):
    """The origin of a conclusion: the text of a rule and of the premises of one instance.

    `tests` are the positions of premises that are no facts, such as comparisons and absences, as
    far as they are known.
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


MATCH = "match"
"""Role of an entry that matches the query, or was selected for a goal."""

SpanKey = tuple[str, int | None, int | None]
"""Id of an episode, and start and end in it, None for the whole episode."""


class Entry(NamedTuple):
    """A fact in a window; times in epoch milliseconds.

    `text` is the fact in the rule language, an explicit negative with `not` or `~`. `why` is the
    reason for the selection, if requested. `confidence` is 0 to 1, None if unknown. `contradicted`
    is True if the opposite is stored or derivable too. `goal` is the text of the goal that the
    entry was selected for, `role` says what selected an entry without a goal. `evidence` are the
    spans that support a stored fact, or the facts that a conclusion depends on, `citations` their
    numbers among the sources of the window, None unless they are requested and the fact has any.
    `excerpt` is the part of a text that was said which the text of the window has, if it leaves out
    sentences that are told by facts, or were replaced.
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
    excerpt: str | None = None

    @property
    def signed(self) -> str:
        """The fact in the rule language, an explicit negative with `~`."""
        return f"~{self.text.removeprefix('not ').removeprefix('~')}" if self.negated else self.text

    @property
    def char_count(self) -> int:
        """Number of characters of the fact, an explicit negative with `not`."""
        return len(self.signed) + len("not ") - len("~") if self.negated else len(self.text)

    @property
    def key(self) -> str:
        """Key in diffs: `predicate/arg1/arg2`, prefixed `not:` if negative, with the suffix
        `@scope`.

        The suffix is omitted in the default partition. `/` and `%` inside an argument are
        percent-encoded.
        """
        return fact_key(self.predicate, self.args, negated=self.negated, scope=self.scope)

    @classmethod
    def of(cls, answer: Json) -> Entry:
        """Return the entry that an answer describes."""
        source = answer.get("provenance")
        predicate, args, negated = answer["predicate"], tuple(answer["args"]), answer["negated"]
        return cls(
            predicate,
            args,
            negated,
            answer.get("scope"),
            answer["salience"],
            answer["category"],
            "~" * negated + written_atom(predicate, args),
            answer["createdAt"],
            None if source is None else Provenance(source["rule"], tuple(source["premises"])),
            answer.get("validFrom"),
            answer.get("validUntil"),
            answer.get("metadata", {}),
            answer.get("why"),
            contradicted=answer.get("contradicted", False),
            citations=tuple(answer.get("citations", ())),
            excerpt=answer.get("excerpt"),
        )


@dataclass(frozen=True, slots=True)
class Contradiction(Record):
    """An atom known with both signs, with the salience of each."""

    predicate: str
    args: tuple[str, ...]
    positive_salience: float = field(metadata=SALIENCE)
    negative_salience: float = field(metadata=SALIENCE)


@dataclass(frozen=True, slots=True)
class BucketStats(Record):
    """The outcome of a bucket."""

    facts_included: int
    max_allocation: int
    min_salience: float = field(metadata=SALIENCE)
    max_salience: float = field(metadata=SALIENCE)


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


@dataclass(frozen=True, slots=True)
class RuleInSet(Record):
    """A rule set that contains a rule of a window, with its version then."""

    rule: str
    name: str
    version: int


@dataclass(frozen=True, slots=True)
class Window:
    """A context window; `generated_at` in epoch milliseconds.

    `available` is the number of candidate facts. `savings` counts the facts that were left out
    because another entry has the same content. `contradictions` lists the first ones detected; for
    `resolved` ones the losing sign was left out. `cut` says, if requested, what else was left out
    and why. `text` is the window in the requested format (`structured`: the text of `facts`), and
    `tokens` is its number of tokens. `notes` are what the text says about goals. `sources` are the
    cited spans with `number` and text, if citations are requested. `index_progress` is the share of
    facts in which the words of the query were searched, 0 to 1, None if it is all.
    `vectors_missing` is the number of facts that have no vector yet, None if all have one or there
    is no embedder. `rule_sets` names the rule sets of the `rules`; None if no rule belongs to one.
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
    generation: int | None
    generated_at: int
    cut: Mapping[str, Any] | None = None
    text: str = ""
    tokens: int = 0
    sources: Sequence[Mapping[str, Any]] | None = None
    notes: tuple[GoalNote, ...] = ()
    index_progress: float | None = None
    vectors_missing: int | None = None
    rule_sets: tuple[RuleInSet, ...] | None = None

    @property
    def chars(self) -> int:
        """Number of characters of all entries."""
        return sum(entry.char_count for entry in self.entries)

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
            answer.get("sources", []),
            index_progress=answer.get("indexProgress"),
            vectors_missing=answer.get("vectorsMissing"),
            rule_sets=tuple(map(RuleInSet.of, answer.get("ruleSets", ()))) or None,
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


def fact_key(predicate: str, args: Sequence[str], *, negated: bool, scope: str | None) -> str:
    """Return the key of a fact: `predicate/arg1/arg2`, prefixed `not:`, with the suffix
    `@scope`.
    """
    path = "/".join([predicate, *map(quote_part, args)])
    return ("not:" if negated else "") + path + ("" if scope is None else f"@{scope}")


def quote_part(arg: str) -> str:
    """Return an argument encoded as part of a key."""
    return arg.replace("%", "%25").replace("/", "%2F")


@dataclass(frozen=True, slots=True)
class Removed:
    """An entry that the new window does not have, and why.

    `entry` is the entry as it was, None in the answer of a server.
    """

    key: str
    predicate: str
    args: tuple[str, ...]
    negated: bool
    scope: str | None
    reason: str
    entry: Entry | None = None

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
    changes; `reason` says why. `format` is the requested format of the new window, None in the
    answer of a server. `index_progress` and `vectors_missing` are those of the new window.
    """

    previous: str | None
    current: str
    added: tuple[Entry, ...]
    removed: tuple[Removed, ...]
    unchanged: int
    refresh: bool
    reason: str | None
    text: str
    format: str | None = None
    index_progress: float | None = None
    vectors_missing: int | None = None

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
            index_progress=answer.get("indexProgress"),
            vectors_missing=answer.get("vectorsMissing"),
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
class IngestedFact(Record):
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
