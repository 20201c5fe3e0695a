"""Base of stores that know single values: the harness walks paths and counts, as an agent would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..interface import FACTS, Answer
from ..model import (
    ALIAS,
    COUNT,
    DENY,
    EVER,
    FORGET,
    LATEST,
    STATE,
    SUM,
    VERDICT,
    YES,
    Case,
    Input,
    Question,
)

ALIAS_OF = "alias of"


@dataclass
class Walking:
    """A store of values by user, subject and relation.

    A store has no sources, no denials, and neither time: a denial deletes a value, a source that is
    not trusted changes nothing, and questions about another time are answered as of now.
    """

    name: str
    version: str
    settings: Mapping[str, str] = field(default_factory=dict)
    form: str = FACTS

    def values(self, user: str, subject: str, relation: str) -> set[str]:
        """Return the stored values."""
        raise NotImplementedError

    def subjects(self, user: str) -> set[str]:
        """Return the stored subjects."""
        raise NotImplementedError

    def put(self, user: str, subject: str, relation: str, value: str, only: bool) -> None:
        """Store a value; `only` replaces the stored ones."""
        raise NotImplementedError

    def delete(self, user: str, subject: str, relation: str, value: str) -> None:
        """Delete values; an empty relation or value means all."""
        raise NotImplementedError

    def open(self, case: Case) -> None:
        """Begin with an empty store."""
        self.case = case
        self._aliases: defaultdict[str, set[str]] = defaultdict(set)
        """The aliases that the agent has seen; a store has no search by value."""

    def close(self) -> None:
        """Do nothing."""

    def store(self, entry: Input) -> None:
        """Store, replace or delete values."""
        user, subject, relation = entry.user, entry.subject, entry.relation
        if entry.action == STATE:
            only = self.case.relation(relation).kind == LATEST
            self.put(user, subject, relation, entry.object, only)
        elif entry.action == ALIAS:
            self.put(user, subject, ALIAS_OF, entry.object, True)
            self._aliases[entry.object].add(subject)
        elif entry.action == DENY:
            self.delete(user, subject, relation, entry.object)
        elif entry.action == FORGET:
            for name in self._names(user, subject):
                self.delete(user, name, relation, "")

    def _names(self, user: str, subject: str) -> list[str]:
        """Return the name, what it is an alias of, and the aliases of both."""
        real = {subject, *self.values(user, subject, ALIAS_OF)}
        return sorted(real | {alias for name in real for alias in self._aliases.get(name, ())})

    def answer(self, question: Question) -> Answer:
        """Answer with stored values."""
        user, path = question.user, self._path(question)
        if question.kind == VERDICT:
            known = question.object in self.values(user, question.subject, path[0])
            return Answer(frozenset([YES] if known else ()))
        if not question.subject:
            names = self.subjects(user)
            values = {each for each in names if question.object in self.values(user, each, path[0])}
        else:
            values = set(self._names(user, question.subject))
            for relation in path:
                values = {v for each in sorted(values) for v in self.values(user, each, relation)}
        if question.kind == COUNT:
            return Answer(frozenset([str(len(values))] if values else ()))
        if question.kind == SUM:
            return Answer(frozenset([str(sum(map(int, values)))] if values else ()))
        if question.kind == EVER:
            return Answer(frozenset(self.past(user, question.subject, path[0]) | values))
        return Answer(frozenset(values))

    def past(self, user: str, subject: str, relation: str) -> set[str]:
        """Return replaced values; a store without history has none."""
        return set()

    def _path(self, question: Question) -> list[str]:
        rules = {rule.head: rule.path for rule in self.case.rules}
        return [step for name in question.path for step in rules.get(name, (name,))]
