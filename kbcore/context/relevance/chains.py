"""Readings of a question: chains of predicates from a constant in it to what it asks for.

"Where was the employer of Mia founded?" names the constant `Mia` and has words of two predicates.
A chain begins with a constant and takes a predicate in each step, whose argument can have the value
of the step before: `employer(Mia, ?x), founded(?x, ?y)`. A beam search takes the chains that have
the most words of the question; the words that no step has, and steps in another order than their
words, count against a chain.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cache
from heapq import nlargest
from itertools import count, islice, pairwise
from operator import attrgetter
from typing import NamedTuple

from kbcore.context.relevance.predicates_asked import AskedPredicates, Signature
from kbcore.context.relevance.related_words import related
from kbcore.context.relevance.similar_phrases import Phrase, Similar, SimilarPhrase
from kbcore.context.relevance.subjects import of_asking
from kbcore.context.relevance.wording import Wording, pairs_of
from kbcore.reason.budget import Budget
from kbcore.search.dates import MONTHS, WEEKDAYS
from kbcore.search.tokens import STOP_WORDS, in_first_person, words
from kbcore.state.tenant import Tenant
from kbplanner.ir.terms import ANONYMOUS, Atom, Literal, Variable
from kbplanner.ir.values.instants import instant
from kbplanner.ir.values.numbers import is_number

MAX_STEPS = 4
"""Predicates of a chain."""

MAX_QUESTION_CHARS, MAX_WORDS = 4000, 64
"""Characters and words of a question that is read; a longer text is none."""

MAX_CONSTANT_WORDS = 8
"""Words of a question that can be one constant, as in "Ann Lee"."""

MAX_MENTIONS = 6
"""Constants of a question that are looked at."""

BEAM_WIDTH = 24
"""Chains that are continued in each step."""

MAX_READINGS = 12
"""Readings that are returned."""

MAX_STEPS_LOOKED_AT = 32
"""Predicates of a question that are looked at."""

MIN_STEP_WEIGHT = 0.7
"""Least weight of the words of a step; see `wording`."""

UNKNOWN_WORD = 0.7
"""Weight of a word that is in no predicate, where that of a word of a predicate is 1."""

UNUSED_CONSTANT = 1.5
"""Weight of a constant that a chain does not use."""

STEP_COST = 0.02
UNNAMED_COST = 0.1
BACKWARD_COST = 0.1
BOUNDARY_COST = 0.1
INVERSION_COST = 0.1
RELATED_COST = 0.05
"""Costs of a step, of one none of whose name the question has, of one against its key or the order
of arguments, of one with words on both sides of a preposition or relative pronoun that is not its
own, of a pair of steps in another order than their words, and of a word that is only related to
one of the predicate.
"""

SIMILAR_WEIGHT = 0.7
SIMILAR_COST = 0.3
"""Weight of a word in a phrase that is similar to a predicate, and cost of a step with such words,
times one minus the cosine.
"""

SIMILAR_STEM = ""
"""Stem of such words: that of no word."""

NO_PHRASE = SimilarPhrase(frozenset(), 1.0)

MAX_PHRASES = 8
"""Phrases of a question that are compared with predicates."""

RELATED_SHARE = 0.85
"""Share of the weight of a word that a related word has."""

_WORD = re.compile(r"[^\W_](?:[\w.&'\u2019-]*\w)?")
_POSSESSIVE = re.compile(r"['\u2019]s$")

WHETHER, HOW, WHEN = "whether", "how", "when"

TIME, NUMBER, NAME = "time", "number", "name"
"""Kinds of values that a question asks for."""

_ARTICLES = frozenset(("a", "an", "the"))
_KINDS = {
    WHEN: TIME,
    **dict.fromkeys(("who", "whom", "whose", "where"), NAME),
    **dict.fromkeys(("what", "which"), None),
}
_MORE = frozenset(("and", "if", "or", "why"))
"""Words of questions that ask for more than a value."""

_NEVER_SIMILAR = _MORE | frozenset(
    """
    after ago always amount at average before best but count earlier ever except except first former formerly how last later least
    mean most neither never next no nobody none nor not now once only originally other number otherwise past prior previous
    previously since sum then total until when without yet
    """.split()
)
"""Words that change what is asked for, so that a phrase that is similar to a predicate has not all
of its words.
"""

_AUXILIARIES = frozenset(
    (
        "are",
        "can",
        "could",
        "did",
        "do",
        "does",
        "had",
        "has",
        "have",
        "is",
        "was",
        "were",
        "will",
        "would",
    )
)
"""First words of a question whether something holds."""

_LIGHT_WORDS = """
actually affiliated already also anybody anyone anything associated called can could current currently day
days did exact exactly find found glad happen hello hey hi just known like located look moment name named
nowadays ok okay one ones person placed please possible present presently question quick quickly really remind
said see situated someone something still sure thank thanks thing time today understand wonder wondering
"""
"""Words that ask for nothing of their own, and need not be covered."""


class AskedWord(NamedTuple):
    """A word of a question: its number among the words, its stem, and how much it counts."""

    number: int
    stem: str
    importance: float


BEFORE, AFTER = 0, 1
"""Sides of a constant."""


class Placed(NamedTuple):
    """A word with its number among those that count, and its place: the side of a constant, and the
    distance from it. `weight` is that for a step, which has the word itself or the related `stem`.
    """

    bit: int
    token: AskedWord
    side: int
    distance: int
    weight: float = 0.0
    stem: str = ""


class Mention(NamedTuple):
    """A constant in a question, with the numbers of its first word and of the one after its last.

    `is_word` is True if the constant can also be a word of a predicate.
    """

    start: int
    end: int
    text: str
    symbol: int
    is_word: bool


@dataclass(frozen=True, slots=True)
class ChainStep:
    """One predicate of a chain: from the argument `source` to the argument `target`, -1 for none.

    `bound` are further arguments with constants.
    """

    signature: Signature
    source: int
    target: int
    bound: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain of steps from a constant, which covers some words, as a set of bits, and mentions.

    `score` is the sum of what speaks against its steps, at most 0; `rank` adds the share
    of the words of the question that the chain has.
    """

    start: Mention
    steps: tuple[ChainStep, ...]
    covered: int
    used: frozenset[Mention]
    score: float
    rank: float
    places: tuple[tuple[int, int], ...]
    """For each step, the side of the constant and the distance of its nearest word."""


RANK = attrgetter("rank")


@dataclass(frozen=True, slots=True)
class MeantGoal:
    """A goal that a question can mean: its body, the variable that it asks for (None: whether it
    holds), and a score of at most about 1. `coverage` is the share of the words that it has,
    `kind` what its values have to be: TIME, NUMBER, NAME, or None for anything. Of a goal that
    `is_counted`, the question asks for the number of its values.
    """

    body: tuple[Literal, ...]
    variable: Variable | None
    score: float
    coverage: float
    kind: str | None = None
    is_counted: bool = False


@dataclass(frozen=True, slots=True)
class QuestionInWords:
    """A question in words: its text, and the constant of its first person."""

    text: str
    asker: str | None = None


class Readings(NamedTuple):
    """The readings of a question, best first, and the number of its constants.

    `phrases` are what a sentence model may compare with the texts of predicates, `descriptions`.
    """

    goals: list[MeantGoal]
    constants: int
    phrases: list[Phrase]
    descriptions: dict[Signature, str]


def readings_of(
    tenant: Tenant,
    known: AskedPredicates,
    question: QuestionInWords,
    budget: Budget,
    similar: Similar | None = None,
) -> Readings:
    """Return the readings of a question; with `similar`, its words also mean predicates that a
    phrase with them is similar to.

    The caller holds the read lock. Raises BudgetExceeded.
    """
    search = _Search(tenant, known, question, budget, similar or {})
    descriptions = {
        signature: wording.description
        for signature, wording in budget.paced(known.wordings.items(), 100)
    }
    return Readings(search.readings(), len(search.mentions), search.phrases(), descriptions)


class _Search:
    def __init__(
        self,
        tenant: Tenant,
        known: AskedPredicates,
        question: QuestionInWords,
        budget: Budget,
        similar: Similar,
    ) -> None:
        self._similar = similar
        self._known = known
        self._budget = budget
        is_short = len(question.text) <= MAX_QUESTION_CHARS
        runs = _WORD.finditer(question.text) if is_short else ()
        self._runs = list(islice(runs, MAX_WORDS + 1))
        self.mentions: list[Mention] = []
        self._tokens: list[AskedWord] = []
        self._wordings: list[tuple[Signature, Wording]] = []
        self._placed: dict[Mention, list[Placed]] = {}
        runs_of_kind = [run.group().casefold() for run in self._runs[:MAX_WORDS]]
        self.kind = _kind_of(runs_of_kind)
        self._asks_how_many = (HOW, "many") in pairwise(runs_of_kind)
        first = self._runs[0].group().casefold() if self._runs else ""
        self._is_polar = first in _AUXILIARIES or WHETHER in question.text.casefold()
        if not 0 < len(self._runs) <= MAX_WORDS:
            return
        self._pairs = pairs_of(question.text)
        by_stem: dict[str, list[Signature]] = {}
        for signature, wording in budget.paced(known.wordings.items(), 100):
            for stem in wording.stems:
                by_stem.setdefault(stem, []).append(signature)
        self.mentions = self._mentions(tenant, question, by_stem)
        self._tokens = self._content(by_stem)
        self._related = {
            token.stem: [each for each in related(token.stem) if each in by_stem]
            for token in self._tokens
            if token.importance and token.stem not in by_stem
        }
        self._wordings = self._matching(by_stem)

    def _mentions(
        self, tenant: Tenant, question: QuestionInWords, by_stem: dict[str, list[Signature]]
    ) -> list[Mention]:
        """Return the longest runs of words that are constants."""
        mentions: list[Mention] = []
        at, text = 0, question.text
        while at < len(self._runs) and len(mentions) < MAX_MENTIONS:
            self._budget.yield_now()
            mention = None
            for end in range(min(at + MAX_CONSTANT_WORDS, len(self._runs)), at, -1):
                mention = self._mention(tenant, text, at, end, by_stem)
                if mention is not None:
                    mentions.append(mention)
                    break
            at = at + 1 if mention is None else mention.end
        if question.asker is not None and in_first_person(text, self._budget.yield_now):
            symbol = tenant.engine.find(question.asker)
            if symbol and self._known.is_known(symbol):
                at = next(
                    (n for n, run in enumerate(self._runs) if not words(run.group())
                     or in_first_person(run.group(), self._budget.yield_now)), 0
                )  # fmt: skip
                mentions.append(Mention(at, at, question.asker, symbol, False))
        return mentions

    def _mention(
        self,
        tenant: Tenant,
        text: str,
        start: int,
        end: int,
        by_stem: dict[str, list[Signature]],
    ) -> Mention | None:
        """Return the constant that some words are; None if they are not one."""
        runs = [_POSSESSIVE.sub("", run.group()) for run in self._runs[start:end]]
        if end - start == 1 and runs[0].casefold() in STOP_WORDS:
            return None
        written = _POSSESSIVE.sub("", text[self._runs[start].start() : self._runs[end - 1].end()])
        joined = " ".join(runs)
        spellings = written, joined, joined.casefold(), joined.title(), "_".join(runs).casefold()
        for spelling in dict.fromkeys(spellings):
            symbol = tenant.engine.find(spelling)
            if symbol and self._known.is_known(symbol):
                is_word = end - start == 1 and any(stem in by_stem for stem in words(joined))
                return Mention(start, end, spelling, symbol, is_word)
        return None

    def _content(self, by_stem: dict[str, list[Signature]]) -> list[AskedWord]:
        """Return the words that a reading has to cover."""
        taken = {
            at for each in self.mentions if not each.is_word for at in range(each.start, each.end)
        }
        also = {each.start for each in self.mentions if each.is_word}
        light = _light()
        tokens = []
        for at, run in enumerate(self._runs):
            if at in taken:
                continue
            if self._asks_more(at):
                tokens.append(AskedWord(at, run.group().casefold(), UNKNOWN_WORD))
            for stem in words(run.group()):
                importance = 1.0 if stem in by_stem else UNKNOWN_WORD
                if stem in light or at in also or self._is_of_kind(at):
                    importance = 0.0
                tokens.append(AskedWord(at, stem, importance))
        return tokens

    def _asks_more(self, at: int) -> bool:
        """Return whether a word asks for something that no value is, such as a reason or a time
        beside the value.
        """
        word = self._runs[at].group().casefold()
        if word == HOW:
            return self.kind != NUMBER
        return word in _MORE or (word == WHEN and self.kind != TIME)

    def _is_of_kind(self, at: int) -> bool:
        """Return whether a word is the second of "how many"."""
        return self.kind == NUMBER and self._runs[at - 1].group().casefold() == HOW

    def _matching(self, by_stem: dict[str, list[Signature]]) -> list[tuple[Signature, Wording]]:
        """Return the predicates with the most words of the question."""
        scores: dict[Signature, float] = {}
        for token in self._tokens:
            for stem in (token.stem, *self._related.get(token.stem, ())):
                sharing = by_stem.get(stem, ())
                for signature in sharing:
                    scores[signature] = scores.get(signature, 0.0) + 1.0 / len(sharing)
        for signature, phrases in self._similar.items():
            scores[signature] = scores.get(signature, 0.0) + phrases[0].cosine
        best = nlargest(MAX_STEPS_LOOKED_AT, scores, key=lambda each: (scores[each], each))
        return [(signature, self._known.wordings[signature]) for signature in best]

    def readings(self) -> list[MeantGoal]:
        """Return the readings, best first."""
        beam = [Chain(each, (), 0, frozenset((each,)), 0.0, 0.0, ()) for each in self.mentions]
        complete: list[Chain] = []
        for _ in range(MAX_STEPS):
            longer = [
                chain
                for shorter in beam
                if not shorter.steps or shorter.steps[-1].target >= 0
                for chain in self._continued(shorter)
            ]
            beam = nlargest(BEAM_WIDTH, longer, key=RANK)
            complete += beam
        readings: dict[tuple[Literal, ...], MeantGoal] = {}
        for chain in sorted(complete, key=RANK, reverse=True):
            reading = self._reading(chain)
            readings.setdefault(reading.body, reading)
        return list(readings.values())[:MAX_READINGS]

    def _continued(self, chain: Chain) -> Iterator[Chain]:
        """Yield the chains with one more step."""
        for signature, wording in self._wordings:
            for source in range(wording.arity):
                self._budget.yield_now()
                if not self._fits(chain, signature, source):
                    continue
                for target in range(wording.arity):
                    if target != source:
                        yield from self._with_step(chain, wording, source, target)

    def _fits(self, chain: Chain, signature: Signature, source: int) -> bool:
        if not chain.steps:
            return self._known.may_hold(signature, source, chain.start.symbol)
        last = chain.steps[-1]
        return self._known.may_join(last.signature, last.target, signature, source)

    def _with_step(
        self, chain: Chain, wording: Wording, source: int, target: int
    ) -> Iterator[Chain]:
        """Yield the chains with a step: it has all of its words, or not the outermost ones, which
        may be those of a later step.
        """
        for phrase in (NO_PHRASE, *self._similar.get((wording.predicate, wording.arity), ())):
            yield from self._with_phrase(chain, wording, source, target, phrase)

    def _with_phrase(
        self, chain: Chain, wording: Wording, source: int, target: int, phrase: SimilarPhrase
    ) -> Iterator[Chain]:
        """Yield the chains with a step, which also has the words of a similar phrase."""
        own: list[Placed] = []
        stems: set[str] = set()
        for placed in self._outwards(chain.start):
            if chain.covered >> placed.bit & 1:
                continue
            weight, stem = self._weight(wording, placed.token, target, phrase)
            if weight and (stem == SIMILAR_STEM or stem not in stems):
                stems.add(stem)
                own.append(placed._replace(weight=weight, stem=stem))
        is_similar = any(each.stem == SIMILAR_STEM for each in own)
        if phrase is not NO_PHRASE and not is_similar:
            return
        score = chain.score - (SIMILAR_COST * (1 - phrase.cosine) if is_similar else 0.0)
        chain = replace(chain, score=score)
        yield from self._with_words(chain, wording, source, target, own)
        block = self._outermost(own)
        if block and len(block) < len(own):
            inner = [each for each in own if each not in block]
            yield from self._with_words(chain, wording, source, target, inner)

    def _weight(
        self, wording: Wording, token: AskedWord, target: int, phrase: SimilarPhrase
    ) -> tuple[float, str]:
        """Return the weight of a word of the question for a predicate, and the stem that the
        predicate has: the same, or else a related one. It is SIMILAR_STEM if the predicate has
        neither, but the phrase that is similar to it has the word.
        """
        stem = token.stem
        weight = wording.weight(stem, target)
        if weight >= SIMILAR_WEIGHT:
            return weight, stem
        if token.number in phrase.numbers:
            return SIMILAR_WEIGHT, SIMILAR_STEM
        if weight:
            return weight, stem
        others = self._related.get(stem, ())
        return max(
            ((RELATED_SHARE * wording.weight(each, target), each) for each in others),
            default=(0.0, stem),
        )

    def phrases(self) -> list[Phrase]:
        """Return phrases of a question for a value without its first constant: the parts before it, each from
        an article on, also with a part of what follows it: the first such part belongs to the last
        part before, as in "the town the boss of mia lives in was founded in".
        """
        if not self.mentions or self.kind == NUMBER:
            return []
        parts: list[list[int]] = [[]]
        for number in range(self.mentions[0].start):
            if self._runs[number].group().casefold() in _ARTICLES:
                if self._has_content(parts[-1]):
                    parts.append([])
                else:
                    parts[-1].clear()
            parts[-1].append(number)
        after = self._parts_after(self.mentions[0].end)
        rest = [number for part in after for number in part]
        pairs: list[tuple[list[int], list[int]]] = [(part, []) for part in parts]
        pairs += zip(reversed(parts), after, strict=False)
        pairs += [(parts[0], rest), (parts[-1], rest)]
        phrases = dict.fromkeys(
            Phrase(self._text_of([*part, *tail]), self._coverable([*part, *tail]))
            for part, tail in pairs
            if self._has_content([*part, *tail])
        )
        return list(phrases)[:MAX_PHRASES]

    def _parts_after(self, start: int) -> list[list[int]]:
        """Return the words from a number on in parts: each begins with an auxiliary verb, or after
        a preposition.
        """
        parts: list[list[int]] = []
        for number in range(start, len(self._runs)):
            word = self._runs[number].group().casefold()
            if not parts or word in _AUXILIARIES or self._ends_part(number - 1):
                parts.append([])
            parts[-1].append(number)
        return parts

    def _ends_part(self, number: int) -> bool:
        word = self._runs[number].group().casefold()
        return word in STOP_WORDS and word not in _ARTICLES and word not in _AUXILIARIES

    def _text_of(self, numbers: Sequence[int]) -> str:
        return " ".join(self._runs[number].group() for number in numbers)

    def _coverable(self, numbers: Sequence[int]) -> tuple[tuple[int, str], ...]:
        """Return the words that a similar phrase can have, with their numbers: no names and
        numbers, and nothing that asks for more.
        """
        asked = {token.number for token in self._tokens if token.importance}
        return tuple(
            (number, word)
            for number in numbers
            if (word := self._runs[number].group()).isalpha()
            and number in asked
            and (number == 0 or word.islower())
            and word not in _NEVER_SIMILAR
        )

    def _has_content(self, numbers: Sequence[int]) -> bool:
        return any(token.importance and token.number in numbers for token in self._tokens)

    def _outermost(self, own: Sequence[Placed]) -> list[Placed]:
        """Return the words before the constant that are farthest from it, as far as they follow
        each other without a word between them: such words belong together.
        """
        before = sorted(
            (each for each in own if each.side == BEFORE), key=lambda each: each.token.number
        )
        return [
            each
            for number, each in enumerate(before)
            if each.token.number == before[0].token.number + number
        ]

    def _with_words(
        self, chain: Chain, wording: Wording, source: int, target: int, own: Sequence[Placed]
    ) -> Iterator[Chain]:
        """Yield the chain with a step that has some words; a second one asks whether a value is the
        one named.
        """
        if sum(each.weight for each in own) < MIN_STEP_WEIGHT or self._splits(chain, own, wording):
            return
        signature = wording.predicate, wording.arity
        stems = {each.stem for each in own}
        if wording.is_part_of_name(stems):
            return
        nearest = min((each.side, each.distance) for each in own)
        score = chain.score - STEP_COST
        if wording.names:
            score -= UNNAMED_COST * len(wording.names - stems) / len(wording.names)
        if self._is_backward(wording, stems, source, target):
            score -= BACKWARD_COST
        score -= RELATED_COST * sum(
            each.stem not in (SIMILAR_STEM, each.token.stem) for each in own
        )
        score -= BOUNDARY_COST * self._boundaries(own, wording)
        score -= INVERSION_COST * sum(nearest < earlier for earlier in chain.places)
        step, used = self._bound(ChainStep(signature, source, target), chain.used)
        covered = chain.covered | sum(1 << each.bit for each in own)
        steps, places = (*chain.steps, step), (*chain.places, nearest)
        longer = self._ranked(Chain(chain.start, steps, covered, used, score, 0.0, places))
        yield longer
        for mention in self.mentions if self._is_polar else ():
            if mention not in used and self._known.may_hold(signature, target, mention.symbol):
                ground = replace(step, target=-1, bound=(*step.bound, (target, mention.text)))
                holds = replace(longer, steps=(*chain.steps, ground), used=used | {mention})
                yield self._ranked(holds)

    def _is_backward(self, wording: Wording, stems: Set[str], source: int, target: int) -> bool:
        """Return whether a step goes against the phrase of its predicate, or without a phrase that
        the question has, against its key or the order of its arguments.
        """
        known = {
            position
            for stem, word, position in wording.before
            if stem in stems and word in self._pairs.get(stem, ())
        }
        if known:
            return source not in known
        key = self._known.key_of((wording.predicate, wording.arity))
        return (source not in key or target in key) if key else source > target

    def _splits(self, chain: Chain, own: Sequence[Placed], wording: Wording) -> bool:
        """Return whether a word of a step stands beside a word of an earlier step that its own
        predicate does not have, before the constant: words such as "home town" belong together.
        """
        others = {
            token.number
            for bit, token in enumerate(self._tokens)
            if chain.covered >> bit & 1 and not self._has(wording, token.stem)
        }
        return any(
            each.side == BEFORE
            and each.distance > 0
            and not others.isdisjoint((each.token.number - 1, each.token.number + 1))
            for each in own
        )

    def _has(self, wording: Wording, stem: str) -> bool:
        """Return whether a predicate has a stem of the question, or a related one."""
        own = wording.stems
        return stem in own or not own.isdisjoint(self._related.get(stem, ()))

    def _boundaries(self, own: Sequence[Placed], wording: Wording) -> int:
        """Return how many of the words of a step a preposition or a pronoun separates from others
        of them, which the texts of its predicate do not have: in "the sport of the team", two
        predicates are likely.
        """
        nearest = min(each.distance for each in own)
        return sum(
            each.side == BEFORE
            and each.distance > nearest
            and each.stem != SIMILAR_STEM
            and not self._pairs.get(each.token.stem, wording.of(each.stem)).issubset(
                wording.of(each.stem)
            )
            for each in own
        )

    def _bound(
        self, step: ChainStep, used: frozenset[Mention]
    ) -> tuple[ChainStep, frozenset[Mention]]:
        """Return a step with the unused constants that can be further arguments."""
        bound: list[tuple[int, str]] = []
        free = [n for n in range(step.signature[1]) if n not in (step.source, step.target)]
        for mention in self.mentions if free else ():
            if mention not in used:
                at = next(
                    (n for n in free if self._known.may_hold(step.signature, n, mention.symbol)),
                    None,
                )
                if at is not None:
                    free.remove(at)
                    bound.append((at, mention.text))
                    used = used | {mention}
        return replace(step, bound=tuple(bound)), used

    def _outwards(self, start: Mention) -> list[Placed]:
        """Return the words with their places, the nearest to a constant first."""
        placed = self._placed.get(start)
        if placed is None:
            placed = self._placed[start] = sorted(
                (
                    Placed(bit, token, *self._place(start, token.number))
                    for bit, token in enumerate(self._tokens)
                ),
                key=lambda each: (each.distance, each.side),
            )
        return placed

    def _place(self, start: Mention, index: int) -> tuple[int, int]:
        """Return the side and the distance of a word; what a constant in the genitive has comes
        before all others: "Mia's boss".
        """
        if index < start.start:
            return BEFORE, start.start - index
        owners = range(start.end - 1, index)
        if all(_POSSESSIVE.search(self._runs[each].group()) for each in owners if each >= 0):
            return BEFORE, index - start.end - len(self._runs)
        return AFTER, index - start.end

    def coverage(self, chain: Chain) -> float:
        """Return the share of the words, by importance, that a chain has."""
        total = covered = 0.0
        for bit, token in enumerate(self._tokens):
            total += token.importance
            covered += token.importance * (chain.covered >> bit & 1)
        for mention in self.mentions:
            if mention not in chain.used and not (mention.is_word and self._covers(chain, mention)):
                total += UNUSED_CONSTANT
        return covered / total if total else 0.0

    def _ranked(self, chain: Chain) -> Chain:
        """Return a chain with its rank."""
        return replace(chain, rank=self.coverage(chain) + chain.score)

    def _covers(self, chain: Chain, mention: Mention) -> bool:
        return any(
            chain.covered >> bit & 1
            for bit, token in enumerate(self._tokens)
            if token.number == mention.start
        )

    def _reading(self, chain: Chain) -> MeantGoal:
        """Return the goal of a chain, its variables named like the arguments."""
        names = _Variables()
        value: str | Variable = chain.start.text
        body: list[Literal] = []
        for step in chain.steps:
            args: list[str | Variable] = [ANONYMOUS] * step.signature[1]
            args[step.source] = value
            for at, text in step.bound:
                args[at] = text
            if step.target >= 0:
                value = args[step.target] = names.new()
            body.append(Literal(Atom(step.signature[0], tuple(args))))
        coverage = self.coverage(chain)
        variable = value if isinstance(value, Variable) and chain.steps[-1].target >= 0 else None
        is_counted = self._asks_how_many and not self._has_one_value(chain.steps[-1])
        return MeantGoal(
            tuple(body),
            variable,
            round(chain.rank, 4),
            round(coverage, 4),
            self.kind,
            is_counted,
        )

    def _has_one_value(self, step: ChainStep) -> bool:
        """Return whether the key of a predicate has one value for what a step asks."""
        key = self._known.key_of(step.signature)
        known = {step.source, *(at for at, _ in step.bound)}
        return step.target < 0 or (bool(key) and key <= known)


class _Variables:
    """Names of variables: `?x`, `?y`, `?z`, then `?x4`."""

    def __init__(self) -> None:
        self._numbers = count()

    def new(self) -> Variable:
        """Return the next variable."""
        number = next(self._numbers)
        return Variable("xyz"[number] if number < 3 else f"x{number + 1}")


@cache
def _light() -> frozenset[str]:
    """Return the words that need not be covered, as stems."""
    return of_asking().union(words(_LIGHT_WORDS))


def _kind_of(runs: Sequence[str]) -> str | None:
    """Return the kind of values that the first question word asks for."""
    for word, after in pairwise((*runs, "")):
        if word == HOW and after in ("many", "much"):
            return NUMBER
        if word in _KINDS:
            return _KINDS[word]
    return None


def is_of_kind(answers: Sequence[str], kind: str | None) -> bool:
    """Return whether values can be what a question asks for."""
    if kind == NUMBER:
        return len(answers) == 1 and is_number(answers[0])
    if kind == TIME:
        return all(_is_time(each) for each in answers)
    if kind == NAME:
        return not all(is_number(each) or instant(each) is not None for each in answers)
    return True


def _is_time(value: str) -> bool:
    named = value.casefold() in (*WEEKDAYS, *MONTHS)
    return named or any(map(str.isdigit, value))
