"""Answers in a dialogue: the turn after a question matches too, although it does not repeat its
words.

"Did anyone come with you to the concert?" matches what is asked later about the concert, and the
answer, "Yes, my aunt", has none of these words. If a fact that matches the query is based on an
episode that ends with a question, the facts based on the next episode of the session, said by
another speaker, match ANSWER_WEIGHT times as well in addition to their own match. Nothing else of a
session counts: in made chats, scores of whole sessions changed nothing, and scores of all
neighbours lost recall where neighbours are about different subjects.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from heapq import nlargest
from itertools import islice

from kbcore.context.ranking import Lexical
from kbcore.state.episodes.evidence import evidence_of
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant

ANSWER_WEIGHT = 0.7
"""Share of the match of a question that its answer gets."""

MAX_QUESTIONS = 10
"""The best matches that can be questions; a weaker one would hardly bring its answer into a
window.
"""

MAX_EPISODES = 3
"""Episodes looked at for one fact."""

MAX_ANSWER_FACTS = 16
"""Facts of one relation that an answer raises."""

_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_CLOSING = "\"')]*_\u201d\u2019\u00bb "
"""Characters that may follow the mark of a question."""


def with_answers(
    tenant: Tenant,
    partitions: Sequence[Partition],
    predicates: Sequence[str] | None,
    matches: Lexical,
) -> Lexical:
    """Return matches with those of the answers to matching questions, for facts of `predicates`.

    The caller holds the read lock.
    """
    if not matches or not len(tenant.episodes):
        return matches
    answers: dict[str, float] = {}
    best = nlargest(MAX_QUESTIONS, matches.items(), key=lambda pair: pair[1])
    for (stored, row), match in best:
        for answer in _answers(tenant, stored, row):
            answers[answer] = max(match, answers.get(answer, 0.0))
    if not answers:
        return matches
    raised = dict(matches)
    for partition in partitions:
        for stored in partition.relations():
            if predicates is not None and stored.schema.predicate not in predicates:
                continue
            for answer, match in answers.items():
                for row in _visible(stored, answer):
                    more = ANSWER_WEIGHT * match
                    raised[stored, row] = max(
                        raised.get((stored, row), 0.0), matches.get((stored, row), 0.0) + more
                    )
    return raised


def _answers(tenant: Tenant, stored: StoredRelation, row: int) -> Iterator[str]:
    """Yield the episodes that answer a question which a fact is based on."""
    if not stored.metadata:
        return
    key = tuple(stored.relation.rows(array("I", [row])))
    for span in evidence_of(stored.metadata.get(key, {}))[:MAX_EPISODES]:
        question = tenant.episodes.get(span["episode"])
        if question is None or question.session is None or not _is_question(question.text):
            continue
        tenant.note_episodes()  # a transaction that is committed before may add the answer
        answer = tenant.episodes.following(question)
        if answer is not None and answer.speaker != question.speaker:
            yield answer.id


def _is_question(text: str) -> bool:
    """Return whether the last sentence of a text is a question."""
    return text[-64:].rstrip().rstrip(_CLOSING).endswith(_QUESTION_MARKS)


def _visible(stored: StoredRelation, episode: str) -> Iterator[int]:
    """Yield the rows of visible facts of a relation that are based on an episode."""
    for key in islice(stored.supported_by(episode), MAX_ANSWER_FACTS):
        yield from stored.relation.match(list(key))[1]
