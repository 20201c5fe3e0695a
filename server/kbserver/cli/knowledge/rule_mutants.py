"""Mutants of rule files: one change of one rule each, which the tests should notice.

Mutation testing: DeMillo, Lipton and Sayward, "Hints on test data selection" (1978).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kbcore.errors import KBError
from kbplanner.ir.terms import Comparison, Rule
from kbplanner.passes.check import check_rule
from kbplanner.syntax.printer import print_item, print_rule
from kbplanner.syntax.statements import TextSpan
from kbserver.cli.knowledge.rule_tests import RuleCoverage, TestRun

FLIPPED = {
    "<": "<=",
    "<=": "<",
    ">": ">=",
    ">=": ">",
    "=": "!=",
    "!=": "=",
    "==": "!==",
    "!==": "==",
}
"""The comparison in place of another one."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A changed rule: its file, the place of the change, and what the change is, in words.

    Without `rule` the rule is left out.
    """

    file: str
    span: TextSpan
    change: str
    rule: Rule | None


def mutants(entry: RuleCoverage) -> Iterator[Mutant]:
    """Yield the mutants of a rule that are rules of the language: without it, without one item of
    its body, with another comparison.
    """
    rule = entry.rule
    yield Mutant(entry.file, entry.span, "without this rule", None)
    for index, (item, span) in enumerate(zip(rule.body, entry.items, strict=True)):
        text = print_item(item)
        if len(rule.body) > 1:
            body = (*rule.body[:index], *rule.body[index + 1 :])
            yield from _valid(entry, span, f"without {text}", replace(rule, body=body))
        if isinstance(item, Comparison) and item.op in FLIPPED:
            flipped = replace(item, op=FLIPPED[item.op])
            body = (*rule.body[:index], flipped, *rule.body[index + 1 :])
            change = f"with {print_item(flipped)} in place of {text}"
            yield from _valid(entry, span, change, replace(rule, body=body))


def _valid(entry: RuleCoverage, span: TextSpan, change: str, rule: Rule) -> Iterator[Mutant]:
    try:
        check_rule(rule)
    except KBError:
        return
    yield Mutant(entry.file, span, change, rule)


def mutation_results(run: TestRun, filter_text: str | None) -> Iterator[tuple[Mutant, bool]]:
    """Yield the mutants of all rules, each with whether a test fails with it.

    Mutants that are refused together with the other rules are left out.
    """
    for entry in run.coverage:
        for mutant in mutants(entry):
            text = "" if mutant.rule is None else print_rule(mutant.rule)
            fails = run.with_rule(entry, text).fails(entry.rule.head, filter_text)
            if fails is not None:
                yield mutant, fails
