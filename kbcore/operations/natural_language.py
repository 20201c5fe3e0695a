"""Natural language of a knowledge base: reading texts and answering questions.

A language model is never called while a lock is held. Its results are stored in one change set
after all of them were read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kbcore.context.diff import WindowDiff
from kbcore.context.request import WindowRequest
from kbcore.context.window import Window
from kbcore.errors import InvalidInput, ModelNotConfigured
from kbcore.language.evidence import Evidence, Query, gather
from kbcore.language.extract import (
    Contradicted,
    Extracted,
    ExtractionOptions,
    extract,
    judge,
)
from kbcore.language.reading import (
    SignedAtom,
    Span,
    Taken,
    episodes_of,
    read_statements_of,
)
from kbcore.language.synthesize import MAX_QUESTION_CHARS, Synthesis, synthesize
from kbcore.language.vocabulary import Vocabulary, vocabulary
from kbcore.llm.model import Model
from kbcore.operations.base import TenantHandle
from kbcore.operations.context_windows import check_request
from kbcore.operations.episodes.episodes import Supports
from kbcore.operations.episodes.recording import ProseLines, Recording, Source, sentence_of
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.episodes.quoting import Sources
from kbcore.state.facts import Fact, Row
from kbcore.state.rulebook import RulesOutcome, StoredDefinition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom, BodyItem, Literal, Variable
from kbplanner.pacing import YieldNow, let_go, paced

PROOF_NODES = 50
"""Maximum number of proof nodes searched for the facts that a conclusion depends on."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """Result of reading a text: its facts and rules, the count of new facts, and a window.

    `unread` are the numbers of lines that could not be read as facts or rules; `episodes` counts
    the facts in `facts` that hold such lines as they are. `extracted` is the language model's
    result for the prose, None if no model was called; its facts are also in `facts`. `changes` are
    those since the session's last window, None if there was none. `recorded` are the ids of the
    episodes under which the text was stored, if facts were read in it. `discarded` counts the facts
    that a conflict strategy did not store.
    """

    facts: tuple[Fact, ...]
    rules: tuple[StoredDefinition, ...]
    asserted: int
    unread: tuple[int, ...]
    window: Window
    changes: WindowDiff | None = None
    extracted: Extracted | None = field(default=None)
    episodes: int = 0
    recorded: tuple[str, ...] = ()
    discarded: int = 0


class NaturalLanguage(TenantHandle, ABC):
    """Natural language of a knowledge base: reads texts and answers questions in words.

    The abstract methods are those of other parts of a knowledge base.
    """

    @abstractmethod
    def infer(self, literal: Literal, options: AnswerOptions = ...) -> list[Row]:
        """Return the answers of a goal."""

    @abstractmethod
    def bindings(
        self, body: Sequence[BodyItem], variables: Sequence[Variable], options: AnswerOptions = ...
    ) -> list[tuple[str, ...]]:
        """Return the bindings of variables for which a body holds."""

    @abstractmethod
    def prove(
        self, literal: Literal, options: AnswerOptions = ..., proof: ProofOptions = ...
    ) -> list[dict[str, Any]]:
        """Return the answers of a goal with their proofs."""

    @abstractmethod
    def context_with_changes(
        self, request: WindowRequest, *, request_limits: RequestLimits | None = None
    ) -> tuple[Window, WindowDiff | None]:
        """Return a context window and its changes since the session's last window."""

    @abstractmethod
    def assert_rules(
        self,
        rules: Sequence[Definition],
        facts: Sequence[Fact] = (),
        defined: Iterable[tuple[str, int]] = (),
        supports: Supports | None = None,
        request_limits: RequestLimits | None = None,
        *,
        conflict: str = ...,
    ) -> RulesOutcome:
        """Store rules, and facts and their evidence with them, all or none."""

    def extract(
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
        request_limits: RequestLimits | None = None,
        conflict: str | None = None,
    ) -> Extracted:
        """Extract facts from a text with the language model, and rules if `rules` is true.

        With `store`, new facts and the rules are written to `scope` in one change set; facts that
        are already stored do not change. `conflict` is their conflict strategy, INGEST_CONFLICTS by
        default. `context` is a hint for the model. `failures` of the
        result lists the pieces that failed.

        Raises ModelNotConfigured, ModelFailed if every piece failed, RateLimited, TooLarge,
        BudgetExceeded, and, with `store`, ReadOnlyFollower before the model is called.
        """
        if store:
            self._services.refuse_on_follower()
        conflict = self._conflict_strategy(conflict)
        model = self._model()
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "names one partition: extracted facts belong to it")
        self._check_scope(scope)
        if not text.strip():
            raise InvalidInput.at("text", "must not be empty")
        extracted, new_facts = self._extracted(model, text, scope, rules, context, request_limits)
        if store:
            extracted.known = len(extracted.facts) - len(new_facts)
            yield_now = self._services.yield_now
            recording = self._recording(text, Source(), yield_now=yield_now)
            spans = _sentences(text, extracted, yield_now)
            known = [fact for fact in extracted.facts if fact not in new_facts]
            self._store(extracted, conflict, _supports(recording, new_facts, known, spans))
        return extracted

    def synthesize(
        self,
        question: str,
        *,
        scope: str | None = None,
        citations: bool = False,
        request_limits: RequestLimits | None = None,
    ) -> Synthesis:
        """Answer a question in words from the knowledge base, with the evidence for the answer.

        The language model plans queries and words the answer; statements without supporting facts
        are left out. With `citations`, sentences cite the evidence of their facts, which `sources`
        of the result lists. `request_limits` limits each query. Raises ModelNotConfigured,
        ModelFailed, RateLimited.
        """
        model, options = self._model(), AnswerOptions(scope, request_limits=request_limits)
        if not question.strip() or len(question) > MAX_QUESTION_CHARS:
            raise InvalidInput.at("question", f"must have 1 to {MAX_QUESTION_CHARS} characters")

        def infer(atom: Atom, limit: int) -> list[Row]:
            return self.infer(Literal(atom), replace(options, limit=limit))

        def bindings(
            body: Sequence[BodyItem], names: Sequence[Variable], limit: int
        ) -> list[tuple[str, ...]]:
            return self.bindings(body, names, replace(options, limit=limit))

        def run(query: Query, evidence: Evidence) -> None:
            gather(query, infer, bindings, evidence)

        deadline = (
            self._services.clock.monotonic() + self._services.config.llm_request_timeout_ms / 1000
        )
        vocabulary = self._vocabulary(question, scope, request_limits)
        sources = Sources(self._read_tenant().episodes.get) if citations else None
        return synthesize(question, model, vocabulary, run, self._premises, deadline, sources)

    def ingest(
        self,
        text: str,
        request: WindowRequest,
        *,
        hint: str | None = None,
        request_limits: RequestLimits | None = None,
        turns: Sequence[int] = (),
        source: Source | None = None,
        conflict: str | None = None,
    ) -> Ingested:
        """Store the facts and rules of a text, all or none, and return a window made afterwards.

        Facts go to the scope of the window. Lines in predicate syntax or the rule language are
        parsed. Prose goes to the language model, with `hint`. Without a model, prose is skipped, or
        stored as episodes with EXTRACTION_FALLBACK=episode; `turns` are the numbers of the lines
        with which the turns of a conversation begin. The text is stored as episodes, of the speaker
        and at the time of `source`, and is the evidence of the facts, each with its line or
        sentence. `conflict` is the conflict strategy of the facts, INGEST_CONFLICTS by default.

        Raises ModelNotConfigured if the text is only prose that is skipped, ModelFailed if
        the model could read none of the prose, InvalidInput for a rule that is refused,
        ReadOnlyFollower before the model is called, and BudgetExceeded. If the window exceeds the
        budget, the stored facts and rules remain.
        """
        self._services.refuse_on_follower()
        self._check_writable(request.scope)
        check_request(request)
        conflict = self._conflict_strategy(conflict)
        yield_now = self._deadline(request_limits)
        statements = read_statements_of(text, request.scope, yield_now)
        extracted: Extracted | None = None
        new: list[Fact] = []
        episodes = 0
        origin = source or Source(session=request.session)
        recording = self._recording(text, origin, turns, yield_now=yield_now)
        if statements.unread and self._services.model is not None:
            prose = ProseLines(text, statements.unread, yield_now)
            extracted, new = self._extracted(
                self._model(), prose.text, request.scope, False, hint, request_limits
            )
            for key, spans in _sentences(prose.text, extracted, yield_now).items():
                parts = (part for span in spans for part in prose.spans(*span))
                statements.spans.setdefault(key, []).extend(parts)
        elif statements.unread and self._services.config.extraction_fallback == "episode":
            now = self._services.clock.now_ms()
            recorded = episodes_of(text, statements.unread, turns, request.scope, now, yield_now)
            for fact, span in recorded:
                statements.facts.append(fact)
                statements.place(fact, span)
                episodes += 1
        elif not statements:
            raise ModelNotConfigured(
                "no line of the text is in predicate syntax, such as likes(ann, tea), and no language"
                " model is configured; LLM_PROVIDER names one, or EXTRACTION_FALLBACK=episode keeps"
                " prose as it is"
            )
        done = self._ingested(
            statements, extracted, new, request, (recording, request_limits, conflict)
        )
        return replace(done, episodes=episodes)

    # -- inside ------------------------------------------------------------------------------------

    def _ingested(
        self,
        statements: Taken,
        extracted: Extracted | None,
        new: list[Fact],
        request: WindowRequest,
        recorded: tuple[Recording | None, RequestLimits | None, str],
    ) -> Ingested:
        recording, request_limits, conflict = recorded
        yield_now = self._deadline(request_limits)
        parsed = (
            set()
            if extracted is None
            else set(map(_signed_atom, paced(statements.facts, yield_now)))
        )
        new_facts = [fact for fact in new if _signed_atom(fact) not in parsed]
        extracted_facts = () if extracted is None else extracted.facts
        listed = [fact for fact in extracted_facts if _signed_atom(fact) not in parsed]
        rules: tuple[StoredDefinition, ...] = ()
        asserted = discarded = 0
        known = [fact for fact in listed if fact not in new_facts]
        supports = Supports()
        if statements.rules or statements.facts or listed:
            supports, facts = _supports(
                recording,
                [*statements.facts, *new_facts],
                known,
                statements.spans,
            )
            stored = self.assert_rules(
                statements.rules,
                facts,
                supports=supports,
                request_limits=request_limits,
                conflict=conflict,
            )
            rules, asserted = stored.rules, stored.asserted
            discarded = stored.discarded
            let_go(facts, self._services.yield_now)
            let_go(statements.spans, self._services.yield_now)
        window, changes = self.context_with_changes(request, request_limits=request_limits)
        unread = () if extracted is not None else tuple(statements.unread)
        return Ingested(
            (*statements.facts, *listed),
            rules,
            asserted,
            unread,
            window,
            changes,
            extracted,
            recorded=tuple(episode.id for episode in supports.episodes),
            discarded=discarded,
        )

    def _conflict_strategy(self, name: str | None) -> str:
        """Return the strategy of facts read in texts; raises InvalidInput for an unknown one."""
        name = self._services.config.ingest_conflicts if name is None else name
        strategies = self._services.plugins.conflict_strategies()
        if name not in strategies:
            raise InvalidInput.at(
                "conflictStrategy", f"must be one of {', '.join(sorted(strategies))}"
            )
        return name

    def _recording(
        self, text: str, source: Source, turns: Sequence[int] = (), *, yield_now: YieldNow
    ) -> Recording | None:
        """Return the episodes of a text, None if texts are not recorded."""
        config = self._services.config
        if not config.record_evidence:
            return None
        return Recording(text, source, config.episode_max_chars, turns, yield_now=yield_now)

    def _model(self) -> Model:
        model = self._services.model
        if model is None:
            raise ModelNotConfigured("no language model is configured; LLM_PROVIDER names one")
        return model

    def _vocabulary(
        self, text: str, scope: str | None, request_limits: RequestLimits | None
    ) -> Vocabulary:
        with self._reads(request_limits) as (tenant, budget):
            return vocabulary(tenant, self._partitions(tenant, scope), scope, text, budget)

    def _extracted(
        self,
        model: Model,
        text: str,
        scope: str | None,
        rules: bool,
        context: str | None,
        request_limits: RequestLimits | None,
    ) -> tuple[Extracted, list[Fact]]:
        """Return what the model extracted from a text, and the facts that are not stored yet."""
        extracted = extract(
            text,
            model,
            lambda piece: self._vocabulary(piece, scope, request_limits),
            self._services.plugins.extraction_prompt,
            self._services.config,
            ExtractionOptions(scope, rules, context),
        )
        one_answer = AnswerOptions(scope, limit=1)

        def judged(tenant: Tenant, budget: Budget) -> tuple[list[Fact], list[Contradicted]]:
            def rows(atom: Atom) -> list[Row]:
                budget.yield_now()
                answers = self._answers(tenant, Literal(atom), one_answer, budget)
                return [row for _, partition_rows in answers for row in partition_rows]

            return judge(extracted.facts, rows)

        new_facts, extracted.contradictions = self._evaluated(judged, request_limits)
        return extracted, new_facts

    def _store(
        self,
        extracted: Extracted,
        conflict: str,
        supported: tuple[Supports, list[Fact]],
    ) -> None:
        """Store extracted facts and rules, and note how many facts were new and how many were
        discarded; rules that conflict with stored rules are refused.

        The facts are stored even if the rules are refused.
        """
        supports, facts = supported
        if not facts and not extracted.rules and not supports.known:
            return
        extracted.episodes = tuple(episode.id for episode in supports.episodes)
        try:
            stored = self.assert_rules(extracted.rules, facts, supports=supports, conflict=conflict)
        except InvalidInput as error:
            if not extracted.rules:
                raise
            extracted.refuse_rules(error.message)
            if not facts and not supports.known:
                return
            stored = self.assert_rules((), facts, supports=supports, conflict=conflict)
        extracted.asserted, extracted.discarded = stored.asserted, stored.discarded

    def _premises(self, row: Row) -> tuple[str | None, list[Row]]:
        """Return the rule that derives a conclusion, and the stored facts of one of its proofs."""
        literal = Literal(Atom(row["predicate"], tuple(row["args"]), not row["negated"]))
        proofs = self.prove(
            literal, AnswerOptions(row["scope"], limit=1), ProofOptions(nodes=PROOF_NODES)
        )
        if not proofs:
            return None, []
        facts: list[Row] = []
        nodes = [proofs[0]["proof"]]
        while nodes:
            step = nodes.pop()["step"]
            if step["fact"] is not None:
                facts.append(step["fact"])
            nodes += reversed(step["bodyProofs"] or [])
        return proofs[0]["proof"]["step"]["rule"], facts


def _supports(
    recording: Recording | None,
    new: Sequence[Fact],
    known: Sequence[Fact],
    spans: dict[SignedAtom, list[Span]],
) -> tuple[Supports, list[Fact]]:
    """Return the episodes of facts and the evidence of facts that are stored already, and the new
    facts with their evidence.
    """
    if recording is None:
        return Supports(), list(new)
    new, known = (recording.supported(facts, spans) for facts in (new, known))
    known = [fact for fact in known if fact.evidence]
    episodes = recording.named([*new, *known])
    return Supports(tuple(episodes), tuple(known)), new


def _sentences(
    text: str, extracted: Extracted, yield_now: YieldNow
) -> dict[SignedAtom, list[Span]]:
    """Return the sentences of a text in which extracted facts were read."""
    return {
        key: list(dict.fromkeys(sentence_of(text, start, end, key) for start, end in places))
        for key, places in paced(extracted.places.items(), yield_now, 1)
    }


def _signed_atom(fact: Fact) -> tuple[str, tuple[str, ...], bool]:
    return fact.predicate, fact.args, fact.positive
