"""A predicate of a plugin that reads a table has the answers of the same table stored as facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.proofs import Checker
from support.runtimes import BASE, engine_of_nodes

from kbcore import hookimpl
from kbcore.errors import ExternalRecursion, InvalidInput, UnboundArgument
from kbcore.node.opening import open_runtime
from kbcore.node.runtime import Runtime
from kbcore.operations.tenant_kb import TenantKB
from kbcore.plug.ports import Predicate
from kbcore.proofs.shapes import ProofOptions
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Literal, Rule

from .test_proofs import small, written_rules

NUMBER = count()
IN, OUT = "in", "out"
MODES = {
    "first": ((IN, OUT),),
    "second": ((OUT, IN),),
    "either": ((IN, OUT), (OUT, IN)),
    "both": ((IN, IN),),
    "mixed": ((IN, IN), (OUT, IN)),
    "any": ((OUT, OUT),),
    "one": ((IN,),),
}
"""The external predicates: names, which are also their modes."""

OF_TWO = [name for name, modes in MODES.items() if len(modes[0]) == 2]
names = st.one_of(
    st.sampled_from(OF_TWO).map(lambda name: {"e": name}),
    st.sampled_from(OF_TWO).map(lambda name: {"f": name, "n": "one"}),
    st.permutations(OF_TWO).map(lambda names: {"e": names[0], "f": names[1]}),
)
"""Which stored predicates of the programs become external ones."""


class Tables:
    """The predicates of MODES, each over a table of the tenant that asks."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], list[tuple[str, ...]]] = {}

    def predicate(self, name: str) -> Predicate:
        def rows(call):
            places = [index for index, use in enumerate(call.mode) if use == IN]
            asked = list(call.inputs())
            assert len(asked) == len(set(asked)) == call.count > 0
            for row in self.rows.get((call.tenant, name), ()):
                if tuple(row[index] for index in places) in asked:
                    yield row

        return Predicate(name, len(MODES[name][0]), MODES[name], rows)

    @hookimpl
    def kb_predicates(self):
        predicates = map(self.predicate, MODES)
        return {f"{each.name}/{each.arity}": each for each in predicates}


@pytest.fixture(scope="module", params=["python", "c"])
def world(request: pytest.FixtureRequest) -> Iterator[tuple[Runtime, Tables]]:
    tables = Tables()
    config = replace(BASE, storage_backend="memory")
    with engine_of_nodes(request.param), open_runtime(config, plugins=[tables]) as runtime:
        yield runtime, tables


def renamed(atom: Atom, chosen: dict[str, str]) -> Atom:
    return replace(atom, predicate=chosen.get(atom.predicate, atom.predicate))


def with_names(rule: Rule, chosen: dict[str, str]) -> Rule:
    body = [
        replace(item, atom=renamed(item.atom, chosen)) if isinstance(item, Literal) else item
        for item in rule.body
    ]
    return replace(rule, body=tuple(body))


def told(kb: TenantKB, rules: list[Rule], facts: list[Atom]) -> None:
    kb.assert_rules(rules)
    kb.assert_facts([Fact(fact.predicate, fact.args, fact.positive) for fact in facts])


@examples(400)
@given(
    written_rules,
    st.lists(programs.facts(), max_size=14),
    st.lists(programs.goals(), min_size=1, max_size=4),
    names,
    st.sets(st.integers(0, 13), max_size=4),
)
def test_a_table_of_a_plugin_has_the_answers_of_stored_facts(
    world, rules, facts, goals, chosen, removed
):
    runtime, tables = world
    plain = runtime.knowledge_base(tenant=f"plain{next(NUMBER)}")
    external = runtime.knowledge_base(tenant=f"external{next(NUMBER)}")
    assume(naive.stratified(rules))
    assume(small(rules, facts))
    used = {item.atom.predicate for r in rules for item in r.body if isinstance(item, Literal)}
    assume(used & set(chosen))
    try:
        told(plain, rules, facts)
    except InvalidInput:
        assume(False)
    kept = [fact for fact in facts if fact.predicate not in chosen or not fact.positive]
    try:
        told(external, [with_names(r, chosen) for r in rules], [renamed(f, chosen) for f in kept])
    except (UnboundArgument, ExternalRecursion) as error:
        event(f"refused when stored: {type(error).__name__}")
        return
    goals = [*goals, *(Atom(name, ("a",) * arity) for name, arity in programs.BASE[:3])]
    for later in (False, True):
        if later:
            gone = {fact for index, fact in enumerate(facts) if index in removed}
            for fact in gone:
                for kb, atom in ((plain, fact), (external, renamed(fact, chosen))):
                    kb.retract_fact(atom.predicate, atom.args, positive=atom.positive)
            facts = [fact for fact in facts if fact not in gone]
        for name, table in chosen.items():
            tables.rows[external.tenant, table] = [
                fact.args for fact in facts if fact.predicate == name and fact.positive
            ]
        for goal in goals:
            compare(plain, external, goal, renamed(goal, chosen), rules, facts, chosen)


def compare(plain, external, goal, own_goal, rules, facts, chosen) -> None:
    try:
        found = external.tuples(own_goal)
    except (UnboundArgument, ExternalRecursion) as error:
        event(f"refused when asked: {type(error).__name__}")
        return
    event("answered")
    assert found == plain.tuples(goal)
    checker = Checker(
        [with_names(rule, chosen) for rule in rules],
        [renamed(fact, chosen) for fact in facts],
        chosen.values(),
    )
    proofs = external.prove(Literal(own_goal), proof=ProofOptions("dag", nodes=10_000))
    assert len(proofs) == len(found)
    for proof in proofs:
        checker.dag(proof, 10_000)
    for proof in external.prove(Literal(own_goal), proof=ProofOptions(nodes=200)):
        checker.tree(proof, 200, 100)
