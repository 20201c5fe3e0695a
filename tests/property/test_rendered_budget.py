"""Windows of random knowledge: the text never exceeds `maxTokens`, in every format."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from support.examples import examples
from support.runtimes import BASE

import kbcore
from kbcore.clock import ManualClock
from kbcore.context.request import FORMATS, NATURAL, TIMES, WindowRequest
from kbcore.context.text.drafts import draft_for
from kbcore.context.text.memories import SaidText
from kbcore.context.text.render import render
from kbcore.context.text.tokens import tokens
from kbcore.node.opening import open_runtime
from kbcore.state.episodes.evidence import Evidence
from kbcore.state.facts import Fact
from kbplanner.ir.terms import Atom, Literal, Variable
from kbplanner.ir.values.instants import instant_text
from kbplanner.syntax.parser import parse_program, parse_rule
from kbplanner.syntax.printer import print_constant, print_row
from kbplanner.syntax.statements import FactStatement, RuleStatement
from kbtypes.windows import Bucket, Entry

RULES = [
    parse_rule(text)
    for text in (
        "path(?x, ?y) :- edge(?x, ?y).",
        "path(?x, ?z) :- edge(?x, ?y), path(?y, ?z).",
        "~open(?x) :- shut(?x).",
        "works_at(?x, ?y) :- edge(?x, ?y), open(?y).",
        "alone(?x) :- open(?x), not path(?x, ?x).",
    )
]
EPISODES = {"e1": "Hello, I\nam ann.", "e2": "A longer text, about open doors. " * 8}
X, Y = Variable("x"), Variable("y")
NAMES = st.sampled_from(["a", "b", "c", "d", "odd name", 'quote " and %', "line\nbreak", "日本"])
SCOPES = st.sampled_from([None, None, None, "s"])
FACTS = st.one_of(
    st.builds(lambda x, y, scope: Fact("edge", (x, y), scope=scope), NAMES, NAMES, SCOPES),
    st.builds(
        lambda p, x, sign: Fact(p, (x,), sign),
        st.sampled_from(("open", "shut", "odd p")),
        NAMES,
        st.booleans(),
    ),
    st.builds(
        lambda x, ttl, c: Fact("edge", (x, "d"), ttl=ttl, confidence=c),
        NAMES,
        st.integers(1, 3000),
        st.floats(0, 1),
    ),
    st.just(Fact("raining", ())),
    st.builds(
        lambda x, id: Fact("open", (x,), evidence=(Evidence(id),)),
        NAMES,
        st.sampled_from([*EPISODES]),
    ),
    st.builds(
        lambda id, at: Fact("said", ("ann", EPISODES[id], at), evidence=(Evidence(id),)),
        st.sampled_from([*EPISODES]),
        st.sampled_from(["2026-03-02T09:00:00Z", "2026-03-03", "later"]),
    ),
)
GOALS = st.lists(
    st.one_of(
        st.builds(lambda x: Literal(Atom("path", (x, Y))), NAMES),
        st.sampled_from([Literal(Atom(p, (X,))) for p in ("open", "alone")]),
        st.builds(lambda x: Literal(Atom("open", (x,)), negated=True), NAMES),
    ),
    max_size=2,
)
REQUESTS = st.builds(
    WindowRequest,
    max_facts=st.integers(1, 30),
    max_tokens=st.integers(1, 120),
    goals=GOALS.map(tuple),
    scope=st.sampled_from([None, "s", "*"]),
    auto_resolve=st.booleans(),
    include_rules=st.sampled_from([None, True, False]),
    format=st.sampled_from(FORMATS),
    citations=st.sampled_from([False, False, True, "text"]),
    times=st.sampled_from(TIMES),
    buckets=st.sampled_from([(), (Bucket("e", ("edge",), 2.0), Bucket("rest", None, 1.0))]),
)


class Lines:
    """A tokenizer whose count of a text is above the sum over its lines."""

    name = "lines"

    def count(self, text):
        return len(text) // 3 + text.count("\n") ** 2


class Overlapping:
    """A tokenizer whose count of a text is far below the sum over its pieces: repeated words are
    free.
    """

    name = "overlapping"

    def count(self, text):
        return len(set(text.split()))


class Plugin:
    @kbcore.hookimpl
    def kb_tokenizers(self):
        return {"lines": lambda config: Lines(), "overlapping": lambda config: Overlapping()}


COUNTS = {
    "none": lambda text: tokens(len(text)),
    "lines": Lines().count,
    "overlapping": Overlapping().count,
}


def program(window):
    """The facts and rules that the window's text in the rule language says."""
    facts, rules = set(), set()
    for statement in parse_program(render(window, "facts")):
        if isinstance(statement, FactStatement):
            facts.add((statement.atom.predicate, statement.atom.args, not statement.atom.positive))
        else:
            assert isinstance(statement, RuleStatement)
            rules.add(statement.rule)
    return facts, rules


@pytest.mark.parametrize("tokenizer", list(COUNTS))
def test_the_text_of_a_window_is_never_over_its_budget(tokenizer):
    @examples(80)
    @given(st.lists(FACTS, min_size=1, max_size=25), REQUESTS, st.booleans())
    def check(facts, request, summed_up):
        config = replace(BASE, storage_backend="memory", tokenizer=tokenizer)
        with open_runtime(config, plugins=[Plugin()], clock=ManualClock()) as node:
            kb = node.knowledge_base()
            kb.assert_rules(RULES)
            for id, text in EPISODES.items():
                kb.add_episode("ann", text, at=1_772_442_000_000, id=id)
            kb.assert_facts(facts)
            if summed_up:
                kb.consolidate(min_group_size=2)
            found = kb.context(request)
        count = COUNTS[tokenizer](found.text) if found.text else 0
        event(
            f"{request.format}: {min(len(found.entries), 3)} entries, {min(len(found.rules), 2)} rules"
        )
        assert count <= request.max_tokens
        assert found.tokens == count
        text_format = "facts" if request.format == "structured" else request.format
        if not request.citations:
            assert found.text == render(found, text_format, times=request.times)
        if request.format == NATURAL:  # no entry is left out of the text
            for entry in found.entries:
                if entry.predicate == "said" and entry.args[2] != "later":
                    args = entry.args[0], " ".join(entry.args[1].split())
                    assert all(arg in found.text for arg in args)
                else:
                    assert all(print_constant(arg) in found.text for arg in entry.args)
        if request.citations == "text" and request.format == NATURAL:  # no number without a source
            lines = found.text.splitlines()
            for source in found.sources:
                mark = f"[{source['number']}]"
                assert any(
                    line.startswith(f"{mark} ") or (", ann: " in line and mark in line)
                    for line in lines
                )
        assert sum(share.facts_included for share in found.buckets.values()) <= len(found.entries)
        said, rules = program(found)
        assert said == {(entry.predicate, entry.args, entry.negated) for entry in found.entries}
        assert rules == set(map(parse_rule, found.rules))

    check()


QUOTED = {
    ("e1", None, None): SaidText("ann", "Hello, I\nam ann.", 5),
    ("e2", None, None): SaidText("ann: b", "a long text " * 100, 10**12),
}
ENTRIES = st.builds(
    lambda predicate, args, negated, scope, contradicted, goal, evidence: Entry(
        predicate,
        tuple(args),
        negated,
        scope,
        0.5,
        "asserted",
        print_row(predicate, args, negated),
        1,
        contradicted=contradicted,
        goal=goal,
        evidence=tuple(evidence),
    ),
    st.sampled_from(["works_at", "parent", "is_tall", "odd p"]),
    st.lists(NAMES, max_size=2),
    st.booleans(),
    st.sampled_from([None, "s", "t"]),
    st.booleans(),
    st.sampled_from([None, "p(?x)", "rule"]),
    st.lists(st.sampled_from([*QUOTED, ("e3", 1, 2)]), max_size=2, unique=True),
)
SAID_ENTRIES = st.builds(
    lambda entry, memory, whole: entry._replace(
        predicate="said",
        args=(memory.speaker, memory.text, instant_text(memory.at) if whole else "2026-01-01"),
        text=print_row(
            "said",
            (memory.speaker, memory.text, instant_text(memory.at) if whole else "2026-01-01"),
            entry.negated,
        ),
    ),
    ENTRIES,
    st.sampled_from([*QUOTED.values()]),
    st.booleans(),
)
ITEMS = st.one_of(
    ENTRIES,
    ENTRIES,
    SAID_ENTRIES,
    st.sampled_from(["p(?x) :- q(?x).", "r(?x) :- q(?x), not p(?x)."]),
)


@examples(200)
@given(
    st.lists(st.one_of(ITEMS, st.just(None)), max_size=25),
    st.sampled_from([NATURAL, "facts"]),
    st.sampled_from([None, lambda span: None, QUOTED.get]),
    st.booleans(),
    st.sampled_from(TIMES),
)
def test_a_draft_knows_its_size_and_shrinks_again(steps, text_format, quote, goal_driven, times):
    draft = draft_for(text_format, goal_driven=goal_driven, quote=quote, times=times)
    kept = []
    for item in steps:
        if item is None:
            if kept:
                assert draft.pop() == kept.pop()
        elif item not in kept:
            before = draft.size
            least = draft.min_size(item) if isinstance(item, Entry) else 0
            event("lower bound above 0" if least else "no lower bound")
            draft.add(item)
            assert draft.size - before >= least
            kept.append(item)
        text = draft.text()
        assert draft.size == (len(text) + 1 if kept else 0)
    again = draft_for(text_format, goal_driven=goal_driven, quote=quote, times=times)
    for item in kept:
        again.add(item)
    assert (draft.text(), draft.items) == (again.text(), kept)
