"""Goals for questions in words, without a language model."""

from __future__ import annotations

from collections.abc import Sequence

from kbcore.context.relevance.chains import (
    MAX_QUESTION_CHARS,
    MeantGoal,
    QuestionInWords,
    Readings,
    readings_of,
)
from kbcore.context.relevance.predicates_asked import AskedPredicates
from kbcore.context.relevance.similar_phrases import Similar, similar_predicates
from kbcore.context.relevance.suggestions import (
    MAX_ANSWERS,
    NO_GOAL,
    RunGoal,
    decided,
    limit_run,
    values_of,
)
from kbcore.errors import InvalidInput
from kbcore.operations.base import TenantHandle
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.state.tenant import Tenant
from kbplanner.syntax.printer import print_item
from kbtypes.language import GoalSuggestions, SuggestedGoal


class GoalsInWords(TenantHandle):
    """Goals for questions in words."""

    def goals_for(
        self,
        question: str,
        *,
        scope: str | None = None,
        asker: str | None = None,
        as_of: int | None = None,
        request_limits: RequestLimits | None = None,
    ) -> GoalSuggestions:
        """Return the goals that a question in words can mean, and the answers of the best one.

        `asker` is the constant that words such as "I" stand for. The goals are found in the words
        of the predicates, and the best ones are run, each within a part of the limits; a goal that
        exceeds it is not answered. Raises InvalidInput and BudgetExceeded.
        """
        if not question.strip() or len(question) > MAX_QUESTION_CHARS:
            raise InvalidInput.at("question", f"must have 1 to {MAX_QUESTION_CHARS} characters")
        asked = QuestionInWords(question, asker)
        options = AnswerOptions(scope, as_of=as_of, request_limits=request_limits)

        def suggested(similar: Similar | None) -> tuple[GoalSuggestions, Readings]:
            return self.at_once(
                lambda kb: kb._suggested(asked, options, similar), request_limits
            )

        suggestions, readings = suggested(None)
        vectors = self._services.vectors
        if suggestions.reason == NO_GOAL and vectors is not None and readings.phrases:
            similar = similar_predicates(
                vectors.embedding,
                readings.phrases,
                readings.descriptions,
                self._services.yield_now,
            )
            if similar:
                suggestions, _ = suggested(similar)
        return suggestions

    def _suggested(
        self, question: QuestionInWords, options: AnswerOptions, similar: Similar | None
    ) -> tuple[GoalSuggestions, Readings]:
        def search(tenant: Tenant, budget: Budget) -> Readings:
            partitions = self._partitions(tenant, options.scope)
            at_any_time = options.as_of is not None
            known = AskedPredicates(tenant, partitions, budget, at_any_time=at_any_time)
            return readings_of(tenant, known, question, budget, similar)

        def run(reading: MeantGoal) -> Sequence[str]:
            def evaluate(tenant: Tenant, budget: Budget) -> Sequence[str]:
                limit_run(budget)
                reasoner = self._services.reasoner(tenant)
                partitions = self._partitions(tenant, options.scope)
                values = values_of(reasoner, partitions, reading, options.as_of, budget)
                budget.answers += len(values)
                return values

            body = reading.body
            return self._evaluated(evaluate, None, None, "ask", body, options)

        readings = self._evaluated(search, None)
        suggestion = decided(readings.goals, readings.constants, run)
        believed = suggestion.believed
        suggestions = GoalSuggestions(
            None if believed is None else _text(believed.reading),
            suggestion.answers[:MAX_ANSWERS],
            suggestion.reason,
            tuple(map(_suggested_goal, suggestion.outcomes)),
        )
        return suggestions, readings


def _suggested_goal(outcome: RunGoal) -> SuggestedGoal:
    reading, answers = outcome
    return SuggestedGoal(
        _text(reading),
        None if reading.variable is None else reading.variable.name,
        reading.score,
        reading.coverage,
        None if answers is None else answers[:MAX_ANSWERS],
        answers is not None and len(answers) > MAX_ANSWERS,
    )


def _text(reading: MeantGoal) -> str:
    return ", ".join(map(print_item, reading.body))
