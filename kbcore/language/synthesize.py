"""Answers to natural-language questions from the knowledge base alone.

A model plans queries, the knowledge base answers them, and a model words the answer. Each sentence
must cite the facts it depends on; a sentence that they do not support is removed from the answer
and listed separately as `llm_reported`, and its facts are stated in generated sentences instead.
Without any fact the answer is that nothing is known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbcore.context.text.memories import without_marks
from kbcore.context.text.phrases import sentence
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.language import prompts
from kbcore.language.evidence import EvidenceQuery, EvidenceTexts
from kbcore.language.grounding import unbacked
from kbcore.language.names import NameTable
from kbcore.language.vocabulary import Vocabulary
from kbcore.llm.model import LanguageModel
from kbcore.llm.structured import BadAnswer, array, ask_json, fraction
from kbcore.state.episodes.quoting import Sources, marks
from kbcore.state.facts import Row
from kbplanner.ir.terms import Atom, BodyItem, Literal
from kbplanner.syntax.jsonform import item_from_json
from kbplanner.syntax.parser import parse_goal
from kbplanner.syntax.printer import print_atom, print_row

MAX_ROUNDS = 2
"""Maximum number of query plans; another is made if the queries of the first found nothing."""

MAX_QUERIES = 8
"""Maximum number of queries run of one plan."""

MAX_QUESTION_CHARS = 4000
"""Maximum length of a question."""

NOTHING_KNOWN = "I do not know: the knowledge base holds nothing that answers this."
NOTHING_STORED = "I do not know: the knowledge base is empty."


class Prove(Protocol):
    """Function that explains a derived row by the text of its rule and the stored facts it depends
    on.
    """

    def __call__(self, row: Row) -> tuple[str | None, list[Row]]:
        """Return the rule and the premises of a derived row."""


@dataclass(frozen=True, slots=True)
class KnowledgeSource:
    """The knowledge base as the source of an answer: `run` evaluates a query and adds its facts to
    the evidence, `search` returns what was said about the question, and `prove` explains a row.
    """

    run: Callable[[EvidenceQuery, EvidenceTexts], None]
    search: Callable[[], list[Row]]
    prove: Prove


@dataclass(frozen=True, slots=True)
class Derived:
    """A fact that the answer depends on: stored (`fact_match`) or derived by `rule`
    (`rule_application`).

    With type `llm_reported` it is a sentence of the model that no fact supports and that is not
    part of the answer. `citations` are the numbers of its sources, None unless they are requested.
    """

    fact: str
    type: str
    rule: str | None = None
    confidence: float | None = None
    scope: str | None = None
    citations: tuple[int, ...] | None = None


@dataclass(slots=True)
class SynthesizedAnswer:
    """An answer with the facts it depends on, its queries, and the failed queries with the reason.

    With `sources`, sentences of the answer and facts cite them.
    """

    provider: str
    model: str
    answer: str = NOTHING_KNOWN
    confidence: float = 0.0
    derivation: list[Derived] = field(default_factory=list)
    queries: list[str] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    sources: Sources | None = None


def synthesize(
    question: str,
    model: LanguageModel,
    known: Vocabulary,
    base: KnowledgeSource,
    deadline: float,
    sources: Sources | None = None,
) -> SynthesizedAnswer:
    """Answer a question from the facts of `base`; if no query finds any, from what was said about
    the question.

    With `sources`, each sentence cites the evidence of the stored facts that it depends on.

    Raises ModelFailed and RateLimited.
    """
    result = SynthesizedAnswer(model.name, model.model, sources=sources)
    if known.empty:
        result.answer = NOTHING_STORED
        return result
    evidence = EvidenceTexts()
    for _ in range(MAX_ROUNDS if known.predicates else 0):
        tried = [f"{text}: no answer" for text in result.queries] + [
            f"{text}: {why}" for text, why in result.failed
        ]
        plan = ask_json(
            model,
            prompts.PLAN,
            prompts.plan(question, known, tried),
            prompts.PLAN_SCHEMA,
            lambda answer: _plan(answer, known.names),
            operation="plan",
            deadline=deadline,
        )
        _run(plan, base.run, evidence, result)
        if evidence.rows:
            break
    if not evidence.rows:
        for row in base.search():
            evidence.add(row)
    if evidence.rows:
        _answer(question, model, known, evidence, base.prove, deadline, result)
    return result


def _plan(answer: dict[str, Any], names: NameTable) -> list[EvidenceQuery | tuple[str, str]]:
    """Return the queries of a plan; an invalid query is returned as its text and the error."""
    if "queries" not in answer:
        raise BadAnswer('"queries" is missing')
    queries: list[EvidenceQuery | tuple[str, str]] = []
    for entry in array(answer, "queries")[:MAX_QUERIES]:
        try:
            queries.append(EvidenceQuery(_items(entry, names)))
        except InvalidInput as error:
            queries.append((str(entry)[:200], error.message.splitlines()[0]))
    return queries


def _items(entry: Any, names: NameTable) -> tuple[BodyItem, ...]:
    if isinstance(entry, str):
        return tuple(_named(item, names) for item in parse_goal(entry).body)
    atoms = entry.get("atoms") if isinstance(entry, dict) else None
    if not isinstance(atoms, list) or not atoms:
        raise InvalidInput.at("atoms", "must be an array of atoms")
    return tuple(_named(item_from_json(atom), names) for atom in atoms)


def _named(item: BodyItem, names: NameTable) -> BodyItem:
    if not isinstance(item, Literal):
        return item
    args = tuple(names.name(arg) if isinstance(arg, str) else arg for arg in item.atom.args)
    return Literal(
        Atom(names.predicate(item.atom.predicate, len(args)), args, item.atom.positive),
        item.negated,
    )


def _run(
    plan: Sequence[EvidenceQuery | tuple[str, str]],
    run: Callable[[EvidenceQuery, EvidenceTexts], None],
    evidence: EvidenceTexts,
    result: SynthesizedAnswer,
) -> None:
    for query in plan:
        if isinstance(query, tuple):
            result.failed.append(query)
            continue
        if query.text in result.queries:
            continue
        try:
            run(query, evidence)
        except (InvalidInput, BudgetExceeded) as error:
            result.failed.append((query.text, error.message.splitlines()[0]))
            continue
        result.queries += [text for text in query.asked if text not in result.queries]


def _answer(
    question: str,
    model: LanguageModel,
    known: Vocabulary,
    evidence: EvidenceTexts,
    prove: Prove,
    deadline: float,
    result: SynthesizedAnswer,
) -> None:
    rows = evidence.rows
    sentences, confidence = ask_json(
        model,
        prompts.ANSWER,
        prompts.answer(question, [_row_text(row) for row in rows]),
        prompts.ANSWER_SCHEMA,
        lambda answer: _sentences(answer, len(rows)),
        operation="answer",
        deadline=deadline,
    )
    names = [*known.names.listed(), *(arg for row in rows for arg in row["args"])]
    proofs: dict[int, tuple[str | None, list[Row]]] = {}

    def explained(row: Row) -> tuple[str | None, list[Row]]:
        if id(row) not in proofs:
            proofs[id(row)] = prove(row)
        return proofs[id(row)]

    def cited_text(text: str, facts: Sequence[Row]) -> str:
        if result.sources is None:
            return text
        stored = [
            each
            for row in facts
            for each in ([row] if row["createdAt"] is not None else explained(row)[1])
        ]
        return without_marks(text) + marks(
            result.sources.cite(span for row in stored for span in row.get("evidence", ()))
        )

    backed: list[str] = []
    reported: list[str] = []
    cited: dict[int, None] = {}
    for text, numbers in sentences:
        facts = [rows[number] for number in numbers]
        if facts and unbacked(text, facts, names) is None:
            backed.append(cited_text(text, facts))
        else:
            reported.append(text)
            backed += [
                cited_text(_worded(rows[number]), [rows[number]])
                for number in numbers
                if number not in cited
            ]
        cited.update(dict.fromkeys(numbers))
    cited_rows = [rows[number] for number in cited]
    result.derivation = [
        *_derivation(cited_rows, explained, result.sources),
        *(Derived(text, "llm_reported") for text in reported),
    ]
    if cited_rows:
        result.answer = " ".join(backed)
        lowest = min(1.0 if row["confidence"] is None else row["confidence"] for row in cited_rows)
        result.confidence = min(lowest, 1.0 if confidence is None else confidence)


def _worded(row: Row) -> str:
    """Return a fact as a generated sentence; in the rule language where there is no good one."""
    atom = Atom(row["predicate"], tuple(row["args"]), not row["negated"])
    return f"{sentence(atom) or print_atom(atom)}."


def _sentences(
    answer: dict[str, Any], facts: int
) -> tuple[list[tuple[str, list[int]]], float | None]:
    """Return the sentences of an answer with the indexes of the existing facts they cite, and the
    confidence.
    """
    if "sentences" not in answer:
        raise BadAnswer('"sentences" is missing')
    sentences = []
    for entry in array(answer, "sentences"):
        text = entry.get("text") if isinstance(entry, dict) else None
        if not isinstance(text, str):
            raise BadAnswer('"sentences" must hold objects with "text" and "facts"')
        numbers = [
            number - 1
            for number in array(entry, "facts")
            if type(number) is int and 1 <= number <= facts
        ]
        if text.strip():
            sentences.append((text.strip(), numbers))
    return sentences, fraction(answer.get("confidence"))


def _derivation(rows: Sequence[Row], prove: Prove, sources: Sources | None) -> list[Derived]:
    derivation: dict[tuple[str, str | None], Derived] = {}
    premises: list[Row] = []
    for row in rows:
        rule = None
        if row["createdAt"] is None:
            rule, below = prove(row)
            premises += below
        derivation.setdefault((_text(row), row["scope"]), _derived(row, rule, sources))
    for row in premises:
        derivation.setdefault((_text(row), row["scope"]), _derived(row, None, sources))
    return list(derivation.values())


def _derived(row: Row, rule: str | None, sources: Sources | None) -> Derived:
    kind = "fact_match" if row["createdAt"] is not None else "rule_application"
    citations = None if sources is None else tuple(sources.cite(row.get("evidence", ())))
    return Derived(_text(row), kind, rule, row["confidence"], row["scope"], citations)


def _text(row: Row) -> str:
    return print_row(row["predicate"], row["args"], row["negated"])


def _row_text(row: Row) -> str:
    return (
        _text(row)
        if row["confidence"] is None
        else f"{_text(row)} (confidence {row['confidence']:g})"
    )
