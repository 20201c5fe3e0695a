"""Examples in the docstrings of the passes: running a pass on the first program gives the second.

An example is two indented blocks after `Before:` and `After:`. The first has rules and a goal.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import pytest

import kbplanner.passes
from kbplanner.compile.explain import show
from kbplanner.compile.rules import RuleSet
from kbplanner.evaluate.evaluate import adornment_of
from kbplanner.ir.program import Clause, Program
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes import PASSES, PassContext
from kbplanner.passes.adorn import bound_args
from kbplanner.passes.differentiate import differentiate
from kbplanner.passes.instances import instances
from kbplanner.passes.linearise import linearise
from kbplanner.passes.lower import lower
from kbplanner.passes.order import NoStatistics, order_items
from kbplanner.passes.parts import split
from kbplanner.passes.stratify import strata
from kbplanner.passes.wellfounded import negative_components, without_negative_components
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import GoalStatement, RuleStatement

EXAMPLE = re.compile(r"^Before:\n\n((?:    .*\n|\n)+)^After:\n\n((?:    .*\n?|\n)+)", re.MULTILINE)
WITHOUT_EXAMPLE = {"check"}
"""A module that changes no program."""


class Source:
    """The rules and the goal of an example."""

    def __init__(self, text: str) -> None:
        statements = parse_program(text)
        self.rules = [s.rule for s in statements if isinstance(s, RuleStatement)]
        (goal,) = (s.literal.atom for s in statements if isinstance(s, GoalStatement))
        self.goal = RelationSchema(goal.predicate, goal.arity, goal.positive).derived
        self.adornment = adornment_of(goal.args)

    def program(self, clauses: tuple[Clause, ...]) -> Program:
        return Program(clauses, self.goal)

    def after(self, last: str) -> Program:
        """Run the passes up to and including the one named `last`."""
        program = self.program(RuleSet(self.rules).clauses(frozenset()))
        context = PassContext(self.adornment, NoStatistics())
        for name, run in PASSES:
            program = run(program, context)
            if name == last:
                break
        return program


def lowered(source: Source) -> str:
    return show(source.program(lower(source.rules)))


def linear(source: Source) -> str:
    return show(source.program(linearise(lower(source.rules))))


def without_recursion_through_negation(source: Source) -> str:
    clauses = linearise(lower(source.rules))
    parts = negative_components(clauses)
    undefined = {schema for part in parts for schema in part.relations}
    return show(source.program(without_negative_components(clauses, parts, undefined)))


def ordered(source: Source) -> str:
    program = source.after("slice")
    clauses = []
    for clause in program.clauses:
        head = replace(clause.head, schema=clause.head.schema.adorned(source.adornment))
        body = order_items(clause.body, bound_args(head), NoStatistics())
        clauses.append(replace(clause, body=tuple(body)))
    return show(replace(program, clauses=tuple(clauses)))


def levels(source: Source) -> str:
    program = source.after("slice")
    clauses: list[Clause] = []
    for level in split(program.clauses[0], map(str, count()), lambda atom: True):
        clauses += [level.clause, *level.guards]
    return show(replace(program, clauses=tuple(clauses)))


def with_instances(source: Source) -> str:
    return show(instances(source.after("magic")).program)


def with_first_instances(source: Source) -> str:
    return show(instances(source.after("magic"), first=True).program)


def ordered_strata(source: Source) -> str:
    lines = []
    for number, part in enumerate(strata(source.after("magic")), 1):
        names = ", ".join(sorted(map(str, part.relations)))
        lines.append(f"stratum {number}{' (recursive)' if part.recursive else ''}: {names}")
    return "\n".join(lines)


def differentiated(source: Source) -> str:
    lines = []
    for number, part in enumerate(differentiate(source.after("slice")) or (), 1):
        for kind in ("fallen", "onward", "closure", "new"):
            if clauses := getattr(part, kind):
                lines += [f"component {number}, {kind}:", show(source.program(clauses))]
    return "\n".join(lines)


RUN: dict[str, Callable[[Source], str]] = {
    "lower": lowered,
    "aggregate": lowered,
    "linearise": linear,
    "wellfounded": without_recursion_through_negation,
    "order": ordered,
    "parts": levels,
    "instances": with_instances,
    "first": with_first_instances,
    "stratify": ordered_strata,
    "differentiate": differentiated,
}


def examples() -> Iterator[tuple[str, str, str]]:
    for module in pkgutil.iter_modules(kbplanner.passes.__path__):
        if module.name not in WITHOUT_EXAMPLE:
            page = inspect.getdoc(importlib.import_module(f"kbplanner.passes.{module.name}"))
            example = EXAMPLE.search((page or "") + "\n")
            assert example, f"the docstring of the pass {module.name} has no example"
            before, after = (inspect.cleandoc("\n" + block) for block in example.groups())
            yield module.name, before, after


@pytest.mark.parametrize(("name", "before", "after"), list(examples()), ids=lambda text: text[:12])
def test_the_example_of_a_pass_is_what_the_pass_does(name: str, before: str, after: str) -> None:
    source = Source(before)
    run = RUN.get(name, lambda source: show(source.after(name)))
    assert run(source) == after
