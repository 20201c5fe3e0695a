"""Natural language of a knowledge base: reading texts and answering questions.

A language model is never called while a lock is held. Its results are stored in one change set
after all of them were read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Generic, TypeVar

from kbcore.context.diff import WindowDiff
from kbcore.context.request import WindowRequest
from kbcore.errors import Conflict, InvalidInput, ModelFailed, ModelNotConfigured, RateLimited
from kbcore.language.evidence import EvidenceQuery, EvidenceTexts, gather
from kbcore.language.extract import (
    ExtractedFacts,
    ExtractionOptions,
    Judgement,
    extract,
    judge,
)
from kbcore.language.messages import ROLES, Message, Source, Span, Transcript, well_formed
from kbcore.language.reading import SignedAtom, Taken, as_prose, read_statements_of, said_in
from kbcore.language.said import said_about
from kbcore.language.speech import MAX_EARLIER_TURNS, MAX_PEOPLE, Speech, Turn
from kbcore.language.synthesize import (
    MAX_QUESTION_CHARS,
    KnowledgeSource,
    SynthesizedAnswer,
    synthesize,
)
from kbcore.language.vocabulary import Vocabulary, vocabulary
from kbcore.llm.model import LanguageModel
from kbcore.operations.base import TenantHandle
from kbcore.operations.context_windows import check_request
from kbcore.operations.episodes.episodes import Supports
from kbcore.operations.episodes.recording import ProseLines, Recording
from kbcore.operations.episodes.repeats import KnownMessages, known_messages
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.argument_types import type_problem
from kbcore.state.episodes.quoting import Sources
from kbcore.state.facts import Fact, Row
from kbcore.state.names import check_name
from kbcore.state.rulebook import RulesOutcome, StoredDefinition
from kbcore.state.tenant import ALL_SCOPES, Tenant
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import Atom, BodyItem, Literal, Variable
from kbplanner.pacing import YieldNow, let_go, paced
from kbtypes.windows import ContextDiff, Window

FACTS_PER_YIELD = 100
"""Facts dated between two calls of `yield_now`: about a millisecond."""

MAX_ATTEMPTS = 8
"""Maximum number of times that a list of messages is read, if other calls store some of them."""

PROOF_NODES = 50
"""Maximum number of proof nodes searched for the facts that a conclusion depends on."""


Changes = TypeVar("Changes", WindowDiff, ContextDiff)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """Facts and rules of a text that were stored, and the count of new facts.

    `unread` are the numbers of lines that could not be read as facts or rules; `episodes` counts
    the facts in `facts` that hold such lines as they are. `extracted` is the language model's
    result for the prose, None if no model was called or it failed, with the reason in `failure`;
    its facts are also in `facts`. `recorded` are the ids of the episodes under which the text was
    stored, if facts were read in it. `discarded` counts the facts that a conflict strategy did not
    store. `forgotten` counts the messages that were left out because they were erased.
    """

    facts: tuple[Fact, ...] = ()
    rules: tuple[StoredDefinition, ...] = ()
    asserted: int = 0
    unread: tuple[int, ...] = ()
    extracted: ExtractedFacts | None = None
    failure: str | None = None
    episodes: int = 0
    recorded: tuple[str, ...] = ()
    discarded: int = 0
    forgotten: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingestion(StoredText, Generic[Changes]):
    """Result of reading a text, with a window and its changes since the session's last window, None
    if there was none.
    """

    window: Window
    changes: Changes | None = None


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

    def extract(  # noqa: PLR0913  three of them are about the text
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
        source: Source | None = None,
        request_limits: RequestLimits | None = None,
        conflict: str | None = None,
    ) -> ExtractedFacts:
        """Extract facts from a text with the language model, and rules if `rules` is true.

        With `store`, new facts and the rules are written to `scope` in one change set; facts that
        are already stored do not change. The text is stored as an episode of `source`, and the
        facts are valid from its time, if given. `conflict` is their conflict strategy,
        INGEST_CONFLICTS by default. `context` is a hint for the model. `failures` of the result
        lists the pieces that failed.

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
        text = well_formed(text)
        yield_now = self._services.yield_now
        origin = source or Source()
        if origin.session is not None:
            check_name("session", origin.session)
        transcript = self._transcript((Message(text),), origin, yield_now)
        recording = self._recording(transcript, origin, None, yield_now)
        speech = self._speech(
            transcript, recording, origin.session, lambda start, end: ((start, end),)
        )
        options = ExtractionOptions(scope, rules, context)
        extracted, new_facts = self._extracted(model, text, speech, options, request_limits)
        if store:
            evidence = _Evidence(
                transcript, recording, extracted.places, self._services.clock.now_ms()
            )
            self._store(extracted, new_facts, evidence, conflict)
        return extracted

    def synthesize(
        self,
        question: str,
        *,
        scope: str | None = None,
        citations: bool = False,
        request_limits: RequestLimits | None = None,
    ) -> SynthesizedAnswer:
        """Answer a question in words from the knowledge base, with the evidence for the answer.

        The language model plans queries and words the answer; statements without supporting facts
        are left out. If no query finds a fact, what was said about the question is the evidence:
        facts `said` and episodes. With `citations`, sentences cite the evidence of their facts,
        which `sources` of the result lists. `request_limits` limits each query. Raises
        ModelNotConfigured, ModelFailed, RateLimited.
        """
        model, options = self._model(), AnswerOptions(scope, request_limits=request_limits)
        if not question.strip() or len(question) > MAX_QUESTION_CHARS:
            raise InvalidInput.at("question", f"must have 1 to {MAX_QUESTION_CHARS} characters")

        def infer(atom: Atom, limit: int) -> list[Row]:
            return self.infer(Literal(atom), options._replace(limit=limit))

        def bindings(
            body: Sequence[BodyItem], names: Sequence[Variable], limit: int
        ) -> list[tuple[str, ...]]:
            return self.bindings(body, names, options._replace(limit=limit))

        def run(query: EvidenceQuery, evidence: EvidenceTexts) -> None:
            gather(query, infer, bindings, evidence)

        def said(tenant: Tenant, budget: Budget) -> list[Row]:
            def rows(atom: Atom) -> list[Row]:
                answers = self._answers(tenant, Literal(atom), options._replace(limit=1), budget)
                return [row for _, partition_rows in answers for row in partition_rows]

            partitions = self._partitions(tenant, scope)
            return said_about(tenant, partitions, question, budget, rows)

        def search() -> list[Row]:
            return self._evaluated(said, request_limits)

        deadline = (
            self._services.clock.monotonic() + self._services.config.llm_request_timeout_ms / 1000
        )
        vocabulary = self._vocabulary(question, scope, request_limits)
        sources = Sources(self._read_tenant().episodes.get) if citations else None
        base = KnowledgeSource(run, search, self._premises)
        return synthesize(question, model, vocabulary, base, deadline, sources)

    def ingest(
        self,
        text: str | Sequence[Message],
        request: WindowRequest,
        *,
        hint: str | None = None,
        request_limits: RequestLimits | None = None,
        source: Source | None = None,
        conflict: str | None = None,
    ) -> Ingestion[WindowDiff]:
        """Store the facts and rules of a text or of messages, all or none, and return a window made
        afterwards.

        Facts go to the scope of the window. Lines in predicate syntax or the rule language are
        parsed; a rule in a chat message is prose, because a conversation must not teach rules.
        Prose goes to the language model, with `hint`. Without a model, prose is skipped, or stored
        as facts `said(speaker, text, when)` with EXTRACTION_FALLBACK=episode. The speaker, time and
        session of `source` hold for everything made from the text, unless a message has its own:
        facts are valid from that time if the text states no other. The text is stored as episodes
        and is the evidence of the facts, each with its line or sentence. Of a text those with facts
        are stored, of messages all. Messages that are stored already are left out: those with the
        id of an episode, and those with which the list begins if they are all that its session has.
        So are messages that were erased.
        `conflict` is the conflict strategy of the facts, INGEST_CONFLICTS by default.

        Raises ModelNotConfigured if the text is only prose that is skipped, ModelFailed if
        the model could read none of the prose, InvalidInput for a rule that is refused,
        AlreadyExists if the id of a message belongs to another content, ReadOnlyFollower before the
        model is called, and BudgetExceeded. If the window exceeds the budget, the stored facts and
        rules remain.
        """
        check_request(request)
        origin = source or Source(session=request.session)
        stored = self.store_text(text, request.scope, origin, request_limits, conflict, hint=hint)
        window, changes = self.context_with_changes(request, request_limits=request_limits)
        members = {each.name: getattr(stored, each.name) for each in fields(StoredText)}
        return Ingestion(**members, window=window, changes=changes)

    def store_text(  # noqa: PLR0913  three of them are about the text
        self,
        text: str | Sequence[Message],
        scope: str | None,
        origin: Source,
        request_limits: RequestLimits | None = None,
        conflict: str | None = None,
        *,
        hint: str | None = None,
        keeps_texts: bool = False,
        vocabulary: Sequence[Definition] = (),
    ) -> StoredText:
        """Store the facts and rules of a text or of messages in a scope, all or none, as `ingest`
        does.

        With `keeps_texts`, the text is prose also where it looks like a fact, and episodes and
        facts `said` are stored with all settings, also beside what a model reads or fails to read.
        `vocabulary` is stored with them.
        """
        self._services.refuse_on_follower()
        self._check_writable(scope)
        conflict = self._conflict_strategy(conflict)
        reading = _TextReading(
            scope, origin, request_limits, conflict, hint, keeps_texts, vocabulary
        )
        if isinstance(text, str):
            return self._store_messages((Message(well_formed(text)),), reading, None)
        for attempts_left in range(MAX_ATTEMPTS, 0, -1):
            known = self._known_messages(text, reading)
            left_out = known.stored | known.erased
            if text and len(left_out) == len(text):
                return StoredText(forgotten=len(known.erased))
            messages = [each for number, each in enumerate(text) if number not in left_out]
            check = partial(self._check_known, known, text, reading)
            try:
                stored = self._store_messages(messages, reading, check)
            except _MessagesArrived:
                if attempts_left == 1:
                    raise
            else:
                return replace(stored, forgotten=len(known.erased))
        raise AssertionError("the last attempt returns or raises")

    # -- inside ------------------------------------------------------------------------------------

    def _store_messages(
        self, messages: Sequence[Message], reading: _TextReading, check: Callable[[], None] | None
    ) -> StoredText:
        """Store the facts of new messages, or of a text if `check` is None, unless `check`, which
        is called on the state at the write, raises.
        """
        scope, origin, keeps_texts = reading.scope, reading.origin, reading.keeps_texts
        request_limits = reading.request_limits
        is_list = check is not None
        yield_now = self._deadline(request_limits)
        now = self._services.clock.now_ms()
        transcript = self._transcript(messages, origin, yield_now)
        statements = _statements_of(transcript, messages, reading, yield_now)
        dated_at = now if is_list else None
        recording = self._recording(transcript, origin, dated_at, yield_now, always=keeps_texts)
        extracted: ExtractedFacts | None = None
        failure: str | None = None
        new: list[Fact] = []
        episodes = 0
        model = self._services.model
        is_kept = keeps_texts or (
            model is None and self._services.config.extraction_fallback == "episode"
        )
        if statements.unread and model is not None:
            prose = ProseLines(transcript.text, statements.unread, yield_now)
            speech = self._speech(transcript, recording, origin.session, prose.spans)
            options = ExtractionOptions(scope, context=reading.hint)
            try:
                extracted, new = self._extracted(model, prose.text, speech, options, request_limits)
            except (ModelFailed, RateLimited) as error:
                if not keeps_texts:
                    raise
                failure = error.message
            else:
                for key, spans in paced(extracted.places.items(), yield_now, 1):
                    parts = (part for span in spans for part in prose.spans(*span))
                    statements.spans.setdefault(key, []).extend(parts)
        elif not (statements or is_kept):
            raise ModelNotConfigured(
                "no line of the text is in predicate syntax, such as likes(ann, tea), and no language"
                " model is configured; LLM_PROVIDER names one, or EXTRACTION_FALLBACK=episode keeps"
                " prose as it is"
            )
        if statements.unread and is_kept:
            episodes = _add_said(statements, transcript, scope, now, yield_now)
        if episodes and not is_list:
            recording = self._recording(transcript, origin, now, yield_now, always=keeps_texts)
        evidence = _Evidence(transcript, recording, statements.spans, now, is_whole=is_list)
        statements.rules += reading.vocabulary
        done = self._store_read(statements, extracted, new, (evidence, reading, check))
        return replace(done, episodes=episodes, failure=failure)

    def _store_read(
        self,
        statements: Taken,
        extracted: ExtractedFacts | None,
        new: list[Fact],
        recorded: tuple[_Evidence, _TextReading, Callable[[], None] | None],
    ) -> StoredText:
        evidence, reading, check = recorded
        yield_now = self._deadline(reading.request_limits)
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
        supports, facts = evidence.supports([*statements.facts, *new_facts], known, yield_now)
        supports = replace(supports, check=check)
        if extracted is not None:
            supports = replace(supports, ended=tuple(extracted.ended))
        dated = tuple(facts[: len(statements.facts)])
        if statements.rules or facts or listed or supports.episodes:
            stored = self.assert_rules(
                statements.rules,
                facts,
                supports=supports,
                request_limits=reading.request_limits,
                conflict=reading.conflict,
            )
            rules, asserted = stored.rules, stored.asserted
            discarded = stored.discarded
            let_go(facts, self._services.yield_now)
            let_go(statements.spans, self._services.yield_now)
        return StoredText(
            facts=(*dated, *listed),
            rules=rules,
            asserted=asserted,
            unread=() if extracted is not None else tuple(statements.unread),
            extracted=extracted,
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

    def _transcript(
        self, messages: Sequence[Message], source: Source, yield_now: YieldNow
    ) -> Transcript:
        """Return the passages of messages; names are those of speakers of stored episodes."""
        return Transcript(messages, source, self._read_tenant().episodes.is_speaker, yield_now)

    def _recording(
        self,
        transcript: Transcript,
        source: Source,
        now: int | None,
        yield_now: YieldNow,
        *,
        always: bool = False,
    ) -> Recording | None:
        """Return the episodes of a transcript, None if texts are not recorded and need not be."""
        config = self._services.config
        if not (always or config.record_evidence):
            return None
        return Recording(
            transcript,
            source.session,
            config.episode_max_chars,
            now,
            agent=source.agent,
            labels=self.labels,
            yield_now=yield_now,
        )

    def _known_messages(self, messages: Sequence[Message], reading: _TextReading) -> KnownMessages:
        """Return the messages that are stored already or were erased; raise AlreadyExists for an id
        of another content.
        """
        origin = reading.origin
        yield_now = self._deadline(reading.request_limits)
        has_ids = any(message.id is not None for message in paced(messages, yield_now))
        if not has_ids and origin.session is None and not self._read_tenant().erased:
            return KnownMessages()
        transcript = self._transcript(messages, origin, yield_now)
        recording = self._recording(transcript, origin, None, yield_now, always=reading.keeps_texts)
        if recording is None:
            return KnownMessages()

        def evaluate(tenant: Tenant, budget: Budget) -> KnownMessages:
            known = known_messages(recording, messages, origin.session, tenant, budget)
            known.version = tenant.episodes.version
            known.recording = recording
            return known

        return self._evaluated(evaluate, reading.request_limits)

    def _check_known(
        self, known: KnownMessages, messages: Sequence[Message], reading: _TextReading
    ) -> None:
        """Raise _MessagesArrived if other messages of a list are known now than before."""
        tenant = self._read_tenant()
        if known.recording is None or tenant.episodes.version == known.version:
            return
        with self._budget(reading.request_limits) as budget:
            session = reading.origin.session
            now = known_messages(known.recording, messages, session, tenant, budget)
        if (now.stored, now.erased) != (known.stored, known.erased):
            raise _MessagesArrived("messages of the session were stored by another call")

    def _model(self) -> LanguageModel:
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
        model: LanguageModel,
        text: str,
        speech: Speech,
        options: ExtractionOptions,
        request_limits: RequestLimits | None,
    ) -> tuple[ExtractedFacts, list[Fact]]:
        """Return what the model extracted from a text, and the facts that are not stored yet."""
        extracted = extract(
            text,
            speech,
            model,
            lambda piece: self._vocabulary(piece, options.scope, request_limits),
            self._services.plugins.extraction_prompt,
            self._services.config,
            options,
        )
        one_answer = AnswerOptions(options.scope, limit=1)

        def start_of(fact: Fact) -> int:
            at = speech.time(extracted.places.get(_signed_atom(fact), ()))
            return next(each for each in (fact.valid_from, at, speech.now) if each is not None)

        def judged(tenant: Tenant, budget: Budget) -> Judgement:
            def rows(atom: Atom) -> list[Row]:
                budget.yield_now()
                answers = self._answers(tenant, Literal(atom), one_answer, budget)
                return [row for _, partition_rows in answers for row in partition_rows]

            return judge(extracted, rows, start_of, partial(type_problem, tenant.rules))

        judgement = self._evaluated(judged, request_limits)
        extracted.facts, extracted.ended = judgement.usable, judgement.ended
        extracted.contradictions = judgement.contradictions
        extracted.rejected += judgement.rejected
        return extracted, judgement.new

    def _speech(
        self,
        transcript: Transcript,
        recording: Recording | None,
        session: str | None,
        spans: Callable[[int, int], Iterable[Span]],
    ) -> Speech:
        """Return what a prompt says about the passages of a text, with the last turns of the
        session and the speakers of the tenant; `spans` maps the text of the model to that of the
        transcript.
        """
        yield_now = self._services.yield_now
        if recording is None:  # texts are not kept; events have ids of their episodes all the same
            config = self._services.config
            recording = Recording(
                transcript, session, config.episode_max_chars, yield_now=yield_now
            )
        own = {each.id for each in paced(recording.episodes, yield_now)}
        tenant = self._read_tenant()
        with tenant.lock.read():
            known = (
                ()
                if session is None
                else tenant.episodes.last_in_session(session, MAX_EARLIER_TURNS)
            )
            people = tenant.episodes.speakers(MAX_PEOPLE)
        earlier = [Turn(each.speaker, each.at, each.text) for each in known if each.id not in own]
        named = [name for name in people if name not in ROLES]
        now = self._services.clock.now_ms()
        return Speech(transcript, spans, recording.episode_of, now, earlier, named)

    def _store(
        self,
        extracted: ExtractedFacts,
        new_facts: list[Fact],
        evidence: _Evidence,
        conflict: str,
    ) -> None:
        """Store extracted facts and rules, and note how many facts were new and how many were
        discarded; rules that conflict with stored rules are refused.

        The facts are stored even if the rules are refused.
        """
        known = [fact for fact in extracted.facts if fact not in new_facts]
        supports, facts = evidence.supports(new_facts, known, self._services.yield_now)
        supports = replace(supports, ended=tuple(extracted.ended))
        extracted.known = len(known) - sum(fact.valid_until is not None for fact in known)
        if not facts and not extracted.rules and not supports.known and not supports.ended:
            return
        extracted.episodes = tuple(episode.id for episode in supports.episodes)
        try:
            stored = self.assert_rules(extracted.rules, facts, supports=supports, conflict=conflict)
        except InvalidInput as error:
            if not extracted.rules:
                raise
            extracted.refuse_rules(error.message)
            if not facts and not supports.known and not supports.ended:
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


class _MessagesArrived(Conflict):
    """Messages of a list were stored, or erased, while it was read."""


@dataclass(frozen=True, slots=True)
class _TextReading:
    """The arguments of `store_text` about reading and storing texts or messages."""

    scope: str | None
    origin: Source
    request_limits: RequestLimits | None
    conflict: str
    hint: str | None
    keeps_texts: bool
    vocabulary: Sequence[Definition]


@dataclass(frozen=True, slots=True)
class _Evidence:
    """The places of facts in a text: they give the facts their time, and their evidence if the text
    is recorded. All episodes are stored if `is_whole`, else those that are evidence. `now` is in
    epoch milliseconds.
    """

    transcript: Transcript
    recording: Recording | None
    spans: dict[SignedAtom, list[Span]]
    now: int
    is_whole: bool = False

    def supports(
        self, new: Sequence[Fact], known: Sequence[Fact], yield_now: YieldNow
    ) -> tuple[Supports, list[Fact]]:
        """Return the episodes of facts and the evidence of facts that are stored already, and the
        new facts with their evidence and time.
        """
        dated = [self._dated(fact) for fact in paced(new, yield_now, FACTS_PER_YIELD)]
        if self.recording is None:
            return Supports(), dated
        facts, known = (self.recording.supported(each, self.spans) for each in (dated, known))
        known = [fact for fact in known if fact.evidence]
        recording = self.recording
        episodes = recording.unique() if self.is_whole else recording.named([*facts, *known])
        return Supports(tuple(episodes), tuple(known)), facts

    def _dated(self, fact: Fact) -> Fact:
        """Return a fact that is valid from the time at which it was said, if the text says no
        other time, and from now if that is later than now, as by a clock that is ahead.
        """
        if fact.valid_from is not None:
            return fact
        at = self.transcript.time(self.spans.get(_signed_atom(fact), ()))
        return fact if at is None or at > self.now else replace(fact, valid_from=at)


def _signed_atom(fact: Fact) -> tuple[str, tuple[str, ...], bool]:
    return fact.predicate, fact.args, fact.positive


def _statements_of(
    transcript: Transcript,
    messages: Sequence[Message],
    reading: _TextReading,
    yield_now: YieldNow,
) -> Taken:
    """Return the facts and rules of a transcript; the lines that are prose remain unread."""
    if reading.keeps_texts:
        return as_prose(transcript.text, yield_now)
    is_chat = any(message.is_chat for message in paced(messages, yield_now))
    return read_statements_of(transcript.text, reading.scope, yield_now, with_rules=not is_chat)


def _add_said(
    statements: Taken, transcript: Transcript, scope: str | None, now: int, yield_now: YieldNow
) -> int:
    """Add the unread lines of a transcript as facts `said`; return the number of new facts."""
    added = 0
    for fact, span in said_in(transcript, statements.unread, scope, now, yield_now):
        if _signed_atom(fact) not in statements.spans:  # else it was said twice at once
            statements.facts.append(fact)
            added += 1
        statements.place(fact, span)
    return added
