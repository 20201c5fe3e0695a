"""Natural language of a knowledge base: facts from texts, answers in words, goals for questions."""

from __future__ import annotations

from kbcore.language.extract import ExtractedFacts
from kbcore.language.messages import Source, check_speaker
from kbcore.language.synthesize import SynthesizedAnswer
from kbcore.python_api.arguments import request_limits
from kbcore.python_api.handle import PythonHandle
from kbcore.python_values import instant
from kbcore.python_values import text as text_of
from kbtypes.language import GoalSuggestions
from kbtypes.values import Instant


class PythonLanguage(PythonHandle):
    """Natural language of a knowledge base; all but `goals_for` needs a language model."""

    def goals_for(
        self,
        question: str,
        *,
        scope: str | None = None,
        asker: str | None = None,
        as_of: Instant | None = None,
        timeout_ms: int | None = None,
    ) -> GoalSuggestions:
        """Return the goals that a question in words can mean, and the answers of the best one.

        No language model is asked: the words of the question are compared with the names, phrases,
        glosses and argument names of the predicates, and its names with the constants of the facts.
        A goal can be a chain of several predicates. `answers` is empty, and `reason` says why, if
        no goal has enough of the words, or if two that are about as good have different answers.
        `asker` is the constant that "I" stands for, `as_of` judges validity at a point in time.
        Raises InvalidInput, BudgetExceeded.
        """
        return self.kb.goals_for(
            text_of("question", question),
            scope=scope,
            asker=None if asker is None else text_of("asker", asker),
            as_of=instant("as_of", as_of),
            request_limits=request_limits(timeout_ms),
        )

    def extract(  # noqa: PLR0913  three of them are the origin of the text
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
        speaker: str | None = None,
        at: Instant | None = None,
        session: str | None = None,
        timeout_ms: int | None = None,
        conflict: str | None = None,
    ) -> ExtractedFacts:
        """Extract facts from a text with the language model, and rules if `rules` is true.

        The prompt says that `speaker` said the text on the day of `at`, and has the last turns of
        `session` as context. With `store` the facts and rules are stored in `scope`, and the text
        is stored as an episode of them; the facts are valid from `at` if the text says no other
        day. `conflict` is their
        conflict strategy, as for `tell`, INGEST_CONFLICTS by default. `context` is a hint for the
        model. Raises InvalidInput, ModelNotConfigured, ModelFailed.
        """
        if speaker is not None:
            check_speaker("speaker", text_of("speaker", speaker))
        return self.kb.extract(
            text,
            store=store,
            rules=rules,
            scope=scope,
            context=context,
            source=Source(speaker, instant("at", at), session),
            request_limits=request_limits(timeout_ms),
            conflict=conflict,
        )

    def synthesize(
        self,
        question: str,
        *,
        scope: str | None = None,
        citations: bool = False,
        timeout_ms: int | None = None,
    ) -> SynthesizedAnswer:
        """Answer a question in words; the language model plans the queries and words the answer.

        With `citations` the answer has the numbers of its sources.

        Raises ModelNotConfigured, ModelFailed.
        """
        limits = request_limits(timeout_ms)
        return self.kb.synthesize(question, scope=scope, citations=citations, request_limits=limits)
