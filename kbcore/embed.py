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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from kbcore import python_values as given
from kbcore.branching.compare import ScopeDiff
from kbcore.branching.fork import ForkOutcome
from kbcore.branching.merge import MergeOutcome
from kbcore.config.settings import Config
from kbcore.errors import Conflict, InvalidInput
from kbcore.events.events import Wanted, listen, mark_of
from kbcore.kb.knowledge_base import KnowledgeBase
from kbcore.kb.memory import DECAY_THRESHOLD, LEAST_GROUP
from kbcore.kb.scripts import Executed
from kbcore.kb.transaction import Operations
from kbcore.language.csv_rows import Header, header_mode
from kbcore.language.extract import Extracted
from kbcore.language.files import Batch, plain_rows, read_file, read_statements
from kbcore.language.rule_review import RuleReview
from kbcore.language.synthesize import Synthesis
from kbcore.node.admin import Admin
from kbcore.node.api_keys import Keys
from kbcore.node.runtime import Runtime, open_runtime
from kbcore.plug.ports import LLMProvider
from kbcore.python_values import AnswerSet, Arg
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.budget import BudgetWanted
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import AssertOutcome, Fact, RetractOutcome, Row
from kbcore.state.rulebook import RulesOutcome, StoredRule
from kbcore.upkeep.consolidate import ConsolidateOutcome
from kbcore.upkeep.decay import DecayOutcome
from kbplanner.ir.terms import ANONYMOUS, Literal, Variable
from kbplanner.passes.check import check_statements
from kbplanner.syntax.diagnostics import RuleWarning
from kbplanner.syntax.jsonform import literal_from_json
from kbplanner.syntax.parser import parse_goal, parse_program
from kbplanner.syntax.statements import GoalStatement, RuleStatement


@dataclass(frozen=True, slots=True)
class LoadOutcome:
    """The result of a load: new facts, facts known before, rules; and the goals in the text, which were not asked.

    `header` is the decision on the first row of a CSV file: `header.skipped` if it is a header, `header.cells` its names.
    `warnings` are about rules of the text; `warning.display(name)` gives a line for people.
    """

    asserted: int
    updated: int
    rules: int
    goals: tuple[GoalStatement, ...]
    header: Header | None = None
    warnings: tuple[RuleWarning, ...] = ()


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
        args: Sequence[Arg] | None = None,
        *,
        negated: bool = False,
        scope: str | None = None,
        ttl: int | None = None,
        valid_from: int | str | datetime | None = None,
        valid_until: int | str | datetime | None = None,
        confidence: float | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> AssertOutcome:
        """Store one fact: a predicate with its arguments, or the whole fact as text, `kb.tell("parent(ann, bob)")`.

        `ttl` in milliseconds from this call, also for a fact that is stored already; instants as epoch milliseconds, ISO
        8601 text or aware datetimes.
        """
        if ttl is not None and ttl <= 0:
            raise InvalidInput.at("ttl", "must be positive")
        if confidence is not None and not 0 <= confidence <= 1:
            raise InvalidInput.at("confidence", "must be 0 to 1")
        name, constants, positive = given.fact(predicate, args)
        fact = Fact(
            name,
            constants,
            positive and not negated,
            scope,
            ttl,
            given.instant("valid_from", valid_from),
            given.instant("valid_until", valid_until),
            confidence,
            dict(metadata or {}),
        )
        return self.kb.assert_facts([fact])

    def tell_many(
        self, predicate: str, rows: Iterable[Sequence[Arg]], *, scope: str | None = None
    ) -> AssertOutcome:
        """Store many facts of one predicate, all or none."""
        whole = list(rows)
        if plain := plain_rows(predicate, whole, scope):
            return self.kb.assert_rows([plain])
        return self.kb.assert_facts(
            [Fact(predicate, given.constants(predicate, row), scope=scope) for row in whole]
        )

    def teach(self, text: str, *, scope: str | None = None) -> RulesOutcome:
        """Teach the rules of a text in the rule language, all or none; facts in it are refused."""
        statements = parse_program(text)
        rules = [statement for statement in statements if isinstance(statement, RuleStatement)]
        if len(rules) != len(statements):
            raise InvalidInput("teach takes rules; load takes facts too")
        check_statements(statements)
        return self.kb.assert_rules([replace(s.rule, scope=s.rule.scope or scope) for s in rules])

    def load(
        self,
        source: str | os.PathLike[str],
        *,
        scope: str | None = None,
        predicate: str | None = None,
        header: str = "auto",
    ) -> LoadOutcome:
        """Load a file (a path object, or a string that ends in .kb, .jsonl or .csv) or a text in the rule language.

        A file is stored batch by batch: after an error, what came before the faulty batch stays. For CSV files, `predicate`
        is the predicate of every row (otherwise the first cell of the row), and `header` ("auto", "yes" or "no") says
        whether the first row is a header; "auto" skips it only where the rows below leave no doubt.
        """
        mode = header_mode(header)
        if isinstance(source, str) and not source.endswith((".kb", ".jsonl", ".csv")):
            batches: Iterator[Batch] = read_statements([source], scope)
        else:
            batches = read_file(Path(source), scope=scope, predicate=predicate, header=mode)
        asserted = updated = rules = 0
        goals: list[GoalStatement] = []
        first_row: Header | None = None
        review = RuleReview(self.kb.known_predicates)
        for batch in batches:
            first_row = first_row or batch.header
            review.add(batch)
            if batch.rules:
                rules += len(self.kb.assert_rules(batch.rules).rules)
            if batch.facts or batch.rows:
                outcome = (
                    self.kb.assert_facts(batch.facts)
                    if batch.facts
                    else self.kb.assert_rows(batch.rows)
                )
                asserted, updated = asserted + outcome.asserted, updated + outcome.updated
            goals.extend(batch.goals)
        warnings = review.all(stored.rule for stored in self.kb.rules()) if review.has_rules else ()
        return LoadOutcome(asserted, updated, rules, tuple(goals), first_row, tuple(warnings))

    def ask(
        self,
        goal: str,
        args: Sequence[Arg] | None = None,
        *,
        scope: str | None = None,
        include_undefined: bool = False,
        timeout_ms: int | None = None,
    ) -> AnswerSet:
        """Answer a goal with facts and rules; raises BudgetExceeded, after `timeout_ms` where that is less than the setting.

        `ask("ancestor", ["ann", "?x"])` and `ask("ancestor(ann, ?x)")` give a tuple of all arguments for each answer; a
        text with several literals gives a tuple of its variables, in order of appearance. With `include_undefined` a goal
        of one literal has answers that are neither true nor false as well; `rows()` tells which.
        """
        options = AnswerOptions(
            scope, include_undefined=include_undefined, wanted=BudgetWanted(timeout_ms)
        )
        if args is not None:
            return self._ask_literal(literal_from_json(goal, list(args)), options)
        body = parse_goal(goal).body
        if len(body) == 1 and isinstance(body[0], Literal):
            return self._ask_literal(body[0], options)
        variables = list(
            dict.fromkeys(v for item in body for v in item.variables() if not v.anonymous)
        )
        tuples = self.kb.bindings(body, variables, options)
        names = [variable.name for variable in variables]
        return AnswerSet(tuples, lambda: [dict(zip(names, row, strict=True)) for row in tuples])

    def execute(
        self, text: str, *, scope: str | None = None, timeout_ms: int | None = None
    ) -> Executed:
        """Carry out a text from top to bottom, all of it or nothing: clauses are told, questions (`?- goal.`) are asked.

        A question sees the clauses before it. `timeout_ms` is for all questions together. Raises RuleSyntaxError with every
        mistake of the text, BudgetExceeded, Conflict.
        """
        return self.kb.execute(text, scope=scope, wanted=BudgetWanted(timeout_ms))

    def explain(
        self,
        goal: str,
        *,
        scope: str | None = None,
        limit: int | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Return proofs of the answers of a goal as text, each answer above its premises; `timeout_ms` as for `ask`.

        For programs, `kb.kb.prove` gives proofs as objects.
        """
        options = AnswerOptions(scope, limit, wanted=BudgetWanted(timeout_ms))
        return self.kb.explain(parse_goal(goal).body, options)

    def query(
        self, predicate: str, args: Sequence[Arg] | None = None, *, scope: str | None = None
    ) -> AnswerSet:
        """Stored facts that match, no rules applied: `query("p", ["?x"])` or `query("p(?x)")`; `~p(?x)` for negatives."""
        predicate, terms, positive = given.atom(predicate, args)
        rows = self.kb.query_rows(predicate, terms, positive=positive is not False, scope=scope)
        return AnswerSet([tuple(row["args"]) for row in rows], lambda: rows)

    def retract(
        self, predicate: str, args: Sequence[Arg] | None = None, *, scope: str | None = None
    ) -> RetractOutcome:
        """Remove a fact, both its signs; with variables among the arguments, every fact that matches.

        The fact or pattern may be text, as for `tell`; the text `~p(a)` removes the negative only.
        """
        predicate, terms, positive = given.atom(predicate, args)
        constants = [term for term in terms if isinstance(term, str)]
        if len(constants) == len(terms):
            return self.kb.retract_fact(predicate, constants, positive=positive, scope=scope)
        return self.kb.retract_pattern(predicate, terms, positive=positive, scope=scope)

    def count(self, predicate: str, *, scope: str | None = None) -> int:
        """Stored, currently valid, positive facts of a predicate, of every arity."""
        return self.kb.aggregate(AggregateQuery(predicate, "COUNT"), scope=scope).matched

    def rules(self, scope: str | None = "*") -> list[StoredRule]:
        """Rules in the order they were taught."""
        return self.kb.rules(scope)

    def scopes(self) -> list[str]:
        """The scopes there are, by name."""
        return self.kb.scopes()

    def fork(
        self, target: str, source: str | None = None, *, overwrite: bool = False
    ) -> ForkOutcome:
        """Copy the facts of a scope (None: the base) and the rules of its own to a new one, to try something out there."""
        return self.kb.fork_scope(source, target, overwrite=overwrite)

    def diff(self, source: str | None, target: str | None) -> ScopeDiff:
        """Return the facts added, removed and modified from one scope to another (None: the base)."""
        return self.kb.diff_scopes(source, target)

    def merge(
        self, source: str | None, target: str | None = None, *, strategy: str = "SOURCE_WINS"
    ) -> MergeOutcome:
        """Add to a scope (None: the base) what another one has; `strategy` decides where they do not agree."""
        return self.kb.merge_scope(source, target, strategy=strategy)

    def drop_scope(self, scope: str) -> int:
        """Remove a scope, its facts and the rules of its own; how many facts went."""
        return self.kb.drop_scope(scope)

    def decay(
        self, threshold: float = DECAY_THRESHOLD, *, scope: str | None = None, dry_run: bool = False
    ) -> DecayOutcome:
        """Evict what has expired and what has a salience below `threshold` (0 to 1); with `dry_run` only tell."""
        return self.kb.decay(threshold, scope=scope, dry_run=dry_run)

    def consolidate(
        self,
        *,
        min_group_size: int = LEAST_GROUP,
        predicates: Sequence[str] | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ConsolidateOutcome:
        """Sum up facts of the same predicate, arity and first argument as `<predicate>_consolidated(<it>, <count>)`.

        Groups smaller than `min_group_size` are left alone. With `dry_run` only tell what would be stored.
        """
        kb, least = self.kb, min_group_size
        return kb.consolidate(
            min_group_size=least, predicates=predicates, scope=scope, dry_run=dry_run
        )

    def prioritize(
        self, predicate: str, args: Sequence[Arg], priority: float, *, scope: str | None = None
    ) -> None:
        """Say how important a stored fact is, both its signs: 0 to 1, and 0.5 until then. Raises NotFound."""
        self.kb.prioritize(predicate, given.constants(predicate, args), priority, scope=scope)

    def salient(
        self,
        predicate: str | None = None,
        args: Sequence[Arg] | None = None,
        *,
        limit: int = 50,
        minimum: float = 0.0,
        scope: str | None = None,
    ) -> list[Row]:
        """The stored facts that matter most, best first, as rows with their `salience`: of one predicate, or of all."""
        terms = None if args is None else given.terms(args)
        return self.kb.salient(predicate, terms, limit=limit, minimum=minimum, scope=scope)

    def recall(
        self,
        predicate: str,
        args: Sequence[Arg],
        at: int | str | datetime,
        *,
        scope: str | None = None,
    ) -> list[Row]:
        """The stored facts that match and were valid at a moment, as they are stored now; `at` as in `tell`."""
        return self.kb.recall(predicate, given.terms(args), given.moment("at", at), scope=scope)

    def subscribe(
        self,
        listener: Callable[[dict[str, Any]], None],
        *,
        predicate: str | None = None,
        events: Iterable[str] | None = None,
        scope: str | None = None,
    ) -> Callable[[], None]:
        """Call `listener` with every event that is committed from now on; call what is returned to end that.

        An event is a dict, as `GET /memory/events` sends it. `predicate` may end in `*`; `events` are the types wanted. The
        listener is called by the writing thread after the write, so it must be quick; an exception is only logged.
        """
        runtime, wanted = self._runtime, Wanted.of(predicate, events, scope)
        return listen(
            runtime.feed,
            mark_of(runtime.log_id),
            self.kb.database,
            self.kb.tenant,
            wanted,
            listener,
        )

    def extract(
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
    ) -> Extracted:
        """Have the language model read a text into facts, and rules where wanted; with `store` they are stored, at once."""
        return self.kb.extract(text, store=store, rules=rules, scope=scope, context=context)

    def synthesize(self, question: str, *, scope: str | None = None) -> Synthesis:
        """Answer a question in words from what is known; the language model plans the queries and words the answer."""
        return self.kb.synthesize(question, scope=scope)

    def keys(self) -> Keys:
        """The keys a server on the same storage asks for."""
        return self._runtime.keys()

    def admin(self) -> Admin:
        """A handle on the databases and tenants as a whole."""
        return self._runtime.admin()

    @contextmanager
    def transaction(self) -> Iterator[EmbeddedKB]:
        """Group writes: what is done with the knowledge base it gives happens at once when the block ends, or not at all.

        In the block its writes are seen by its own reads only. An error that leaves the block discards them; so does a write
        that fails. At the end raises Conflict if another writer changed something that the block read or wrote; retry then.
        """
        operations = Operations(self._runtime, self.kb.database, self.kb.tenant)
        inside = EmbeddedKB(self._runtime, self.kb.tenant)
        inside.kb = cast(KnowledgeBase, operations)
        try:
            yield inside
        except BaseException:
            with suppress(Conflict):  # a write that failed has ended it already
                operations.roll_back()
            raise
        operations.commit()

    def close(self) -> None:
        """Write a snapshot where there is something new, and release the storage."""
        self._runtime.close()

    def __enter__(self) -> EmbeddedKB:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _ask_literal(self, literal: Literal, options: AnswerOptions) -> AnswerSet:
        def rows() -> list[Row]:
            return self.kb.infer(literal, options)

        if literal.negated or options.include_undefined:
            return AnswerSet([tuple(row["args"]) for row in rows()], rows)
        return AnswerSet(self.kb.tuples(literal.atom, options), rows)


def open_kb(
    storage: str | None = None,
    path: str | os.PathLike[str] | None = None,
    tenant: str = "default",
    *,
    config: Config | None = None,
    plugins: Iterable[object] = (),
    llm: LLMProvider | None = None,
) -> EmbeddedKB:
    """Open a knowledge base in this process.

    With `path` it is kept in that folder, or in that file with `open_kb("sqlite", path=...)`. Otherwise `storage` is a URL,
    such as `sqlite:FILE` or `postgresql://USER@HOST/DATABASE`, or names a storage plugin, by default one that keeps nothing.
    `config` overrides every other setting; `llm` is the language model, in place of the one that LLM_PROVIDER
    names. Raises ConfigError, StorageBusy, LogCorrupted.
    """
    settings = (config or Config()).with_storage(storage, None if path is None else os.fspath(path))
    return EmbeddedKB(open_runtime(settings, plugins=plugins, llm=llm), tenant)


__all__ = ["ANONYMOUS", "AnswerSet", "EmbeddedKB", "LoadOutcome", "Variable", "open_kb"]
