"""Rule sets, their versions, and the results of deployments."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kbtypes.records import TIME, Json, Record, member
from kbtypes.results import PredicateChange, PreviewCounts


@dataclass(frozen=True, slots=True)
class ChangedStatement(Record):
    """A statement in two versions of a rule set, each in the rule language."""

    before: str
    after: str


@dataclass(frozen=True, slots=True)
class ChangedFacts(Record):
    """The facts that differ between two versions of a rule set.

    The lists have at most 100 facts each, in the rule language; the counts are complete.
    """

    added: list[str]
    changed: list[ChangedStatement]
    removed: list[str]
    added_count: int
    changed_count: int
    removed_count: int


@dataclass(frozen=True, slots=True)
class RuleSetDiff(Record):
    """The difference between two versions of a rule set; rules and declarations are texts.

    A rule is changed if a rule of the same name has another text. A rule without a name is changed
    if a removed one of the same head has a predicate of its body, or differs in constants only.
    """

    name: str
    scope: str | None
    added: list[str] = field(metadata=member(about="Rules and declarations."))
    changed: list[ChangedStatement]
    removed: list[str]
    facts: ChangedFacts

    @property
    def has_changes(self) -> bool:
        """True if anything differs."""
        facts = self.facts
        counts = facts.added_count + facts.changed_count + facts.removed_count
        return bool(self.added or self.changed or self.removed or counts)


_ANSWERS = member(about="The values of the variables, at most 100 answers.")


@dataclass(frozen=True, slots=True)
class GoalImpact(Record):
    """The answers of a goal that a deployment would add and take away.

    An answer has the values of the variables of the goal by name, none for a goal without
    variables. The lists have at most 100 answers each; the counts are complete.
    """

    goal: str
    becomes_true: list[dict[str, str]] = field(metadata=_ANSWERS)
    becomes_false: list[dict[str, str]] = field(metadata=_ANSWERS)
    becomes_true_count: int
    becomes_false_count: int


@dataclass(frozen=True, slots=True)
class Impact(Record):
    """The facts and conclusions that a deployment would make true, false or undefined.

    `goals` are in the order in which they were asked for. `truncated` is True if the budget ended
    the comparison: then goals and predicates are missing.
    """

    goals: list[GoalImpact]
    by_predicate: list[PredicateChange]
    counts: PreviewCounts
    truncated: bool


@dataclass(frozen=True, slots=True)
class Deployment(RuleSetDiff):
    """Result of a deployment or a rollback: what it changed.

    `version` is the version that is in force then. `commit` is the number of the change in the log,
    None if nothing was stored, because nothing differs or the deployment was a dry run. `warnings`
    are about rules that are valid but probably not intended. `impact` is there for a dry run that
    asked for it.
    """

    version: int
    commit: int | None = field(
        metadata=member(about="The number of the change; null if nothing was stored.")
    )
    warnings: list[str]
    impact: Impact | None = field(
        default=None, metadata=member(about="With `impact` or `impactGoals`.", sparse=True)
    )


@dataclass(frozen=True, slots=True)
class RuleSetVersion(Record):
    """A version of a rule set: when and by whom it was deployed, and what it changed.

    `digest` is the SHA-256 of the files, `key` the name of the API key, `rolled_back_to` the
    version whose contents this one has again. The counts are of rules, declarations and facts.
    """

    version: int
    deployed_at: int = field(metadata=TIME)
    digest: str
    message: str | None
    revision: str | None
    key: str | None
    rolled_back_to: int | None
    added: int
    changed: int
    removed: int


def sets_note(rule_sets: Iterable[Json]) -> str:
    """Return the names and versions of rule sets as text: `access version 2`."""
    return ", ".join(f"{each['name']} version {each['version']}" for each in rule_sets)


_LABELS = member(about="Levels and groups by dimension. Only with labels.", sparse=True)


@dataclass(frozen=True, slots=True)
class RuleSetInfo(Record):
    """A rule set: its name, scope and version, and the numbers of what it contains.

    `labels` are those of its rules and facts, None without any, or where a view shows it.
    """

    name: str
    scope: str | None
    version: int
    deployed_at: int = field(metadata=TIME)
    rules: int
    declarations: int
    facts: int
    labels: Json | None = field(default=None, metadata=_LABELS)


@dataclass(frozen=True, slots=True)
class RuleSetContents(Record):
    """The contents of the version of a rule set that is in force, as statements.

    `by_hand` are those of the statements that were also stored one by one. `labels` are those of
    its rules and facts, None without any, or where a view shows it.
    """

    name: str
    scope: str | None
    version: int
    deployed_at: int = field(metadata=TIME)
    message: str | None
    revision: str | None
    statements: list[str] = field(
        metadata=member(about="Rules, declarations and facts in the rule language.")
    )
    by_hand: list[str] = field(
        metadata=member(about="Those of the statements that were also stored one by one.")
    )
    labels: Json | None = field(default=None, metadata=_LABELS)
