"""MCP prompts: instructions for a model to use the tools, with the predicates of the knowledge
base.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kbcore.operations.tenant_kb import TenantKB
from kbcore.reason.predicates import typed_args
from kbplanner.syntax.diagnostics import counted

MAX_PREDICATES = 50
"""Maximum number of predicates listed in a prompt."""

_SYNTAX = (
    "Facts are written predicate(arg1, arg2), in lower case with underscores, such as works_at(ann, acme); "
    "`not` before a fact says that it is false. Put arguments that are not plain words or numbers in double quotes."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt; `arguments` are name, description and whether it is required, `text` returns the
    text.
    """

    name: str
    description: str
    arguments: tuple[tuple[str, str, bool], ...]
    text: Callable[[TenantKB, dict[str, str]], str]

    @property
    def shown(self) -> dict[str, Any]:
        """The prompt in the form of `prompts/list`."""
        arguments = [
            {"name": name, "description": description, "required": required}
            for name, description, required in self.arguments
        ]
        return {"name": self.name, "description": self.description, "arguments": arguments}


def _known(kb: TenantKB, scope: str | None = None) -> str:
    """Return a sentence that lists the predicates."""
    rows = kb.predicates(scope)["predicates"]
    if not rows:
        return "The knowledge base is empty."
    names = [_named(row) for row in rows[:MAX_PREDICATES]]
    more = (
        f" and {len(rows) - MAX_PREDICATES} more (see the tool predicates)"
        if len(rows) > MAX_PREDICATES
        else ""
    )
    return f"Its predicates (name/number of arguments): {', '.join(names)}{more}."


def _named(row: dict[str, Any]) -> str:
    """Return a predicate as `name/arity`, with the names of its arguments if it is an input."""
    name = f"{row['predicate']}/{row['arity']}"
    return f"{name} ({', '.join(typed_args(row))})" if row.get("args") else name


def _reason(kb: TenantKB, arguments: dict[str, str]) -> str:
    return (
        "Answer this question from the knowledge base, not from your own memory:\n\n"
        f"{arguments['question']}\n\n{_known(kb)}\n\n"
        "Turn the question into one or more goals and call ask for each; arguments that start with ? are variables. "
        "Call explain to see which facts the answer depends on. If there is no answer, say so and name the missing facts."
    )


def _write_rules(kb: TenantKB, arguments: dict[str, str]) -> str:
    return (
        f"Write rules for this: {arguments['goal']}\n\n{_known(kb)}\n\n"
        "A rule has the form head(?x, ?y) :- body1(?x, ?z), not body2(?z), ?x != ?y. and ends with a full stop. Every "
        "variable of the head, of a `not` and of a comparison must also occur in a positive body atom. A fact is a head "
        "without a body. Prefer existing predicates to new ones. Store the rules with teach (as text), then check them "
        "with ask and explain."
    )


def _answer(kb: TenantKB, arguments: dict[str, str]) -> str:
    return (
        f"Question: {arguments['question']}\n\nCall context with query set to the question, and with goals if you can name "
        f"any. Answer from its text only. {_known(kb)} Say which facts you used."
    )


def _plan(kb: TenantKB, arguments: dict[str, str]) -> str:
    return (
        f"I want the knowledge base to conclude: {arguments['goal']}\n\n{_known(kb)}\n\n"
        "Call explain with plan to see how the goal is evaluated and which rules lead to it. "
        "List the facts that are missing, one per line. Store them with tell only after I agree."
    )


def _extract(kb: TenantKB, arguments: dict[str, str]) -> str:
    return (
        f"Write the statements of this text as facts, one per line and nothing else.\n{_SYNTAX}\n{_known(kb)} "
        f"Use these predicates where they fit. Then pass the lines to ingest.\n\nText:\n{arguments['text']}"
    )


def _explain(kb: TenantKB, arguments: dict[str, str]) -> str:
    return (
        f"Explain in plain words why this holds: {arguments['fact']}\n\n"
        "Call explain with this text. Follow the proof from the facts up to the conclusion, one sentence per "
        "step. If it does not hold, say what is missing."
    )


def _review(kb: TenantKB, arguments: dict[str, str]) -> str:
    scope = arguments.get("scope")
    where = f" in the scope {scope}" if scope else ""
    count = kb.context_summary(scope).contradictions
    return (
        f"The knowledge base has {counted(count, 'contradiction')}{where}: facts stored with both signs. "
        f"Call context with format structured, sessionId review{f' and scope {scope}' if scope else ''} to see them "
        "in contradictions. "
        "For each, use explain to see what each side depends on, and propose which to forget. Forget nothing before I agree."
    )


_ALL = (
    Prompt(
        "reason-over-knowledge",
        "Answer a question by asking goals of the knowledge base.",
        (("question", "The question.", True),),
        _reason,
    ),
    Prompt(
        "write-rules",
        "Write and teach rules for something that should follow from the facts.",
        (("goal", "The conclusion, in plain words.", True),),
        _write_rules,
    ),
    Prompt(
        "answer_from_memory",
        "Answer from the facts that matter most for a question.",
        (("question", "The question.", True),),
        _answer,
    ),
    Prompt(
        "plan_facts",
        "Find the facts that a conclusion still needs.",
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
        "Explain in plain words why something holds.",
        (("fact", "The conclusion, such as ancestor(ann, cid).", True),),
        _explain,
    ),
    Prompt(
        "review_contradictions",
        "Review facts that are stored with both signs.",
        (("scope", "The scope; default: the base.", False),),
        _review,
    ),
)

PROMPTS = {prompt.name: prompt for prompt in sorted(_ALL, key=lambda prompt: prompt.name)}
"""The prompts by name, in order."""
