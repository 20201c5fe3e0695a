"""Search for stored facts that match the query of a window, by words and optionally by
embeddings.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from kbcore.context.ranking import SHARE_DIGITS, Lexical, admitted
from kbcore.context.relevance.conversation import MAX_SOURCES, with_conversation
from kbcore.context.relevance.subjects import asked_of
from kbcore.context.request import SaidIn, WindowRequest
from kbcore.context.salience import Scores
from kbcore.context.text.memories import SAID
from kbcore.reason.budget import Budget
from kbcore.search.bm25 import Found, LexicalIndex, SearchQuery
from kbcore.search.dates import resolved_dates
from kbcore.search.tokens import in_first_person, without_first_person
from kbcore.state.partition import Partition, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import Attribute
from kbplanner.pacing import sorted_in_parts

FACTS_PER_YIELD = 200
"""Facts of episodes looked up between two calls of `yield_now`: about a millisecond."""

MATCHES_PER_YIELD = 1000
"""Matches ranked between two such calls."""

MATCHES_PER_FACT = 4
"""Matches that are ranked for each fact a window holds: some of them may not be wanted."""

MATCHES_PER_CAPPED_FACT = 64
"""The same where the number of facts of a predicate is limited."""

MAX_TIED_MATCHES = 16_384
"""Matches of a partition up to which more are looked at where salience could still change their
order.
"""

MAX_TEXTS_OF_NAMES = 5
MAX_FACTS_OF_NAMES = 10
"""Texts that were said, and other facts, which match a question of which they have names only:
hardly an answer.
"""

ASKER_FACTOR = 2.0
"""Factor for the match of a fact about the asker."""

Where = tuple[StoredRelation, int]
"""A stored fact: its relation and row id."""

Allowed = dict[StoredRelation, set[int]]
"""Stored facts: row ids by relation."""


def matching_facts(
    tenant: Tenant,
    partitions: Sequence[Partition],
    request: WindowRequest,
    salience_weight: float,
    budget: Budget,
    scores: Scores | None = None,
    allowed: Allowed | None = None,
) -> Lexical:
    """Return the BM25 share of the best matching facts, doubled for facts about the asker, and more
    for what was said around matches.

    They contain the first `max_facts` after ranking by match and by the salience that `scores`
    give; without `scores` salience is taken to be unknown. With `min_relevance` few facts are
    returned if none has a word of the query besides names. First-person words of the query count as
    the name of the asker, and dates relative to the instant of the request, such as "last May", as
    those dates. With `allowed`, other facts are not searched. The result is empty if no fact has
    `min_coverage` of the words of the query. The caller holds the read lock. Raises BudgetExceeded.
    """
    if request.query is None:
        return {}
    text, asker = request.query, request.asker
    if not _is_covered(tenant, partitions, request, text, budget):
        return {}
    if dates := resolved_dates(text, tenant.at(budget.now or 0), budget.yield_now):
        text = f"{text} {dates}"
    text = _about_asker(text, asker, budget)
    index = LexicalIndex.of(tenant)
    predicates = admitted(request, partitions)
    queries = [index.query(partition, text, budget, predicates) for partition in partitions]
    if allowed is not None:
        for query in queries:
            query.limit_to(allowed)
    symbol = None if asker is None else tenant.engine.find(asker)
    search = _Matches(queries, request, salience_weight, symbol, scores, budget)
    matches, first = search.found()
    narrow = request.min_relevance > 0
    stems = asked_of(tenant, first, text, asker, budget) if narrow else ()
    if stems and not _have_any(index, queries, matches, stems, budget):
        return {where: matches[where] for where in _few(first)}
    matches = _with_pairs_and_dates(queries, matches, first)
    return with_conversation(tenant, partitions, predicates, matches, first, budget)


def _few(first: Iterable[Where]) -> Iterator[Where]:
    """Yield the first of some matches: few texts that were said, and other facts."""
    left = {True: MAX_TEXTS_OF_NAMES, False: MAX_FACTS_OF_NAMES}
    for where in first:
        is_text = where[0].schema.predicate == SAID
        if left[is_text]:
            left[is_text] -= 1
            yield where


def _have_any(
    index: LexicalIndex,
    queries: Sequence[SearchQuery],
    matches: Lexical,
    stems: Iterable[str],
    budget: Budget,
) -> bool:
    """Return whether a match has one of some stems."""
    numbers = index.numbers_of(stems)
    groups: dict[StoredRelation, array[int]] = {}
    for stored, row in budget.paced(matches, FACTS_PER_YIELD):
        groups.setdefault(stored, array("I")).append(row)
    for query in queries:
        for stored in {*query.relations} & groups.keys():
            rows = groups.pop(stored)
            for start in budget.paced(range(0, len(rows), FACTS_PER_YIELD), 1):
                if any(query.have(stored, rows[start : start + FACTS_PER_YIELD], numbers)):
                    return True
    return False


def _is_covered(
    tenant: Tenant,
    partitions: Sequence[Partition],
    request: WindowRequest,
    text: str,
    budget: Budget,
) -> bool:
    """Return whether a fact has enough words of the query; first-person words count as the
    asker.
    """
    if request.min_coverage <= 0:
        return True
    text = _about_asker(text, request.asker, budget)
    index, share = LexicalIndex.of(tenant), request.min_coverage
    predicates = admitted(request, partitions)
    return any(index.covers(partition, text, share, budget, predicates) for partition in partitions)


def _about_asker(text: str, asker: str | None, budget: Budget) -> str:
    """Return a text with the name of the asker in place of words of the first person.

    With these words, "I" in an old text would be a better match than the fact that names the asker.
    """
    if asker is None or not in_first_person(text, budget.yield_now):
        return text
    return f"{asker} {without_first_person(text, budget.yield_now)}"


def facts_said_in(
    tenant: Tenant, partitions: Sequence[Partition], said_in: SaidIn, budget: Budget
) -> Allowed:
    """Return the facts that have evidence in some conversations.

    The caller holds the read lock. Raises BudgetExceeded.
    """
    tenant.note_episodes()
    if said_in.session is not None:
        episodes = tenant.episodes.in_session(said_in.session)
    else:
        episodes = tenant.episodes.of_agent(str(said_in.agent))
    relations = [
        stored for partition in partitions for stored in partition.relations() if stored.metadata
    ]
    allowed: Allowed = {}
    for episode in budget.paced(episodes, FACTS_PER_YIELD):
        if said_in.agent in (None, episode.agent):
            for stored in relations:
                keys = stored.supported_by(episode.id, budget.yield_now)
                for key in budget.paced(keys, FACTS_PER_YIELD):
                    rows = stored.relation.match(list(key))[1]
                    allowed.setdefault(stored, set()).update(rows)
    return allowed


def among(lexical: Lexical, allowed: Allowed | None, budget: Budget) -> Lexical:
    """Return the matches that are among some facts; None means all."""
    if allowed is None:
        return lexical
    return {
        (stored, row): match
        for (stored, row), match in budget.paced(lexical.items())
        if row in allowed.get(stored, ())
    }


def at_least(lexical: Lexical, share_of_best: float, budget: Budget) -> Lexical:
    """Return the matches with at least a share of the best match."""
    if share_of_best <= 0 or not lexical:
        return lexical
    least = share_of_best * max(lexical.values())
    matches = budget.paced(lexical.items())
    return {fact: match for fact, match in matches if match >= least}


def _with_pairs_and_dates(
    queries: Sequence[SearchQuery], matches: Lexical, first: Iterable[Where]
) -> Lexical:
    """Return matches with what pairs of words and dates add to some of them."""
    groups: dict[StoredRelation, array[int]] = {}
    for stored, row in first:
        groups.setdefault(stored, array("I")).append(row)
    raised = dict(matches)
    for query in queries:
        for stored in {*query.relations} & groups.keys():
            rows = groups.pop(stored)
            pairs, dates = query.pairs(stored, rows), query.dates(stored, rows)
            for row, *more in zip(rows, pairs, dates, strict=True):
                raised[stored, row] += sum(more)
    return raised


class _Matches:
    """The search for the facts that are first after ranking by match and salience.

    The best matches alone are not enough, because salience and the asker can raise a fact. Once the
    rank of the last wanted fact among some matches is known, so is the least match with which a
    further fact can come before it, and one more search finds those facts.
    """

    def __init__(
        self,
        queries: Sequence[SearchQuery],
        request: WindowRequest,
        salience_weight: float,
        symbol: int | None,
        scores: Scores | None,
        budget: Budget,
    ) -> None:
        self._queries = queries
        self._budget = budget
        # The first facts of a small window are those of a larger one.
        self._wanted = max(request.max_facts, MAX_SOURCES)
        self._least_salience = request.min_salience
        capped = request.max_per_predicate is not None or bool(request.buckets)
        factor = MATCHES_PER_CAPPED_FACT if capped else MATCHES_PER_FACT
        self._count = max(request.max_facts * factor, MAX_SOURCES)
        self._weight = salience_weight
        self._symbol = symbol
        self._scores = scores

    def found(self) -> tuple[Lexical, list[Where]]:
        """Return the matches, and the first MAX_SOURCES of them after ranking."""
        symbols = (None,) if self._symbol is None else (None, self._symbol)
        searches = [(query, symbol) for query in self._queries for symbol in symbols]
        results = [query.best(self._count, symbol=symbol) for query, symbol in searches]
        first = self._doubled(results)
        cut = [
            (search, result[-1][2])
            for search, result in zip(searches, results, strict=True)
            if len(result) == self._count
        ]
        best = max(first.values(), default=1.0)
        ranked = self._ranked(first, best)
        if not cut or self._count >= MAX_TIED_MATCHES:
            return first, _facts_of(ranked[:MAX_SOURCES])
        last = ranked[self._wanted - 1] if len(ranked) >= self._wanted else None
        least = 0.0
        if last is not None:
            least = best * (-last[0] - self._weight * self._greatest_salience())
        more = []
        for (query, symbol), lowest in cut:
            minimum = min(least / (1.0 if symbol is None else ASKER_FACTOR), 1.0)
            if lowest >= minimum:
                more.append(query.best(MAX_TIED_MATCHES, max(minimum, 0.0), symbol))
        if not more:
            return first, _facts_of(ranked[:MAX_SOURCES])
        deeper = self._doubled([*results, *more])
        chosen = _facts_of(self._ranked(deeper, best)[: self._wanted])
        if last is not None:
            facts = {*first, *chosen}
            pairs = self._budget.paced(deeper.items())
            deeper = {where: match for where, match in pairs if where in facts}
        return deeper, chosen[:MAX_SOURCES]

    def _doubled(self, results: Sequence[Sequence[Found]]) -> dict[Where, float]:
        """Return matches by fact, doubled if the fact is about the asker, best first in a
        partition.
        """
        matches: dict[Where, float] = {}
        for hits in results:
            for stored, row, share in self._budget.paced(hits, MATCHES_PER_YIELD):
                matches[stored, row] = share
        if self._symbol is not None:
            about = _facts_about(self._symbol, matches, self._budget)
            for where in self._budget.paced(about, MATCHES_PER_YIELD):
                matches[where] *= ASKER_FACTOR
        return matches

    def _ranked(
        self, matches: Mapping[Where, float], best: float
    ) -> list[tuple[float, float, int, Where]]:
        """Return the matches that are salient enough: negative rank, negative time,
        negative row, fact; in order: newest first among equals, also in one millisecond.
        """
        groups: dict[StoredRelation, array[int]] = {}
        for stored, row in self._budget.paced(matches, MATCHES_PER_YIELD):
            groups.setdefault(stored, array("I")).append(row)
        ranked: list[tuple[float, float, int, Where]] = []
        for stored, rows in groups.items():
            saliences = _saliences(self._scores, stored, rows)
            created = stored.relation.attributes(Attribute.CREATED_AT, rows)
            placed = zip(rows, saliences, created, strict=True)
            ranked += [
                (
                    -round(matches[stored, row] / best, SHARE_DIGITS) - self._weight * salience,
                    -at,
                    -row,
                    (stored, row),
                )
                for row, salience, at in self._budget.paced(placed, MATCHES_PER_YIELD)
                if salience >= self._least_salience
            ]
        return sorted_in_parts(ranked, self._budget.yield_now, itemgetter(0, 1, 2))

    def _greatest_salience(self) -> float:
        """Return a bound of the salience of all facts."""
        if self._scores is None or self._scores.how is None:
            return 1.0
        relations = {
            stored
            for query in self._queries
            for stored in query.relations
            if stored.relation.counts().visible
        }
        most = self._scores.most_of([(stored, None) for stored in relations], 1)
        return most[0].score if most else 1.0


def _facts_of(ranked: Iterable[tuple[float, float, int, Where]]) -> list[Where]:
    return [where for *_, where in ranked]


def _saliences(scores: Scores | None, stored: StoredRelation, rows: array[int]) -> Sequence[float]:
    """Return the salience of rows, 0 if it is unknown."""
    return array("d", bytes(8 * len(rows))) if scores is None else scores.of(stored, rows)


def _facts_about(symbol: int, facts: Iterable[Where], budget: Budget) -> list[Where]:
    """Return the facts that have a symbol among their arguments."""
    groups: dict[StoredRelation, array[int]] = {}
    for stored, row in budget.paced(facts, MATCHES_PER_YIELD):
        groups.setdefault(stored, array("I")).append(row)
    about: list[Where] = []
    for stored, rows in groups.items():
        arity, cells = stored.schema.arity, stored.relation.rows(rows)
        columns = [cells[position::arity] for position in range(arity)]
        if any(symbol in column for column in columns):
            facts_of = budget.paced(zip(rows, *columns, strict=True), MATCHES_PER_YIELD)
            about += [(stored, row) for row, *args in facts_of if symbol in args]
    return about
