"""Prompts: texts that lead a model to use the tools well, with what is known put in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbcore.kb.knowledge_base import KnowledgeBase

NAMED = 50
"""Predicates that a prompt names."""

_SYNTAX = (
    "Facts are written predicate(arg1, arg2), in lower case with underscores, such as works_at(ann, acme); "
    "`not` before one says that it is false. Arguments that are not plain words or numbers stand in double quotes."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its arguments with what each is, those that are needed first; `text` writes it."""

    name: str
    description: str
    arguments: tuple[tuple[str, str, bool], ...]
    text: Callable[[KnowledgeBase, dict[str, str]], str]

    @property
    def shown(self) -> dict[str, Any]:
        """The prompt as `prompts/list` has it."""
        takes = [
            {"name": name, "description": said, "required": needed}
            for name, said, needed in self.arguments
        ]
        return {"name": self.name, "description": self.description, "arguments": takes}


def _known(kb: KnowledgeBase, scope: str | None = None) -> str:
    """Name the predicates there are."""
    rows = kb.predicates(scope)["predicates"]
    if not rows:
        return "The knowledge base is empty."
    named = [f"{row['predicate']}/{row['arity']}" for row in rows[:NAMED]]
    more = f" and {len(rows) - NAMED} more (see the tool predicates)" if len(rows) > NAMED else ""
    return f"It knows these predicates (name/number of arguments): {', '.join(named)}{more}."


def _reason(kb: KnowledgeBase, given: dict[str, str]) -> str:
    return (
        f"Answer this from the knowledge base, not from memory of your own:\n\n{given['question']}\n\n{_known(kb)}\n\n"
        "Turn the question into one or more goals and call ask for each; arguments that start with ? are variables. "
        "Call explain for what the answer rests on. Where nothing is found say so, and name the facts that are missing."
    )


def _write_rules(kb: KnowledgeBase, given: dict[str, str]) -> str:
    return (
        f"Write rules for this: {given['goal']}\n\n{_known(kb)}\n\n"
        "A rule is head(?x, ?y) :- body1(?x, ?z), not body2(?z), ?x != ?y. It ends with a full stop. Every variable of the "
        "head, of a `not` and of a comparison must stand in a positive body atom too. Facts are written likewise, with "
        "nothing behind them. Use the predicates there are before inventing new ones. Teach the rules with teach (as "
        "text), then check them with ask and explain."
    )


def _answer(kb: KnowledgeBase, given: dict[str, str]) -> str:
    return (
        f"Question: {given['question']}\n\nCall context with query set to the question, and with goals where you can name "
        f"any, and answer from its entries only. {_known(kb)} Say which entries you used."
    )


def _plan(kb: KnowledgeBase, given: dict[str, str]) -> str:
    return (
        f"I want the knowledge base to conclude: {given['goal']}\n\n{_known(kb)}\n\n"
        "Call explain with plan to see how the goal is evaluated and which rules lead to it. "
        "List the facts that would have to be told, one a line, and tell them only when I agree."
    )


def _extract(kb: KnowledgeBase, given: dict[str, str]) -> str:
    return (
        f"Write down what this text states as facts, one a line and nothing else.\n{_SYNTAX}\n{_known(kb)} "
        f"Use these predicates where they fit. Then pass the lines to ingest.\n\nText:\n{given['text']}"
    )


def _explain(kb: KnowledgeBase, given: dict[str, str]) -> str:
    return (
        f"Explain in plain words why this holds: {given['fact']}\n\n"
        "Call explain with text set to it. Follow the proof from the facts up to the conclusion, a sentence a "
        "step. If it does not hold, say what is missing."
    )


def _review(kb: KnowledgeBase, given: dict[str, str]) -> str:
    scope = given.get("scope")
    where = f" in the scope {scope}" if scope else ""
    found = kb.context_summary(scope).contradictions
    return (
        f"The knowledge base holds {found} contradiction{'s' * (found != 1)}{where}: facts stored with both signs. "
        f"Call context with sessionId review{f' and scope {scope}' if scope else ''} to see them in contradictions. "
        "For each, use explain to see what either side rests on, and propose which to forget. Forget nothing before I agree."
    )


_ALL = (
    Prompt(
        "reason-over-knowledge",
        "Answer a question by asking goals of the knowledge base.",
        (("question", "What is to be answered.", True),),
        _reason,
    ),
    Prompt(
        "write-rules",
        "Write and teach rules for something that should follow from the facts.",
        (("goal", "What should be concluded, in plain words.", True),),
        _write_rules,
    ),
    Prompt(
        "answer_from_memory",
        "Answer from the facts that matter most for a question.",
        (("question", "What is to be answered.", True),),
        _answer,
    ),
    Prompt(
        "plan_facts",
        "Find out which facts a conclusion still needs.",
        (("goal", "The conclusion, such as eligible(ann).", True),),
        _plan,
    ),
    Prompt(
        "extract_facts",
        "Turn a text into facts with your own model, and store them.",
        (("text", "The text.", True),),
        _extract,
    ),
    Prompt(
        "explain_conclusion",
        "Tell in plain words why something holds.",
        (("fact", "The conclusion, such as ancestor(ann, cid).", True),),
        _explain,
    ),
    Prompt(
        "review_contradictions",
        "Look through facts that are stored with both signs.",
        (("scope", "The scope; without it the base.", False),),
        _review,
    ),
)

PROMPTS = {prompt.name: prompt for prompt in sorted(_ALL, key=lambda prompt: prompt.name)}
"""Every prompt by its name, in order."""
