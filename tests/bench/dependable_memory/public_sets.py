"""Readers of public sets that the user downloads; none is part of this benchmark.

The shapes are those of FactConsolidation in MemoryAgentBench (Hu et al., 2025), BEAM (Tavakoli et
al., 2025) and PrecisionMemBench (Tenure, 2026). `README.md` says what is readable and comparable.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from .model import STATE, Case, Input
from .reader import names
from .searching import Searching

START = datetime(2024, 1, 1, tzinfo=timezone.utc)
USER = "user-1"


class DataError(ValueError):
    """A file that does not have the expected shape."""


@dataclass(frozen=True, slots=True)
class PublicQuestion:
    """A question about passages: one of `accepted` answers it, it needs the passages `evidence`,
    and those of `excluded` must not be there. What a set does not say is empty.
    """

    task: str
    text: str
    user: str
    accepted: tuple[str, ...] = ()
    evidence: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PublicSet:
    """Passages in order, as inputs without a structured form, and questions about them."""

    id: str
    inputs: tuple[Input, ...]
    questions: tuple[PublicQuestion, ...]


def _input(id: str, number: int, text: str, user: str = USER, source: str = "user") -> Input:
    at = (START + timedelta(minutes=number)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Input(id, at, user, source, STATE, text, since=at)


def read_factconsolidation(path: Path) -> Iterator[PublicSet]:
    """Yield the rows of the split Conflict_Resolution as JSON, a list or lines; raise DataError.

    Each numbered fact of a context is a passage.
    """
    for number, row in enumerate(_rows(path)):
        place = f"{path}[{number}]"
        facts = re.findall(r"^(\d+)\. (.+)$", _field(row, "context", str, place), re.MULTILINE)
        if not facts:
            raise DataError(f"{place}.context has no lines such as `0. A fact.`")
        questions, answers = _field(row, "questions", list, place), row.get("answers")
        if not isinstance(answers, list) or len(answers) != len(questions):
            raise DataError(f"{place}: numbers of questions and answers differ")
        source = str(row.get("metadata", {}).get("source", number))
        task = "several hops" if "_mh_" in source else "one hop"
        yield PublicSet(
            source,
            tuple(_input(key, int(key), f"{key}. {text}") for key, text in facts),
            tuple(
                PublicQuestion(task, text, USER, tuple(map(str, accepted)))
                for text, accepted in zip(questions, answers, strict=True)
            ),
        )


def read_beam(path: Path) -> Iterator[PublicSet]:
    """Yield the chat of a folder of BEAM up to 1M tokens, such as `chats/100K/1`; raise DataError.

    Questions without `source_chat_ids` are left out. Their answers are rubrics for a judge, so only
    the evidence is scored.
    """
    inputs: list[Input] = []
    for batch in _list(_json(path / "chat.json"), "chat.json"):
        for turn in _field(batch, "turns", list, "chat.json"):
            for message in _list(turn, "chat.json.turns"):
                key = str(_field(message, "id", int, "chat.json.turns"))
                text = _field(message, "content", str, "chat.json.turns")
                source = _field(message, "role", str, "chat.json.turns")
                inputs.append(_input(key, len(inputs), text.split("->->")[0].strip(), USER, source))
    file = path / "probing_questions" / "probing_questions.json"
    questions = []
    for task, asked in _json(file).items():
        for each in _list(asked, f"{file}.{task}"):
            ids = each.get("source_chat_ids") or []
            parts = ids.values() if isinstance(ids, Mapping) else [ids]
            evidence = frozenset(str(key) for part in parts for key in part)
            if evidence:
                text = _field(each, "question", str, f"{file}.{task}")
                questions.append(PublicQuestion(task, text, USER, (), evidence))
    yield PublicSet(str(path), tuple(inputs), tuple(questions))


def read_precisionmembench(path: Path) -> Iterator[PublicSet]:
    """Yield the beliefs and cases of a folder `fixtures` of PrecisionMemBench; raise DataError.

    Each belief is a passage of its user. Only `relevantBeliefs` are scored, and only cases with one
    query; scopes, pinned facts and open questions are parts of the system of its authors.
    """
    beliefs = _list(_json(path / "beliefs.seed.json"), "beliefs.seed.json")
    inputs = []
    for number, each in enumerate(beliefs):
        place = f"beliefs.seed.json[{number}]"
        also = ", ".join(each.get("aliases", ()))
        text = _field(each, "content", str, place) + (f" ({also})" if also else "")
        user = _field(each, "user_id", str, place)
        inputs.append(_input(_field(each, "_id", str, place), number, text, user))
    ids = {each.id for each in inputs}
    questions = []
    for number, each in enumerate(_list(_json(path / "retrieval.cases.json"), "cases")):
        expected = each.get("expect", {}).get("relevantBeliefs", {})
        if not isinstance(each.get("query"), str) or not each["query"].strip():
            continue
        only = expected.get("shouldOnlyInclude")
        evidence = frozenset(only or ())
        excluded = ids - evidence if only is not None else expected.get("mustExclude", ())
        if evidence or excluded:
            task = _field(each, "category", str, f"retrieval.cases.json[{number}]")
            user = each.get("userId", "test-user")
            query = each["query"]
            questions.append(PublicQuestion(task, query, user, (), evidence, frozenset(excluded)))
    yield PublicSet(str(path), tuple(inputs), tuple(questions))


READERS = {
    "factconsolidation": read_factconsolidation,
    "beam": read_beam,
    "precisionmembench": read_precisionmembench,
}


@dataclass
class PublicScore:
    """Sums of one task: `answered` windows of `answerable` have an accepted answer; `recall` is the
    sum of the shares of evidence over `with_evidence` questions, `clean` counts the windows without
    an excluded passage among `with_excluded`.
    """

    questions: int = 0
    answerable: int = 0
    answered: int = 0
    with_evidence: int = 0
    recall: float = 0.0
    with_excluded: int = 0
    clean: int = 0


def measure(system: Searching, data: PublicSet, max_tokens: int) -> dict[str, PublicScore]:
    """Store the passages of a set, ask its questions, and return the scores by task."""
    system.open(Case(data.id, (), (), data.inputs, ()))
    for entry in data.inputs:
        system.store(entry)
    scores: dict[str, PublicScore] = {}
    for question in data.questions:
        score = scores.setdefault(question.task, PublicScore())
        window = "\n".join(
            passage.text for passage in system.search(question.text, question.user, max_tokens)
        )
        present = {entry.id for entry in data.inputs if entry.text in window}
        score.questions += 1
        if question.accepted:
            score.answerable += 1
            score.answered += any(names(window, text) for text in question.accepted)
        if question.evidence:
            score.with_evidence += 1
            score.recall += len(question.evidence & present) / len(question.evidence)
        if question.excluded:
            score.with_excluded += 1
            score.clean += not question.excluded & present
    return scores


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is not JSON: {error}") from error


def _rows(path: Path) -> Sequence[Any]:
    if path.suffix == ".jsonl":
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines if line.strip()]
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise DataError(f"{path} is not JSON lines: {error}") from error
    return _list(_json(path), str(path))


def _list(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise DataError(f"{place} must be a list")
    return value


def _field(record: Any, name: str, kind: type, place: str) -> Any:
    if not isinstance(record, Mapping) or not isinstance(record.get(name), kind):
        raise DataError(f"{place}.{name} is missing or not of the type {kind.__name__}")
    return record[name]
