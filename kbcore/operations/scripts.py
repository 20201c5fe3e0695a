"""Scripts: texts in the rule language whose clauses are stored and queries answered, in order.

Statements may also be commands (`commands.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbcore.errors import BudgetExceeded
from kbcore.language.files import declaration_of, fact_of, rule_of
from kbcore.operations.commands import INFER, RETRACT, translate
from kbcore.reason.ask import body_variables, terms_of
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import AnswerOptions
from kbcore.reason.predicates import MissingPredicate
from kbcore.state.facts import AssertOutcome, Fact, Row
from kbcore.state.rulebook import RulesOutcome, StoredDefinition
from kbplanner.errors import RuleSyntaxError
from kbplanner.ir.phrases import Definition
from kbplanner.ir.terms import BodyItem, Literal, Rule, Term, Variable
from kbplanner.pacing import YieldNow, current_yield, paced
from kbplanner.passes.check import check_statements
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.printer import print_item, print_row
from kbplanner.syntax.statements import FactStatement, GoalStatement, RuleStatement
from kbtypes.results import Question, RetractOutcome

MAX_ATTEMPTS = 3
"""Maximum number of attempts at a script when other writers change what its queries read."""

STATEMENTS_PER_YIELD = 50
CLAUSES_PER_YIELD = 500
"""Statements read between two calls of `yield_now`: about a millisecond."""

Signature = tuple[str, int]
"""A predicate by name and arity."""


@dataclass(slots=True)
class ScriptOutcome:
    """Result of a script; `text` formats the result, `timestamp` is in epoch milliseconds.

    An element of `answers` has `question` (the index of its query, from 0) and `bindings`
    (variables with their values). If the query is a single atom, the element also has the keys of a
    row. `unknown` are predicates of queries without answers that had no fact and no rule when the
    query ran.
    """

    lines: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    rules: list[StoredDefinition] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unknown: list[MissingPredicate] = field(default_factory=list)
    asserted: int = 0
    retracted: int = 0
    timestamp: int = 0

    @property
    def text(self) -> str:
        """Return the result as text, line by line."""
        return "\n".join(self.lines)


@dataclass(slots=True)
class ScriptBlock:
    """Consecutive clauses, and the query or retraction that follows them, if any.

    `command` says what is done with `goal`: INFER, QUERY or RETRACT.
    """

    rules: list[Definition] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    clauses: list[Fact | Definition] = field(default_factory=list)
    """The rules, phrases and facts in the order of the text."""
    goal: tuple[BodyItem, ...] = ()
    command: str = INFER

    @property
    def writes(self) -> bool:
        """True if the block changes what is stored."""
        return bool(self.clauses) or self.command == RETRACT


class ScriptTarget(Protocol):
    """The part of a knowledge base that running a script needs."""

    def assert_facts(self, facts: Sequence[Fact]) -> AssertOutcome:
        """Store facts."""

    def assert_rules(
        self,
        rules: Sequence[Definition],
        facts: Sequence[Fact] = (),
        defined: Iterable[Signature] = (),
    ) -> RulesOutcome:
        """Store rules, and facts with them; `defined` are predicates of later clauses."""

    def unknown_predicates(
        self, signatures: Iterable[tuple[str, int | None]], scope: str | None = None
    ) -> list[MissingPredicate]:
        """Return the predicates without facts and rules."""

    def infer(self, literal: Literal, options: AnswerOptions) -> list[Row]:
        """Return the answers of a goal."""

    def query_rows(
        self,
        predicate: str,
        args: Sequence[Term],
        *,
        positive: bool | None = ...,
        scope: str | None = ...,
        request_limits: RequestLimits | None = ...,
    ) -> list[Row]:
        """Return the stored facts that match."""

    def retract_fact(
        self,
        predicate: str,
        args: Sequence[str],
        *,
        positive: bool | None = ...,
        scope: str | None = ...,
        count: bool = ...,
        request_limits: RequestLimits | None = ...,
    ) -> RetractOutcome:
        """Remove a fact."""

    def bindings(
        self, body: Sequence[BodyItem], variables: Sequence[Variable], options: AnswerOptions
    ) -> list[tuple[str, ...]]:
        """Return the answers of a query of several items."""


def blocks_of(text: str, scope: str | None, yield_now: YieldNow | None = None) -> list[ScriptBlock]:
    """Parse a whole text before any of it is run.

    `yield_now` is called about once a millisecond; by default it is `current_yield`. Raises
    RuleSyntaxError with every error and its position.
    """
    yield_now = current_yield() if yield_now is None else yield_now
    translation = translate(text, yield_now)
    try:
        statements = parse_program(translation.text, labelled=True, yield_now=yield_now)
    except RuleSyntaxError as error:
        raise translation.original(error) from None
    rules = (item for item in statements if isinstance(item, RuleStatement))
    check_statements(paced(rules, yield_now, STATEMENTS_PER_YIELD))
    blocks = [ScriptBlock()]
    for statement in paced(statements, yield_now, STATEMENTS_PER_YIELD):
        block = blocks[-1]
        if isinstance(statement, GoalStatement):
            block.goal, block.command = statement.body, translation.command(statement)
            blocks.append(ScriptBlock())
        elif isinstance(statement, FactStatement):
            fact = fact_of(statement, scope)
            block.facts.append(fact)
            block.clauses.append(fact)
        else:
            rule = (
                rule_of(statement, scope)
                if isinstance(statement, RuleStatement)
                else declaration_of(statement, scope)
            )
            block.rules.append(rule)
            block.clauses.append(rule)
    return blocks if blocks[-1].clauses else blocks[:-1]


def is_mixed(blocks: Sequence[ScriptBlock]) -> bool:
    """Return True if blocks change something and do more than that, so that they need a
    transaction.
    """
    steps = sum(bool(block.clauses) + bool(block.goal) for block in blocks)
    return steps > 1 and any(block.writes for block in blocks)


def run(
    kb: ScriptTarget, blocks: Sequence[ScriptBlock], scope: str | None, budget: Budget
) -> ScriptOutcome:
    """Run blocks in order; `budget` is for all queries together. Raises BudgetExceeded."""
    outcome = ScriptOutcome()
    heads = {
        (rule.head.predicate, rule.head.arity)
        for block in budget.paced(blocks, 100)
        for rule in block.rules
        if isinstance(rule, Rule)
    }
    defined = heads | {
        (fact.predicate, len(fact.args))
        for block in budget.paced(blocks, 100)
        for fact in budget.paced(block.facts)
    }
    for block in budget.paced(blocks, 1):
        _store(kb, block, outcome, defined, budget)
        if block.goal:
            options = AnswerOptions(scope, request_limits=_left(budget, outcome))
            if block.command == RETRACT:
                _retract(kb, block.goal, options, outcome)
            else:
                _answer(kb, block, options, outcome)
    return outcome


def _store(
    kb: ScriptTarget,
    block: ScriptBlock,
    outcome: ScriptOutcome,
    defined: Iterable[Signature],
    budget: Budget,
) -> None:
    stored: Iterator[StoredDefinition] = iter(())
    if block.rules:
        rules = kb.assert_rules(block.rules, block.facts, defined)
        stored = iter(rules.rules)
        outcome.rules += rules.rules
        outcome.warnings += rules.warnings
        outcome.asserted += rules.asserted
    elif block.facts:
        outcome.asserted += kb.assert_facts(block.facts).asserted
    for clause in paced(block.clauses, budget.yield_now, CLAUSES_PER_YIELD):
        if isinstance(clause, Fact):
            text = print_row(clause.predicate, clause.args, not clause.positive)
            outcome.lines.append(f"Fact Asserted: {text}")
        else:
            outcome.lines.append(next(stored).report)


def _left(budget: Budget, outcome: ScriptOutcome) -> RequestLimits:
    """Return what is left of the budget for the next query; raises BudgetExceeded."""
    left_ms = int((budget.deadline - budget.clock.monotonic()) * 1000)
    if left_ms < 1:
        raise BudgetExceeded(
            f"the questions of the text took more than {budget.timeout_ms} ms",
            "timeMs",
            budget.timeout_ms,
        )
    limits = budget.limits
    answers = max(1, budget.max_answers - len(outcome.answers))
    return RequestLimits(left_ms, limits.rows, limits.steps, limits.bytes, answers)


def _retract(
    kb: ScriptTarget, goal: tuple[BodyItem, ...], options: AnswerOptions, outcome: ScriptOutcome
) -> None:
    """Retract the fact of a goal: of both signs, or only the explicit negative if that is named."""
    (item,) = goal
    if not isinstance(item, Literal):
        raise TypeError("RETRACT takes one literal")
    atom = item.atom
    args = [arg for arg in atom.args if isinstance(arg, str)]
    positive = False if item.negated or not atom.positive else None
    done = kb.retract_fact(
        atom.predicate,
        args,
        positive=positive,
        scope=options.scope,
        count=False,  # the outcome of a script has only the number of retracted facts
        request_limits=options.request_limits,
    )
    outcome.retracted += done.retracted
    text = print_row(atom.predicate, args, positive is False)
    outcome.lines.append(f"{'Retracted' if done.retracted else 'Nothing to retract'}: {text}")


def _rows(kb: ScriptTarget, command: str, literal: Literal, options: AnswerOptions) -> list[Row]:
    if command == INFER:
        return kb.infer(literal, options)
    atom = literal.atom
    return kb.query_rows(
        atom.predicate,
        terms_of(atom),
        positive=None if atom.positive else False,
        scope=options.scope,
        request_limits=options.request_limits,
    )


def _answer(
    kb: ScriptTarget, block: ScriptBlock, options: AnswerOptions, outcome: ScriptOutcome
) -> None:
    goal = block.goal
    number, goal_text = len(outcome.questions), ", ".join(map(print_item, goal))
    outcome.lines.append(f"{'?-' if block.command == INFER else block.command} {goal_text}.")
    answers_before = len(outcome.answers)
    if len(goal) == 1 and isinstance(goal[0], Literal):
        args = goal[0].atom.args
        for row in _rows(kb, block.command, goal[0], options):
            bindings = {
                f"?{arg.name}": value
                for arg, value in zip(args, row["args"], strict=True)
                if isinstance(arg, Variable) and not arg.anonymous
            }
            outcome.answers.append({"question": number, "bindings": bindings, **row})
            outcome.lines.append("   " + print_row(row["predicate"], row["args"], row["negated"]))
    else:
        variables = body_variables(goal)
        for values in kb.bindings(goal, variables, options):
            bindings = {f"?{v.name}": value for v, value in zip(variables, values, strict=True)}
            outcome.answers.append({"question": number, "bindings": bindings})
            text = ", ".join(f"{name} = {value}" for name, value in bindings.items())
            outcome.lines.append("   " + (text or "yes"))
    if len(outcome.answers) == answers_before:
        outcome.lines.append("   no")
        atoms = [item.atom for item in goal if isinstance(item, Literal)]
        unknown = kb.unknown_predicates(
            [(atom.predicate, atom.arity) for atom in atoms], options.scope
        )
        outcome.unknown += [item for item in unknown if item not in outcome.unknown]
    outcome.questions.append(Question(goal_text, len(outcome.answers) - answers_before))
