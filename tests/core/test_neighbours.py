"""The stored facts around a constant: pages, counts and filters."""

from __future__ import annotations

import random

import pytest
from support.http import make_runtime

from kbcore.errors import BudgetExceeded, Conflict, InvalidInput
from kbcore.reason.budget import RequestLimits
from kbcore.search.neighbours import NeighbourOptions, _taken
from kbplanner.engine.relation import Relation


@pytest.fixture
def kb():
    runtime, _, _ = make_runtime()
    yield runtime.open()
    runtime.close()


def shown(found):
    return [
        ("~" if row["negated"] else "") + f"{row['predicate']}({', '.join(row['args'])})"
        for row in found.facts
    ]


def counts(found):
    return {(each.predicate, each.arity): each.fact_count for each in found.predicates}


def test_facts_with_the_constant_in_any_argument(kb):
    kb.tell("p(a, b). p(b, c). q(a). r(x, y, a). p(a, a). s(b). ~q(a). p(1, a). q(b).")
    found = kb.neighbours("a")
    assert sorted(shown(found)) == sorted(
        ["p(a, b)", "p(a, a)", "p(1, a)", "q(a)", "~q(a)", "r(x, y, a)"]
    )
    assert counts(found) == {("p", 2): 3, ("q", 1): 2, ("r", 3): 1}
    assert found.total_facts == 6
    assert shown(kb.neighbours(1)) == ["p(1, a)"]
    assert kb.neighbours("never").facts == []
    assert kb.neighbours("never").total_facts == 0


def test_directions_and_predicates(kb):
    kb.tell("p(a, b). p(b, a). p(a, a). q(a). r(b, a, a). r(a, b, b).")
    assert sorted(shown(kb.neighbours("a", direction="out"))) == [
        "p(a, a)", "p(a, b)", "q(a)", "r(a, b, b)",
    ]  # fmt: skip
    incoming = kb.neighbours("a", direction="in")
    assert sorted(shown(incoming)) == ["p(a, a)", "p(b, a)", "r(b, a, a)"]
    assert counts(incoming) == {("p", 2): 2, ("r", 3): 1}
    assert shown(kb.neighbours("a", predicates=["q", "none", "q"])) == ["q(a)"]
    assert kb.neighbours("a", predicates=[]).facts == []


def test_predicates_take_turns_and_pages_cover_every_fact_once(kb):
    kb.tell("".join(f"many(hub, n{i}). " for i in range(50)) + "few(hub). few2(x, hub).")
    first = kb.neighbours("hub", limit=4)
    assert sorted(shown(first)) == ["few(hub)", "few2(x, hub)", "many(hub, n0)", "many(hub, n1)"]
    assert first.total_facts == 52
    pages = [shown(kb.neighbours("hub", limit=7, offset=start)) for start in range(0, 56, 7)]
    assert sorted(fact for page in pages for fact in page) == sorted(
        [*(f"many(hub, n{i})" for i in range(50)), "few(hub)", "few2(x, hub)"]
    )
    assert kb.neighbours("hub", offset=52).facts == []


@pytest.mark.parametrize("seed", range(20))
def test_pages_of_random_facts(kb, seed):
    rng = random.Random(seed)
    names = ["a", "b", "c", "d"]
    stored = {
        f"p{rng.randrange(3)}({', '.join(rng.choice(names) for _ in range(rng.randint(1, 4)))})"
        for _ in range(120)
    }
    kb.tell(". ".join(stored) + ".")
    expected = sorted(fact for fact in stored if "a" in fact.partition("(")[2][:-1].split(", "))
    limit = rng.randint(1, 9)
    total = kb.neighbours("a").total_facts
    assert total == len(expected)
    pages = [shown(kb.neighbours("a", limit=limit, offset=at)) for at in range(0, total, limit)]
    assert [len(page) for page in pages[:-1]] == [limit] * (len(pages) - 1)
    assert sorted(fact for page in pages for fact in page) == expected


def test_shares_of_groups():
    assert _taken([5, 1, 0, 3], 0) == [0, 0, 0, 0]
    assert _taken([5, 1, 0, 3], 4) == [2, 1, 0, 1]
    assert _taken([5, 1, 0, 3], 6) == [3, 1, 0, 2]
    assert _taken([5, 1, 0, 3], 99) == [5, 1, 0, 3]
    assert _taken([], 3) == []


def test_scopes(kb):
    kb.tell("p(a, base).")
    kb.tell("p(a, s). q(a).", scope="s")
    assert shown(kb.neighbours("a")) == ["p(a, base)"]
    assert sorted(shown(kb.neighbours("a", scope="s"))) == ["p(a, s)", "q(a)"]
    every = kb.neighbours("a", scope="*")
    assert sorted((row["args"][-1], row["scope"]) for row in every.facts) == [
        ("a", "s"), ("base", None), ("s", "s"),
    ]  # fmt: skip
    assert counts(every) == {("p", 2): 2, ("q", 1): 1}
    with pytest.raises(InvalidInput, match="scope"):
        kb.neighbours("a", scope="no scope")


def test_rules_are_not_applied_and_retracted_facts_are_gone(kb):
    kb.tell("p(a, b). p(a, c). q(?x) :- p(?x, ?y).")
    kb.retract("p(a, b)")
    assert shown(kb.neighbours("a")) == ["p(a, c)"]


def test_validity():
    runtime, _, clock = make_runtime()
    kb = runtime.open()
    now = clock.now_ms()
    kb.tell("p(a, now).")
    kb.tell("p", ["a", "soon"], valid_from=now + 1000)
    kb.tell("p", ["a", "over"], valid_until=now + 500)
    assert sorted(shown(kb.neighbours("a"))) == ["p(a, now)", "p(a, over)"]
    later = kb.neighbours("a", as_of=now + 2000)
    assert (sorted(shown(later)), later.total_facts) == (["p(a, now)", "p(a, soon)"], 2)
    clock.advance(2000)
    assert sorted(shown(kb.neighbours("a"))) == ["p(a, now)", "p(a, soon)"]
    runtime.close()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 1001}, "limit"),
        ({"limit": True}, "limit"),
        ({"offset": -1}, "offset"),
        ({"direction": "up"}, "direction"),
    ],
)
def test_bad_options_are_named(kb, options, field):
    with pytest.raises(InvalidInput) as refused:
        kb.neighbours("a", **options)
    assert list(refused.value.details["fields"]) == [field]


def test_a_variable_is_refused(kb):
    with pytest.raises(InvalidInput):
        kb.neighbours("?x")


def test_the_time_limit_holds(kb):
    kb.tell("".join(f"p{i}(a). " for i in range(100)))
    limits = RequestLimits(timeout_ms=0)
    with pytest.raises(BudgetExceeded):
        kb.kb.neighbours("a", NeighbourOptions(request_limits=limits))


def test_a_transaction_sees_its_own_facts_and_conflicts_with_others(kb):
    kb.tell("p(a, b).")
    with kb.transaction() as inside:
        inside.tell("q(a).")
        assert sorted(shown(inside.neighbours("a"))) == ["p(a, b)", "q(a)"]
    with pytest.raises(Conflict):
        _write_beside_a_read(kb)


def _write_beside_a_read(kb):
    with kb.transaction() as inside:
        inside.tell("s(a).")
        inside.neighbours("a")
        kb.tell("r(a).")


def test_only_facts_with_the_constant_are_read(kb):
    """The work is that of the page: the engine hands out no more rows than it has."""
    kb.tell_many("visit", [("hub" if i % 100 == 0 else f"x{i}", f"n{i}") for i in range(20_000)])
    handed_out = 0
    original = Relation.match

    def counted(self, *args, **more):
        nonlocal handed_out
        rows, ids = original(self, *args, **more)
        handed_out += len(ids)
        return rows, ids

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Relation, "match", counted)
        found = kb.neighbours("hub", limit=10)
    assert (len(found.facts), found.total_facts, handed_out) == (10, 200, 10)
