"""A tenant with a past answers like a fresh one in the same state: caches, plans and kept tables
are invisible.

Every program lives through a random history of writes and questions. Then the facts and rules that
are left are given to a fresh tenant, in another order, and both are asked the same questions.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from support import naive, programs
from support.examples import examples
from support.runtimes import runtime

from kbcore.context.request import WindowRequest
from kbcore.embed import EmbeddedKB
from kbcore.node.runtime import Runtime
from kbcore.reason.options import AnswerOptions
from kbcore.state.facts import Fact
from kbcore.state.rulebook import stored_rule
from kbplanner.errors import RecursiveAggregate
from kbplanner.ir.terms import Atom, Literal, Rule, Variable
from kbplanner.syntax.parser import parse_goal, parse_rule

SCOPE = "s"
PLACES = [None, SCOPE]
X, Y, Z = Variable("x"), Variable("y"), Variable("z")

FORMS = [
    parse_rule(text)
    for text in (
        "r(?x) :- n(?x), not ~m(?x).",
        "r(?x) :- n(?x), not m(?x).",
        "~r(?x) :- m(?x), not ~r(?x).",
        "p(?x, ?y) :- e(?x, ?y), not ~p(?y, ?x).",
        "~p(?x, ?y) :- f(?x, ?y), not m(?x).",
        "p(?x, ?z) :- p(?x, ?y), e(?y, ?z), not ~f(?x, ?z).",
        "q(?x, ?y) :- e(?x, ?y), not q(?y, ?x), not ~m(?x).",
        "q(?x, count(?y)) :- f(?x, ?y), not m(?y).",
        "q(?x, sum(?y)) :- f(?x, ?y), not ~n(?y).",
        "~m(?x) :- n(?x), not e(?x, _).",
        "m(?x) :- r(?x), not ~m(?x), n(?x).",
        "on :- not m(_).",
        "on :- n(?x), not ~r(?x), e(?x, _).",
    )
]
"""Rules whose plans depend on which signs of a predicate have rows."""

QUESTIONS = [
    *(
        Literal(Atom(name, (X, Y)[:arity], sign))
        for name, arity in [("p", 2), ("q", 2), ("r", 1), ("on", 0)]
        for sign in (True, False)
    ),
    Literal(Atom("m", (X,))),
    Literal(Atom("m", (X,), False)),
    Literal(Atom("s", (X, Y, Z))),
    Literal(Atom("p", ("a", X))),
    Literal(Atom("p", (X, X))),
    Literal(Atom("q", ("b", X), False)),
    *(
        Literal(Atom(name, ("a", "b")[:arity], sign), True)
        for name, arity in [("p", 2), ("r", 1), ("m", 1)]
        for sign in (True, False)
    ),
]
BODIES = [
    parse_goal(text).body
    for text in (
        "n(?x), not ~r(?x)",
        "e(?x, ?y), not p(?x, ?y)",
        "f(?x, ?y), not ~m(?y), not m(?x)",
    )
]

SHAPES = [("e", 2), ("f", 2), ("n", 1), ("m", 1), ("p", 2), ("q", 2), ("r", 1), ("on", 0)]
GROUND = [
    Atom(name, args, sign)
    for name, arity in SHAPES
    for args in product("ab", repeat=arity)
    for sign in (True, False)
]
"""Facts of both signs over two constants: few, so that opposites meet and rules have something to
do.
"""

facts = st.sampled_from(GROUND)

forms = st.sampled_from(FORMS)
rules = st.one_of(
    forms, forms, forms, forms, programs.rules(), programs.computing_rules(), programs.wide_rules()
)


@dataclass(frozen=True)
class Step:
    """One write or question; `place` is the scope of the write, `choice` picks among what is
    stored.
    """

    verb: str
    atoms: tuple[Atom, ...]
    rule: Rule
    place: str | None
    confidence: float | None
    choice: int


VERBS = (
    ["tell"] * 4
    + ["oppose"] * 4
    + ["retract"] * 4
    + ["clear", "clear", "teach", "forget", "undo"]
    + ["ask"] * 3
)
histories = st.lists(
    st.builds(
        Step,
        st.sampled_from(VERBS),
        st.lists(facts, min_size=1, max_size=3).map(tuple),
        rules,
        st.sampled_from([None, None, None, SCOPE]),
        st.sampled_from([None, None, None, 0.5]),
        st.integers(0, 100),
    ),
    min_size=2,
    max_size=14,
)


class Undone(Exception):
    """Roll back a transaction."""


class Life:
    """A tenant, and a plain account of what it should hold."""

    def __init__(self, kb: EmbeddedKB) -> None:
        self.kb = kb
        self.facts: dict[tuple[str | None, Atom], float | None] = {}
        self.rules: list[Rule] = []

    def play(self, step: Step) -> None:
        """Do a step; most are followed by questions, so that plans and tables exist before the next
        write.
        """
        getattr(self, step.verb)(step)
        if step.choice % 3:
            self.ask(step)

    def ask(self, step: Step) -> None:
        """Ask what plans and kept tables answer, in one place."""
        for question in QUESTIONS:
            self.kb.kb.infer(question, AnswerOptions(scope=step.place))
        self.kb.kb.context(WindowRequest(1000, scope=step.place, auto_resolve=False))

    def tell(self, step: Step) -> None:
        self.kb.kb.assert_facts(facts_of(step))
        self.facts.update({(step.place, atom): step.confidence for atom in step.atoms})

    def oppose(self, step: Step) -> None:
        """Tell the opposite of something stored."""
        if self.facts:
            place, atom = self._stored(step)
            self.tell(
                replace(
                    step, atoms=(Atom(atom.predicate, atom.args, not atom.positive),), place=place
                )
            )

    def undo(self, step: Step) -> None:
        """Tell and retract in a transaction that comes to nothing, with questions in it."""
        try:
            with self.kb.transaction() as inside:
                inside.kb.assert_facts(facts_of(step))
                if self.facts:
                    place, atom = self._stored(step)
                    inside.kb.retract_fact(
                        atom.predicate, atom.args, positive=atom.positive, scope=place
                    )
                for question in QUESTIONS:
                    inside.kb.infer(question, AnswerOptions(scope=step.place))
                raise Undone
        except Undone:
            pass

    def retract(self, step: Step) -> None:
        if self.facts:
            place, atom = self._stored(step)
            self.kb.kb.retract_fact(atom.predicate, atom.args, positive=atom.positive, scope=place)
            del self.facts[place, atom]

    def clear(self, step: Step) -> None:
        """Retract all rows of a predicate, of one sign."""
        if self.facts:
            place, atom = self._stored(step)
            pattern = [Variable(f"v{i}") for i in range(atom.arity)]
            self.kb.kb.retract_pattern(atom.predicate, pattern, positive=atom.positive, scope=place)
            for where, other in [*self.facts]:
                if (where, naive.key(other)) == (place, naive.key(atom)):
                    del self.facts[where, other]

    def teach(self, step: Step) -> None:
        rule = Rule(step.rule.head, step.rule.body, scope=step.place)
        try:
            self.kb.kb.assert_rules([rule])
        except RecursiveAggregate:
            return
        if all(
            stored_rule(rule).id != stored_rule(other).id or rule.scope != other.scope
            for other in self.rules
        ):
            self.rules.append(rule)

    def forget(self, step: Step) -> None:
        if self.rules:
            rule = self.rules.pop(step.choice % len(self.rules))
            self.kb.kb.retract_rule(id=stored_rule(rule).id, scope=rule.scope)

    def _stored(self, step: Step) -> tuple[str | None, Atom]:
        return [*self.facts][step.choice % len(self.facts)]


def facts_of(step: Step) -> list[Fact]:
    return [
        Fact(one.predicate, one.args, one.positive, step.place, confidence=step.confidence)
        for one in step.atoms
    ]


def seen(kb: EmbeddedKB) -> dict[str, object]:
    """All that the questions give: answers with their marks, what is undefined, what is proved,
    bindings, windows.
    """
    found: dict[str, object] = {}
    for place in PLACES:
        for question in QUESTIONS:
            key = f"{place}: {question}"
            found[key] = [marked(row) for row in kb.kb.infer(question, AnswerOptions(scope=place))]
            found[f"{key} or undefined"] = [
                marked(row)
                for row in kb.kb.infer(question, AnswerOptions(scope=place, include_undefined=True))
            ]
        for body in BODIES:
            variables = list(
                dict.fromkeys(variable for item in body for variable in item.variables())
            )
            found[f"{place}: {body}"] = kb.kb.bindings(body, variables, AnswerOptions(scope=place))
        for question in QUESTIONS[:6]:
            proofs = kb.kb.prove(question, AnswerOptions(scope=place))
            found[f"{place}: proof of {question}"] = [
                (row["result"]["args"], row["proof"] is None) for row in proofs
            ]
        window = kb.kb.context(WindowRequest(1000, scope=place, auto_resolve=False))
        found[f"{place}: window"] = sorted(
            (entry.text, entry.contradicted) for entry in window.entries
        )
    return found


def marked(row: dict) -> tuple:
    marks = {
        name: row["metadata"].get(name)
        for name in ("confidence", "contradicted", "truth", "basis", "nonMonotonic")
    }
    return row["predicate"], tuple(row["args"]), row["negated"], tuple(marks.items())


def answers(kb: EmbeddedKB) -> list[object]:
    """What the questions give in the unnamed scope, after they were asked once for the plans."""
    return [[marked(row) for row in kb.kb.infer(question)] for question in QUESTIONS]


def in_fresh_tenant(node: Runtime, name: str, life: Life, rng: random.Random) -> EmbeddedKB:
    """Make a tenant of what another one should hold, told in another order."""
    fresh = EmbeddedKB(node, name)
    stored = [
        Fact(a.predicate, a.args, a.positive, place, confidence=c)
        for (place, a), c in life.facts.items()
    ]
    fresh.kb.assert_facts(rng.sample(stored, len(stored)))
    fresh.kb.assert_rules(rng.sample(life.rules, len(life.rules)))
    return fresh


def step_of(verb: str, atoms: tuple[Atom, ...] = (), rule: Rule = FORMS[0]) -> Step:
    """A step in the unnamed scope that no questions follow."""
    return Step(verb, atoms, rule, None, None, 0)


@examples(300)
@given(
    st.lists(rules, min_size=1, max_size=4),
    st.lists(facts, max_size=16, unique=True),
    histories,
    st.randoms(use_true_random=False),
)
def test_answers_do_not_depend_on_history(
    program: list[Rule], told: list[Atom], history: list[Step], rng: random.Random
) -> None:
    with runtime() as node:
        life = Life(EmbeddedKB(node, "lived"))
        for rule in program:
            life.play(step_of("teach", rule=rule))
        life.play(replace(step_of("tell", tuple(told)), choice=1))
        for step in history:
            life.play(step)
        assert seen(life.kb) == seen(in_fresh_tenant(node, "fresh", life, rng))


@examples(300)
@given(
    st.lists(rules, min_size=1, max_size=3),
    st.lists(facts, min_size=6, max_size=24, unique=True),
    st.randoms(use_true_random=False),
)
def test_signs_of_predicates_get_their_first_row_late_and_lose_their_last(
    program: list[Rule], told: list[Atom], rng: random.Random
) -> None:
    """The facts of one sign of one predicate at a time come, and go again, and questions were asked
    before each.
    """
    late: dict[tuple[str, int, bool], list[Atom]] = {}
    for fact in sorted(told, key=lambda fact: (not fact.positive, rng.random())):
        late.setdefault(naive.key(fact), []).append(fact)
    with runtime() as node:
        life = Life(EmbeddedKB(node, "lived"))
        for rule in program:
            life.play(step_of("teach", rule=rule))
        groups = [*late.values()]
        for number, group in enumerate(groups):
            answers(life.kb)
            life.play(step_of("tell", tuple(group)))
            assert answers(life.kb) == answers(in_fresh_tenant(node, f"with {number}", life, rng))
        for number, group in enumerate(rng.sample(groups, len(groups))):
            life.facts = {key: known for key, known in life.facts.items() if key[1] not in group}
            for atom in group:
                life.kb.kb.retract_fact(atom.predicate, atom.args, positive=atom.positive)
            assert answers(life.kb) == answers(
                in_fresh_tenant(node, f"without {number}", life, rng)
            )
