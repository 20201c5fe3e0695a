"""Matches of what was said around a match: the session of a fact, its neighbours in it, and the
answer to a question.

"Did anyone come with you to the concert?" matches what is asked later about the concert, and the
answer, "Yes, my aunt", has none of these words. A fact that is based on an episode of a session
therefore gets, in addition to its own match, SESSION_WEIGHT times the best match in the session and
NEIGHBOUR_WEIGHT times the best match among the episodes at most NEIGHBOUR_DISTANCE before and
after, of any speaker. Where episodes are long, each is about a subject of its own: both weights
are multiplied by min(1, UNIT_CHARS / mean length)^2. The next episode, said by another speaker
after one that ends with a question, gets ANSWER_WEIGHT times the match of the question as well.
"""

from __future__ import annotations

from array import array
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest
from itertools import islice

from kbcore.context.ranking import Lexical
from kbcore.reason.budget import Budget
from kbcore.state.episodes.evidence import evidence_of
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbtypes.episodes import Episode

SESSION_WEIGHT = 0.5
NEIGHBOUR_WEIGHT = 0.5
NEIGHBOUR_DISTANCE = 2
ANSWER_WEIGHT = 0.7

UNIT_CHARS = 200
"""Mean length of episodes in characters from which on the weights decrease."""

MAX_SOURCES = 32
"""The best matches whose sessions and neighbours are looked at; a weaker one would hardly bring
them into a window.
"""

MAX_NEIGHBOURS = 32
"""Episodes without a match of their own whose facts are raised: those that get most."""

MAX_EPISODES = 3
"""Episodes looked at for one fact."""

MAX_FACTS = 16
"""Facts of one relation that an episode raises."""

_QUESTION_MARKS = ("?", "\uff1f", "\u061f")
_CLOSING = "\"')]*_\u201d\u2019\u00bb "
"""Characters that may follow the mark of a question."""

Where = tuple[StoredRelation, int]


def with_conversation(
    tenant: Tenant,
    partitions: Sequence[Partition],
    predicates: Container[str] | None,
    matches: Lexical,
    best: Iterable[Where],
    budget: Budget,
) -> Lexical:
    """Return matches with those of sessions and neighbours, for facts of `predicates`.

    `best` are the matches whose sessions and neighbours are looked at. The caller holds the
    read lock. Raises BudgetExceeded.
    """
    if not matches or not len(tenant.episodes):
        return matches
    tenant.note_episodes()  # a transaction that is committed before may add a neighbour
    based = _episodes(tenant, best)
    own: dict[str, float] = {}
    episodes: dict[str, Episode] = {}
    for where in sorted(based, key=matches.__getitem__, reverse=True):
        for episode in based[where]:
            own.setdefault(episode.id, matches[where])
            episodes[episode.id] = episode
    if not episodes:
        return matches
    more = _more(tenant, episodes, own)
    raised = dict(matches)
    for where, based_on in based.items():
        raised[where] += max(more[episode.id] for episode in based_on)
    relations = [
        stored
        for partition in partitions
        for stored in partition.relations()
        if stored.metadata and (predicates is None or stored.schema.predicate in predicates)
    ]
    others = ((match, id) for id, match in more.items() if id not in own)
    for match, id in budget.paced(nlargest(MAX_NEIGHBOURS, others)):
        for stored in relations:
            for row in _visible(stored, id, budget):
                where = stored, row
                raised[where] = max(raised.get(where, 0.0), matches.get(where, 0.0) + match)
    return raised


def _more(
    tenant: Tenant, episodes: Mapping[str, Episode], own: Mapping[str, float]
) -> dict[str, float]:
    """Return by episode what its session and its neighbours add to the match of its facts.

    `own` has the matches of `episodes`, best first.
    """
    sessions: dict[str, float] = {}
    near: dict[str, float] = {}
    answers: dict[str, float] = {}
    session_of: dict[str, str] = {}
    for id, match in own.items():  # best first, so that the first match of each is the best
        episode = episodes[id]
        session = episode.session
        if session is None:
            continue
        session_of[id] = session
        sessions.setdefault(session, match)
        is_question = _is_question(episode.text)
        for distance, other in tenant.episodes.around(episode, NEIGHBOUR_DISTANCE):
            session_of[other.id] = session
            near.setdefault(other.id, match)
            if is_question and distance == 1 and other.speaker != episode.speaker:
                answers.setdefault(other.id, match)
    mean = sum(episode.length for episode in episodes.values()) / len(episodes)
    gate = min(1.0, UNIT_CHARS / mean) ** 2 if mean else 1.0
    more = dict.fromkeys(episodes, 0.0)
    for id, session in session_of.items():
        around = SESSION_WEIGHT * sessions[session] + NEIGHBOUR_WEIGHT * near.get(id, 0.0)
        more[id] = gate * around
    for id, match in answers.items():
        more[id] += ANSWER_WEIGHT * match
    return more


def _episodes(tenant: Tenant, facts: Iterable[Where]) -> dict[Where, list[Episode]]:
    """Return the episodes that facts are based on, those without any left out."""
    groups: dict[StoredRelation, array[int]] = {}
    for stored, row in facts:
        if stored.metadata:
            groups.setdefault(stored, array("I")).append(row)
    based: dict[Where, list[Episode]] = {}
    for stored, rows in groups.items():
        arity, cells = stored.schema.arity, stored.relation.rows(rows)
        for index, row in enumerate(rows):
            key = tuple(cells[index * arity : (index + 1) * arity])
            spans = evidence_of(stored.metadata.get(key, {}))[:MAX_EPISODES]
            known = [tenant.episodes.get(span["episode"]) for span in spans]
            if episodes := [episode for episode in known if episode is not None]:
                based[stored, row] = episodes
    return based


def _visible(stored: StoredRelation, episode: str, budget: Budget) -> Iterator[int]:
    """Yield the rows of visible facts of a relation that are based on an episode."""
    for key in islice(stored.supported_by(episode, budget.yield_now), MAX_FACTS):
        yield from stored.relation.match(list(key))[1]


def _is_question(text: str) -> bool:
    """Return whether the last sentence of a text is a question."""
    return text[-64:].rstrip().rstrip(_CLOSING).endswith(_QUESTION_MARKS)
