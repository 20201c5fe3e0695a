"""A knowledge base inside a Python program: no server, no event loop, the same `KnowledgeBase` underneath.

>>> import kbcore
>>> with kbcore.open_kb() as kb:
...     kb.tell("parent", ["ann", "bob"])
...     kb.teach("ancestor(?x, ?y) :- parent(?x, ?y).")
...     list(kb.ask("ancestor(ann, ?who)"))
[('ann', 'bob')]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from kbcore.config import Config
from kbcore.errors import InvalidInput
from kbcore.instants import instant
from kbcore.kb import KnowledgeBase, RulesOutcome
from kbcore.loading import Batch, plain_rows, read_file, read_statements
from kbcore.runtime import Runtime, open_runtime
from kbcore.state.facts import AssertOutcome, Fact, RetractOutcome, Row
from kbcore.state.rulebook import StoredRule
from kbplanner.jsonform import args_from_json, literal_from_json
from kbplanner.parser import parse_goal, parse_program
from kbplanner.passes.check import check_fact, check_statements
from kbplanner.statements import GoalStatement, RuleStatement
from kbplanner.terms import ANONYMOUS, Atom, Literal, Term, Variable

Arg = str | int | float | bool


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """What a load stored: new facts, facts known before, rules; and the goals that stood in the text, not asked."""

    asserted: int
    updated: int
    rules: int
    goals: tuple[GoalStatement, ...]


class AnswerSet(Sequence[tuple[str, ...]]):
    """Answers as tuples of names, in answer order; `rows()` gives them with everything known about each."""

    def __init__(self, tuples: list[tuple[str, ...]], rows: Callable[[], list[Row]]) -> None:
        self._tuples = tuples
        self._rows = rows

    def rows(self) -> list[Row]:
        """The answers as dicts with the keys of the HTTP interface, asked anew."""
        return self._rows()

    def __len__(self) -> int:
        return len(self._tuples)

    def __iter__(self) -> Iterator[tuple[str, ...]]:
        return iter(self._tuples)

    def __getitem__(self, place: Any) -> Any:
        return self._tuples[place]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, (AnswerSet, list, tuple)) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"AnswerSet({self._tuples!r})"


class EmbeddedKB:
    """One tenant of a runtime of our own, with methods made for Python programs; close it, or use `with`.

    Arguments may be strings, numbers or booleans, with the text the HTTP interface gives them; in questions and
    retractions a string that starts with `?` is a variable. `scope` names a partition everywhere; reads take "*" too.
    """

    def __init__(self, runtime: Runtime, tenant: str) -> None:
        self._runtime = runtime
        self.kb: KnowledgeBase = runtime.knowledge_base(tenant=tenant)

    def tell(
        self,
        predicate: str,
        args: Sequence[Arg] = (),
        *,
        negated: bool = False,
        scope: str | None = None,
        ttl: int | None = None,
        valid_from: int | str | datetime | None = None,
        valid_until: int | str | datetime | None = None,
        confidence: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AssertOutcome:
        """Store one fact. `ttl` in milliseconds; instants as epoch milliseconds, ISO 8601 text or aware datetimes."""
        if ttl is not None and ttl <= 0:
            raise InvalidInput.at("ttl", "must be positive")
        if confidence is not None and not 0 <= confidence <= 1:
            raise InvalidInput.at("confidence", "must be 0 to 1")
        fact = Fact(
            predicate,
            _constants(predicate, args),
            not negated,
            scope,
            ttl,
            _instant("valid_from", valid_from),
            _instant("valid_until", valid_until),
            confidence,
            dict(metadata or {}),
        )
        return self.kb.assert_facts([fact])

    def tell_many(self, predicate: str, rows: Iterable[Sequence[Arg]], *, scope: str | None = None) -> AssertOutcome:
        """Store many facts of one predicate, all or none."""
        whole = list(rows)
        if plain := plain_rows(predicate, whole, scope):
            return self.kb.assert_rows([plain])
        return self.kb.assert_facts([Fact(predicate, _constants(predicate, row), scope=scope) for row in whole])

    def teach(self, text: str, *, scope: str | None = None) -> RulesOutcome:
        """Teach the rules of a text in the rule language, all or none; facts in it are refused."""
        statements = parse_program(text)
        rules = [statement for statement in statements if isinstance(statement, RuleStatement)]
        if len(rules) != len(statements):
            raise InvalidInput("teach takes rules; load takes facts too")
        check_statements(statements)
        return self.kb.assert_rules([replace(s.rule, scope=s.rule.scope or scope) for s in rules])

    def load(self, source: str | os.PathLike[str], *, scope: str | None = None, predicate: str | None = None) -> LoadOutcome:
        """Load a file (a path object, or a string that ends in .kb, .jsonl or .csv) or a text in the rule language.

        A file is stored batch by batch: after an error, what came before the faulty batch stays.
        """
        if isinstance(source, str) and not source.endswith((".kb", ".jsonl", ".csv")):
            batches: Iterator[Batch] = read_statements([source], scope)
        else:
            batches = read_file(Path(source), scope=scope, predicate=predicate)
        asserted = updated = rules = 0
        goals: list[GoalStatement] = []
        for batch in batches:
            if batch.rules:
                rules += len(self.kb.assert_rules(batch.rules).rules)
            for outcome in self._stored(batch):
                asserted, updated = asserted + outcome.asserted, updated + outcome.updated
            goals.extend(batch.goals)
        return LoadOutcome(asserted, updated, rules, tuple(goals))

    def _stored(self, batch: Batch) -> Iterator[AssertOutcome]:
        if batch.facts:
            yield self.kb.assert_facts(batch.facts)
        if batch.rows:
            yield self.kb.assert_rows(batch.rows)

    def ask(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        include_undefined: bool = False,
    ) -> AnswerSet:
        """Answer a goal with facts and rules.

        `ask("ancestor", ["ann", "?x"])` and `ask("ancestor(ann, ?x)")` give a tuple of all arguments for each answer; a
        text with several literals gives a tuple of its variables, in order of appearance. With `include_undefined` a goal
        of one literal has answers that are neither true nor false as well; `rows()` tells which.
        """
        if args is not None:
            return self._ask_literal(literal_from_json(goal, list(args)), scope, include_undefined)
        body = parse_goal(goal).body
        if len(body) == 1 and isinstance(body[0], Literal):
            return self._ask_literal(body[0], scope, include_undefined)
        variables = list(dict.fromkeys(v for item in body for v in item.variables() if not v.anonymous))
        found = self.kb.bindings(body, variables, scope=scope)
        names = [variable.name for variable in variables]
        return AnswerSet(found, lambda: [dict(zip(names, row, strict=True)) for row in found])

    def explain(self, goal: str, *, scope: str | None = None, limit: int | None = None) -> str:
        """Why the answers of a goal hold, as text: each answer stands above what it rests on.

        For programs, `kb.kb.prove` gives proofs as objects.
        """
        return self.kb.explain(parse_goal(goal).body, scope=scope, limit=limit)

    def query(self, predicate: str, args: Sequence[Arg], *, scope: str | None = None) -> AnswerSet:
        """Stored facts that match, no rules applied."""
        terms = _terms(args)
        rows = self.kb.query_rows(predicate, terms, positive=True, scope=scope)
        return AnswerSet([tuple(row["args"]) for row in rows], lambda: rows)

    def retract(self, predicate: str, args: Sequence[Arg], *, scope: str | None = None) -> RetractOutcome:
        """Remove a fact, both its signs; with variables among the arguments, every fact that matches."""
        terms = _terms(args)
        constants = [term for term in terms if isinstance(term, str)]
        if len(constants) == len(terms):
            return self.kb.retract_fact(predicate, constants, scope=scope)
        return self.kb.retract_pattern(predicate, terms, scope=scope)

    def count(self, predicate: str, *, scope: str | None = None) -> int:
        """Stored, currently valid, positive facts of a predicate, of every arity."""
        return self.kb.aggregate(predicate, "COUNT", scope=scope).matched

    def rules(self, scope: str | None = "*") -> list[StoredRule]:
        """Rules in the order they were taught."""
        return self.kb.rules(scope)

    def close(self) -> None:
        """Write a snapshot where there is something new, and release the storage."""
        self._runtime.close()

    def __enter__(self) -> EmbeddedKB:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask_literal(self, literal: Literal, scope: str | None, undefined: bool) -> AnswerSet:
        def rows() -> list[Row]:
            return self.kb.infer(literal, scope=scope, include_undefined=undefined)

        if literal.negated or undefined:
            return AnswerSet([tuple(row["args"]) for row in rows()], rows)
        return AnswerSet(self.kb.tuples(literal.atom, scope=scope), rows)


def open_kb(
    storage: str = "memory",
    path: str | os.PathLike[str] | None = None,
    tenant: str = "default",
    *,
    config: Config | None = None,
    plugins: Iterable[object] = (),
) -> EmbeddedKB:
    """Open a knowledge base in this process.

    With `path` it is kept in that folder; otherwise `storage` names a storage plugin, by default one that keeps nothing.
    `config` overrides every other setting. Raises ConfigError, StorageBusy, LogCorrupted.
    """
    base = config or Config()
    if path is not None:
        base = replace(base, storage_backend="wal", storage_dir=os.fspath(path))
    else:
        base = replace(base, storage_backend=storage)
    return EmbeddedKB(open_runtime(base, plugins=plugins), tenant)


def _constants(predicate: str, args: Sequence[Arg]) -> tuple[str, ...]:
    terms = _terms(args)
    check_fact(Atom(predicate, tuple(terms)))
    return tuple(term for term in terms if isinstance(term, str))


def _terms(args: Sequence[Arg]) -> list[Term]:
    if isinstance(args, str):
        raise InvalidInput.at("args", "must be a list, not one string")
    return list(args_from_json(list(args), "args"))


def _instant(name: str, value: int | str | datetime | None) -> int | None:
    if isinstance(value, datetime):
        value = value.isoformat()
    try:
        return None if value is None else instant(value)
    except ValueError as error:
        raise InvalidInput.at(name, str(error)) from error


__all__ = ["ANONYMOUS", "AnswerSet", "EmbeddedKB", "LoadOutcome", "Variable", "open_kb"]
