"""Texts that someone said about a question: facts `said(speaker, text, when)` and episodes.

Where no fact answers a question, they are the evidence for an answer.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from math import log

from kbcore.language.reading import EPISODE
from kbcore.reason.budget import Budget
from kbcore.search.bm25 import LexicalIndex
from kbcore.search.tokens import words
from kbcore.state.facts import Row, conclusion
from kbcore.state.partition import Partition
from kbcore.state.tenant import Tenant
from kbcore.timestamps import time_text
from kbplanner.ir.terms import Atom
from kbplanner.pacing import paced
from kbtypes.episodes import Episode

SAID_ARITY = 3

MAX_SAID = 10
"""Maximum number of facts and of episodes that are the evidence for one answer."""

MAX_EPISODES_SEARCHED = 2000
"""Episodes whose words are compared with those of a question: the latest ones."""

MAX_SAID_CHARS = 800
"""Maximum length of an episode in a prompt; a longer one is cut."""

EPISODES_PER_YIELD = 10
"""Episodes compared between two calls of `yield_now`: about a millisecond."""


def said_about(
    tenant: Tenant,
    partitions: Sequence[Partition],
    question: str,
    budget: Budget,
    rows: Callable[[Atom], list[Row]],
) -> list[Row]:
    """Return the facts `said` and the episodes that have words of a question, best match first;
    an episode as a row of `said` with itself as evidence.

    `rows` returns the stored row of a fact. The caller holds the tenant's read lock. Raises
    BudgetExceeded.
    """
    index = LexicalIndex.of(tenant)
    facts: list[Row] = []
    for partition in partitions:
        for stored, row, _ in index.search(partition, question, MAX_SAID, budget, [EPISODE]):
            if stored.schema.arity != SAID_ARITY:
                continue
            args = tenant.engine.texts(stored.relation.rows(array("I", [row])))
            facts += rows(Atom(EPISODE, tuple(args), stored.schema.positive))
    tenant.note_episodes()
    latest = deque(paced(tenant.episodes, budget.yield_now), MAX_EPISODES_SEARCHED)
    stored_texts = {(row["args"][0], row["args"][1]) for row in facts}
    best = _best(latest, question, budget)
    more = (each for each in best if (each.speaker, each.text) not in stored_texts)
    return [*facts, *map(_row, more)]


def _best(episodes: Iterable[Episode], question: str, budget: Budget) -> list[Episode]:
    """Return the episodes that share most words with a question; rare words count more, and of
    equal episodes the latest is first.
    """
    asked = set(words(question))
    common: Counter[str] = Counter()
    matches: list[tuple[Episode, set[str]]] = []
    count = 0
    for episode in paced(episodes, budget.yield_now, EPISODES_PER_YIELD):
        count += 1
        if shared := asked.intersection(words(f"{episode.speaker} {episode.text}")):
            common.update(shared)
            matches.append((episode, shared))
    scored = [
        (sum(log(1 + count / common[word]) for word in shared), number, episode)
        for number, (episode, shared) in enumerate(matches)
    ]
    return [episode for _, _, episode in sorted(scored, key=lambda each: each[:2])[::-1][:MAX_SAID]]


def _row(episode: Episode) -> Row:
    text = episode.text[:MAX_SAID_CHARS]
    return {
        **conclusion(EPISODE, True, [episode.speaker, text, time_text(episode.at)], None),
        "createdAt": episode.at,
        "validFrom": episode.at,
        "evidence": [{"episode": episode.id, "start": 0, "end": len(text)}],
    }
