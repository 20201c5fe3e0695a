"""Types of the benchmark: cases, their inputs and questions, and their JSON form."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

LATEST, SET, CLAIM = "latest", "set", "claim"
"""Kinds of relations. LATEST: a newer value replaces the older one. SET: values hold side by side.
CLAIM: each source has its own position on each value.
"""

STATE, DENY, CONCLUDE, CHAT = "state", "deny", "conclude", "chat"
ALIAS, DISTRUST, FORGET = "alias", "distrust", "forget"
"""Actions of inputs; `README.md` says what each of them means."""

VALUES, WHO, COUNT, SUM, EVER, VERDICT = "values", "who", "count", "sum", "ever", "verdict"
"""Kinds of questions."""

YES, NO = "yes", "no"


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation of a case; `values` are the names that can stand at its right side."""

    name: str
    kind: str
    gloss: str
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rule:
    """A relation that follows from a path: head(x, z) if path[0](x, y) and path[1](y, z)."""

    head: str
    path: tuple[str, ...]
    gloss: str


@dataclass(frozen=True, slots=True)
class Input:
    """Something that a memory learns: its structured form and its text.

    `at` is the time of learning, `since` the time from which the statement is valid; both are ISO
    8601 texts in UTC. `about` is the subject of a FORGET in words. A CONCLUDE repeats in words what
    follows from the inputs `because` by a rule; it adds no fact.
    """

    id: str
    at: str
    user: str
    source: str
    action: str
    text: str
    subject: str = ""
    relation: str = ""
    object: str = ""
    since: str = ""
    about: str = ""
    because: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The input as a passage: day of learning, source and text."""
        return f"[{self.at[:10]}] {self.source}: {self.text}"


@dataclass(frozen=True, slots=True)
class Question:
    """A question in both forms, with its exact answers; none means that there is no answer.

    The structured form is `kind`, `subject`, the relations of `path` from left to right, and for
    VERDICT the `object`; WHO and COUNT over subjects have the value in `object`. `gone` are values
    that were stated for the same subject and relation and are not answers. `window` is the number
    of tokens that a system which returns text may return.
    """

    id: str
    ability: str
    task: str
    user: str
    kind: str
    text: str
    subject: str
    path: tuple[str, ...]
    object: str = ""
    valid_at: str = ""
    known_at: str = ""
    window: int = 200
    answers: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """Inputs in order of learning, and questions that are asked after the last of them."""

    id: str
    relations: tuple[Relation, ...]
    rules: tuple[Rule, ...]
    inputs: tuple[Input, ...]
    questions: tuple[Question, ...]

    def relation(self, name: str) -> Relation:
        """Return the relation of a name; for the head of a rule, the last of its path."""
        for rule in self.rules:
            if rule.head == name:
                return self.relation(rule.path[-1])
        return next(each for each in self.relations if each.name == name)


def dump(cases: Iterable[Case]) -> str:
    """Return cases as JSON lines; equal cases have equal bytes."""
    return "".join(json.dumps(asdict(case), sort_keys=True) + "\n" for case in cases)


def load(text: str) -> list[Case]:
    """Read cases from JSON lines; raise ValueError, KeyError or TypeError for other texts."""
    return [_case(json.loads(line)) for line in text.splitlines() if line.strip()]


def _case(data: dict) -> Case:  # type: ignore[type-arg]
    return Case(
        data["id"],
        tuple(Relation(**{**each, "values": tuple(each["values"])}) for each in data["relations"]),
        tuple(Rule(**{**each, "path": tuple(each["path"])}) for each in data["rules"]),
        tuple(Input(**{**each, "because": tuple(each["because"])}) for each in data["inputs"]),
        tuple(
            Question(**{**each, **{key: tuple(each[key]) for key in ("path", "answers", "gone")}})
            for each in data["questions"]
        ),
    )
