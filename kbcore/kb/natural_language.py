"""Texts taken in and questions answered: the part of a knowledge base that deals with language, with a model or without.

A model is never called under a lock, and what it says is stored in one change set after all of it was read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kbcore.context.diff import WindowDiff
from kbcore.context.request import WindowRequest
from kbcore.context.window import Window
from kbcore.errors import InvalidInput, ModelNotConfigured
from kbcore.kb.context_windows import Windowing, check_request
from kbcore.kb.queries import Asking
from kbcore.language.evidence import Evidence, Query, gather
from kbcore.language.extract import Extracted, extract, judge
from kbcore.language.reading import Taken, read_statements_of
from kbcore.language.synthesize import MOST_QUESTION, Synthesis, synthesize
from kbcore.language.vocabulary import Vocabulary, vocabulary
from kbcore.llm.model import Model
from kbcore.reason.budget import BudgetWanted
from kbcore.state.facts import Fact, Row
from kbcore.state.rulebook import StoredRule
from kbcore.state.tenant import ALL_SCOPES
from kbplanner.ir.terms import Atom, BodyItem, Literal, Rule, Variable

if TYPE_CHECKING:
    from kbcore.kb.knowledge_base import RulesOutcome

PROOF_NODES = 50
"""Nodes of the proof of a conclusion that are looked through for the facts it rests on."""


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a text stated, how many of its facts were new, the numbers of its lines nobody read, and the window made then.

    `extracted` is what a model made of its prose, None where none was asked; those facts are among `facts` too. `changes`
    are those since the last window of the session, None where there was none.
    """

    facts: tuple[Fact, ...]
    rules: tuple[StoredRule, ...]
    asserted: int
    unread: tuple[int, ...]
    window: Window
    changes: WindowDiff | None = None
    extracted: Extracted | None = field(default=None)


class Conversing(Asking, Windowing, ABC):
    """The part of a knowledge base that reads texts and answers questions in words."""

    @abstractmethod
    def assert_rules(self, rules: Sequence[Rule], facts: Sequence[Fact] = ()) -> RulesOutcome:
        """Teach rules, and store facts with them, all or none."""

    def extract(
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
        wanted: BudgetWanted | None = None,
    ) -> Extracted:
        """Have the language model read a text into facts, and into rules where `rules` are wanted.

        With `store` new facts and the rules go into `scope`, at once; what is stored already stays as it is. `context` is a
        hint for the model. Pieces that failed are told in `failures`. Raises ModelNotConfigured, ModelFailed where no piece
        could be read, RateLimited, TooLarge, BudgetExceeded, and with `store` ReadOnlyFollower before the model is asked.
        """
        if store:
            self._services.refuse_on_follower()
        model = self._model()
        if scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "names one partition: extracted facts belong to it")
        if not text.strip():
            raise InvalidInput.at("text", "must not be empty")
        found, new = self._extracted(model, text, scope, rules, context, wanted)
        if store:
            found.known = len(found.facts) - len(new)
            found.asserted = self._store(found, new)
        return found

    def synthesize(
        self, question: str, *, scope: str | None = None, wanted: BudgetWanted | None = None
    ) -> Synthesis:
        """Answer a question in words from what is known, with what the answer rests on.

        The language model plans queries and words the answer; what no fact backs is not in it. `wanted` limits each query.
        Raises ModelNotConfigured, ModelFailed, RateLimited.
        """
        model = self._model()
        if not question.strip() or len(question) > MOST_QUESTION:
            raise InvalidInput.at("question", f"must have 1 to {MOST_QUESTION} characters")

        def infer(atom: Atom, limit: int) -> list[Row]:
            return self.infer(Literal(atom), scope=scope, limit=limit, wanted=wanted)

        def bindings(
            body: Sequence[BodyItem], names: Sequence[Variable], limit: int
        ) -> list[tuple[str, ...]]:
            return self.bindings(body, names, scope=scope, limit=limit, wanted=wanted)

        def run(query: Query, evidence: Evidence) -> None:
            gather(query, infer, bindings, evidence)

        deadline = (
            self._services.clock.monotonic() + self._services.config.llm_request_timeout_ms / 1000
        )
        known = self._vocabulary(question, scope, wanted)
        return synthesize(question, model, known, run, self._premises, deadline)

    def ingest(
        self,
        text: str,
        request: WindowRequest,
        *,
        hint: str | None = None,
        wanted: BudgetWanted | None = None,
    ) -> Ingested:
        """Store the facts and rules of a text, all or none, and make a window then; facts go where the window looks.

        Lines in predicate syntax or the rule language are read as they are. Prose is for the language model, with `hint`
        about it; without one it is passed over. Raises ModelNotConfigured where there is nothing else, ModelFailed where the
        model could read none of it, InvalidInput for a rule that cannot be taken, ReadOnlyFollower before the model is
        asked, and BudgetExceeded; where that comes from the window, what was stored stands.
        """
        self._services.refuse_on_follower()
        if request.scope == ALL_SCOPES:
            raise InvalidInput.at("scope", "'*' can be read, not written")
        check_request(request)
        budget = self._budget(wanted)
        try:
            taken = read_statements_of(text, request.scope, budget.rest)
        finally:
            budget.turn.leave()
        extracted: Extracted | None = None
        new: list[Fact] = []
        if taken.unread and self._services.model is not None:
            lines = text.split("\n")
            prose = "\n".join(lines[number - 1] for number in taken.unread)
            extracted, new = self._extracted(
                self._model(), prose, request.scope, False, hint, wanted
            )
        elif not taken:
            raise ModelNotConfigured(
                "nothing of the text is in predicate syntax, such as likes(ann, tea), and no language model is configured"
            )
        return self._ingested(taken, extracted, new, request, wanted)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _ingested(
        self,
        taken: Taken,
        extracted: Extracted | None,
        new: list[Fact],
        request: WindowRequest,
        wanted: BudgetWanted | None,
    ) -> Ingested:
        stated = {(fact.predicate, fact.args, fact.positive) for fact in taken.facts}
        fresh = [fact for fact in new if (fact.predicate, fact.args, fact.positive) not in stated]
        told = [] if extracted is None else extracted.facts
        shown = [fact for fact in told if (fact.predicate, fact.args, fact.positive) not in stated]
        rules: tuple[StoredRule, ...] = ()
        asserted = 0
        if taken.rules or taken.facts or fresh:
            stored = self.assert_rules(taken.rules, [*taken.facts, *fresh])
            rules, asserted = stored.rules, stored.asserted
        window, changes = self.context_with_changes(request, wanted=wanted)
        unread = () if extracted is not None else tuple(taken.unread)
        return Ingested((*taken.facts, *shown), rules, asserted, unread, window, changes, extracted)

    def _model(self) -> Model:
        model = self._services.model
        if model is None:
            raise ModelNotConfigured("no language model is configured; LLM_PROVIDER names one")
        return model

    def _vocabulary(self, text: str, scope: str | None, wanted: BudgetWanted | None) -> Vocabulary:
        with self._reads(wanted) as (tenant, budget):
            return vocabulary(tenant, self._partitions(tenant, scope), scope, text, budget)

    def _extracted(
        self,
        model: Model,
        text: str,
        scope: str | None,
        rules: bool,
        context: str | None,
        wanted: BudgetWanted | None,
    ) -> tuple[Extracted, list[Fact]]:
        """What a text states, and those of its facts that are not stored yet."""
        found = extract(
            text,
            model,
            lambda piece: self._vocabulary(piece, scope, wanted),
            self._services.plugins.extraction_prompt,
            self._services.config,
            scope=scope,
            rules=rules,
            context=context,
        )
        with self._reads(wanted) as (tenant, budget):

            def rows(atom: Atom) -> list[Row]:
                budget.rest()
                asked = self._answers(tenant, Literal(atom), scope, 1, 0, None, None, budget)
                return [row for _, some in asked for row in some]

            new, found.contradictions = judge(found.facts, rows)
        return found, new

    def _store(self, found: Extracted, new: list[Fact]) -> int:
        """Store what was extracted, at once; rules that cannot be taken beside those there are, are refused."""
        if not new and not found.rules:
            return 0
        try:
            return self.assert_rules(found.rules, new).asserted
        except InvalidInput as error:
            if not found.rules:
                raise
            found.refuse_rules(error.message)
        return self.assert_rules((), new).asserted if new else 0

    def _premises(self, row: Row) -> tuple[str | None, list[Row]]:
        """The rule a conclusion comes from, and the stored facts of one proof of it."""
        literal = Literal(Atom(row["predicate"], tuple(row["args"]), not row["negated"]))
        proofs = self.prove(literal, scope=row["scope"], limit=1, nodes=PROOF_NODES)
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
