"""Facts fade, are summed up, ranked and swept away; what a write decided is exactly what it removes."""

from __future__ import annotations

import math
from array import array

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import BudgetExceeded, ConfigError, InvalidInput, NotFound
from kbcore.plug.hookspecs import hookimpl
from kbcore.state.changes import ChangeSet, EvictFacts, EvictReason
from kbcore.state.facts import Fact, FactRows
from kbcore.upkeep import evict as evicting
from kbplanner.backend import Attribute
from kbplanner.parser import parse_rule
from kbplanner.terms import ANONYMOUS, Atom, Literal, Variable

T0 = 1_700_000_000_000
HOUR = 3_600_000
X = Variable("x")


@pytest.fixture
def clock():
    return ManualClock(T0)


@pytest.fixture(params=["c", "python"])
def node(clock, request):
    with runtime(clock=clock, engine=request.param, engine_verify=True) as found:
        yield found


@pytest.fixture
def kb(node):
    return node.knowledge_base()


def tell(kb, predicate, *args, **more):
    kb.assert_facts([Fact(predicate, args, **more)])


def names(rows):
    return [(row["predicate"], *row["args"]) for row in rows]


def stored(kb, scope=None):
    tenant = kb._read_tenant()
    found = []
    for relation in tenant.partition(scope).relations():
        every = relation.relation.match([0] * relation.schema.arity, hidden=True)
        found.extend(names(relation.rows(tenant.engine, *every)))
    return sorted(found)


def formula(age, accesses=1, priority=0.5, confidence=1.0):
    return (0.5 * 2 ** -(age / HOUR) + 0.3 * min(1, math.log(1 + accesses) / math.log(100)) + 0.2 * priority) * confidence


# -- salience ----------------------------------------------------------------------------------------------------------


def test_salience_is_recency_frequency_priority_and_confidence(kb, clock):
    tell(kb, "p", "old")
    clock.advance(HOUR)
    tell(kb, "p", "doubtful", confidence=0.5)
    tell(kb, "p", "important")
    kb.prioritize("p", ["important"], 1.0)
    rows = kb.salient("p", [X])
    assert names(rows) == [("p", "important"), ("p", "old"), ("p", "doubtful")]
    wanted = [formula(0, priority=1.0), formula(HOUR), formula(0, confidence=0.5)]
    assert [row["salience"] for row in rows] == pytest.approx(wanted)


def test_told_again_and_asked_for_by_salience_are_accesses(kb, clock):
    tell(kb, "p", "a")
    tell(kb, "p", "a")
    clock.advance(HOUR)
    assert kb.salient("p", [X])[0]["salience"] == pytest.approx(formula(HOUR, accesses=2))
    clock.advance(HOUR)
    assert kb.salient("p", [X])[0]["salience"] == pytest.approx(formula(HOUR, accesses=3))


@pytest.mark.parametrize("ruled", [False, True])
@pytest.mark.parametrize("facts", [1, 100])
def test_a_goal_is_an_access_of_the_stored_facts_that_answer_it(kb, clock, ruled, facts):
    if ruled:
        kb.assert_rules([parse_rule("p(?x) :- q(?x).")])
        tell(kb, "q", "derived")
    kb.assert_facts([Fact("p", (f"a{i}",)) for i in range(facts)])
    tell(kb, "q", "b")
    clock.advance(HOUR)
    for _ in range(3):
        kb.infer(Literal(Atom("p", (X,))))
    kb.query_rows("q", [X])
    clock.advance(HOUR)
    rows = kb.salient()
    found = {row["salience"] for row in rows if row["predicate"] == "p"}
    assert list(found) == [pytest.approx(formula(HOUR, accesses=4))]
    if len(rows) < 50:
        assert {row["salience"] for row in rows if row["predicate"] == "q"} <= {rows[-1]["salience"]}
        assert rows[-1]["salience"] == pytest.approx(formula(2 * HOUR))


def test_many_goals_are_worked_in_by_and_by(kb):
    kb.assert_facts([Fact("p", (f"a{i}",)) for i in range(10)])
    for i in range(2500):
        kb.infer(Literal(Atom("p", (f"a{i % 10}",))))
    for _ in range(3):
        kb.infer(Literal(Atom("p", (X,))))
    assert [row["salience"] for row in kb.salient("p", ["a3"])] == [pytest.approx(formula(0, accesses=254))]
    relation = kb._read_tenant().partition(None).named("p")[0].relation
    assert relation.attributes(Attribute.ACCESSES, array("I", [3, 4]))[:] == array("q", [255, 254])


def test_salient_takes_a_limit_a_minimum_a_pattern_and_every_partition(kb, clock):
    for i in range(5):
        tell(kb, "p", "a", str(i))
        clock.advance(HOUR)
    tell(kb, "p", "b", "5", scope="s")
    tell(kb, "q", "b", positive=False)
    assert names(kb.salient("p", None, scope="*", limit=2)) == [("p", "b", "5"), ("p", "a", "4")]
    assert names(kb.salient("p", ["a", X], limit=2)) == [("p", "a", "4"), ("p", "a", "3")]
    assert kb.salient("p", ["b", X]) == []
    assert kb.salient("p", ["nobody", X]) == []
    assert kb.salient("p", [X]) == []
    assert kb.salient("nothing", None) == []
    assert kb.salient(minimum=1.0) == []
    first = kb.salient(limit=1)[0]
    assert (first["predicate"], first["negated"]) == ("p", False)
    assert len(kb.salient()) == 6
    with pytest.raises(InvalidInput):
        kb.salient(minimum=1.5)


def test_equal_salience_the_newest_comes_first(kb):
    kb.assert_facts([Fact("p", (name,), valid_from=T0) for name in "abc"])
    assert names(kb.salient("p", [X])) == [("p", "a"), ("p", "b"), ("p", "c")]


def test_accesses_in_transactions_do_not_count(node, kb, clock):
    tell(kb, "p", "a")
    clock.advance(HOUR)
    id = node.begin()
    for _ in range(3):
        with node.in_transaction("default", "default", id, writes=False) as inside:
            assert inside.tuples(Atom("p", (X,))) == [("a",)]
            with pytest.raises(InvalidInput):
                inside.decay()
    with node.in_transaction("default", "default", id) as inside:
        inside.roll_back()
    assert kb.salient("p", [X])[0]["salience"] == pytest.approx(formula(HOUR))


class Longest:
    """A scorer of its own: the more accesses, the better; what is denied does not matter."""

    weights = None

    def score(self, fact, now_ms):
        return 0.0 if not fact.positive else min(1.0, fact.accesses / 10)


class LongestPlugin:
    @hookimpl
    def kb_salience_scorers(self, config):
        return {"longest": Longest()}


def test_a_scorer_of_a_guest_ranks_and_fades(clock):
    from kbcore.config import Config
    from kbcore.runtime import open_runtime

    config = Config(storage_backend="memory", salience_scorer="longest")
    with open_runtime(config, plugins=[LongestPlugin()], clock=clock) as node:
        kb = node.knowledge_base()
        for name, times in (("a", 1), ("b", 3), ("c", 2)):
            for _ in range(times):
                tell(kb, "p", name)
        tell(kb, "p", "d", positive=False)
        assert [(row["args"], row["salience"]) for row in kb.salient("p", [X], limit=2)] == [(["b"], 0.3), (["c"], 0.2)]
        assert [row["why"]["salience"] for row in kb.decay(0.15, dry_run=True).atoms] == [0.1, 0.0]
        assert names(kb.decay(0.15).atoms) == [("p", "a"), ("p", "d")]
        assert names(kb.salient("p", [X], minimum=0.4)) == [("p", "b")]


def test_a_scorer_nobody_offers_is_refused_at_the_start(clock):
    with pytest.raises(ConfigError, match="default"):
        runtime(clock=clock, salience_scorer="none")


# -- priority ----------------------------------------------------------------------------------------------------------


def test_priorities_are_of_facts_that_are_there(kb, clock):
    tell(kb, "p", "a")
    tell(kb, "p", "a", positive=False)
    tell(kb, "flag")
    tell(kb, "p", "soon", valid_from=T0 + 10)
    tell(kb, "p", "gone", ttl=5)
    clock.advance(5)
    for predicate, args in (("p", ["b"]), ("p", ["gone"]), ("q", ["a"]), ("p", ["a", "a"])):
        with pytest.raises(NotFound):
            kb.prioritize(predicate, args, 0.9)
    kb.prioritize("p", ["a"], 0.9, positive=False)
    kb.prioritize("flag", [], 0.0)
    kb.prioritize("p", ["soon"], 1.0)
    clock.advance(5)
    found = {(row["negated"], *row["args"]): row["salience"] for row in kb.salient()}
    assert found[True, "a"] - found[False, "a"] == pytest.approx(0.08)
    assert found[False, "a"] - found[(False,)] == pytest.approx(0.1)
    assert found[False, "soon"] > found[False, "a"]
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(InvalidInput):
            kb.prioritize("p", ["a"], bad)
    with pytest.raises(InvalidInput):
        kb.prioritize("p", ["a"], 0.5, scope="*")


def test_a_fact_that_begins_anew_has_no_priority_left_whether_it_was_swept_or_not(node, kb, clock):
    for name in "ab":
        tell(kb, "p", name, ttl=5)
        kb.prioritize("p", [name], 1.0)
    clock.advance(5)
    tell(kb, "p", "a")
    assert node.sweeper.sweep() == 1
    tell(kb, "p", "b")
    first, second = kb.salient("p", [X])
    assert first["salience"] == second["salience"] == pytest.approx(formula(0))


# -- recall ------------------------------------------------------------------------------------------------------------


def test_recall_gives_what_was_valid_then(kb, clock):
    tell(kb, "at", "ann", "home", valid_until=T0 + 100)
    clock.advance(100)
    tell(kb, "at", "ann", "work")
    tell(kb, "at", "bob", "work", scope="s")
    assert names(kb.recall("at", ["ann", X], T0 + 50)) == [("at", "ann", "home")]
    assert names(kb.recall("at", ["ann", X], T0 + 100)) == [("at", "ann", "work")]
    assert names(kb.recall("at", [ANONYMOUS, X], T0 + 100, scope="*")) == [("at", "ann", "work"), ("at", "bob", "work")]
    assert kb.recall("at", ["ann", X], T0 - 1) == []


# -- decay -------------------------------------------------------------------------------------------------------------


def test_decay_evicts_what_expired_and_what_faded_and_conclusions_follow(kb, clock):
    kb.assert_rules([parse_rule("known(?x) :- seen(?x).")])
    tell(kb, "seen", "old")
    tell(kb, "seen", "kept")
    kb.prioritize("seen", ["kept"], 1.0)
    tell(kb, "seen", "short", ttl=1000)
    tell(kb, "alarm", ttl=1000)
    tell(kb, "seen", "future", valid_from=T0 + 1000 * HOUR)
    tell(kb, "seen", "elsewhere", scope="s", ttl=1000)
    clock.advance(20 * HOUR)
    tell(kb, "seen", "new")
    generation = kb._read_tenant().generation
    before = stored(kb)
    dry = kb.decay(0.2, dry_run=True)
    assert stored(kb) == before
    assert kb._read_tenant().generation == generation
    assert {names([row])[0]: row["why"]["reason"] for row in dry.atoms} == {
        ("alarm",): "expired",
        ("seen", "short"): "expired",
        ("seen", "old"): "faded",
    }
    since, faded = dry.atoms[0]["why"], dry.atoms[-1]["why"]
    assert since == {"reason": "expired", "since": T0 + 1000}
    assert faded["salience"] == pytest.approx(faded["recency"] + faded["frequency"] + faded["priority"])
    assert faded["salience"] < faded["threshold"] == 0.2
    done = kb.decay(0.2)
    assert (done.expired, done.evicted, done.truncated, done.timestamp) == (2, 1, False, T0 + 20 * HOUR)
    assert names(done.atoms) == names(dry.atoms)
    assert all("why" not in row for row in done.atoms)
    assert stored(kb) == [("seen", "future"), ("seen", "kept"), ("seen", "new")]
    assert [row["args"] for row in kb.infer(Literal(Atom("known", (X,))))] == [["kept"], ["new"]]
    assert stored(kb, "s") == [("seen", "elsewhere")]
    assert kb.decay(0.2, scope="s").expired == 1
    again = kb.decay(0.2)
    assert (again.expired, again.evicted, again.atoms) == (0, 0, [])


@pytest.mark.parametrize("threshold", [-0.01, 1.01, math.nan])
def test_a_threshold_is_from_0_to_1(kb, threshold):
    with pytest.raises(InvalidInput, match="threshold"):
        kb.decay(threshold)


def test_the_whole_range_of_thresholds(kb, clock):
    tell(kb, "p", "a")
    assert kb.decay(0.0).evicted == 0
    assert kb.decay(1.0).evicted == 1
    assert kb.decay(1.0, scope="nowhere").evicted == 0
    with pytest.raises(InvalidInput):
        kb.decay(scope="*")


def test_upkeep_of_an_unknown_tenant_writes_nothing(node):
    stranger = node.knowledge_base(tenant="stranger")
    assert stranger.decay().expired == 0
    assert stranger.consolidate().facts == []
    assert node._catalog.find("default", "stranger") is None


def test_what_is_told_or_used_while_decay_works_is_not_evicted(node, kb, clock, monkeypatch):
    for name in ("told", "used", "idle"):
        tell(kb, "p", name)
        tell(kb, "short", name, ttl=10)
    clock.advance(20 * HOUR)
    commit = node.commit
    meanwhile = [
        lambda: tell(kb, "short", "told", ttl=10),
        lambda: (clock.advance(1), tell(kb, "p", "told")),
        lambda: kb.infer(Literal(Atom("p", ("used",)))),
    ]

    def slow(changes):
        if any(isinstance(change, EvictFacts) for change in changes.changes) and meanwhile:
            meanwhile.pop(0)()
        return commit(changes)

    monkeypatch.setattr(node, "commit", slow)
    found = kb.decay(0.5)
    assert (found.expired, found.evicted) == (2, 1)
    assert sorted(names(found.atoms)) == [("p", "idle"), ("short", "idle"), ("short", "used")]
    assert stored(kb) == [("p", "told"), ("p", "used"), ("short", "told")]


def test_decay_of_a_tenant_that_is_emptied_meanwhile_changes_nothing_of_the_new_one(node, kb, clock, monkeypatch):
    from kbcore.state.changes import CatalogAction, ChangeCatalog

    tell(kb, "p", "a")
    clock.advance(20 * HOUR)
    commit = node.commit

    def slow(changes):
        if any(isinstance(change, EvictFacts) for change in changes.changes):
            commit(ChangeSet("default", "default", (ChangeCatalog(CatalogAction.NUKE_TENANT),)))
            commit(ChangeSet("default", "default", (EvictFacts((), EvictReason.FADED),)))
            monkeypatch.setattr(node, "commit", commit)
            tell(kb, "p", "a")
        return commit(changes)

    monkeypatch.setattr(node, "commit", slow)
    assert kb.decay(0.5).evicted == 0
    assert stored(kb) == [("p", "a")]


def test_a_list_too_long_for_one_record_is_split(node, kb, clock, monkeypatch):
    monkeypatch.setattr(evicting, "RECORD_BYTES", 200)
    kb.assert_facts([Fact("p", (f"a{i:03}",)) for i in range(50)] + [Fact("q", ("x" * 100,)), Fact("flag", ())])
    generation = kb._read_tenant().generation
    assert kb.decay(1.0).evicted == 52
    assert stored(kb) == []
    assert kb._read_tenant().generation > generation + 3


def test_the_reply_lists_at_most_as_many_rows_as_answers_may_have(clock):
    with runtime(clock=clock, query_max_answers=10) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("p", (str(i),)) for i in range(30)])
        with pytest.raises(BudgetExceeded):
            kb.salient(limit=20)
        found = kb.decay(1.0)
        assert (found.evicted, len(found.atoms), found.truncated) == (30, 10, True)
        assert stored(kb) == []


# -- sweeping ----------------------------------------------------------------------------------------------------------


def test_the_sweeper_evicts_what_has_expired_in_every_partition_and_tenant(node, kb, clock):
    other = node.knowledge_base(tenant="other")
    for one in (kb, other):
        tell(one, "p", "a", ttl=10)
        tell(one, "p", "b", ttl=10, scope="s")
        tell(one, "flag", ttl=10, positive=False)
        tell(one, "p", "kept")
        tell(one, "p", "future", valid_from=T0 + 10 * HOUR)
        tell(one, "p", "never", valid_from=T0 + 200, valid_until=T0 + 100)
    assert node.sweeper.sweep() == 0
    clock.advance(9)
    assert node.sweeper.sweep() == 0
    clock.advance(1)
    assert node.sweeper.sweep() == 6
    clock.advance(90)
    assert node.sweeper.sweep() == 2
    for one in (kb, other):
        assert stored(one) == [("p", "future"), ("p", "kept")]
        assert stored(one, "s") == []
    generation = kb._read_tenant().generation
    assert node.sweeper.sweep() == 0
    assert kb._read_tenant().generation == generation


def test_the_sweeper_wakes_by_its_interval(clock):
    with runtime(clock=clock, sweep_interval_ms=1000) as node:
        kb = node.knowledge_base()
        tell(kb, "p", "a", ttl=10)
        clock.advance(999)
        assert node.sweeper.tick() == 0
        clock.advance(1)
        assert node.sweeper.tick() == 1
        tell(kb, "p", "a", ttl=10)
        clock.advance(999)
        assert node.sweeper.tick() == 0
    with runtime(clock=clock, sweep_interval_ms=0) as node:
        tell(node.knowledge_base(), "p", "a", ttl=10)
        clock.advance(10**9)
        assert node.sweeper.tick() == 0


def test_the_sweeper_works_in_batches_with_others_in_between(node, kb, clock, monkeypatch):
    monkeypatch.setattr("kbcore.upkeep.sweep.BATCH", 4)
    kb.assert_facts([Fact("p", (str(i),), ttl=10) for i in range(10)])
    tell(kb, "q", "a", ttl=10)
    clock.advance(10)
    generation = kb._read_tenant().generation
    pauses = []
    monkeypatch.setattr(node.sweeper, "_pause", lambda: pauses.append(stored(kb)))
    assert node.sweeper.sweep() == 11
    assert kb._read_tenant().generation == generation + 3
    assert [len(found) for found in pauses] == [7, 3, 0, 0]


def test_a_sweep_is_over_when_the_node_stops(node, kb, clock):
    tell(kb, "p", "a", ttl=10)
    clock.advance(10)
    node.sweeper.close()
    assert node.sweeper.sweep() == 0


def test_a_failing_write_is_no_end_of_sweeping(node, kb, clock, monkeypatch, caplog):
    from kbcore.errors import StorageFull

    tell(kb, "p", "a", ttl=10)
    clock.advance(10)

    def full(changes):
        raise StorageFull("no room")

    with monkeypatch.context() as patched:
        patched.setattr(node.sweeper, "_commit", full)
        assert node.sweeper.sweep() == 0
    assert "stay for now" in caplog.text
    assert node.sweeper.sweep() == 1


def test_a_clock_that_goes_back_neither_revives_nor_reorders(node, kb, clock):
    tell(kb, "p", "a")
    clock.advance(HOUR)
    tell(kb, "p", "b")
    tell(kb, "p", "short", ttl=10)
    clock.advance(10)
    before = names(kb.salient("p", [X]))
    clock.step(-2 * HOUR)
    assert names(kb.salient("p", [X])) == before == [("p", "b"), ("p", "a")]
    assert kb.decay(0.0).expired == 1
    assert node.sweeper.sweep() == 0
    tell(kb, "p", "c")
    assert kb.salient("p", ["c"])[0]["salience"] == pytest.approx(formula(0))


# -- consolidation -----------------------------------------------------------------------------------------------------


def visits(kb, who, places, **more):
    kb.assert_facts([Fact("visited", (who, f"place{i}"), **more) for i in places])


def summaries(kb, scope=None):
    return [(row["args"], row["metadata"]) for row in kb.query_rows("visited_consolidated", [X, Variable("n")], scope=scope)]


def test_facts_that_repeat_themselves_are_summed_up(kb, clock):
    visits(kb, "ann", range(5))
    clock.advance(100)
    visits(kb, "ann", [5, 6])
    visits(kb, "bob", range(4))
    visits(kb, "cid", range(5), scope="s")
    visits(kb, "dora", range(5), positive=False)
    visits(kb, "eve", range(4))
    visits(kb, "eve", [9], ttl=10)
    clock.advance(10)
    tell(kb, "flag")
    dry = kb.consolidate(dry_run=True)
    assert summaries(kb) == []
    found = kb.consolidate()
    metadata = {"consolidated": True, "sources": 7, "from": T0, "to": T0 + 100}
    assert summaries(kb) == [(["ann", "7"], metadata)]
    assert (found.consolidated, found.removed, found.timestamp) == (7, 0, T0 + 110)
    assert names(found.facts) == [("visited_consolidated", "ann", "7")]
    assert (dry.consolidated, names(dry.facts), dry.facts[0]["metadata"]) == (7, names(found.facts), metadata)
    assert found.facts[0]["createdAt"] == T0 + 110
    assert dry.facts[0]["createdAt"] is None
    assert len(kb.query_rows("visited", ["ann", X])) == 7
    assert kb.consolidate(scope="s").consolidated == 5
    assert [args for args, _ in summaries(kb, "s")] == [["cid", "5"]]


def test_a_later_run_replaces_the_count(kb, clock):
    visits(kb, "ann", range(5))
    kb.consolidate()
    generation = kb._read_tenant().generation
    clock.advance(100)
    again = kb.consolidate()
    assert (again.consolidated, again.facts, again.removed) == (0, [], 0)
    assert kb._read_tenant().generation == generation
    visits(kb, "ann", [5])
    more = kb.consolidate()
    assert (more.consolidated, more.removed) == (6, 1)
    assert [args for args, _ in summaries(kb)] == [["ann", "6"]]
    kb.retract_fact("visited", ["ann", "place5"])
    visits(kb, "ann", [6])
    same = kb.consolidate()
    assert (same.consolidated, same.removed) == (0, 0)
    kb.retract_fact("visited", ["ann", "place0"])
    clock.advance(100)
    visits(kb, "ann", [7])
    assert kb.consolidate().facts[0]["metadata"]["to"] == T0 + 200
    assert [args for args, _ in summaries(kb)] == [["ann", "6"]]


def test_the_summary_of_a_group_that_became_too_small_goes(kb):
    visits(kb, "ann", range(5))
    kb.consolidate()
    kb.retract_fact("visited", ["ann", "place0"])
    found = kb.consolidate()
    assert (found.facts, found.removed) == ([], 1)
    assert summaries(kb) == []


def test_summaries_and_facts_like_them_are_left_alone(kb):
    for count in range(5, 12):
        tell(kb, "visited_consolidated", "ann", str(count), metadata={"consolidated": True})
    assert kb.consolidate(predicates=["visited_consolidated"]).facts == []
    assert kb.consolidate(predicates=["other"]).removed == 0
    tell(kb, "visited_consolidated", "bob", "5")
    visits(kb, "bob", range(5))
    visits(kb, "bob", [0])
    found = kb.consolidate()
    assert (found.facts, found.removed) == ([], 7)
    assert summaries(kb) == [(["bob", "5"], {})]


def test_groups_of_two_arities(kb):
    kb.assert_facts([Fact("e", ("a", str(i))) for i in range(5)] + [Fact("e", ("a", str(i), "x")) for i in range(6)])
    assert sorted(names(kb.consolidate().facts)) == [("e_consolidated", "a", "5"), ("e_consolidated", "a", "6")]
    kb.retract_fact("e", ["a", "0", "x"])
    assert (kb.consolidate().removed, kb.consolidate().removed) == (1, 0)
    assert names(kb.query_rows("e_consolidated", [X, Variable("n")])) == [("e_consolidated", "a", "5")]


def test_the_size_of_groups_and_the_predicates_can_be_said(kb):
    visits(kb, "ann", range(3))
    kb.assert_facts([Fact("met", ("ann", str(i))) for i in range(3)])
    assert names(kb.consolidate(min_group_size=3, predicates=["met"]).facts) == [("met_consolidated", "ann", "3")]
    with pytest.raises(InvalidInput):
        kb.consolidate(min_group_size=1)
    with pytest.raises(InvalidInput):
        kb.consolidate(scope="*")


def test_many_groups_are_split_into_records(kb, monkeypatch):
    monkeypatch.setattr("kbcore.upkeep.consolidate.RECORD_BYTES", 2000)
    kb.assert_facts([Fact("p", (f"a{i}", str(j))) for i in range(20) for j in range(2)])
    assert len(kb.consolidate(min_group_size=2).facts) == 20
    kb.assert_facts([Fact("p", (f"a{i}", "2")) for i in range(20)])
    assert (kb.consolidate(min_group_size=2).removed, kb.consolidate(min_group_size=2).removed) == (20, 0)
    assert len(kb.query_rows("p_consolidated", [X, "3"])) == 20


# -- rows of no arguments ----------------------------------------------------------------------------------------------


def test_rows_of_arity_0_are_one_row():
    assert len(FactRows("flag", 0, ())) == 1
    assert FactRows("flag", 0, ()).facts() == [Fact("flag", ())]
