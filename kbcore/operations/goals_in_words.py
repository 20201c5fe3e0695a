"""Goals for questions in words, without a language model."""

from __future__ import annotations

from collections.abc import Sequence

from kbcore.context.relevance.asked_times import period_of
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

        `asker` is the constant that words such as "I" stand for. Without `as_of`, a period in the
        question, such as "in 2024", is when the answers have to hold. The goals are found in the words
        of the predicates, and the best ones are run, each within a part of the limits; a goal that
        exceeds it is not answered. Raises InvalidInput and BudgetExceeded.
        """
        if not question.strip() or len(question) > MAX_QUESTION_CHARS:
            raise InvalidInput.at("question", f"must have 1 to {MAX_QUESTION_CHARS} characters")
        options = AnswerOptions(scope, as_of=as_of, request_limits=request_limits)
        suggestions = self._suggested_in_words(QuestionInWords(question, asker), options, None)
        period = None if as_of is not None else period_of(question)
        if suggestions.reason == NO_GOAL and period is not None:
            asked = QuestionInWords(period.question, asker)
            options = AnswerOptions(scope, as_of=period.last, request_limits=request_limits)
            return self._suggested_in_words(asked, options, period.first)
        return suggestions

    def _suggested_in_words(
        self, question: QuestionInWords, options: AnswerOptions, first: int | None
    ) -> GoalSuggestions:
        """Return the goals of a question, by its words, or else by similar phrases; with `first`,
        the answers are those that hold at that time and at the time of the options.
        """

        def suggested(similar: Similar | None) -> tuple[GoalSuggestions, Readings]:
            return self.at_once(
                lambda kb: kb._suggested(question, options, first, similar),
                options.request_limits,
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
        self,
        question: QuestionInWords,
        options: AnswerOptions,
        first: int | None,
        similar: Similar | None,
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
                if first is not None:
                    earlier = values_of(reasoner, partitions, reading, first, budget)
                    values = values if set(values) == set(earlier) else []
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
            None if first is None else options.as_of,
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
