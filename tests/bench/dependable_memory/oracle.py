"""The meaning of the inputs: a small evaluator that makes the answers of all questions.

The order of evaluation is part of the definition: first what is forgotten, then what was known at
the time of the question, then which sources are trusted, then what is valid.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .model import (
    ALIAS,
    CLAIM,
    COUNT,
    DENY,
    DISTRUST,
    EVER,
    FORGET,
    LATEST,
    NO,
    STATE,
    SUM,
    VALUES,
    VERDICT,
    WHO,
    YES,
    Case,
    Input,
    Question,
)


class Oracle:
    """Answers of the questions of one case."""

    def __init__(self, case: Case) -> None:
        self.case = case
        users = {each.user for each in case.inputs}
        self._remaining = {
            user: _remaining([each for each in case.inputs if each.user == user]) for user in users
        }

    def answers(self, question: Question) -> tuple[str, ...]:
        """Return the sorted right answers of a question; empty if no answer exists.

        Raises ValueError for an unknown kind of question.
        """
        view = _View(self.case, self._remaining.get(question.user, []), question)
        subject, path, kind = view.real(question.subject), question.path, question.kind
        if kind == VERDICT:
            stances = view.stances(subject, path[0], question.object)
            return tuple(sorted(YES if stance else NO for stance in set(stances)))
        if kind == EVER:
            return tuple(sorted(view.ever(subject, path[0])))
        if question.subject:
            values = view.walk(subject, path)
        else:
            values = {name for name in view.subjects() if question.object in view.walk(name, path)}
        if kind == COUNT:
            return (str(len(values)),) if values else ()
        if kind == SUM:
            return (str(sum(int(value) for value in values)),) if values else ()
        if kind not in (VALUES, WHO):
            raise ValueError(f"{question.id}: unknown kind {kind}")
        return tuple(sorted(values))

    def stated(self, question: Question) -> set[str]:
        """Return all values that any input states for the path of a question, of any user and
        time.
        """
        inputs = self.case.inputs
        aliases = {each.subject: each.object for each in inputs if each.action == ALIAS}
        reached = {aliases.get(question.subject, question.subject)}
        for relation in _expand(self.case, question.path):
            reached = {
                each.object
                for each in inputs
                if each.action in (STATE, DENY)
                and each.relation == relation
                and aliases.get(each.subject, each.subject) in reached
            }
        return reached


def _expand(case: Case, path: Iterable[str]) -> list[str]:
    rules = {rule.head: rule.path for rule in case.rules}
    return [step for name in path for step in rules.get(name, (name,))]


class _View:
    """The statements of one user that count for one question."""

    def __init__(self, case: Case, inputs: list[Input], question: Question) -> None:
        self.case = case
        self.valid_at = question.valid_at
        if question.known_at:
            inputs = [each for each in inputs if each.at <= question.known_at]
        distrusted = {each.subject for each in inputs if each.action == DISTRUST}
        inputs = [each for each in inputs if each.source not in distrusted]
        self.aliases = {each.subject: each.object for each in inputs if each.action == ALIAS}
        statements = [each for each in inputs if each.action in (STATE, DENY)]
        # A sort is stable, so equal times stay in the order of learning.
        statements.sort(key=lambda each: each.since)
        self.statements: defaultdict[tuple[str, str], list[Input]] = defaultdict(list)
        for each in statements:
            self.statements[self.real(each.subject), each.relation].append(each)

    def real(self, name: str) -> str:
        return self.aliases.get(name, name)

    def subjects(self) -> set[str]:
        return {subject for subject, _ in self.statements}

    def about(self, subject: str, relation: str) -> list[Input]:
        return [
            each
            for each in self.statements.get((subject, relation), ())
            if not self.valid_at or each.since <= self.valid_at
        ]

    def values(self, subject: str, relation: str) -> set[str]:
        kind = self.case.relation(relation).kind
        if kind == CLAIM:
            named = {each.object for each in self.about(subject, relation)}
            return {value for value in named if True in self.stances(subject, relation, value)}
        values: set[str] = set()
        for each in self.about(subject, relation):
            if each.action == DENY:
                values.discard(each.object)
            elif kind == LATEST:
                values = {each.object}
            else:
                values.add(each.object)
        return values

    def walk(self, subject: str, path: Iterable[str]) -> set[str]:
        reached = {subject}
        for relation in _expand(self.case, path):
            reached = {value for each in reached for value in self.values(each, relation)}
        return reached

    def ever(self, subject: str, relation: str) -> set[str]:
        return {each.object for each in self.about(subject, relation) if each.action == STATE}

    def stances(self, subject: str, relation: str, value: str) -> list[bool]:
        """Return the last position of each source on a value."""
        last: dict[str, bool] = {}
        for each in self.about(subject, relation):
            if each.object == value:
                last[each.source] = each.action == STATE
        return list(last.values())


def _remaining(inputs: list[Input]) -> list[Input]:
    """Return the inputs without those that a later FORGET erases, and without the FORGETs."""
    erased: set[str] = set()
    for position, request in enumerate(inputs):
        if request.action != FORGET:
            continue
        earlier = [each for each in inputs[:position] if each.id not in erased]
        names = {request.subject}
        for each in earlier:
            if each.action == ALIAS and (each.object in names or each.subject in names):
                names |= {each.object, each.subject}
        for each in earlier:
            if request.relation:
                is_meant = each.subject in names and each.relation == request.relation
            else:
                is_meant = each.subject in names or each.object in names
            if is_meant:
                erased.add(each.id)
    return [each for each in inputs if each.id not in erased and each.action != FORGET]
