"""Knowledge base inside a Python program: no server, no event loop, the same `KnowledgeBase`.

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

from kbcore import python_values
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
from kbcore.reason.budget import RequestLimits
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
    """Result of a load: the numbers of new facts, known facts and rules.

    `goals` are the goals in the text; a load does not ask them. `header` is the decision on the
    first row of a CSV file: `header.skipped` if the row is a header, `header.cells` its names.
    `warnings` are about the rules of the text; `warning.display(name)` returns a line of text.
    """

    asserted: int
    updated: int
    rules: int
    goals: tuple[GoalStatement, ...]
    header: Header | None = None
    warnings: tuple[RuleWarning, ...] = ()


class EmbeddedKB:
    """Handle on one tenant for Python programs; close the handle, or use `with`.

    Arguments are strings, numbers or booleans; numbers and booleans get the text that the HTTP
    interface gives them. In queries and retractions a string that starts with `?` is a variable.
    `scope` names a partition (None: the base partition); reads also take "*" for all partitions.
    """

    def __init__(self, runtime: Runtime, tenant: str) -> None:
        self._runtime = runtime
        self.kb: KnowledgeBase = runtime.knowledge_base(tenant=tenant)

    def tell(  # noqa: PLR0913  one parameter for each attribute of a fact
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
        """Store one fact: a predicate with arguments, or a text, `tell("parent(ann, bob)")`.

        `ttl` is in milliseconds from this call, also for a fact that is already stored. Points in
        time are epoch milliseconds, ISO 8601 texts or aware datetimes.
        """
        if ttl is not None and ttl <= 0:
            raise InvalidInput.at("ttl", "must be positive")
        if confidence is not None and not 0 <= confidence <= 1:
            raise InvalidInput.at("confidence", "must be 0 to 1")
        name, constants, positive = python_values.fact(predicate, args)
        fact = Fact(
            name,
            constants,
            positive and not negated,
            scope,
            ttl,
            python_values.instant("valid_from", valid_from),
            python_values.instant("valid_until", valid_until),
            confidence,
            dict(metadata or {}),
        )
        return self.kb.assert_facts([fact])

    def tell_many(
        self, predicate: str, rows: Iterable[Sequence[Arg]], *, scope: str | None = None
    ) -> AssertOutcome:
        """Store many facts of one predicate, all or none."""
        row_list = list(rows)
        if plain := plain_rows(predicate, row_list, scope):
            return self.kb.assert_rows([plain])
        return self.kb.assert_facts(
            [
                Fact(predicate, python_values.constants(predicate, row), scope=scope)
                for row in row_list
            ]
        )

    def teach(self, text: str, *, scope: str | None = None) -> RulesOutcome:
        """Store the rules of a text in the rule language, all or none.

        Raises InvalidInput if the text has facts or goals.
        """
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
        """Load a file or a text in the rule language.

        A path object, or a string that ends in .kb, .jsonl or .csv, names a file; any other string
        is a text. A file is stored batch by batch: after an error, the batches before the faulty
        one stay. For CSV files, `predicate` is the predicate of every row (None: the first cell of
        the row), and `header` ("auto", "yes" or "no") says whether the first row is a header;
        "auto" skips the row only if the rows below leave no doubt.
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
        """Answer a goal with facts and rules.

        `ask("ancestor", ["ann", "?x"])` and `ask("ancestor(ann, ?x)")` return a tuple of all
        arguments for each answer. A text with several literals returns a tuple of the values of its
        variables, in order of appearance. With `include_undefined` the answers of a goal of one
        literal include those that are neither true nor false; `rows()` marks them. `timeout_ms`
        lowers the limit of the settings. Raises BudgetExceeded.
        """
        options = AnswerOptions(
            scope, include_undefined=include_undefined, request_limits=RequestLimits(timeout_ms)
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
        """Run a text in the rule language: store its clauses and answer its queries, in order.

        The text is applied as a whole or not at all. A query (`?- goal.`) sees the clauses before
        it. `timeout_ms` limits all queries together. Raises RuleSyntaxError with every error of the
        text, BudgetExceeded, Conflict.
        """
        return self.kb.execute(text, scope=scope, request_limits=RequestLimits(timeout_ms))

    def explain(
        self,
        goal: str,
        *,
        scope: str | None = None,
        limit: int | None = None,
        timeout_ms: int | None = None,
    ) -> str:
        """Return proofs of the answers of a goal as text, each answer above its premises.

        `timeout_ms` is that of `ask`. `kb.kb.prove` returns proofs as objects.
        """
        options = AnswerOptions(scope, limit, request_limits=RequestLimits(timeout_ms))
        return self.kb.explain(parse_goal(goal).body, options)

    def query(
        self, predicate: str, args: Sequence[Arg] | None = None, *, scope: str | None = None
    ) -> AnswerSet:
        """Return the stored facts that match a pattern, without applying rules.

        The pattern is `query("p", ["?x"])` or `query("p(?x)")`; `~p(?x)` matches explicit
        negatives.
        """
        predicate, terms, positive = python_values.atom(predicate, args)
        rows = self.kb.query_rows(predicate, terms, positive=positive is not False, scope=scope)
        return AnswerSet([tuple(row["args"]) for row in rows], lambda: rows)

    def retract(
        self, predicate: str, args: Sequence[Arg] | None = None, *, scope: str | None = None
    ) -> RetractOutcome:
        """Remove a fact of both signs; with variables, every fact that matches.

        The fact or pattern may be a text, as for `tell`; the text `~p(a)` removes only the negative
        fact.
        """
        predicate, terms, positive = python_values.atom(predicate, args)
        constants = [term for term in terms if isinstance(term, str)]
        if len(constants) == len(terms):
            return self.kb.retract_fact(predicate, constants, positive=positive, scope=scope)
        return self.kb.retract_pattern(predicate, terms, positive=positive, scope=scope)

    def count(self, predicate: str, *, scope: str | None = None) -> int:
        """Return the number of currently valid, positive, stored facts of a predicate."""
        return self.kb.aggregate(AggregateQuery(predicate, "COUNT"), scope=scope).matched

    def rules(self, scope: str | None = "*") -> list[StoredRule]:
        """Return the rules in the order in which they were stored."""
        return self.kb.rules(scope)

    def scopes(self) -> list[str]:
        """Return the names of the scopes, sorted."""
        return self.kb.scopes()

    def fork(
        self, target: str, source: str | None = None, *, overwrite: bool = False
    ) -> ForkOutcome:
        """Copy the facts and the own rules of a scope (None: the base partition) to a new scope."""
        return self.kb.fork_scope(source, target, overwrite=overwrite)

    def diff(self, source: str | None, target: str | None) -> ScopeDiff:
        """Return the differences from one scope to another (None: the base)."""
        return self.kb.diff_scopes(source, target)

    def merge(
        self, source: str | None, target: str | None = None, *, strategy: str = "SOURCE_WINS"
    ) -> MergeOutcome:
        """Merge the facts of a scope into another (None: the base).

        `strategy` decides conflicts.
        """
        return self.kb.merge_scope(source, target, strategy=strategy)

    def drop_scope(self, scope: str) -> int:
        """Remove a scope with its facts and its own rules; return the number of removed facts."""
        return self.kb.drop_scope(scope)

    def decay(
        self, threshold: float = DECAY_THRESHOLD, *, scope: str | None = None, dry_run: bool = False
    ) -> DecayOutcome:
        """Evict expired facts, and facts whose salience is below `threshold` (0 to 1).

        With `dry_run` nothing changes.
        """
        return self.kb.decay(threshold, scope=scope, dry_run=dry_run)

    def consolidate(
        self,
        *,
        min_group_size: int = LEAST_GROUP,
        predicates: Sequence[str] | None = None,
        scope: str | None = None,
        dry_run: bool = False,
    ) -> ConsolidateOutcome:
        """Store a summary for each group of facts with equal predicate, arity and first argument.

        The summary is `<predicate>_consolidated(<first argument>, <count>)`. Groups smaller than
        `min_group_size` get none. With `dry_run` nothing changes.
        """
        return self.kb.consolidate(
            min_group_size=min_group_size, predicates=predicates, scope=scope, dry_run=dry_run
        )

    def prioritize(
        self, predicate: str, args: Sequence[Arg], priority: float, *, scope: str | None = None
    ) -> None:
        """Set the priority of a stored fact of both signs, 0 to 1 (initially 0.5).

        Raises NotFound.
        """
        self.kb.prioritize(
            predicate, python_values.constants(predicate, args), priority, scope=scope
        )

    def salient(
        self,
        predicate: str | None = None,
        args: Sequence[Arg] | None = None,
        *,
        limit: int = 50,
        minimum: float = 0.0,
        scope: str | None = None,
    ) -> list[Row]:
        """Return the stored facts with the highest salience, best first, with their `salience`.

        `predicate` None means all predicates.
        """
        terms = None if args is None else python_values.terms(args)
        return self.kb.salient(predicate, terms, limit=limit, minimum=minimum, scope=scope)

    def recall(
        self,
        predicate: str,
        args: Sequence[Arg],
        at: int | str | datetime,
        *,
        scope: str | None = None,
    ) -> list[Row]:
        """Return the matching facts that were valid at a point in time, as they are stored now.

        `at` has the forms of times in `tell`.
        """
        return self.kb.recall(
            predicate, python_values.terms(args), python_values.moment("at", at), scope=scope
        )

    def subscribe(
        self,
        listener: Callable[[dict[str, Any]], None],
        *,
        predicate: str | None = None,
        events: Iterable[str] | None = None,
        scope: str | None = None,
    ) -> Callable[[], None]:
        """Call `listener` with every event committed from now on; return a function that ends this.

        An event is a dict, as `GET /memory/events` sends it. `predicate` may end in `*`; `events`
        are the event types to report (None: all). The listener is called by the writing thread
        after the write, so it must be quick; an exception in it is logged.
        """
        runtime, selection = self._runtime, Wanted.of(predicate, events, scope)
        return listen(
            runtime.feed,
            mark_of(runtime.log_id),
            self.kb.database,
            self.kb.tenant,
            selection,
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
        """Extract facts from a text with the language model, and rules if `rules` is true.

        With `store` the facts and rules are stored.
        """
        return self.kb.extract(text, store=store, rules=rules, scope=scope, context=context)

    def synthesize(self, question: str, *, scope: str | None = None) -> Synthesis:
        """Answer a question in words; the language model plans the queries and words the answer."""
        return self.kb.synthesize(question, scope=scope)

    def keys(self) -> Keys:
        """Return a handle on the API keys that a server on this storage accepts."""
        return self._runtime.keys()

    def admin(self) -> Admin:
        """Return a handle on whole databases and tenants."""
        return self._runtime.admin()

    @contextmanager
    def transaction(self) -> Iterator[EmbeddedKB]:
        """Yield a knowledge base whose writes are committed together at the end, or not at all.

        Inside the block only its own reads see its writes. An error that leaves the block, and a
        write that fails, discard the writes. Raises Conflict at the end if another writer has
        changed something that the block read or wrote; the block can then be retried.
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
        """Write a snapshot if anything has changed, and release the storage."""
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

    With `path` the data is in that folder, or in that file for `open_kb("sqlite", path=...)`.
    Otherwise `storage` is a URL, such as `sqlite:FILE` or `postgresql://USER@HOST/DATABASE`, or the
    name of a storage plugin; the default keeps the data in memory only. `config` has all other
    settings. `llm` is the language model, in place of the one that LLM_PROVIDER names. Raises
    ConfigError, StorageBusy, LogCorrupted.
    """
    settings = (config or Config()).with_storage(storage, None if path is None else os.fspath(path))
    return EmbeddedKB(open_runtime(settings, plugins=plugins, llm=llm), tenant)


__all__ = ["ANONYMOUS", "AnswerSet", "EmbeddedKB", "LoadOutcome", "Variable", "open_kb"]
