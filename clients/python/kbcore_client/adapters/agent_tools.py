"""Functions that a model can call, the same for every framework: each has a text as argument and as
result.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from kbcore_client import KBError, KnowledgeBase
from kbtypes.markup import counted
from kbtypes.values import row_text

Tool = Callable[[str], str]

MAX_ANSWERS = 50


def tool_functions(
    kb: KnowledgeBase, *, writes: bool = True, limit: int = MAX_ANSWERS
) -> list[Tool]:
    """Return the functions, with names, type hints and docstrings for a model.

    Without `writes` there are those that only read. At most `limit` answers are listed. An error of
    the knowledge base, such as a mistake in a goal, becomes the result, so that the model can
    correct it.
    """

    def ask(goal: str) -> str:
        """Answer a goal from stored facts and rules.

        Args:
            goal: Literals such as parent(ann, ?who), age(?who, ?n), ?n > 18. Variables begin with ?.

        """  # noqa: W505  a line for each argument: models read it
        answers = kb.ask(goal, limit=limit + 1)
        rows = answers.rows()[:limit]
        lines = [_answer(row) for row in rows]
        if len(answers) > limit:
            lines.append(f"and more than {counted(limit, 'answer')} in all")
        return "\n".join(lines) or f"No answer. {kb.why_not(goal).text}"

    def explain(goal: str) -> str:
        """Prove the answers of a goal: each conclusion above the facts and rules that it follows
        from.

        Args:
            goal: A literal such as ancestor(ann, ?who).

        """
        return kb.explain(goal, limit=min(limit, 10))

    def list_predicates(beginning: str) -> str:
        """List what is known: the predicates with their numbers of arguments, facts and rules.

        Args:
            beginning: The beginning of their names; an empty text lists all.

        """
        rows = [each for each in kb.predicates("*") if each.predicate.startswith(beginning)]
        lines = (
            f"{each.predicate}/{each.arity}: {counted(each.facts, 'fact')}, {counted(each.rules, 'rule')}"
            for each in rows[: 10 * limit]
        )
        return "\n".join(lines) or "No predicate."

    def recall(question: str) -> str:
        """Find the stored facts that matter for a question in plain words.

        Args:
            question: The question, such as: what does Ann like to drink?

        """
        return kb.context(query=question, max_facts=limit).text or "Nothing is known about this."

    def remember(statements: str) -> str:
        """Store facts and rules, all or none.

        Args:
            statements: Statements that end with a dot, such as likes(ann, tea). happy(?x) :- likes(?x, tea).

        """  # noqa: W505  a line for each argument: models read it
        outcome = kb.tell(statements)
        return f"Stored {counted(outcome.asserted, 'new fact')} and {counted(len(outcome.rules), 'rule')}."

    def forget(fact: str) -> str:
        """Retract a fact, and what follows from it.

        Args:
            fact: A fact such as likes(ann, tea), or a pattern such as likes(ann, ?what) for all that match.

        """  # noqa: W505  a line for each argument: models read it
        return f"Retracted {counted(kb.retract(fact).retracted, 'fact')}."

    reads: list[Tool] = [ask, explain, list_predicates, recall]
    return [_reporting(tool) for tool in (*reads, *([remember, forget] if writes else []))]


def _reporting(tool: Tool) -> Tool:
    @wraps(tool)
    def call(*args: str, **named: str) -> str:
        try:
            return tool(*args, **named)
        except KBError as error:
            return f"Error: {error.message}"

    return call


def _answer(row: dict[str, Any]) -> str:
    if "predicate" in row:
        return row_text(row)
    return ", ".join(f"?{name} = {value}" for name, value in row.items()) or "yes"
