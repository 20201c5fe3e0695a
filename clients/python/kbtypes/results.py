"""Results of writes, previews, scripts, scopes and upkeep."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from kbtypes import markup
from kbtypes.records import TIME, Json, Record, member
from kbtypes.values import Row, row_text, variables_of


@dataclass(frozen=True, slots=True)
class StoredRule(Record):
    """A rule with its id, its canonical text, and the scope it is valid in (None: every scope)."""

    id: str
    text: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class StoredPhrase(Record):
    """A phrase of a predicate with its id, `@name/arity`, its text, and its scope."""

    id: str
    text: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class StoredInput(Record):
    """A declared input with its id, `@name/arity input`, its text, and its scope."""

    id: str
    text: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class StoredMask(Record):
    """A declared mask with its id, `@name/arity mask`, its text, and its scope."""

    id: str
    text: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class StoredDimension(Record):
    """Declared levels or groups of labels with their id, `@name labels`, and their text; `scope`
    is None.
    """

    id: str
    text: str
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class StoredRequirement(Record):
    """The level that answers of a predicate require, with its id, `@name/arity requires`, and its
    text; `scope` is None.
    """

    id: str
    text: str
    scope: str | None = None


REQUIREMENT_ID_SUFFIX = " requires"
"""End of the id of a declared requirement."""

DIMENSION_ID_SUFFIX = " labels"
"""End of the id of a declared dimension of labels."""

MASK_ID_SUFFIX = " mask"
"""End of the id of a declared mask."""

INPUT_ID_SUFFIX = " input"
"""End of the id of a declared input, which tells it from that of a phrase."""

StoredStatement = (
    StoredRule | StoredPhrase | StoredInput | StoredMask | StoredDimension | StoredRequirement
)


def stored_statement(row: Json) -> StoredStatement:
    """Return the rule or declaration that an answer describes."""
    if not row["id"].startswith("@"):
        return StoredRule.of(row)
    if row["id"].endswith(MASK_ID_SUFFIX):
        return StoredMask.of(row)
    if row["id"].endswith(DIMENSION_ID_SUFFIX):
        return StoredDimension.of(row)
    if row["id"].endswith(REQUIREMENT_ID_SUFFIX):
        return StoredRequirement.of(row)
    is_input = row["id"].endswith(INPUT_ID_SUFFIX)
    return StoredInput.of(row) if is_input else StoredPhrase.of(row)


@dataclass(frozen=True, slots=True)
class StoreOutcome:
    """Result of storing facts and rules: the numbers of new and of known facts, and the rules.

    `rules` includes rules and declarations that were stored before; `warnings` are texts about
    them. `timestamp` is the logged time in epoch milliseconds. `discarded` counts the facts that
    were not stored, because a conflict strategy preferred others.
    """

    asserted: int
    updated: int
    timestamp: int
    rules: tuple[StoredStatement, ...] = ()
    warnings: tuple[str, ...] = ()
    discarded: int = 0

    @classmethod
    def of(cls, answer: Json) -> StoreOutcome:
        """Return the outcome that an answer describes."""
        rules = tuple(map(stored_statement, answer.get("rules", ())))
        return cls(
            answer["asserted"],
            answer["updated"],
            answer["timestamp"],
            rules,
            tuple(answer.get("warnings", ())),
            answer.get("discarded", 0),
        )


@dataclass(frozen=True, slots=True)
class RetractOutcome(Record):
    """Result of a retraction.

    `retracted` counts the stored facts that were removed, `cascaded` the conclusions that no longer
    hold; `cascaded_atoms` lists at most as many of them as the reply limit allows. `atoms` are the
    removed facts of a pattern. `newly_derivable` counts conclusions that appeared through negation.
    `still_derivable` is True if rules still derive the fact, `truncated` if counting the
    conclusions reached its limit. `counted` is False if the caller asked for no count: then
    `cascaded` and `newly_derivable` are 0 and `cascaded_atoms` is empty.
    """

    retracted: int
    cascaded: int = 0
    atoms: list[Row] = field(default_factory=list)
    cascaded_atoms: list[Row] = field(default_factory=list)
    newly_derivable: int = 0
    still_derivable: bool = False
    truncated: bool = False
    counted: bool = True


Severity = Literal["error", "warning"]
"""The severity of a finding."""


@dataclass(frozen=True, slots=True)
class Finding(Record):
    """An error or a warning about a text, at a stretch of one line.

    Lines and columns count from 1, columns in code points; `end_column` is exclusive. `severity` is
    `error` or `warning`, `code` a code such as K012, `name` its name.
    """

    line: int = field(metadata=member(about="From 1."))
    column: int = field(metadata=member(about="From 1, in code points."))
    end_column: int = field(metadata=member(about="The column after the last character."))
    code: str = field(
        metadata=member(
            about="A code of the table in docs/reference/diagnostics.md, such as `K012`."
        )
    )
    name: str = field(metadata=member(about="The name of the code, such as `unsafe`."))
    severity: Severity
    message: str
    hint: str | None = None

    @property
    def end_line(self) -> int:
        """The line of the end, which is that of the beginning: a finding never spans lines."""
        return self.line

    def as_json(self) -> dict[str, Any]:
        """Return the finding as `POST /check` answers it."""
        return {
            "line": self.line,
            "column": self.column,
            "endLine": self.end_line,
            "endColumn": self.end_column,
            "severity": self.severity,
            "code": self.code,
            "name": self.name,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True)
class TruthChange(Record):
    """A fact or conclusion whose truth would change; `was` is its truth before.

    `text` is the atom in the rule language. `stored` says if it is a stored fact: for one that
    becomes true or undefined after the change, for one that becomes false before it.
    """

    predicate: str
    args: tuple[str, ...]
    negated: bool
    scope: str | None = field(metadata=member(about="Null is the base partition."))
    text: str = field(metadata=member(about="In the rule language."))
    stored: bool = field(
        metadata=member(
            about="True for a stored fact, false for a conclusion: after the change, or before it if the "
            "atom would become false."
        )
    )
    was: str = field(metadata=member(about="The truth before the change."))


@dataclass(frozen=True, slots=True)
class PredicateChange(Record):
    """The numbers of facts and conclusions of one predicate and sign whose truth would change."""

    predicate: str
    arity: int
    negated: bool
    scope: str | None
    becomes_true: int
    becomes_false: int
    becomes_undefined: int


@dataclass(frozen=True, slots=True)
class PreviewCounts(Record):
    """Numbers of facts and conclusions that would become true, false and undefined."""

    becomes_true: int
    becomes_false: int
    becomes_undefined: int


@dataclass(frozen=True, slots=True)
class Preview(Record):
    """The differences in truth that a change would make.

    The lists have at most as many elements as asked for; `counts` and `by_predicate` are complete
    unless `truncated`.
    """

    becomes_true: list[TruthChange]
    becomes_false: list[TruthChange]
    becomes_undefined: list[TruthChange]
    counts: PreviewCounts
    by_predicate: list[PredicateChange]
    warnings: list[str] = field(metadata=member(about="About the rules to store."))
    truncated: bool = field(
        metadata=member(
            about="True if the budget ended the preview, so that predicates are missing."
        )
    )

    def _repr_html_(self) -> str:
        """Return the differences for notebooks."""
        counts = self.counts
        return markup.changes(
            [each.text for each in self.becomes_true],
            [each.text for each in self.becomes_false],
            f"{counts.becomes_true} would become true, {counts.becomes_false} false,"
            f" {counts.becomes_undefined} undefined",
        )


@dataclass(frozen=True, slots=True)
class Question(Record):
    """A query of a script, and the number of its answers."""

    goal: str
    answers: int


@dataclass(frozen=True, slots=True)
class Executed(Record):
    """Result of a script; `text` reports line by line.

    An element of `answers` has `question` (the index of its query, from 0) and `bindings`, and if
    the query is a single atom also the keys of a row. `rules` are texts.
    """

    text: str = field(metadata=member("result", about="What was done and answered, line by line."))
    answers: list[dict[str, Any]]
    questions: list[Question]
    asserted: int = field(metadata=member(about="Facts that were new."))
    retracted: int = field(metadata=member(about="Stored facts that were retracted."))
    rules: list[str]
    warnings: list[str]
    timestamp: int = field(metadata=TIME)

    def _repr_html_(self) -> str:
        """Return what was stored, and a table for each query, for notebooks."""
        numbers = [
            markup.counted(number, noun)
            for number, noun in ((self.asserted, "fact"), (len(self.rules), "rule"))
            if number
        ]
        stored = [f"<p>{' and '.join(numbers)} stored</p>"] if numbers else []
        if self.retracted:
            stored.append(f"<p>{markup.counted(self.retracted, 'fact')} retracted</p>")
        if self.warnings:
            stored.append(markup.lines(f"warning: {warning}" for warning in self.warnings))
        return "".join(stored + [self._table(index) for index in range(len(self.questions))])

    def _table(self, index: int) -> str:
        question = self.questions[index]
        bindings = [each["bindings"] for each in self.answers if each["question"] == index]
        names = (
            list(bindings[0]) if bindings else [f"?{name}" for name in variables_of(question.goal)]
        )
        rows = [[values[name] for name in names] for values in bindings]
        headings = [name.removeprefix("?") for name in names]
        return markup.answers(question.goal, headings, rows, question.answers)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Write the report of the script, for IPython in a terminal."""
        printer.text(self.text)


@dataclass(frozen=True, slots=True)
class PredicateInfo(Record):
    """A predicate: its name and arity, and the numbers of its stored facts and of its rules.

    `facts` counts facts of both signs that are valid now. `args` are the names of the arguments
    and `gloss` the meaning of a fact, if the predicate is a declared input; `types` has the type of
    each argument or None, and is empty if none has a type.
    """

    predicate: str
    arity: int
    facts: int = field(metadata=member("factCount"))
    rules: int = field(metadata=member("ruleCount"))
    args: tuple[str, ...] = ()
    gloss: str | None = None
    types: tuple[str | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ForkOutcome(Record):
    """The number of facts that were copied to the new scope.

    `timestamp` is the logged time in epoch milliseconds, 0 if it is unknown.
    """

    copied: int
    timestamp: int = 0


@dataclass(frozen=True, slots=True)
class Modified(Record):
    """A source fact and the target fact that differs in sign, confidence, validity or metadata."""

    before: Row
    after: Row


@dataclass(frozen=True, slots=True)
class ScopeDiff(Record):
    """The differences from a source scope to a target scope.

    `added` are facts of the target only, `removed` facts of the source only; `unchanged` counts
    equal facts. Only currently valid facts are compared. The order is by predicate and arity, then
    that of answers.
    """

    added: list[Row]
    removed: list[Row]
    modified: list[Modified]
    unchanged: int

    def _repr_html_(self) -> str:
        """Return the differences for notebooks; a modified fact is both gone and new."""
        added = [row_text(row) for row in self.added]
        removed = [row_text(row) for row in self.removed]
        caption = (
            f"{len(added)} added, {len(removed)} removed,"
            f" {len(self.modified)} modified, {self.unchanged} unchanged"
        )
        return markup.changes(
            added + [row_text(each.after) for each in self.modified],
            removed + [row_text(each.before) for each in self.modified],
            caption,
        )


@dataclass(frozen=True, slots=True)
class MergeOutcome(Record):
    """The numbers of new or changed facts and of resolved conflicts.

    `timestamp` is the logged time in epoch milliseconds.
    """

    merged: int
    conflicts: int = field(metadata=member("conflictsResolved"))
    strategy: str
    timestamp: int = field(metadata=TIME)


@dataclass(frozen=True, slots=True)
class DecayOutcome(Record):
    """The facts that decay removed or (`dry_run`) would remove: counts of expired and faded ones,
    and rows.

    `truncated` is True if there are more facts than rows. `timestamp` is in epoch milliseconds.
    """

    expired: int = field(metadata=member("expiredCount"))
    evicted: int = field(metadata=member("evictedCount"))
    atoms: list[Row] = field(
        metadata=member("removedAtoms", about="With `dryRun` each row says `why`.")
    )
    timestamp: int = field(metadata=TIME)
    dry_run: bool = field(default=False, metadata=member(sparse=True))
    truncated: bool = field(default=False, metadata=member(sparse=True))


@dataclass(frozen=True, slots=True)
class ConsolidateOutcome(Record):
    """The changes a consolidation made or (`dry_run`) would make.

    `facts` are the new or changed summaries and `consolidated` the number of facts in their groups.
    `removed` counts summaries that were replaced or whose group became too small. `timestamp` is in
    epoch milliseconds.
    """

    consolidated: int = field(metadata=member("factsConsolidated"))
    facts: list[Row] = field(metadata=member("newFacts"))
    removed: int = field(metadata=member("summariesRemoved"))
    timestamp: int = field(metadata=TIME)
    dry_run: bool = field(default=False, metadata=member(sparse=True))


@dataclass(frozen=True, slots=True)
class Event:
    """A committed change: its type, its id, its time in epoch milliseconds, and its scope.

    `data` is the whole event as the server sent it, with `atom` or `rule` depending on the type.
    """

    type: str
    id: str
    timestamp: int
    scope: str | None
    data: dict[str, Any]

    @property
    def atom(self) -> Row | None:
        """The fact that the event is about, None if it is about something else."""
        atom: Row | None = self.data.get("atom")
        return atom

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Event:
        """Return the event that an answer describes."""
        return cls(
            answer["type"],
            answer.get("eventId", ""),
            answer.get("timestamp", 0),
            answer.get("scope"),
            answer,
        )


@dataclass(frozen=True, slots=True)
class AnswersChanged:
    """The answers of a followed goal that appeared and disappeared.

    An answer is a tuple, as `ask` returns it. `commit_seq` is the sequence number of the last
    commit that the answers include, `timestamp` the time of that state in epoch milliseconds.
    """

    appeared: list[tuple[str, ...]]
    disappeared: list[tuple[str, ...]]
    commit_seq: int
    timestamp: int

    @classmethod
    def of(cls, answer: dict[str, Any]) -> AnswersChanged:
        """Return the change that an event describes."""
        return cls(
            [_answer(row) for row in answer["appeared"]],
            [_answer(row) for row in answer["disappeared"]],
            answer["commitSeq"],
            answer["timestamp"],
        )

    @classmethod
    def between(cls, known: set[tuple[str, ...]], answer: dict[str, Any]) -> AnswersChanged:
        """Return the difference between known answers and those of a subscription."""
        now = cls.answers_of(answer)
        return cls(
            [row for row in map(_answer, answer["answers"]) if row not in known],
            sorted(known - now),
            answer["commitSeq"],
            answer["timestamp"],
        )

    @staticmethod
    def answers_of(answer: dict[str, Any]) -> set[tuple[str, ...]]:
        """Return the answers of a subscription."""
        return set(map(_answer, answer["answers"]))


def _answer(row: dict[str, Any]) -> tuple[str, ...]:
    return tuple(row["args"] if "args" in row else row["bindings"].values())


@dataclass(frozen=True, slots=True)
class Subscription(Record):
    """A goal whose answers a server keeps current.

    It ends at `expires_at` (epoch milliseconds), `ttl_ms` milliseconds after its last use. `count`
    is the number of its answers, `webhook` the address to which its changes are sent, of which keys
    other than the owner's and administrators' see the beginning only. One that is not `durable`
    ends with the server.
    """

    id: str
    goal: str
    scope: str | None
    ttl_ms: int = field(metadata=member("ttl"))
    expires_at: int = field(metadata=TIME)
    count: int
    webhook: str | None
    durable: bool


@dataclass(frozen=True, slots=True)
class NeighbourCount(Record):
    """A predicate and the number of its facts that contain a constant."""

    predicate: str
    arity: int
    facts: int = field(metadata=member("factCount"))


@dataclass(frozen=True, slots=True)
class Neighbours(Record):
    """Stored facts that contain a constant: a page of them, and the numbers by predicate.

    `total` counts all of them; `facts` is the page.
    """

    constant: str
    facts: list[Row] = field(metadata=member(about="At most `limit`; the predicates take turns."))
    predicates: tuple[NeighbourCount, ...]
    total: int = field(metadata=member("totalFacts"))


@dataclass(frozen=True, slots=True)
class SlowGoal(Record):
    """A goal that took 10 ms or more in the last hour.

    `ms` is its slowest run, in milliseconds, which ended at `at` (epoch milliseconds) with
    `outcome`: `answered`, or the name of an error. `count` is the number of its slow runs.
    """

    goal: str
    ms: float
    rows_made: int
    outcome: str
    at: int = field(metadata=TIME)
    count: int
