"""kbcore through its public Python API: with rules, with declared keys, and with texts only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from ..interface import FACTS, Answer, NotAvailable, Passage
from ..model import (
    ALIAS,
    COUNT,
    DENY,
    DISTRUST,
    EVER,
    FORGET,
    LATEST,
    NO,
    STATE,
    SUM,
    VERDICT,
    YES,
    Case,
    Input,
    Question,
)
from ..searching import Searching

RULES = """
stated(?r, ?s, ?o, ?n, ?by) :- said(?by, ?r, ?s, ?o, ?n), not distrusted(?by), not alias(?s, _).
stated(?r, ?s, ?o, ?n, ?by) :- said(?by, ?r, ?a, ?o, ?n), not distrusted(?by), alias(?a, ?s).
denied(?r, ?s, ?o, ?n, ?by) :- unsaid(?by, ?r, ?s, ?o, ?n), not distrusted(?by).
ended(?r, ?s, ?o, ?n) :- stated(?r, ?s, ?o, ?n, _), latest(?r), stated(?r, ?s, _, ?m, _), ?n < ?m.
ended(?r, ?s, ?o, ?n) :- stated(?r, ?s, ?o, ?n, _), denied(?r, ?s, ?o, ?m, _), ?n < ?m.
holds(?r, ?s, ?o) :- stated(?r, ?s, ?o, ?n, _), not ended(?r, ?s, ?o, ?n).
retracted(?by, ?r, ?s, ?o, ?n) :-
    stated(?r, ?s, ?o, ?n, ?by), denied(?r, ?s, ?o, ?m, ?by), ?n < ?m.
affirms(?by, ?r, ?s, ?o) :- stated(?r, ?s, ?o, ?n, ?by), not retracted(?by, ?r, ?s, ?o, ?n).
denies(?by, ?r, ?s, ?o) :- denied(?r, ?s, ?o, _, ?by), not affirms(?by, ?r, ?s, ?o).
"""

ALWAYS = "1970-01-01"
"""Beginning of facts about names and sources, so that they count in questions about the past."""


def _kbcore() -> Any:
    try:
        import kbcore
    except ImportError as error:
        raise NotAvailable("pip install -e clients/python -e . (kbcore)") from error
    return kbcore


class _KBCore:
    """Base of the systems with structured facts: a user is a tenant, times are those of writes."""

    form = FACTS

    def __init__(self, name: str, settings: dict[str, str]) -> None:
        self.name, self.settings = name, settings
        self._open_kb = _kbcore().open_kb
        self.version = metadata.version("kbcore")
        self._kb: Any = None

    def open(self, case: Case) -> None:
        """Open an empty knowledge base in memory."""
        self.close()
        self._case = case
        self._kb = self._open_kb()
        self._users: dict[str, Any] = {}
        self._written: list[tuple[str, int]] = []
        self._count = 0

    def close(self) -> None:
        """Close the knowledge base."""
        if self._kb is not None:
            self._kb.close()
            self._kb = None

    def user(self, name: str) -> Any:
        """Return the knowledge base of a user, with the rules."""
        if name not in self._users:
            kb = self._kb.memory(user=name).kb
            self.prepare(kb)
            self._users[name] = kb
        return self._users[name]

    def prepare(self, kb: Any) -> None:
        """Store the rules of a new user."""
        raise NotImplementedError

    def wrote(self, entry: Input) -> None:
        """Record when an input was written, so that times of learning can be asked for.

        The next write comes in a later millisecond, since that is the precision of such questions.
        """
        moment = time.time_ns() // 1_000_000
        self._written.append((entry.at, moment))
        while time.time_ns() // 1_000_000 <= moment:
            pass

    def known(self, kb: Any, question: Question) -> Any:
        """Return the knowledge base as it was known at the time of a question."""
        if not question.known_at:
            return kb
        moments = [moment for at, moment in self._written if at <= question.known_at]
        return kb.known_at(moments[-1])


class Rules(_KBCore):
    """Facts `said(source, relation, subject, object, order)`, and rules that say what holds.

    The rules are written once for all cases; those of a case are added.
    """

    def __init__(self) -> None:
        super().__init__("kbcore-rules", {"storage": "memory", "rules": "9 for all cases"})

    def prepare(self, kb: Any) -> None:
        """Store the rules, and the relations with one value."""
        kb.teach(RULES)
        for relation in self._case.relations:
            if relation.kind == LATEST:
                kb.tell("latest", [relation.name], valid_from=ALWAYS)
        for rule in self._case.rules:
            first, second = rule.path
            kb.teach(f'{rule.head}(?x, ?z) :- holds("{first}", ?x, ?y), holds("{second}", ?y, ?z).')

    def store(self, entry: Input) -> None:
        """Store the structured form of an input."""
        kb = self.user(entry.user)
        self._count += 1
        if entry.action in (STATE, DENY):
            order = f"{entry.since} {self._count:06}"
            name = "said" if entry.action == STATE else "unsaid"
            args = [entry.source, entry.relation, entry.subject, entry.object, order]
            kb.tell(name, args, valid_from=entry.since)
        elif entry.action == ALIAS:
            kb.tell("alias", [entry.subject, entry.object], valid_from=ALWAYS)
        elif entry.action == DISTRUST:
            kb.tell("distrusted", [entry.subject], valid_from=ALWAYS)
        elif entry.action == FORGET:
            self._forget(kb, entry)
        self.wrote(entry)

    def _forget(self, kb: Any, entry: Input) -> None:
        memory = self._kb.memory(user=entry.user)
        names = {entry.subject}
        names |= {a for row in kb.ask("alias", [entry.subject, "?x"]) for a in row}
        names |= {a for real in sorted(names) for row in kb.ask("alias", ["?x", real]) for a in row}
        for name in sorted(names):
            for predicate in ("said", "unsaid"):
                relation = f'"{entry.relation}"' if entry.relation else "?r"
                memory.forget(f'{predicate}(?by, {relation}, "{name}", ?o, ?n)', dry_run=False)
                if not entry.relation:
                    memory.forget(f'{predicate}(?by, ?r, ?s, "{name}", ?n)', dry_run=False)
            if not entry.relation:
                memory.forget(f'alias("{name}", ?x)', dry_run=False)
                memory.forget(f'alias(?x, "{name}")', dry_run=False)

    def answer(self, question: Question) -> Answer:
        """Ask one goal, a conjunction along the path."""
        kb = self.known(self.user(question.user), question)
        heads = {rule.head for rule in self._case.rules}
        real = kb.ask("alias", [question.subject, "?x"]).count() if question.subject else 0
        subject = kb.ask("alias", [question.subject, "?x"]).one()[1] if real else question.subject
        options = {"as_of": question.valid_at} if question.valid_at else {}
        if question.kind == VERDICT:
            tail = f'"{question.path[0]}", "{subject}", "{question.object}"'
            stances = (YES, "affirms"), (NO, "denies")
            return Answer(
                frozenset(
                    sign
                    for sign, predicate in stances
                    if kb.ask(f"{predicate}(?by, {tail})", **options).count()
                )
            )
        if question.kind == EVER:
            goal = f'stated("{question.path[0]}", "{subject}", ?x, ?n, ?by)'
            return Answer(frozenset(row["x"] for row in kb.ask(goal, **options).dicts()))
        first = f'"{subject}"' if subject else "?s"
        steps = [first, *(f"?v{number}" for number in range(len(question.path)))]
        if not subject:
            steps[-1] = f'"{question.object}"'
        goal = ", ".join(
            f"{name}({left}, {right})" if name in heads else f'holds("{name}", {left}, {right})'
            for name, left, right in zip(question.path, steps, steps[1:], strict=False)
        )
        variable = steps[-1] if subject else steps[0]
        rows = kb.ask(goal, **options).dicts()
        return Answer(_counted({str(row[variable[1:]]) for row in rows}, question))


class Keys(_KBCore):
    """A predicate for each relation, `@key` where it has one value, and newer values replace older
    ones; sources are speakers of episodes, and a source that is not trusted is purged.
    """

    def __init__(self) -> None:
        super().__init__("kbcore-keys", {"storage": "memory", "conflict": "NEWEST_WINS"})

    def prepare(self, kb: Any) -> None:
        """Declare the keys, and store the rules of the case."""
        taken = {each.predicate for each in kb.predicates()}
        self._names = {
            each.name: f"{each.name}_of" if each.name in taken else each.name
            for each in self._case.relations
        }
        for relation in self._case.relations:
            if relation.kind == LATEST:
                kb.teach(f"@key {self._names[relation.name]}(?s, _).")
        for rule in self._case.rules:
            first, second = (self._names[name] for name in rule.path)
            kb.teach(f"{rule.head}(?x, ?z) :- {first}(?x, ?y), {second}(?y, ?z).")

    def store(self, entry: Input) -> None:
        """Store the structured form of an input, with the source as speaker of its episode."""
        kb = self.user(entry.user)
        memory = self._kb.memory(user=entry.user)
        if entry.action in (STATE, DENY):
            relation = self._case.relation(entry.relation)
            episode = kb.add_episode(entry.source, entry.text, at=entry.at, id=entry.id).episode.id
            kb.tell(
                self._names[entry.relation],
                [entry.subject, entry.object],
                negated=entry.action == DENY,
                valid_from=entry.since,
                evidence=[episode],
                conflict="KEEP_BOTH" if relation.kind == "claim" else "NEWEST_WINS",
            )
        elif entry.action == ALIAS:
            kb.tell("alias", [entry.subject, entry.object], valid_from=ALWAYS)
        elif entry.action == DISTRUST:
            kb.purge(speaker=entry.subject)
        elif entry.action == FORGET:
            names = {entry.subject}
            names |= {a for row in kb.ask("alias", [entry.subject, "?x"]) for a in row}
            names |= {a for n in sorted(names) for row in kb.ask("alias", ["?x", n]) for a in row}
            relations = [entry.relation] if entry.relation else sorted(self._names)
            for name in sorted(names):
                for relation_name in relations:
                    predicate = self._names[relation_name]
                    memory.forget(f'{predicate}("{name}", ?o)', dry_run=False)
                    if not entry.relation:
                        memory.forget(f'{predicate}(?s, "{name}")', dry_run=False)
                if not entry.relation:
                    memory.forget(f'alias("{name}", ?x)', dry_run=False)
        self.wrote(entry)

    def answer(self, question: Question) -> Answer:
        """Ask one goal, a conjunction along the path; past values come from the history."""
        kb = self.known(self.user(question.user), question)
        options = {"as_of": question.valid_at} if question.valid_at else {}
        path = [self._names.get(name, name) for name in question.path]
        if question.kind == VERDICT:
            tail = f'{path[0]}("{question.subject}", "{question.object}")'
            signs = (YES, tail), (NO, f"~{tail}")
            return Answer(frozenset(sign for sign, goal in signs if list(kb.query(goal))))
        if question.kind == EVER:
            events = kb.history(path[0], [question.subject, "?x"]).events
            return Answer(frozenset(each.after["args"][1] for each in events if each.after))
        subjects = [question.subject]
        if question.subject:
            subjects += [row[0] for row in kb.ask("alias", ["?x", question.subject])]
            subjects += [row[1] for row in kb.ask("alias", [question.subject, "?x"])]
        values: set[str] = set()
        for subject in subjects:
            first = f'"{subject}"' if subject else "?s"
            steps = [first, *(f"?v{number}" for number in range(len(path)))]
            if not subject:
                steps[-1] = f'"{question.object}"'
            goal = ", ".join(
                f"{name}({left}, {right})"
                for name, left, right in zip(path, steps, steps[1:], strict=False)
            )
            variable = (steps[-1] if subject else first)[1:]
            values |= {str(row[variable]) for row in kb.ask(goal, **options).dicts()}
        return Answer(_counted(values, question))


class Words(Keys):
    """The facts and keys of `Keys`, with the gloss of each relation; questions are asked in words,
    with `goals_for`, without a language model. Of a question, only its text and its user are read.
    """

    def __init__(self) -> None:
        super().__init__()
        self.name, self.settings = "kbcore-words", {**self.settings, "model": "none"}

    def prepare(self, kb: Any) -> None:
        """Declare the keys and the glosses, and store the rules of the case."""
        super().prepare(kb)
        for relation in self._case.relations:
            name = self._names[relation.name]
            kb.teach(f'@input {name}(subject, value) "{relation.gloss}".')

    def answer(self, question: Question) -> Answer:
        """Return the answers of the goal that the question means, none if that is not certain."""
        values = set(self.user(question.user).goals_for(question.text).answers)
        signs = {"true": YES, "false": NO}
        return Answer(frozenset(signs.get(value, value) for value in values))


class Texts(Searching):
    """`kb.memory(user)` without a language model: messages are added, questions searched."""

    def __init__(self) -> None:
        self._open_kb = _kbcore().open_kb
        super().__init__("kbcore-memory", metadata.version("kbcore"), {"model": "none"})
        self._kb: Any = None

    def open(self, case: Case) -> None:
        """Open an empty knowledge base in memory."""
        super().open(case)
        self.close()
        self._kb = self._open_kb()

    def _memory(self, user: str) -> Any:
        return self._kb.memory(user=user)

    def store(self, entry: Input) -> None:
        """Add the text as a message of its source; a request to forget is carried out."""
        memory = self._memory(entry.user)
        if entry.action == FORGET:
            memory.forget(entry.about, dry_run=False)
            return
        message = {"role": "user", "name": entry.source, "content": entry.text, "at": entry.at}
        memory.add([{**message, "id": entry.id}])

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return the entries that match, best first, each with its day and source."""
        result = self._memory(user).search(text, max_tokens=max_tokens, citations=False)
        passages = []
        for entry in result.entries:
            speaker, content, at = entry.args  # a fact said(speaker, text, time)
            passages.append(Passage(f"{at[:10]}, {speaker}: {content}", at))
        return passages

    def close(self) -> None:
        """Close the knowledge base."""
        if self._kb is not None:
            self._kb.close()
            self._kb = None


def _counted(values: set[str], question: Question) -> frozenset[str]:
    if question.kind == COUNT:
        return frozenset([str(len(values))] if values else ())
    if question.kind == SUM:
        return frozenset([str(sum(map(int, values)))] if values else ())
    return frozenset(values)
