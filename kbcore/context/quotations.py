"""Texts that were said and of which a window needs a part or nothing, because the facts read in
them are known.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from kbcore.context.capacity import Excerpt, FactKey, RankedCandidate
from kbcore.context.ranking import Supply
from kbcore.context.text.memories import SAID
from kbcore.reason.budget import Budget
from kbcore.search.tokens import words
from kbcore.state.episodes.evidence import evidence_of
from kbcore.state.facts import Row
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.ir.schema import RelationSchema
from kbtypes.windows import SpanKey

FACTS_PER_YIELD = 500
"""Facts of an episode looked at between two turns of others: about a millisecond."""

SPANS_PER_YIELD = 10
"""Spans of a text whose facts are looked up between two such turns."""

NO_ABBREVIATION = "".join(
    rf"(?<!\b{each}\.)" for each in (r"e\.g", r"i\.e", "[DM]r", "Mrs", "Ms", "Prof", "St", "vs")
)
"""Pattern of a place that is not the end of a common abbreviation, within a sentence."""

_WORD = re.compile(r"\S+")

_SENTENCE = re.compile(
    r"\S.*?(?:(?<![.!?…])(?=(?P<end>[.!?…]+[\"'”’»)\]]*))(?P=end)"
    rf"{NO_ABBREVIATION}(?=\s)|[。！？]|$)",
    re.MULTILINE,
)
"""A sentence, in time linear in its length: the end of a run of marks is looked for once. The group
stands for a possessive repeat, which Python 3.10 does not have.
"""

QUOTATION = "episode"
"""Metadata of a fact `said(speaker, text, when)` that holds what was said as it was said."""


SAID_ARITY = 3
"""Arguments of a text that was said: speaker, text, when."""

MIN_WORDS = 4
"""Fewer words of a sentence say nothing."""


class Quotations:
    """Lookup of the facts that were read in texts; the caller holds the read lock.

    `is_line` tells whether a text of a scope is written as a line, which can be shortened.
    """

    def __init__(
        self,
        supply: Supply,
        tenant: Tenant,
        query: str | None,
        is_line: Callable[[str | None], bool],
        budget: Budget,
    ) -> None:
        self._supply = supply
        self._engine = tenant.engine
        self._episodes = tenant.episodes
        self._asked = frozenset(words(query or ""))
        self._is_line = is_line
        self._budget = budget
        self._relations: list[StoredRelation] | None = None
        self._begun: dict[tuple[int, RowKey], frozenset[int]] = {}

    def shorten(self, text: RankedCandidate, taken: Container[FactKey]) -> bool:
        """Leave out of a text the sentences of which the window has, or is about to have, a fact,
        or whose fact a newer value replaced, with others that name the older value: they would
        repeat the fact, or bring back what is no longer believed.

        Returns False if nothing is left that has a word of the query.
        """
        if text.row["metadata"].get(QUOTATION) is not True:
            return True
        covered: list[dict[str, Any]] = []
        older: list[frozenset[str]] = []
        for span in self._budget.paced(text.row.get("evidence", ()), SPANS_PER_YIELD):
            for stored, row, places in self._read_in(span):
                is_replaced = self._standing(stored, row, taken)
                if is_replaced is not None:
                    covered += places
                if is_replaced and row:
                    older.append(frozenset(words(self._rows(stored, row)[0]["args"][-1])))
        if not covered:
            return True
        spans = text.row["evidence"]
        if len(spans) > 1 or not self._is_line(text.row["scope"]):
            return False
        text.excerpt = self._left(spans[0], covered, older)
        return text.excerpt is not None

    def _left(
        self,
        span: dict[str, Any],
        covered: Sequence[dict[str, Any]],
        older: Sequence[frozenset[str]],
    ) -> Excerpt | None:
        """Return the sentences of a span that have none of the spans `covered` and not all words of
        a value of `older`; None if there are none, or none about the query.
        """
        episode = self._episodes.get(span["episode"])
        if episode is None:
            return None
        left: list[tuple[int, int]] = []
        is_next = False
        start, end = span.get("start", 0), span.get("end", len(episode.text))
        for sentence in self._budget.paced(_SENTENCE.finditer(episode.text, start, end)):
            span_of_sentence = {
                "episode": episode.id,
                "start": sentence.start(),
                "end": sentence.end(),
            }
            of_sentence = frozenset(words(sentence[0]))
            is_left = not any(_overlap(span_of_sentence, other) for other in covered) and not any(
                value and value <= of_sentence for value in older
            )
            if is_left:
                first = left.pop()[0] if is_next else sentence.start()
                left.append((first, sentence.end()))
            is_next = is_left
        parts = [episode.text[low:high] for low, high in left]
        stems = frozenset(word for part in parts for word in words(part))
        if not stems or (self._asked and not stems & self._asked):
            return None
        begins, ends = left[0][0] == start, left[-1][1] == end
        text = f"{'' if begins else '… '}{' … '.join(parts)}{'' if ends else ' …'}"
        return Excerpt(text, tuple((episode.id, low, high) for low, high in left))

    def is_text(self, fact: RankedCandidate) -> bool:
        """Return whether a fact is a text that was said, written as a line."""
        row = fact.row
        is_said = row["predicate"] == SAID and len(row["args"]) == SAID_ARITY
        return is_said and not row["negated"] and self._is_line(row["scope"])

    def part_of(self, text: RankedCandidate, fits: Callable[[Excerpt], bool]) -> Excerpt | None:
        """Return as many sentences of a text as fit, around the one with most words of the query,
        or words of that sentence if it does not fit as a whole; None if nothing does.
        """
        id, whole, start, end = self._whole(text)
        own = tuple(_spans_of(text))

        def excerpt(low: int, high: int) -> Excerpt:
            part = f"{'… ' if low > start else ''}{whole[low:high]}{' …' if high < end else ''}"
            return Excerpt(part, own if id is None else ((id, low, high),))

        def most(places: Sequence[tuple[int, int]], middle: int, least: int) -> Excerpt | None:
            """Return the longest run of places that fits, a third of it before the middle."""
            longest, few, many = None, least - 1, len(places)
            while few < many:
                self._budget.yield_now()
                count = (few + many + 1) // 2
                first = max(0, min(middle - count // 3, len(places) - count))
                part = excerpt(places[first][0], places[first + count - 1][1])
                if fits(part):
                    longest, few = part, count
                else:
                    many = count - 1
            return longest

        sentences = self._places(_SENTENCE, whole, start, end)
        matches = [
            len(self._asked.intersection(words(whole[low:high])))
            for low, high in self._budget.paced(sentences, SPANS_PER_YIELD)
        ]
        best = max(matches, default=0)
        if not sentences or (self._asked and not best):
            return None
        middle = matches.index(best)
        part = most(sentences, middle, 1)
        if part is not None:
            return part
        of_sentence = self._places(_WORD, whole, *sentences[middle])
        # The longest word of the query says more than the others.
        lengths = [
            high - low if self._asked.intersection(words(whole[low:high])) else 0
            for low, high in self._budget.paced(of_sentence, SPANS_PER_YIELD)
        ]
        return most(of_sentence, lengths.index(max(lengths)), min(MIN_WORDS, len(of_sentence)))

    def _places(
        self, pattern: re.Pattern[str], text: str, start: int, end: int
    ) -> list[tuple[int, int]]:
        matches = self._budget.paced(pattern.finditer(text, start, end), SPANS_PER_YIELD)
        return [each.span() for each in matches]

    def _whole(self, text: RankedCandidate) -> tuple[str | None, str, int, int]:
        """Return the id and the text of the episode of a text that was said, and its span in it; if
        it is none of a single episode, the text alone.
        """
        spans = _spans_of(text)
        if len(spans) == 1 and text.row["metadata"].get(QUOTATION) is True:
            id, start, end = spans[0]
            episode = self._episodes.get(id)
            if episode is not None:
                stop = len(episode.text) if end is None else end
                return id, episode.text, start or 0, stop
        whole = text.row["args"][1] if text.excerpt is None else text.excerpt.text
        return None, whole, 0, len(whole)

    def _read_in(
        self, span: dict[str, Any]
    ) -> Iterator[tuple[StoredRelation, RowKey, list[dict[str, Any]]]]:
        """Yield the facts that were read in a span, with their spans that overlap it."""
        if self._relations is None:
            relations = (each for part in self._supply.partitions for each in part.relations())
            self._relations = [each for each in relations if each.metadata]
        for stored in self._relations:
            for row in self._budget.paced(stored.supported_by(span["episode"]), FACTS_PER_YIELD):
                metadata = stored.metadata[row]
                if metadata.get(QUOTATION) is True:  # the same words, said often, have many spans
                    continue
                if places := [other for other in evidence_of(metadata) if _overlap(span, other)]:
                    yield stored, row, places

    def _standing(
        self, stored: StoredRelation, row: RowKey, taken: Container[FactKey]
    ) -> bool | None:
        """Return True if a fact was replaced, False if the window has it or is about to have it,
        None for others.
        """
        (fact,) = self._rows(stored, row)
        key = fact["scope"], fact["predicate"], fact["negated"], tuple(fact["args"])
        ids = stored.relation.match(list(row))[1]
        if ids:
            is_known = key in taken or (stored, ids[0]) in self._supply.lexical
            return False if is_known else None
        return self._is_replaced(stored, row, fact["validUntil"]) or None

    def _is_replaced(self, stored: StoredRelation, row: RowKey, until: int | None) -> bool:
        """Return whether a fact ended when another value, or its opposite, began."""
        if until is None:
            return False
        schema = stored.schema
        if schema.arity > 1 and until in self._beginnings(stored, (*row[:-1], 0)):
            return True
        opposite = RelationSchema(schema.predicate, schema.arity, not schema.positive)
        for partition in self._supply.partitions:
            denied = partition.get(opposite) if partition.name == stored.scope else None
            if denied is not None and until in self._beginnings(denied, row):
                return True
        return False

    def _beginnings(self, stored: StoredRelation, pattern: RowKey) -> Container[int]:
        """Return when the facts of a relation with some symbols began, hidden ones too; 0 is any
        symbol. Many facts of a text may have the same ones.
        """
        key = id(stored), pattern
        known = self._begun.get(key)
        if known is None:
            ids = stored.relation.match(
                list(pattern), hidden=True, yield_now=self._budget.yield_now
            )[1]
            windows = self._budget.paced(stored.windows(ids))
            known = self._begun[key] = frozenset(start for start, _ in windows)
        return known

    def _rows(self, stored: StoredRelation, pattern: RowKey) -> list[Row]:
        """Return the facts of a relation with some symbols, hidden ones too; 0 is any symbol."""
        rows, ids = stored.relation.match(list(pattern), hidden=True)
        return stored.rows(self._engine, rows, ids)


def _spans_of(text: RankedCandidate) -> Sequence[SpanKey]:
    """Return the spans of a text, or of its part that is shown."""
    if text.excerpt is not None:
        return text.excerpt.spans
    evidence = text.row.get("evidence", ())
    return [(each["episode"], each.get("start"), each.get("end")) for each in evidence]


def _overlap(first: dict[str, Any], second: dict[str, Any]) -> bool:
    if first["episode"] != second["episode"]:
        return False
    if "start" not in first or "start" not in second:
        return True
    return bool(first["start"] < second["end"] and second["start"] < first["end"])
