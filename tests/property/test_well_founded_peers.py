"""Comparison with SWI-Prolog's tabling on recursion through negation and clingo on stratified
programs.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples

from kbplanner.compile.rules import RuleSet
from kbplanner.engine.engine import Engine
from kbplanner.ir.terms import Atom, Literal, Rule, Variable
from kbplanner.syntax.parser import parse_rule

SWIPL = shutil.which("swipl")
WIN = parse_rule("win(?x) :- move(?x, ?y), not win(?y).")

swi = pytest.mark.skipif(SWIPL is None, reason="swipl is not installed")
few = examples(15)


def term(arg) -> str:
    if isinstance(arg, Variable):
        return "_" if arg.anonymous else arg.name.upper()
    return f"'{arg}'"


def atom(one: Atom) -> str:
    return (
        f"{one.predicate}({', '.join(term(arg) for arg in one.args)})"
        if one.args
        else one.predicate
    )


def prolog(rules: list[Rule], facts: list[Atom], goals: list[Atom]) -> str:
    """The rules tabled, `not` as tnot; predicates that have both rules and facts get a table of
    their own.
    """
    derived = {(rule.head.predicate, rule.head.arity) for rule in rules}
    read = derived | {
        (i.atom.predicate, i.atom.arity)
        for rule in rules
        for i in rule.body
        if isinstance(i, Literal)
    }
    read |= {(one.predicate, one.arity) for one in (*facts, *goals)}
    lines = [
        f":- table {name}/{arity}. :- dynamic fact_{name}/{arity}. :- discontiguous {name}/{arity}."
        for name, arity in sorted(read)
    ]
    for name, arity in sorted(read):
        args = tuple(Variable(f"v{i}") for i in range(arity))
        lines.append(f"{atom(Atom(name, args))} :- {atom(Atom('fact_' + name, args))}.")
    lines += [f"{atom(Atom('fact_' + fact.predicate, fact.args))}." for fact in facts]
    for rule in rules:
        body = [
            f"tnot({atom(item.atom)})" if item.negated else atom(item.atom) for item in rule.body
        ]
        lines.append(f"{atom(rule.head)} :- {', '.join(body)}.")
    return "\n".join(lines)


def decided(
    folder: Path, rules: list[Rule], facts: list[Atom], goals: list[Atom]
) -> dict[Atom, str]:
    """What SWI-Prolog says of ground goals: `true`, `false`, or `undefined`."""
    asked = "\n".join(f"ask :- say({atom(goal)})." for goal in goals)
    (folder / "program.pl").write_text(
        f"""{prolog(rules, facts, goals)}
say(G) :- ( call_delays(G, D) -> ( D == true -> writeln(true) ; writeln(undefined) ) ; writeln(false) ), fail.
{asked}
:- initialization((forall(ask, true), halt)).
""",
        encoding="utf-8",
    )
    done = subprocess.run(
        [SWIPL, "program.pl"], cwd=folder, capture_output=True, text=True, timeout=60, check=True
    )
    return dict(zip(goals, done.stdout.split(), strict=True))


def ours(rules: list[Rule], facts: list[Atom], goals: list[Atom]) -> dict[Atom, str]:
    world = programs.World(Engine(), RuleSet(rules))
    world.tell(facts)
    return {
        g: "true" if world.ask(g) else "undefined" if world.ask(g, possible=True) else "false"
        for g in goals
    }


def assert_alike(folder: Path, rules: list[Rule], facts: list[Atom], goals: list[Atom]) -> None:
    """It may leave more undefined than there is: it does not simplify every delayed answer. What it
    decides must agree.
    """
    found = ours(rules, facts, goals)
    for goal, truth in decided(folder, rules, facts, goals).items():
        assert found[goal] == truth or truth == "undefined", (goal, found[goal], truth)


@swi
@few
@given(st.sets(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=24))
def test_both_systems_decide_games_alike(tmp_path_factory, moves):
    facts = [Atom("move", (f"n{a}", f"n{b}")) for a, b in sorted(moves)]
    assert_alike(
        tmp_path_factory.mktemp("game"), [WIN], facts, [Atom("win", (f"n{i}",)) for i in range(12)]
    )


@swi
def test_games_without_cycles_are_decided_and_alike(tmp_path):
    moves = [(i, j) for i in range(200) for j in (i + 1, 2 * i + 3, 3 * i + 7) if j < 200]
    facts = [Atom("move", (f"n{a}", f"n{b}")) for a, b in moves]
    goals = [Atom("win", (f"n{i}",)) for i in range(200)]
    assert ours([WIN], facts, goals) == decided(tmp_path, [WIN], facts, goals)


def plain(rules: list[Rule]) -> bool:
    """Rules that other systems read as we do: no comparisons, no aggregates, no anonymous variables
    under `not`.
    """
    literals = [item for rule in rules for item in rule.body]
    open_not = any(
        isinstance(i, Literal) and i.negated and any(v.anonymous for v in i.variables())
        for i in literals
    )
    return (
        not open_not
        and all(isinstance(i, Literal) for i in literals)
        and not any(map(naive.aggregates, rules))
    )


def ordered(rule: Rule) -> Rule:
    return Rule(rule.head, tuple(sorted(rule.body, key=lambda item: item.negated)))


random_rules = st.lists(programs.rules(signs=False).map(ordered), min_size=1, max_size=5).filter(
    plain
)
ground_goals = programs.goals().filter(lambda goal: goal.positive and goal.ground)
random_facts = st.lists(programs.facts(signs=False), max_size=12, unique=True)


@swi
@few
@given(random_rules, random_facts, st.lists(ground_goals, min_size=1, max_size=8, unique=True))
def test_random_programs_are_decided_alike(tmp_path_factory, rules, facts, goals):
    assert_alike(tmp_path_factory.mktemp("random"), rules, facts, goals)


@examples(200)
@given(random_rules, random_facts)
def test_stratified_programs_have_the_answer_set_of_clingo(rules, facts):
    clingo = pytest.importorskip("clingo", reason="clingo is not installed")
    assume(naive.stratified(rules))

    def asp(one: Atom) -> str:
        args = (term(arg) if isinstance(arg, Variable) else f'"{arg}"' for arg in one.args)
        return f"{one.predicate}({', '.join(args)})" if one.args else one.predicate

    lines = [f"{asp(fact)}." for fact in facts]
    for rule in rules:
        body = ", ".join(("not " if item.negated else "") + asp(item.atom) for item in rule.body)
        lines.append(f"{asp(rule.head)} :- {body}.")
    control = clingo.Control(["--warn=none"])
    control.add("base", [], "\n".join(lines))
    control.ground([("base", [])])
    shown: dict[tuple[str, int], set[tuple[str, ...]]] = {}
    with control.solve(yield_=True) as handle:
        (model,) = handle
        for symbol in model.symbols(atoms=True):
            row = tuple(argument.string for argument in symbol.arguments)
            shown.setdefault((symbol.name, len(row)), set()).add(row)
    world = programs.World(Engine(), RuleSet(rules))
    world.tell(facts)
    for name, arity in {(rule.head.predicate, rule.head.arity) for rule in rules}:
        goal = Atom(name, tuple(Variable(f"g{i}") for i in range(arity)))
        assert world.ask(goal) == shown.get((name, arity), set())
