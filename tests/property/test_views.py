"""A view answers exactly as a knowledge base that holds only what it admits."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

import kbcore
from kbcore.operations.history.fact_history import FactPattern
from kbplanner.syntax.parser import parse_body

DECLARED = "@levels trust: web < tool < user. @groups team: hr, eng, ops."

RULES = (
    "r(?x, ?y) :- e(?x, ?y).",
    "r(?x, ?z) :- r(?x, ?y), e(?y, ?z).",
    "alone(?x) :- p(?x), not r(?x, ?x), ~q(?x).",
    "many(count(?y)) :- r(?x, ?y).",
    "near(?x, min ?y) :- e(?x, ?y).",
    "p(?x) :- q(?x), not e(?x, a).",
)

GOALS = ("r(?x, ?y)", "alone(?x)", "many(?n)", "near(?x, ?y)", "p(?x)", "~q(?x)", "e(a, ?y)")

LEVELS = ("web", "tool", "user")

Labels = dict[str, Any]


def admitted(view: Labels, labels: Labels) -> bool:
    """The definition, written a second time."""
    if "trust" in view and LEVELS.index(labels.get("trust", "user")) < LEVELS.index(view["trust"]):
        return False
    return "team" not in view or "team" not in labels or bool({*view["team"]} & {*labels["team"]})


teams = st.lists(st.sampled_from(("hr", "eng", "ops")), min_size=1, max_size=2, unique=True)
some_labels = st.fixed_dictionaries({}, optional={"trust": st.sampled_from(LEVELS), "team": teams})
some_views = st.fixed_dictionaries(
    {}, optional={"trust": st.sampled_from(LEVELS), "team": st.one_of(teams, st.just([]))}
)
constants = st.sampled_from("abc")
facts = st.one_of(
    st.builds("e({}, {})".format, constants, constants),
    st.builds("p({})".format, constants),
    st.builds("q({})".format, constants),
    st.builds("~q({})".format, constants),
)
steps = st.one_of(
    st.tuples(st.just("tell"), facts, some_labels, st.just({})),
    st.tuples(st.just("tell"), facts, some_labels, st.just({})),
    st.tuples(st.just("many"), st.lists(facts, max_size=6), some_labels, st.just({})),
    st.tuples(st.just("retract"), facts, st.just({}), some_views),
    st.tuples(st.just("teach"), st.sampled_from(RULES), some_labels, st.just({})),
    st.tuples(st.just("forget"), st.sampled_from(RULES), st.just({}), some_views),
    st.tuples(st.just("fork"), st.just(""), st.just({}), st.just({})),
)


def plain(labels: Labels) -> Labels:
    """Labels without the highest level, which is no label."""
    left = {**labels, "team": sorted(labels["team"])} if "team" in labels else dict(labels)
    if left.get("trust") == "user":
        del left["trust"]
    return left


@dataclass
class Model:
    """Facts and rules with the labels they were stored with."""

    facts: dict[tuple[str, str], Labels] = field(default_factory=dict)
    rules: dict[tuple[str, str], Labels] = field(default_factory=dict)

    def take(self, step: tuple[str, Any, Labels, Labels]) -> None:
        kind, what, labels, view = step
        labels = plain(labels)
        if kind in ("tell", "many"):
            for fact in [what] if kind == "tell" else what:
                self.facts[fact, str(labels)] = labels
        elif kind == "teach":
            self.rules[what, str(labels)] = labels
        elif kind in ("retract", "forget"):
            stored = self.facts if kind == "retract" else self.rules
            both = {what, "~" + what}  # a retraction without a sign is one of both
            for key in [key for key in stored if key[0] in both and admitted(view, stored[key])]:
                del stored[key]


def perform(kb: kbcore.KnowledgeBase, step: tuple[str, Any, Labels, Labels]) -> None:
    kind, what, labels, view = step
    seen = kb.viewed(view or None, labels or None)
    if kind == "tell":
        seen.tell(what)
    elif kind == "many":
        for fact in what:
            seen.tell(fact)
    elif kind == "teach":
        seen.teach(what)
    elif kind == "retract":
        seen.retract(what)
    elif kind == "forget":
        with suppress(kbcore.NotFound):
            seen.retract_rule(what)
    elif kb.scopes() == []:
        kb.fork("copy")


class Mirror:
    """The facts and rules of a view without a scope, as its events tell of them."""

    def __init__(self, kb: kbcore.KnowledgeBase) -> None:
        self.facts: set[str] = set()
        self.rules: set[str] = set()
        kb.subscribe(self.hear)

    def hear(self, event: dict[str, Any]) -> None:
        assert "labels" not in event.get("atom", ())
        if event["scope"] is not None:
            return
        kind, known = event["type"], self.rules if "rule" in event else self.facts
        text = event["rule"]["text"] if "rule" in event else str(stated(event["atom"]))
        if kind.endswith("_asserted"):
            assert event.get("updated", text in known) == (text in known) or "rule" not in event
            known.add(text)
        else:
            known.remove(text)


def stated(row: Any) -> tuple[Any, ...]:
    return row["negated"], row["predicate"], *row["args"]


def told(kb: kbcore.KnowledgeBase) -> tuple[set[str], set[str]]:
    facts, rules, *_ = kb.kb.contents(None)
    return {str(stated(row)) for row in facts}, {each.text.rstrip(".") + "." for each in rules}


@examples(150)
@given(st.lists(steps, max_size=25), st.lists(some_views, min_size=1, max_size=2))
def test_the_events_of_a_view_tell_what_it_shows(
    history: list[tuple[str, Any, Labels, Labels]], views: list[Labels]
) -> None:
    with kbcore.open_kb() as kb:
        kb.teach(DECLARED)
        mirrors = [(kb.viewed(view), Mirror(kb.viewed(view))) for view in views if view]
        for step in history:
            perform(kb, step)
            for seen, mirror in mirrors:
                if seen.kb.view:
                    assert (mirror.facts, mirror.rules) == told(seen)


def shown(kb: kbcore.KnowledgeBase) -> dict[str, Any]:
    answers = {goal: sorted(map(tuple, kb.ask(goal))) for goal in GOALS}
    counts = {goal: kb.ask(goal).count() for goal in GOALS}
    known = [(each.predicate, each.arity) for each in kb.predicates()]
    return {
        "answers": answers,
        "counts": counts,
        "predicates": sorted(known),
        "rules": sorted(each.text for each in kb.rules()),
    }


@examples(150)
@given(st.lists(steps, max_size=25), st.lists(some_views, min_size=1, max_size=2))
def test_a_view_is_a_knowledge_base_of_what_it_admits(
    history: list[tuple[str, Any, Labels, Labels]], views: list[Labels]
) -> None:
    model = Model()
    with kbcore.open_kb() as kb:
        kb.teach(DECLARED)
        for number, step in enumerate(history):
            perform(kb, step)
            model.take(step)
            if number != len(history) // 2 and number + 1 < len(history):
                continue
            for view in views:
                with kbcore.open_kb() as only:
                    only.teach(DECLARED)
                    for fact, labels in model.facts.items():
                        if admitted(view, labels):
                            only.tell(fact[0])
                    for rule, labels in model.rules.items():
                        if admitted(view, labels):
                            only.teach(rule[0])
                    assert shown(kb.viewed(view)) == shown(only)


def written(labels: Labels) -> str:
    """Return labels as the text of a statement has them."""
    each = [f"trust={labels['trust']}"] if "trust" in labels else []
    each += [f"team=({', '.join(labels['team'])})"] if "team" in labels else []
    return f" [{', '.join(each)}]" if each else ""


def in_one(
    kb: kbcore.KnowledgeBase,
    model: Model,
    group: list[tuple[str, Any, Labels, Labels]],
    view: Labels,
) -> None:
    """Perform steps in a transaction of a view, which sees after each what its view admits."""
    with kb.viewed(view or None).transaction() as inside:
        for kind, what, labels, _ in group:
            step = kind, what, labels if kind in ("tell", "many", "teach") else {}, view
            handle = inside.viewed(None, step[2] or None)
            if kind == "tell":
                handle.tell(what)
            elif kind == "many":
                if what:
                    inside.teach(" ".join(f"{fact}{written(labels)}." for fact in what))
            elif kind == "teach":
                handle.teach(what)
            elif kind == "retract":
                handle.retract(what)
            elif kind == "forget":
                known = {rule for (rule, _), own in model.rules.items() if admitted(view, own)}
                if what not in known:
                    continue  # an error would end the transaction
                handle.retract_rule(what)
            model.take(step)
            with only_of(model, view) as only:
                assert shown(inside) == shown(only)


@contextmanager
def only_of(model: Model, view: Labels) -> Iterator[kbcore.KnowledgeBase]:
    with kbcore.open_kb() as only:
        only.teach(DECLARED)
        for fact, labels in model.facts.items():
            if admitted(view, labels):
                only.tell(fact[0])
        for rule, labels in model.rules.items():
            if admitted(view, labels):
                only.teach(rule[0])
        yield only


@examples(40)
@given(
    st.lists(steps, max_size=8),
    st.lists(st.lists(steps, min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(some_views, min_size=2, max_size=2),
)
def test_a_transaction_of_a_view_is_one_of_what_it_admits(
    history: list[tuple[str, Any, Labels, Labels]],
    groups: list[list[tuple[str, Any, Labels, Labels]]],
    views: list[Labels],
) -> None:
    model = Model()
    with kbcore.open_kb() as kb:
        kb.teach(DECLARED)
        for step in history:
            perform(kb, step)
            model.take(step)
        for number, group in enumerate(groups):
            own = [step for step in group if step[0] != "fork"]
            in_one(kb, model, own, views[number % 2])
            for view in views:
                with only_of(model, view) as only:
                    assert shown(kb.viewed(view)) == shown(only)


def admitted_items(model: Model, view: Labels) -> set[str]:
    """The facts and rules that a view admits."""
    stored = (*model.facts.items(), *model.rules.items())
    return {item for (item, _), labels in stored if admitted(view, labels)}


def events(kb: kbcore.KnowledgeBase, goal: str, since: str) -> list[Any]:
    changes = kb.kb.goal_changes(goal, since, limit=None)
    assert changes is not None

    def rows(part: list[Any]) -> list[Any]:
        return sorted(row.get("args") or sorted(row["bindings"].items()) for row in part)

    return [(rows(each.appeared), rows(each.disappeared)) for each in changes]


def changed_facts(kb: kbcore.KnowledgeBase, predicate: str) -> list[tuple[str, str, Any, bool]]:
    """The history of a predicate, in base and scopes, but for changed details."""
    known = kb.kb.fact_history(FactPattern(predicate), limit=1000).events
    rows = [(each, each.after or each.before or {}) for each in reversed(known)]
    return [
        (each.event, each.cause, row["args"], row["negated"])
        for each, row in rows
        if each.event != "replaced"
    ]


def follow(only: kbcore.KnowledgeBase, before: set[str], after: set[str]) -> None:
    """Change a knowledge base of its own by what one change does to what a view admits."""
    for item in after - before:
        (only.teach if ":-" in item else only.tell)(item)
    gone = sorted(before - after)
    if gone and ":-" in gone[0]:
        only.retract_rule(gone[0])
    elif gone:
        (atom,) = {item.removeprefix("~") for item in gone}
        predicate, _, args = atom.removesuffix(")").partition("(")
        positive = None if len(gone) == 2 else gone[0] == atom
        only.kb.retract_fact(predicate, args.split(", "), positive=positive)


@examples(30)
@given(
    st.lists(steps, min_size=5, max_size=20),
    st.lists(some_views.filter(bool), min_size=1, max_size=2),
)
def test_the_events_of_a_view_are_those_of_a_knowledge_base_of_what_it_admits(
    history: list[tuple[str, Any, Labels, Labels]], views: list[Labels]
) -> None:
    single = [
        ("tell" if kind == "many" else kind, each, labels, view)
        for kind, what, labels, view in history
        for each in (what if kind == "many" else [what])
    ]
    goals = ("r(?x, ?y)", "alone(?x)", "many(?n)", "p(?x), not q(?x)")
    model = Model()
    begun: list[tuple[kbcore.KnowledgeBase, str, kbcore.KnowledgeBase, str]] = []
    with kbcore.open_kb() as kb, kbcore.open_kb() as first, kbcore.open_kb() as second:
        for each in (kb, first, second):
            each.teach(DECLARED)
        watched = list(zip(map(kb.viewed, views), views, (first, second), strict=False))
        for number, step in enumerate(single):
            for seen, _, only in watched if number == len(single) // 3 else ():
                for goal in goals:
                    starts = [
                        handle.kb.subscribe_goal(parse_body(goal), id=name_of(goal)).event_id
                        for handle in (seen, only)
                    ]
                    begun.append((seen, starts[0], only, starts[1]))
            before = [admitted_items(model, view) for _, view, _ in watched]
            perform(kb, step)
            model.take(step)
            for (seen, view, only), items in zip(watched, before, strict=True):
                follow(only, items, admitted_items(model, view))
                if step[0] == "fork":
                    seen.predicates()  # the state is copied again by its next reader
        for number, (seen, start, only, alone) in enumerate(begun):
            goal = name_of(goals[number % len(goals)])
            assert events(seen, goal, start) == events(only, goal, alone)
            assert events(seen, goal, "0") == events(only, goal, "0")  # from the log
        for seen, _, only in watched:
            for predicate in ("e", "p", "q"):
                assert changed_facts(seen, predicate) == changed_facts(only, predicate)


def name_of(goal: str) -> str:
    return "".join(filter(str.isalpha, goal))


merged_facts = st.lists(
    st.tuples(st.sampled_from(("p(a)", "p(b)", "q(a)")), some_labels, st.sampled_from((0.2, 0.8))),
    max_size=5,
)


def merged(
    kb: kbcore.KnowledgeBase,
    sides: dict[str | None, list[tuple[str, Labels, float]]],
    view: Labels | None,
    strategy: str,
) -> None:
    """Store the facts of two scopes, those that a view admits (None: all), and merge the scopes."""
    kb.teach(DECLARED)
    kb.tell("marker(x)", scope="draft")
    for scope, stored in sides.items():
        for fact, labels, confidence in stored:
            if view is None:
                kb.viewed(None, labels or None).tell(fact, confidence=confidence, scope=scope)
            elif admitted(view, labels):
                kb.tell(fact, confidence=confidence, scope=scope)
    kb.merge("draft", strategy=strategy)


def rows_of(kb: kbcore.KnowledgeBase) -> list[Any]:
    return sorted(
        (goal, row["negated"], row["args"], row["confidence"])
        for goal in ("p(?x)", "~p(?x)", "q(?x)")
        for row in kb.recall(goal, at="2100-01-01T00:00:00Z")
    )


@examples(60)
@given(
    st.fixed_dictionaries({None: merged_facts, "draft": merged_facts}),
    st.lists(some_views, min_size=1, max_size=3),
    st.sampled_from(("SOURCE_WINS", "TARGET_WINS")),
)
def test_a_merge_is_one_of_what_a_view_admits(
    sides: dict[str | None, list[tuple[str, Labels, float]]], views: list[Labels], strategy: str
) -> None:
    with kbcore.open_kb() as kb:
        merged(kb, sides, None, strategy)
        for view in views:
            with kbcore.open_kb() as only:
                merged(only, sides, view, strategy)
                assert rows_of(kb.viewed(view)) == rows_of(only), view


LABELS_OF = {"a": {"trust": "web"}, "b": {"team": ["hr"]}, "c": {}}


@examples(60)
@given(
    st.fixed_dictionaries(
        {
            scope: st.lists(
                st.tuples(
                    st.sampled_from(("p", "~p")),
                    st.sampled_from("abc"),
                    st.sampled_from((0.2, 0.8)),
                ),
                max_size=6,
            )
            for scope in (None, "draft")
        }
    ),
    some_views,
    st.sampled_from(("SOURCE_WINS", "TARGET_WINS", "KEEP_BOTH")),
)
def test_a_merge_settles_both_signs_within_their_labels(
    stored: dict[str | None, list[tuple[str, str, float]]], view: Labels, strategy: str
) -> None:
    sides = {
        scope: [(f"{sign}({arg})", LABELS_OF[arg], confidence) for sign, arg, confidence in side]
        for scope, side in stored.items()
    }
    with kbcore.open_kb() as kb, kbcore.open_kb() as only:
        merged(kb, sides, None, strategy)
        merged(only, sides, view, strategy)
        assert rows_of(kb.viewed(view)) == rows_of(only)


proposed = st.fixed_dictionaries(
    {
        "tell": st.lists(st.tuples(facts, some_labels), max_size=3),
        "teach": st.lists(st.tuples(st.sampled_from(RULES), some_labels), max_size=1),
        "forget": st.lists(facts.filter(lambda fact: fact[0] != "~"), max_size=2),
    }
)


def previewed(kb: kbcore.KnowledgeBase, proposal: dict[str, list[str]]) -> Any:
    if not any(proposal.values()):
        return None
    outcome = kb.preview(**proposal)
    return [
        sorted((each.predicate, *each.args) for each in changes)
        for changes in (outcome.becomes_true, outcome.becomes_false, outcome.becomes_undefined)
    ]


@examples(40)
@given(st.lists(steps, max_size=8), proposed, some_views)
def test_a_preview_of_a_view_is_one_of_what_it_admits(
    history: list[tuple[str, Any, Labels, Labels]],
    proposal: dict[str, list[Any]],
    view: Labels,
) -> None:
    model = Model()
    with kbcore.open_kb() as kb:
        kb.teach(DECLARED)
        for step in history:
            if step[0] != "fork":
                perform(kb, step)
                model.take(step)
        labelled = {
            "tell": [f"{fact}{written(labels)}." for fact, labels in proposal["tell"]],
            "teach": [
                f"{rule.removesuffix('.')}{written(labels)}." for rule, labels in proposal["teach"]
            ],
            "forget": proposal["forget"],
        }
        seen = {
            kind: [
                f"{text.removesuffix('.')}." for text, own in proposal[kind] if admitted(view, own)
            ]
            for kind in ("tell", "teach")
        }
        with only_of(model, view) as only:
            expected = previewed(only, {**seen, "forget": proposal["forget"]})
            if expected is None:
                expected = [[], [], []]
            whole = previewed(kb.viewed(view or None), labelled)
            assert whole is None or whole == expected
