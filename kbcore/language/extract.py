"""Extraction of facts and rules from a text by a language model. Nothing is stored here.

Each prompt includes the results of earlier chunks, so that a thing keeps one name. A failed chunk
is reported and does not affect the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput, ModelFailed, RateLimited, TooLarge
from kbcore.language import prompts
from kbcore.language.candidates import (
    MAX_REJECTED_CHARS,
    CandidateOptions,
    Candidates,
    RejectedCandidate,
    Replacement,
    read_candidates,
)
from kbcore.language.chunks import Chunk, chunks, sentence_of
from kbcore.language.messages import Span
from kbcore.language.reading import SignedAtom
from kbcore.language.speech import Origin, Speech
from kbcore.language.vocabulary import Vocabulary
from kbcore.llm.model import LanguageModel
from kbcore.llm.structured import ask_json
from kbcore.state.changes import EndedFact
from kbcore.state.facts import Fact, Row
from kbplanner.ir.terms import Atom, Rule
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_atom, print_rule

Look = Callable[[str], Vocabulary]
"""Function that returns the vocabulary of the knowledge base for a text."""

Instructions = Callable[[str, "str | None"], "str | None"]
"""Function that returns a plugin's instructions for a text and its context, or None for the
default.
"""

MAX_CONTEXT_CHARS = 4000
"""Maximum length of the `context` of a text."""


@dataclass(frozen=True, slots=True)
class ChunkFailure:
    """A chunk of the text, from `start` up to but not including `end`, that failed, with the
    reason.
    """

    start: int
    end: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contradicted:
    """An extracted fact whose opposite is `stored`, `derived` by rules, or stated in the `text`
    itself.
    """

    fact: Fact
    known: str


@dataclass(slots=True)
class ExtractedFacts:
    """The facts and rules of a text in order, without repetition; rejected entries and failed
    chunks.

    `truncated` is True if there was more than EXTRACTION_MAX_FACTS. `asserted` counts the facts
    that were new and have been stored, `known` those that were stored before and did not change,
    `discarded` those that a conflict strategy did not store; all are 0 unless storing was
    requested. `places` are the sentences in which each fact was read, as spans of the text;
    `episodes` the ids under which the text was stored with the facts. `replacements` are the stored
    facts that facts of the text replace, and `ended` those facts and others whose end the text
    states.
    """

    provider: str
    model: str
    facts: list[Fact] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    rejected: list[RejectedCandidate] = field(default_factory=list)
    failures: list[ChunkFailure] = field(default_factory=list)
    contradictions: list[Contradicted] = field(default_factory=list)
    chunks: int = 0
    truncated: bool = False
    asserted: int = 0
    known: int = 0
    discarded: int = 0
    places: dict[SignedAtom, list[Span]] = field(default_factory=dict)
    replacements: list[Replacement] = field(default_factory=list)
    ended: list[EndedFact] = field(default_factory=list)
    episodes: tuple[str, ...] = ()

    def refuse_rules(self, reason: str) -> None:
        """Move all rules to `rejected`, after the knowledge base refused them."""
        self.rejected += [
            RejectedCandidate(print_rule(replace(rule, scope=None)), reason) for rule in self.rules
        ]
        self.rules = []


@dataclass(frozen=True, slots=True)
class ExtractionOptions:
    """Options of an extraction.

    `scope` gets the facts and rules; `rules` asks for rules too; `context` tells the model more
    about the text.
    """

    scope: str | None = None
    rules: bool = False
    context: str | None = None


def extract(
    text: str,
    speech: Speech,
    model: LanguageModel,
    look: Look,
    instructions: Instructions,
    config: Config,
    options: ExtractionOptions,
) -> ExtractedFacts:
    """Return the facts and rules that a model extracts from a text, whose speakers and days
    `speech` knows.

    Raises ModelFailed or RateLimited if every chunk failed, TooLarge for a text of too many chunks.
    """
    if options.context is not None and len(options.context) > MAX_CONTEXT_CHARS:
        raise InvalidInput.at("context", f"must have at most {MAX_CONTEXT_CHARS} characters")
    pieces = chunks(text, config.extraction_chunk_chars)
    if len(pieces) > config.extraction_max_chunks:
        raise TooLarge(
            f"the text has {counted(len(pieces), 'chunk')} for the model; the maximum is {config.extraction_max_chunks}",
            {"limit": "EXTRACTION_MAX_CHUNKS", "value": config.extraction_max_chunks},
        )
    result = ExtractedFacts(model.name, model.model, chunks=len(pieces))
    deadline = model.clock.monotonic() + config.llm_request_timeout_ms / 1000
    asker = _ChunkReader(text, speech, model, instructions, options, deadline)
    first_error: ModelFailed | RateLimited | None = None
    for piece in pieces:
        speakers = dict.fromkeys(
            turn.speaker or "" for turn in speech.turns(piece.start, piece.end)
        )
        known = _with(look(" ".join([piece.text, *speakers])), result)
        try:
            read = asker.read(piece, known)
        except (ModelFailed, RateLimited) as error:
            first_error = first_error or error
            result.failures.append(ChunkFailure(piece.start, piece.end, error.code, error.message))
            continue
        result.facts = _merged(result.facts, read.facts)
        for key, spans in read.spans.items():
            of_key = result.places.setdefault(key, [])
            of_key += [span for span in spans if span not in of_key]
        result.rules = list(dict.fromkeys([*result.rules, *read.rules]))
        result.rejected += read.rejected
        result.replacements += read.replacements
        if (
            len(result.facts) > config.extraction_max_facts
            or len(result.rules) > config.extraction_max_facts
        ):
            result.truncated = True
            break
    if first_error is not None and len(result.failures) == len(pieces):
        raise first_error
    del result.facts[config.extraction_max_facts :], result.rules[config.extraction_max_facts :]
    return result


@dataclass(slots=True)
class Judgement:
    """The facts of a text beside what is stored: `new` are not stored, `usable` can be stored or
    are, `ended` are stored facts that the text ends.
    """

    new: list[Fact] = field(default_factory=list)
    usable: list[Fact] = field(default_factory=list)
    ended: list[EndedFact] = field(default_factory=list)
    contradictions: list[Contradicted] = field(default_factory=list)
    rejected: list[RejectedCandidate] = field(default_factory=list)


def judge(
    extracted: ExtractedFacts,
    rows: Callable[[Atom], list[Row]],
    start_of: Callable[[Fact], int],
    problem_of: Callable[[Fact], str | None],
) -> Judgement:
    """Return which extracted facts are new, which stored facts end, and which facts contradict
    known facts or each other.

    `rows` returns the answers of a ground atom, `start_of` the time from which a new fact is valid,
    `problem_of` why a fact cannot be stored: then it is rejected.
    A stored fact changes only in that it ends: finding it in another text is no reason to change
    its confidence or metadata. A fact that would end before it begins is rejected.
    """
    stated = {_signed_atom(fact) for fact in extracted.facts}
    result = Judgement()
    for fact in extracted.facts:
        if (problem := problem_of(fact)) is not None:
            result.rejected.append(_rejected(fact, problem))
            continue
        stored = _stored(rows, Atom(fact.predicate, fact.args, fact.positive))
        start = start_of(fact) if stored is None else stored["validFrom"]
        if fact.valid_until is not None and fact.valid_until <= start:
            result.rejected.append(_rejected(fact, "until: must be after since"))
            continue
        result.usable.append(fact)
        if stored is None:
            result.new.append(fact)
        elif fact.valid_until is not None:
            result.ended.append(_ended(fact, fact.valid_until))
        opposite = Atom(fact.predicate, fact.args, not fact.positive)
        if against := rows(opposite):
            source = "derived" if against[0]["createdAt"] is None else "stored"
            result.contradictions.append(Contradicted(fact, source))
        elif (fact.predicate, fact.args, not fact.positive) in stated:
            result.contradictions.append(Contradicted(fact, "text"))
    names = {_signed_atom(fact) for fact in result.usable}
    for each in extracted.replacements:
        if _signed_atom(each.fact) not in names:
            continue
        if _stored(rows, each.replaced) is None:
            reason = f"replaces: {print_atom(each.replaced)} is not stored"
            result.rejected.append(RejectedCandidate(each.quote, reason))
            continue
        args = tuple(str(arg) for arg in each.replaced.args)
        replaced = replace(each.fact, args=args, positive=True)
        result.ended.append(_ended(replaced, start_of(each.fact)))
    return result


class _ChunkReader:
    """Reader of the chunks of one text with a model."""

    def __init__(
        self,
        text: str,
        speech: Speech,
        model: LanguageModel,
        instructions: Instructions,
        options: ExtractionOptions,
        deadline: float,
    ) -> None:
        self._text = text
        self._speech = speech
        self._model = model
        self._instructions = instructions
        self._options = options
        self._deadline = deadline
        self._events: dict[tuple[str, tuple[str, ...]], str] = {}
        self._counts: Counter[str] = Counter()

    def read(self, piece: Chunk, known: Vocabulary) -> Candidates:
        """Return what the model reads in a chunk; raise ModelFailed or RateLimited."""
        model, options = self._model, self._options
        known.names.know(self._speech.people)
        reading = CandidateOptions(
            known.names,
            lambda stated: self._origin(piece, stated),
            self._event_id,
            self._speech.now,
            known.declared,
            options.scope,
            {"extracted": True, "provider": model.name, "model": model.model},
            options.rules,
        )
        own = self._instructions(piece.text, options.context) or (prompts.EXTRACT + prompts.KINDS)
        return ask_json(
            model,
            own + (prompts.RULES if options.rules else ""),
            prompts.extraction(
                self._speech.turns(piece.start, piece.end),
                known,
                options.context,
                self._speech.before(piece.start, piece.end),
                self._speech.people,
            ),
            prompts.RULES_SCHEMA if options.rules else prompts.FACTS_SCHEMA,
            lambda answer: read_candidates(answer, reading),
            operation="extract",
            deadline=self._deadline,
        )

    def _origin(self, piece: Chunk, stated: SignedAtom) -> Origin:
        return self._speech.origin(sentence_of(self._text, piece.start, piece.end, stated))

    def _event_id(self, episode: str, args: tuple[str, ...]) -> str:
        """Return the id of an event: its episode and its number there. Chunks overlap, so that an
        event may be read twice.
        """
        if (episode, args) not in self._events:
            self._counts[episode] += 1
            self._events[episode, args] = f"{episode}-{self._counts[episode]}"
        return self._events[episode, args]


def _signed_atom(fact: Fact) -> SignedAtom:
    return fact.predicate, fact.args, fact.positive


def _stored(rows: Callable[[Atom], list[Row]], atom: Atom) -> Row | None:
    return next((row for row in rows(atom) if row["createdAt"] is not None), None)


def _ended(fact: Fact, until: int) -> EndedFact:
    return EndedFact(fact.predicate, fact.args, fact.positive, fact.scope, until)


def _rejected(fact: Fact, reason: str) -> RejectedCandidate:
    return RejectedCandidate(print_atom(Atom(*_signed_atom(fact)))[:MAX_REJECTED_CHARS], reason)


def _with(known: Vocabulary, extracted: ExtractedFacts) -> Vocabulary:
    """Add the facts extracted so far to a vocabulary and return it."""
    for fact in extracted.facts:
        known.names.know_predicate(fact.predicate, len(fact.args))
        known.names.know(fact.args)
    new_predicates = dict.fromkeys((fact.predicate, len(fact.args)) for fact in extracted.facts)
    known.predicates += [
        signature for signature in new_predicates if signature not in known.predicates
    ]
    return known


def _merged(known: list[Fact], more: list[Fact]) -> list[Fact]:
    """Merge facts without repetition; of two equal facts keep the greater confidence."""
    facts = {(fact.predicate, fact.args, fact.positive): fact for fact in known}
    for fact in more:
        key = (fact.predicate, fact.args, fact.positive)
        before = facts.get(key)
        if before is None:
            facts[key] = fact
        elif fact.confidence is not None and fact.confidence > (before.confidence or 0.0):
            facts[key] = replace(before, confidence=fact.confidence)
    return list(facts.values())
