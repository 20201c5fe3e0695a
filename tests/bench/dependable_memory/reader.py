"""A fixed reader in place of a language model: it finds the names of values in passages.

It knows the structured form of the question, so that it plans paths without mistakes, and the
list of values of each relation. It does not know the sentences, no dates in texts, and which
relation a sentence is about. Among passages with the subject, the newest decides where a relation
has one value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Protocol

from .interface import Answer, Passage
from .model import COUNT, EVER, LATEST, NO, SUM, VERDICT, YES, Case, Question

NEGATION = re.compile(r"\b(?:not|never|no longer|untrue|wrong|false)\b", re.IGNORECASE)


class Search(Protocol):
    """A search for passages."""

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return passages, best first."""


def read(system: Search, case: Case, question: Question) -> Answer:
    """Search for a question, and for each step of a path, and read the answer."""
    passages = system.search(question.text, question.user, question.window)
    window = "\n".join(passage.text for passage in passages)
    path = [step for name in question.path for step in _rule(case, name)]
    if len(path) == 1:
        return Answer(_last(passages, case, question, question.subject, path[0]), window)
    reached = {question.subject}
    for relation in path:
        following: set[str] = set()
        for subject in sorted(reached):
            gloss = case.relation(relation).gloss
            hits = system.search(f"{subject}: {gloss}?", question.user, question.window)
            window += "".join("\n" + hit.text for hit in hits if hit.text not in window)
            following |= _values(hits, case, question, subject, relation)
        reached = following
    return Answer(_counted(reached, question), window)


def _rule(case: Case, name: str) -> tuple[str, ...]:
    return next((rule.path for rule in case.rules if rule.head == name), (name,))


def _last(
    passages: Sequence[Passage], case: Case, question: Question, subject: str, relation: str
) -> frozenset[str]:
    if question.kind == VERDICT:
        hits = [each for each in passages if names(each.text, subject)]
        hits = [each for each in hits if names(each.text, question.object)]
        return frozenset(NO if NEGATION.search(each.text) else YES for each in hits)
    if not subject:
        values = {each.text for each in passages if names(each.text, question.object)}
        return _counted(values, question)
    return _counted(_values(passages, case, question, subject, relation), question)


def _values(
    passages: Sequence[Passage], case: Case, question: Question, subject: str, relation: str
) -> set[str]:
    values: set[str] = set()
    for passage in sorted(passages, key=lambda each: each.at):
        if question.known_at and passage.at > question.known_at:
            continue
        if not names(passage.text, subject):
            continue
        candidates = case.relation(relation).values
        mentioned = {v for v in candidates if v != subject and names(passage.text, v)}
        if question.kind == EVER:
            values |= mentioned
        elif NEGATION.search(passage.text):
            values -= mentioned
        elif case.relation(relation).kind == LATEST and mentioned:
            values = mentioned
        else:
            values |= mentioned
    return values


def _counted(values: set[str], question: Question) -> frozenset[str]:
    if question.kind == COUNT:
        return frozenset([str(len(values))] if values else ())
    if question.kind == SUM:
        return frozenset([str(sum(map(int, values)))] if values else ())
    return frozenset(values)


@lru_cache(maxsize=1 << 16)
def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])", re.IGNORECASE)


def names(text: str, name: str) -> bool:
    """Return whether a text has a name as whole words; hyphens join words."""
    return name.casefold() in text.casefold() and bool(_pattern(name).search(text))
