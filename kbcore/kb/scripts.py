"""Scripts: texts in the rule language whose clauses are stored and queries answered, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from kbcore.errors import BudgetExceeded
from kbcore.language.files import fact_of, rule_of
from kbcore.reason.budget import Budget, BudgetWanted
from kbcore.reason.options import AnswerOptions
from kbcore.reason.unknown import UnknownPredicate
from kbcore.state.facts import AssertOutcome, Fact, Row
from kbcore.state.rulebook import StoredRule
from kbplanner.ir.terms import BodyItem, Literal, Rule, Variable
from kbplanner.passes.check import check_statements
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.printer import print_item, print_row
from kbplanner.syntax.statements import FactStatement, GoalStatement, RuleStatement

TRIES = 3
"""Maximum number of attempts at a script when other writers change what its queries read."""

Signature = tuple[str, int]
"""A predicate by name and arity."""


@dataclass(frozen=True, slots=True)
class Question:
    """Query of a script, and the number of its answers."""

    goal: str
    answers: int


@dataclass(slots=True)
class Executed:
    """Result of a script; `text` formats the result, `timestamp` is in epoch milliseconds.

    An element of `answers` has `question` (the index of its query, from 0) and `bindings`
    (variables with their values). If the query is a single atom, the element also has the keys of a
    row. `unknown` are predicates of queries without answers that had no fact and no rule when the
    query ran.
    """

    lines: list[str] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    rules: list[StoredRule] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    unknown: list[UnknownPredicate] = field(default_factory=list)
    asserted: int = 0
    timestamp: int = 0

    @property
    def text(self) -> str:
        """Return the result as text, line by line."""
        return "\n".join(self.lines)


@dataclass(slots=True)
class Block:
    """Consecutive clauses, and the query that follows them, if any."""

    rules: list[Rule] = field(default_factory=list)
    facts: list[Fact] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    goal: tuple[BodyItem, ...] = ()


class Rules(Protocol):
    """Result of storing rules."""

    @property
    def rules(self) -> tuple[StoredRule, ...]:
        """The rules as stored."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the author of the rules."""

    @property
    def asserted(self) -> int:
        """The number of new facts."""


class Doing(Protocol):
    """The part of a knowledge base that running a script needs."""

    def assert_facts(self, facts: Sequence[Fact]) -> AssertOutcome:
        """Store facts."""

    def assert_rules(
        self, rules: Sequence[Rule], facts: Sequence[Fact] = (), defined: Iterable[Signature] = ()
    ) -> Rules:
        """Store rules, and facts with them; `defined` are predicates of later clauses."""

    def unknown_predicates(
        self, asked: Iterable[tuple[str, int | None]], scope: str | None = None
    ) -> list[UnknownPredicate]:
        """Return the predicates without facts and rules."""

    def infer(self, literal: Literal, options: AnswerOptions) -> list[Row]:
        """Return the answers of a goal."""

    def bindings(
        self, body: Sequence[BodyItem], variables: Sequence[Variable], options: AnswerOptions
    ) -> list[tuple[str, ...]]:
        """Return the answers of a query of several items."""


def blocks_of(text: str, scope: str | None) -> list[Block]:
    """Parse a whole text before any of it is run.

    Raises RuleSyntaxError with every error and its position.
    """
    statements = parse_program(text)
    check_statements([one for one in statements if isinstance(one, RuleStatement)])
    found = [Block()]
    for one in statements:
        block = found[-1]
        if isinstance(one, GoalStatement):
            block.goal = one.body
            found.append(Block())
        elif isinstance(one, FactStatement):
            fact = fact_of(one, scope)
            block.facts.append(fact)
            block.told.append(
                f"Fact Asserted: {print_row(fact.predicate, fact.args, not fact.positive)}"
            )
        else:
            block.rules.append(rule_of(one, scope))
            block.told.append("")
    return found if found[-1].told else found[:-1]


def run(
    kb: Doing,
    blocks: Sequence[Block],
    together: AbstractContextManager[Doing] | None,
    scope: str | None,
    budget: Budget,
) -> Executed:
    """Run blocks, inside `together` if given; `budget` is for all queries. Raises BudgetExceeded."""
    if together is None:
        return _run(kb, blocks, scope, budget)
    with together as inside:
        return _run(inside, blocks, scope, budget)


def _run(kb: Doing, blocks: Sequence[Block], scope: str | None, budget: Budget) -> Executed:
    done = Executed()
    heads = {(rule.head.predicate, rule.head.arity) for block in blocks for rule in block.rules}
    defined = heads | {(fact.predicate, len(fact.args)) for block in blocks for fact in block.facts}
    for block in blocks:
        _tell(kb, block, done, defined)
        if block.goal:
            _ask(kb, block.goal, scope, budget, done)
    return done


def _tell(kb: Doing, block: Block, done: Executed, defined: Iterable[Signature]) -> None:
    stored: Iterator[StoredRule] = iter(())
    if block.rules:
        taught = kb.assert_rules(block.rules, block.facts, defined)
        stored = iter(taught.rules)
        done.rules += taught.rules
        done.warnings += taught.warnings
        done.asserted += taught.asserted
    elif block.facts:
        done.asserted += kb.assert_facts(block.facts).asserted
    done.lines += [line or f"Rule Asserted: {next(stored).text}" for line in block.told]


def _ask(
    kb: Doing, goal: tuple[BodyItem, ...], scope: str | None, budget: Budget, done: Executed
) -> None:
    left = int((budget.deadline - budget.clock.monotonic()) * 1000)
    if left < 1:
        raise BudgetExceeded(
            f"the questions of the text took more than {budget.timeout_ms} ms",
            "timeMs",
            budget.timeout_ms,
        )
    wanted = BudgetWanted(
        left,
        budget.limits.rows,
        budget.limits.steps,
        budget.limits.bytes,
        max(1, budget.max_answers - len(done.answers)),
    )
    options = AnswerOptions(scope, wanted=wanted)
    number, shown = len(done.questions), ", ".join(map(print_item, goal))
    done.lines.append(f"?- {shown}.")
    before = len(done.answers)
    if len(goal) == 1 and isinstance(goal[0], Literal):
        args = goal[0].atom.args
        for row in kb.infer(goal[0], options):
            bound = {
                f"?{arg.name}": text
                for arg, text in zip(args, row["args"], strict=True)
                if isinstance(arg, Variable) and not arg.anonymous
            }
            done.answers.append({"question": number, "bindings": bound, **row})
            done.lines.append("   " + print_row(row["predicate"], row["args"], row["negated"]))
    else:
        variables = list(
            dict.fromkeys(v for item in goal for v in item.variables() if not v.anonymous)
        )
        for values in kb.bindings(goal, variables, options):
            bound = {
                f"?{variable.name}": value
                for variable, value in zip(variables, values, strict=True)
            }
            done.answers.append({"question": number, "bindings": bound})
            done.lines.append(
                "   " + (", ".join(f"{name} = {value}" for name, value in bound.items()) or "yes")
            )
    if len(done.answers) == before:
        done.lines.append("   no")
        atoms = [item.atom for item in goal if isinstance(item, Literal)]
        unknown = kb.unknown_predicates([(atom.predicate, atom.arity) for atom in atoms], scope)
        done.unknown += [each for each in unknown if each not in done.unknown]
    done.questions.append(Question(shown, len(done.answers) - before))


__all__ = ["TRIES", "Block", "Executed", "Question", "blocks_of", "run"]
