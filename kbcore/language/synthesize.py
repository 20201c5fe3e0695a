"""A question in words, answered from a knowledge base alone.

A model plans queries, the knowledge base answers them, a model words the answer. Each sentence has to name the facts it
rests on; what they do not say is taken out and told apart, as `llm_reported`. Where nothing is left, the facts are told in
our words; where there are none, the answer is that nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbcore.context.text.phrases import sentence
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.language import prompts
from kbcore.language.evidence import Evidence, Query
from kbcore.language.grounding import unbacked
from kbcore.language.names import Names
from kbcore.language.vocabulary import Vocabulary
from kbcore.llm.model import Model
from kbcore.llm.structured import BadAnswer, array, ask_json, fraction
from kbcore.state.facts import Row
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.syntax.jsonform import item_from_json
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_row

ROUNDS = 2
"""How often queries are planned: again where the first ones found nothing."""

MOST_QUERIES = 8
"""Queries of one plan that are run."""

MOST_QUESTION = 4000
"""Characters of a question."""

NOTHING_KNOWN = "I do not know: the knowledge base holds nothing that answers this."
NOTHING_STORED = "I do not know: the knowledge base is empty."


class Prove(Protocol):
    """Tells how a conclusion comes about: the text of the rule, and the stored facts it rests on."""

    def __call__(self, row: Row) -> tuple[str | None, list[Row]]:
        """The rule and the premises of a derived row."""


@dataclass(frozen=True, slots=True)
class Derived:
    """A fact the answer rests on: stored (`fact_match`) or concluded by `rule` (`rule_application`).

    Of type `llm_reported` it is a sentence of the model that no fact backs, which is not part of the answer.
    """

    fact: str
    type: str
    rule: str | None = None
    confidence: float | None = None
    scope: str | None = None


@dataclass(slots=True)
class Synthesis:
    """An answer with what it rests on, the queries that were run, and those that could not be, with the reason."""

    provider: str
    model: str
    answer: str = NOTHING_KNOWN
    confidence: float = 0.0
    derivation: list[Derived] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)


def synthesize(
    question: str,
    model: Model,
    known: Vocabulary,
    run: Callable[[Query, Evidence], None],
    prove: Prove,
    deadline: float,
) -> Synthesis:
    """Answer a question. `run` puts a query to the knowledge base and adds what it finds to the evidence.

    Raises ModelFailed and RateLimited.
    """
    found = Synthesis(model.name, model.model)
    if known.empty:
        found.answer = NOTHING_STORED
        return found
    evidence = Evidence()
    for _ in range(ROUNDS):
        tried = [f"{text}: no answer" for text in found.queries] + [f"{text}: {why}" for text, why in found.failed]
        plan = ask_json(
            model,
            prompts.PLAN,
            prompts.plan(question, known, tried),
            prompts.PLAN_SCHEMA,
            lambda answer: _plan(answer, known.names),
            operation="plan",
            deadline=deadline,
        )
        _run(plan, run, evidence, found)
        if evidence.rows:
            break
    if evidence.rows:
        _answer(question, model, known, evidence, prove, deadline, found)
    return found


def _plan(answer: dict[str, Any], names: Names) -> list[Query | tuple[str, str]]:
    """The queries of a plan; for those that cannot be read what was said, and why."""
    if "queries" not in answer:
        raise BadAnswer('"queries" is missing')
    found: list[Query | tuple[str, str]] = []
    for said in array(answer, "queries")[:MOST_QUERIES]:
        try:
            found.append(Query(_items(said, names)))
        except InvalidInput as error:
            found.append((str(said)[:200], error.message.splitlines()[0]))
    return found


def _items(said: Any, names: Names) -> tuple[BodyItem, ...]:
    if isinstance(said, str):
        return tuple(_named(item, names) for item in parse_goal(said).body)
    atoms = said.get("atoms") if isinstance(said, dict) else None
    if not isinstance(atoms, list) or not atoms:
        raise InvalidInput.at("atoms", "must be an array of atoms")
    return tuple(_named(item_from_json(atom), names) for atom in atoms)


def _named(item: BodyItem, names: Names) -> BodyItem:
    if not isinstance(item, Literal):
        return item
    args = tuple(names.name(arg) if isinstance(arg, str) else arg for arg in item.atom.args)
    return Literal(Atom(names.predicate(item.atom.predicate, len(args)), args, item.atom.positive), item.negated)


def _run(
    plan: Sequence[Query | tuple[str, str]], run: Callable[[Query, Evidence], None], evidence: Evidence, found: Synthesis
) -> None:
    for query in plan:
        if isinstance(query, tuple):
            found.failed.append(query)
            continue
        if query.text in found.queries:
            continue
        try:
            run(query, evidence)
        except (InvalidInput, BudgetExceeded) as error:
            found.failed.append((query.text, error.message.splitlines()[0]))
            continue
        found.queries += [text for text in query.asked if text not in found.queries]


def _answer(
    question: str,
    model: Model,
    known: Vocabulary,
    evidence: Evidence,
    prove: Prove,
    deadline: float,
    found: Synthesis,
) -> None:
    rows = evidence.rows
    said, sure = ask_json(
        model,
        prompts.ANSWER,
        prompts.answer(question, [_shown(row) for row in rows]),
        prompts.ANSWER_SCHEMA,
        lambda answer: _sentences(answer, len(rows)),
        operation="answer",
        deadline=deadline,
    )
    names = [*known.names.listed(), *(arg for row in rows for arg in row["args"])]
    told: list[str] = []
    reported: list[str] = []
    cited: dict[int, None] = {}
    for text, numbers in said:
        facts = [rows[number] for number in numbers]
        if facts and unbacked(text, facts, names) is None:
            told.append(text)
        else:
            reported.append(text)
            told += [_worded(rows[number]) for number in numbers if number not in cited]
        cited.update(dict.fromkeys(numbers))
    chosen = [rows[number] for number in cited]
    found.derivation = [*_derivation(chosen, prove), *(Derived(text, "llm_reported") for text in reported)]
    if chosen:
        found.answer = " ".join(told)
        lowest = min(1.0 if row["confidence"] is None else row["confidence"] for row in chosen)
        found.confidence = min(lowest, 1.0 if sure is None else sure)


def _worded(row: Row) -> str:
    """A fact as a sentence of ours."""
    return sentence(Atom(row["predicate"], tuple(row["args"]), not row["negated"])) + "."


def _sentences(answer: dict[str, Any], facts: int) -> tuple[list[tuple[str, list[int]]], float | None]:
    """The sentences of an answer, each with the places of the facts it names that there are; and how sure it is."""
    if "sentences" not in answer:
        raise BadAnswer('"sentences" is missing')
    found = []
    for said in array(answer, "sentences"):
        text = said.get("text") if isinstance(said, dict) else None
        if not isinstance(text, str):
            raise BadAnswer('"sentences" must hold objects with "text" and "facts"')
        numbers = [one - 1 for one in array(said, "facts") if type(one) is int and 1 <= one <= facts]
        if text.strip():
            found.append((text.strip(), numbers))
    return found, fraction(answer.get("confidence"))


def _derivation(rows: Sequence[Row], prove: Prove) -> list[Derived]:
    found: dict[tuple[str, str | None], Derived] = {}
    premises: list[Row] = []
    for row in rows:
        rule = None
        if row["createdAt"] is None:
            rule, below = prove(row)
            premises += below
        found.setdefault((_text(row), row["scope"]), _derived(row, rule))
    for row in premises:
        found.setdefault((_text(row), row["scope"]), _derived(row, None))
    return list(found.values())


def _derived(row: Row, rule: str | None) -> Derived:
    kind = "fact_match" if row["createdAt"] is not None else "rule_application"
    return Derived(_text(row), kind, rule, row["confidence"], row["scope"])


def _text(row: Row) -> str:
    return print_row(row["predicate"], row["args"], row["negated"])


def _shown(row: Row) -> str:
    return _text(row) if row["confidence"] is None else f"{_text(row)} (confidence {row['confidence']:g})"
