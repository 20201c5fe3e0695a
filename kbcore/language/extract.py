"""Extraction of facts and rules from a text by a language model. Nothing is stored here.

Each prompt includes the results of earlier chunks, so that a thing keeps one name. A failed chunk
is reported and does not affect the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput, ModelFailed, RateLimited, TooLarge
from kbcore.language import prompts
from kbcore.language.candidates import Candidates, RejectedCandidate, read_candidates
from kbcore.language.chunks import Chunk, chunks
from kbcore.language.vocabulary import Vocabulary
from kbcore.llm.model import LanguageModel
from kbcore.llm.structured import ask_json
from kbcore.state.facts import Fact, Row
from kbplanner.ir.terms import Atom, Rule
from kbplanner.syntax.diagnostics import counted
from kbplanner.syntax.printer import print_rule

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
    requested. `places` are the chunks in which each fact was read, as spans of the text;
    `episodes` the ids under which the text was stored with the facts.
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
    places: dict[tuple[str, tuple[str, ...], bool], list[tuple[int, int]]] = field(
        default_factory=dict
    )
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
    model: LanguageModel,
    look: Look,
    instructions: Instructions,
    config: Config,
    options: ExtractionOptions,
) -> ExtractedFacts:
    """Return the facts and rules that a model extracts from a text.

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
    first_error: ModelFailed | RateLimited | None = None
    for piece in pieces:
        known = _with(look(piece.text), result)
        try:
            read = _read(piece, model, known, instructions, options, deadline)
        except (ModelFailed, RateLimited) as error:
            first_error = first_error or error
            result.failures.append(ChunkFailure(piece.start, piece.end, error.code, error.message))
            continue
        result.facts = _merged(result.facts, read.facts)
        for fact in read.facts:
            key = fact.predicate, fact.args, fact.positive
            result.places.setdefault(key, []).append((piece.start, piece.end))
        result.rules = list(dict.fromkeys([*result.rules, *read.rules]))
        result.rejected += read.rejected
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


def judge(
    facts: Sequence[Fact], rows: Callable[[Atom], list[Row]]
) -> tuple[list[Fact], list[Contradicted]]:
    """Return the extracted facts that are not stored, and those that contradict known facts or each
    other.

    `rows` returns the answers of a ground atom. A stored fact does not change: finding it in
    another text is no reason to change its confidence, validity or metadata.
    """
    stated = {(fact.predicate, fact.args, fact.positive) for fact in facts}
    new, contradicted = [], []
    for fact in facts:
        if not any(
            row["createdAt"] is not None
            for row in rows(Atom(fact.predicate, fact.args, fact.positive))
        ):
            new.append(fact)
        against = rows(Atom(fact.predicate, fact.args, not fact.positive))
        if against:
            contradicted.append(
                Contradicted(fact, "derived" if against[0]["createdAt"] is None else "stored")
            )
        elif (fact.predicate, fact.args, not fact.positive) in stated:
            contradicted.append(Contradicted(fact, "text"))
    return new, contradicted


def _read(
    piece: Chunk,
    model: LanguageModel,
    known: Vocabulary,
    instructions: Instructions,
    options: ExtractionOptions,
    deadline: float,
) -> Candidates:
    metadata = {"extracted": True, "provider": model.name, "model": model.model}
    system = instructions(piece.text, options.context) or prompts.EXTRACT
    return ask_json(
        model,
        system + prompts.RULES if options.rules else system,
        prompts.extraction(piece.text, known, options.context),
        prompts.RULES_SCHEMA if options.rules else prompts.FACTS_SCHEMA,
        lambda answer: read_candidates(answer, known.names, options.scope, metadata, options.rules),
        operation="extract",
        deadline=deadline,
    )


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
