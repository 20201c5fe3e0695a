"""A text to facts and rules by a language model, piece by piece; nothing is stored here.

Each piece is read with what the ones before it brought, so that one thing keeps one name. A piece that fails is told, and
does not spoil the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from kbcore.config.settings import Config
from kbcore.errors import InvalidInput, ModelFailed, RateLimited, TooLarge
from kbcore.language import prompts
from kbcore.language.candidates import Candidates, Rejected, read_candidates
from kbcore.language.chunks import Chunk, chunks
from kbcore.language.vocabulary import Vocabulary
from kbcore.llm.model import Model
from kbcore.llm.structured import ask_json
from kbcore.state.facts import Fact, Row
from kbplanner.ir.terms import Atom, Rule
from kbplanner.syntax.printer import print_rule

Look = Callable[[str], Vocabulary]
"""What the knowledge base knows about a text."""

Instructions = Callable[[str, "str | None"], "str | None"]
"""A plugin's instructions for a text and its context, None for the usual ones."""

MOST_CONTEXT = 4000
"""Characters of a hint about the text."""


@dataclass(frozen=True, slots=True)
class Failure:
    """A piece of the text, from `start` up to but not at `end`, that the model could not read, and why."""

    start: int
    end: int
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contradicted:
    """An extracted fact whose opposite is `stored`, `derived` by rules, or stated in the `text` itself."""

    fact: Fact
    known: str


@dataclass(slots=True)
class Extracted:
    """What a text states, without repetition, in its order; what was refused; what could not be read.

    `truncated` says that there was more than EXTRACTION_MAX_FACTS. `asserted` facts were new and are stored now, `known`
    were stored before and are left as they were; both count only where storing was asked for.
    """

    provider: str
    model: str
    facts: list[Fact] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    contradictions: list[Contradicted] = field(default_factory=list)
    chunks: int = 0
    truncated: bool = False
    asserted: int = 0
    known: int = 0

    def refuse_rules(self, reason: str) -> None:
        """Take the rules out, since the knowledge base refused them."""
        self.rejected += [Rejected(print_rule(replace(rule, scope=None)), reason) for rule in self.rules]
        self.rules = []


def extract(
    text: str,
    model: Model,
    look: Look,
    instructions: Instructions,
    config: Config,
    *,
    scope: str | None,
    rules: bool,
    context: str | None,
) -> Extracted:
    """Have a model read a text; its facts and rules go to `scope`.

    Raises ModelFailed or RateLimited where no piece of it could be read, TooLarge for a text of too many pieces.
    """
    if context is not None and len(context) > MOST_CONTEXT:
        raise InvalidInput.at("context", f"must have at most {MOST_CONTEXT} characters")
    pieces = chunks(text, config.extraction_chunk_chars)
    if len(pieces) > config.extraction_max_chunks:
        raise TooLarge(
            f"the text is {len(pieces)} pieces long for the model, more than {config.extraction_max_chunks}",
            {"limit": "EXTRACTION_MAX_CHUNKS", "value": config.extraction_max_chunks},
        )
    found = Extracted(model.name, model.model, chunks=len(pieces))
    deadline = model.clock.monotonic() + config.llm_request_timeout_ms / 1000
    first: ModelFailed | RateLimited | None = None
    for piece in pieces:
        known = _with(look(piece.text), found)
        try:
            read = _read(piece, model, known, instructions, scope, rules, context, deadline)
        except (ModelFailed, RateLimited) as error:
            first = first or error
            found.failures.append(Failure(piece.start, piece.end, error.code, error.message))
            continue
        found.facts = _merged(found.facts, read.facts)
        found.rules = list(dict.fromkeys([*found.rules, *read.rules]))
        found.rejected += read.rejected
        if len(found.facts) > config.extraction_max_facts or len(found.rules) > config.extraction_max_facts:
            found.truncated = True
            break
    if first is not None and len(found.failures) == len(pieces):
        raise first
    del found.facts[config.extraction_max_facts :], found.rules[config.extraction_max_facts :]
    return found


def judge(facts: Sequence[Fact], rows: Callable[[Atom], list[Row]]) -> tuple[list[Fact], list[Contradicted]]:
    """Of extracted facts those that are not stored yet, and those that contradict what is known or each other.

    `rows` gives the answers of a ground atom. A fact that is stored stays as it is: a model that reads it somewhere is no
    reason to change how sure it is, how long it holds or where it came from.
    """
    stated = {(fact.predicate, fact.args, fact.positive) for fact in facts}
    new, contradicted = [], []
    for fact in facts:
        if not any(row["createdAt"] is not None for row in rows(Atom(fact.predicate, fact.args, fact.positive))):
            new.append(fact)
        against = rows(Atom(fact.predicate, fact.args, not fact.positive))
        if against:
            contradicted.append(Contradicted(fact, "derived" if against[0]["createdAt"] is None else "stored"))
        elif (fact.predicate, fact.args, not fact.positive) in stated:
            contradicted.append(Contradicted(fact, "text"))
    return new, contradicted


def _read(
    piece: Chunk,
    model: Model,
    known: Vocabulary,
    instructions: Instructions,
    scope: str | None,
    rules: bool,
    context: str | None,
    deadline: float,
) -> Candidates:
    metadata = {"extracted": True, "provider": model.name, "model": model.model}
    system = instructions(piece.text, context) or prompts.EXTRACT
    return ask_json(
        model,
        system + prompts.RULES if rules else system,
        prompts.extraction(piece.text, known, context),
        prompts.RULES_SCHEMA if rules else prompts.FACTS_SCHEMA,
        lambda answer: read_candidates(answer, known.names, scope, metadata, rules),
        operation="extract",
        deadline=deadline,
    )


def _with(known: Vocabulary, found: Extracted) -> Vocabulary:
    """A vocabulary with what was found so far."""
    for fact in found.facts:
        known.names.know_predicate(fact.predicate, len(fact.args))
        known.names.know(fact.args)
    fresh = dict.fromkeys((fact.predicate, len(fact.args)) for fact in found.facts)
    known.predicates += [one for one in fresh if one not in known.predicates]
    return known


def _merged(known: list[Fact], more: list[Fact]) -> list[Fact]:
    """Facts without repetition; of two the surer one counts."""
    found = {(fact.predicate, fact.args, fact.positive): fact for fact in known}
    for fact in more:
        key = (fact.predicate, fact.args, fact.positive)
        before = found.get(key)
        if before is None:
            found[key] = fact
        elif fact.confidence is not None and fact.confidence > (before.confidence or 0.0):
            found[key] = replace(before, confidence=fact.confidence)
    return list(found.values())
