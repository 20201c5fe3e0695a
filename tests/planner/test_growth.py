"""The steps of the compiler grow with the size of a program, for programs of every shape."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from support.runtimes import runtime

from kbcore.branching.preview import Proposal
from kbplanner.check.texts import check_texts
from kbplanner.compile.build import build
from kbplanner.compile.rules import RuleSet
from kbplanner.ir.schema import RelationSchema
from kbplanner.ir.terms import Atom, Rule, Variable
from kbplanner.passes import rewrite
from kbplanner.passes.order import NoStatistics
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import RuleStatement

MAX_GROWTH = 2.6
"""Growth of the steps of a program of twice the size; 2 * log(2n) / log(n) is 2.3 for 100 rules."""


def names(count: int) -> list[str]:
    return [f"?x{i}" for i in range(count)]


def chain(n: int) -> str:
    return "".join(f"p{i + 1}(?x) :- p{i}(?x), q(?x, _).\n" for i in reversed(range(n)))


def one_head(n: int) -> str:
    """Rules of one predicate, each recursive."""
    rules = "".join(f"p(?x, ?y) :- e{i}(?x, ?z), p(?z, ?y), f(?z).\n" for i in range(n))
    return f"{rules}p{n}(?x) :- p(?x, ?y).\n"


def closure(n: int) -> str:
    """Rules of one predicate, each base with its recursive step."""
    rules = "".join(
        f"p(?x, ?y) :- e{i}(?x, ?y).\np(?x, ?z) :- e{i}(?x, ?y), p(?y, ?z).\n" for i in range(n)
    )
    return f"{rules}p{n}(?y) :- p(a, ?y).\n"


def recursions(n: int) -> str:
    """Predicates that recurse by joins of three atoms, each of them."""
    return "".join(
        f"g{i}(?x, ?y) :- u{i}(?x, ?a), g{i}(?a, ?b), d{i}(?b, ?y).\n"
        f"g{i}(?x, ?y) :- f{i}(?x, ?y).\np{i + 1}(?x) :- p{i}(?x), g{i}(?x, ?y).\n"
        for i in range(n)
    )


def equivalences(n: int) -> str:
    return "".join(
        f"s{i}(?x, ?y) :- a{i}(?x, ?y).\ns{i}(?x, ?y) :- s{i}(?y, ?x).\n"
        f"s{i}(?x, ?z) :- s{i}(?x, ?y), s{i}(?y, ?z).\np{i + 1}(?x) :- p{i}(?x), s{i}(?x, ?y).\n"
        for i in range(n)
    )


def aggregates(n: int) -> str:
    return "".join(f"p{i + 1}(?c, sum(?v)) :- p{i}(?c, ?v), q(?c).\n" for i in range(n))


def extrema(n: int) -> str:
    rules = "".join(
        f"d(?y, min ?d) :- d(?x, ?e), e{i}(?x, ?y, ?w), ?d = ?e + ?w, ?w > 0.\n" for i in range(n)
    )
    return f"d(?x, min ?d) :- start(?x), ?d = 0.\n{rules}p{n}(?x) :- d(?x, ?d).\n"


def games(n: int) -> str:
    """Recursions through negation, each above the next."""
    rules = "".join(f"w{i}(?x) :- m{i}(?x, ?y), not w{i}(?y), w{i + 1}(?x).\n" for i in range(n))
    return f"{rules}p{n}(?x) :- w0(?x).\n"


SHAPES = (chain, one_head, closure, recursions, equivalences, aggregates, extrema, games)


class Steps:
    """Counts the calls of functions in a block."""

    def __enter__(self) -> Steps:
        self.count = 0
        self._before = sys.getprofile()
        sys.setprofile(self._called)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)

    def _called(self, frame: FrameType, event: str, argument: Any) -> None:
        self.count += event in ("call", "c_call")


def rules_of(text: str) -> list[Rule]:
    return [each.rule for each in parse_program(text) if isinstance(each, RuleStatement)]


def planned(text: str, name: str, marks: str) -> int:
    """Return the number of clauses that a goal on a predicate is compiled to."""
    rules = RuleSet(rules_of(text))
    schema = rules.conclusions(RelationSchema(name, len(marks)))
    program = rewrite(rules.clauses(frozenset()), schema, marks)
    build(program, NoStatistics())
    return len(program.clauses)


def grows(work: Callable[[int], None], n: int) -> float:
    work(4)  # makes what is made once
    counts = []
    for size in (n, 2 * n):
        with Steps() as steps:
            work(size)
        counts.append(steps.count)
    return counts[1] / counts[0]


@pytest.mark.parametrize("shape", SHAPES)
def test_checks_grow_with_the_text(shape: Callable[[int], str]) -> None:
    assert grows(lambda n: void(check_texts([shape(n)])), 50) < MAX_GROWTH


@pytest.mark.parametrize("shape", SHAPES)
def test_previews_and_writes_grow_with_the_rules(shape: Callable[[int], str]) -> None:
    def previewed(n: int) -> None:
        node = runtime()
        try:
            kb = node.knowledge_base()
            kb.preview(Proposal(rules=tuple(rules_of(shape(n)))))
            kb.assert_rules(rules_of(shape(n)))
        finally:
            node.close()

    assert grows(previewed, 50) < MAX_GROWTH


@pytest.mark.parametrize("shape", SHAPES)
def test_goals_grow_with_the_rules(shape: Callable[[int], str]) -> None:
    def asked(n: int) -> None:
        node = runtime()
        try:
            kb = node.knowledge_base()
            kb.assert_rules(rules_of(shape(n)))
            kb.tuples(Atom(f"p{n}", (Variable("x"),) * (2 if shape is aggregates else 1)))
        finally:
            node.close()

    assert grows(asked, 50) < MAX_GROWTH


def test_a_predicate_is_asked_in_few_ways() -> None:
    """Each rule frees another argument, so that there are 2**20 ways."""
    args = names(20)
    rules = "".join(
        f"p({', '.join(args)}) :- d(?x{i}), p({', '.join([*args[:i], '_', *args[i + 1 :]])}).\n"
        for i in range(20)
    )
    assert planned(rules, "p", "b" * 20) < 1000


def test_a_predicate_has_few_versions() -> None:
    """Each rule makes two more arguments equal or not: 2**19 versions of the last predicate."""
    args = names(20)
    rules = "".join(
        f"v{i}({', '.join(args)}) :- v{i + 1}({', '.join(args)}).\n"
        f"v{i}({', '.join(args)}) :- e(?x{i + 1}), "
        f"v{i + 1}({', '.join([*args[: i + 1], args[i], *args[i + 2 :]])}).\n"
        for i in range(19)
    )
    rules += f"v19({', '.join(args)}) :- b({', '.join(args)}).\n"
    assert planned(rules, "v0", "f" * 20) < 3000


def test_a_chain_of_calls_that_nothing_binds_has_no_depth() -> None:
    """The search for the call to blame goes through 3,000 rules."""
    text = "".join(f"p{i + 1}(?x) :- p{i}(?x).\n" for i in range(3000))
    text += "p0(?x) :- matches_text(?x, ?f, ?s).\n?- p3000(?y).\n"
    (findings,) = check_texts([text])
    assert "unbound-argument" in {each.name for each in findings}


def void(value: object) -> None:
    """Drop a value."""
