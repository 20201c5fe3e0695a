"""Transactions: what they see, what they hold apart, what makes them fail, and how they end."""

from __future__ import annotations

import pytest
from support.runtimes import runtime

from kbcore.clock import ManualClock
from kbcore.errors import Conflict, InvalidInput, RateLimited, StorageFull, TooLarge, UnknownTransaction
from kbcore.state.changes import CatalogAction, ChangeCatalog, ChangeSet
from kbcore.state.facts import Fact, FactRows
from kbplanner.parser import parse_goal, parse_rule
from kbplanner.terms import Variable

ANY = Variable("x")
REACH = ("reach(?x, ?y) :- edge(?x, ?y).", "reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).")


class Node:
    """A runtime, and one operation of a transaction a call."""

    def __init__(self, folder=None, **settings):
        self.clock = settings.pop("clock", None) or ManualClock()
        self.runtime = runtime(folder, clock=self.clock, **settings)
        self.kb = self.runtime.knowledge_base()

    def begin(self):
        return Handle(self, self.runtime.begin())

    def tell(self, *texts):
        self.kb.assert_facts([fact(text) for text in texts])

    def retract(self, text):
        name, args = atom(text)
        self.kb.retract_fact(name, args)

    def teach(self, *texts):
        self.kb.assert_rules([parse_rule(text) for text in texts])

    def ask(self, goal, kb=None, scope=None):
        return [row["args"] for row in (kb or self.kb).infer(parse_goal(goal).body[0], scope=scope)]


class Handle:
    def __init__(self, node, id):
        self.node = node
        self.id = id

    def do(self, call, *, writes=True):
        with self.node.runtime.in_transaction("default", "default", self.id, writes=writes) as kb:
            return call(kb)

    def tell(self, *texts, **more):
        return self.do(lambda kb: kb.assert_facts([fact(text, **more) for text in texts]))

    def retract(self, text):
        name, args = atom(text)
        return self.do(lambda kb: kb.retract_fact(name, args))

    def ask(self, goal, scope=None):
        return self.do(lambda kb: self.node.ask(goal, kb, scope), writes=False)

    def commit(self):
        return self.do(lambda kb: kb.commit())

    def roll_back(self):
        return self.do(lambda kb: kb.roll_back())

    def state(self):
        with pytest.raises(Conflict) as caught:
            self.do(lambda kb: None)
        return caught.value.details["state"]


def atom(text):
    found = parse_goal(text).body[0].atom
    return found.predicate, found.args


def fact(text, **more):
    return Fact(*atom(text), **more)


@pytest.fixture
def node():
    made = Node()
    yield made
    made.runtime.close()


def refused(transaction):
    """A commit that must fail: what changed."""
    with pytest.raises(Conflict) as caught:
        transaction.commit()
    assert caught.value.details["state"] == "rolled_back"
    assert caught.value.details["transaction"] == transaction.id
    assert transaction.state() == "rolled_back"
    return caught.value.details["changed"]


# -- what is seen ---------------------------------------------------------------------------------


def test_writes_are_seen_inside_and_not_outside(node):
    node.teach(*REACH)
    node.tell("edge(a, b)", "edge(b, c)")
    inside = node.begin()
    inside.tell("edge(c, d)")
    assert inside.ask("reach(a, ?x)") == [["a", "b"], ["a", "c"], ["a", "d"]]
    assert inside.retract("edge(b, c)").cascaded == 4
    inside.do(lambda kb: kb.assert_rules([parse_rule("reach(?x, z) :- edge(?x, b).")]))
    assert inside.ask("reach(a, ?x)") == [["a", "b"], ["a", "z"]]
    assert node.ask("reach(a, ?x)") == [["a", "b"], ["a", "c"]]
    inside.commit()
    assert node.ask("reach(a, ?x)") == [["a", "b"], ["a", "z"]]
    assert node.ask("edge(?x, ?y)") == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize("goal", ["?- r(a).", "?- r(?x).", "?- p(a).", "?- n(?x).", "?- w(b, ?x).", "?- t(?n)."])
@pytest.mark.parametrize("told", [(), ("p(b)",), ("p(a)", "p(b)")])
def test_a_goal_asked_before_a_write_and_again_after_it(node, goal, told):
    rules = (
        "r(?x) :- p(?x).",
        "n(?x) :- q(?x), not p(?x).",
        "w(?x, ?y) :- q(?x), q(?y), not w(?y, ?x), not p(?y).",
        "t(count(?x)) :- p(?x).",
    )
    node.teach(*rules)
    node.tell("q(a)", "q(b)", *told)
    inside, alone = node.begin(), Node()
    alone.teach(*rules)
    alone.tell("q(a)", "q(b)", *told)
    for write in (lambda to: to.tell("p(a)"), lambda to: to.retract("p(a)"), lambda to: to.tell("p(c)")):
        assert inside.ask(goal) == alone.ask(goal)
        write(inside)
        write(alone)
        assert inside.ask(goal) == alone.ask(goal)


def test_what_others_commit_is_seen_through_what_was_not_read(node):
    inside = node.begin()
    inside.tell("p(a)")
    node.tell("q(b)")
    assert inside.ask("q(?x)") == [["b"]]


def test_a_copy_is_renewed_when_others_have_written(node):
    inside = node.begin()
    inside.tell("p(a)")
    assert inside.do(lambda kb: kb.query_rows("other", [ANY])) == []
    node.tell("p(b)")
    assert inside.ask("p(?x)") == [["a"], ["b"]]
    inside.commit()


def test_every_kind_of_read_sees_the_writes(node):
    inside = node.begin()
    inside.tell("n(1)", "n(2)")
    inside.do(lambda kb: kb.assert_rules([parse_rule("m(?x) :- n(?x).")]))

    def read(kb):
        assert [row["args"] for row in kb.query_rows("n", [ANY])] == [["1"], ["2"]]
        assert kb.aggregate("n", "SUM", arg_index=0).result == 3
        assert kb.predicates()["totalFacts"] == 2
        assert [rule.text for rule in kb.rules()] == ["m(?x) :- n(?x)."]
        assert b"".join(kb.infer_json(parse_goal("m(?x)").body[0], lambda rows: b"")).count(b'"m"') == 2
        assert len(kb.prove(parse_goal("m(?x)").body[0])) == 2
        assert "n(1)" in kb.explain(parse_goal("m(1)").body)

    inside.do(read, writes=False)
    assert node.kb.predicates()["totalFacts"] == 0


def test_facts_keep_what_they_carry(node):
    inside = node.begin()
    inside.tell("p(a)", confidence=0.5, metadata={"k": 1}, ttl=1000, scope="s")
    assert inside.do(lambda kb: kb.query_rows("p", [ANY], scope="s"))[0]["metadata"] == {"k": 1}
    node.clock.advance(500)
    inside.commit()
    (row,) = node.kb.query_rows("p", [ANY], scope="s")
    assert (row["confidence"], row["metadata"], row["ttl"]) == (0.5, {"k": 1}, 1000)
    assert row["createdAt"] == node.clock.now_ms()
    node.clock.advance(1000)
    assert node.kb.query_rows("p", [ANY], scope="s") == []


def test_bulk_counts_look_at_what_is_there_and_at_what_is_staged(node):
    node.tell("p(a)")
    inside = node.begin()
    rows = FactRows("p", 1, ["a", "b", "c"])
    first = inside.do(lambda kb: kb.assert_rows([rows]))
    assert (first.asserted, first.updated) == (2, 1)
    again = inside.do(lambda kb: kb.assert_rows([rows]))
    assert (again.asserted, again.updated) == (0, 3)
    inside.commit()
    assert node.ask("p(?x)") == [["a"], ["b"], ["c"]]


def test_it_is_one_change_set(node):
    before = node.runtime.knowledge_base()._read_tenant().generation if node.ask("p(?x)") else 0
    inside = node.begin()
    for name in "abc":
        inside.tell(f"p({name})")
    inside.commit()
    assert node.runtime.find_tenant("default", "default").generation == before + 1


# -- what makes a commit fail ---------------------------------------------------------------------


def test_a_read_that_is_not_true_any_more(node):
    node.teach(*REACH)
    inside = node.begin()
    assert inside.ask("reach(a, ?x)") == []
    inside.tell("seen(a)")
    node.tell("edge(a, b)")
    assert refused(inside) == [{"predicate": "edge", "arity": 2, "scope": None}]
    assert node.ask("seen(?x)") == []


def test_a_read_of_a_constant_nobody_has_yet(node):
    inside = node.begin()
    assert inside.ask("user(ann)") == []
    inside.tell("user(ann)")
    node.tell("user(ann)")
    assert refused(inside) == [{"predicate": "user", "arity": 1, "scope": None}]


def test_writes_elsewhere_do_not_matter(node):
    node.teach(*REACH)
    node.tell("edge(a, b)")
    inside = node.begin()
    assert inside.ask("reach(a, ?x)") == [["a", "b"]]
    inside.tell("seen(a)")
    node.tell("other(a)", "edge(a, b, c)")
    node.kb.assert_facts([fact("edge(b, c)", scope="s")])
    inside.commit()
    assert node.ask("seen(?x)") == [["a"]]


def test_rules_that_were_used_and_changed(node):
    node.teach("q(?x) :- p(?x).")
    inside = node.begin()
    assert inside.ask("q(?x)") == []
    node.teach("q(?x) :- r(?x).")
    assert refused(inside) == [{"rules": True}]


def test_rules_it_teaches_when_others_teach(node):
    inside = node.begin()
    inside.do(lambda kb: kb.assert_rules([parse_rule("q(?x) :- p(?x).")]))
    node.teach("q(?x) :- r(?x).")
    assert refused(inside) == [{"rules": True}]


def test_a_fact_that_both_retract(node):
    node.tell("p(a)")
    inside = node.begin()
    assert inside.retract("p(a)").retracted == 1
    node.kb.retract_fact("p", ["a"])
    assert refused(inside) == [{"fact": "p(a)", "scope": None}]


def test_a_fact_that_it_retracts_and_another_changes(node):
    node.tell("p(a)")
    inside = node.begin()
    inside.retract("p(a)")
    node.kb.assert_facts([fact("p(a)", confidence=0.5)])
    assert refused(inside) == [{"fact": "p(a)", "scope": None}]


def test_a_fact_that_it_asserts_and_another_retracts(node):
    node.tell("p(a)")
    inside = node.begin()
    inside.tell("p(a)")
    node.kb.retract_fact("p", ["a"])
    assert refused(inside) == [{"fact": "p(a)", "scope": None}]


def test_blind_asserts_of_the_same_fact_do_not_conflict(node):
    one, two = node.begin(), node.begin()
    for transaction in (one, two):
        transaction.tell("p(a)", "p(b)")
    node.tell("p(a)")
    one.commit()
    two.commit()
    assert node.ask("p(?x)") == [["a"], ["b"]]


def test_retractions_of_different_facts_do_not_conflict(node):
    node.teach("q(?x) :- p(?x).")
    node.tell("p(a)", "p(b)")
    one, two = node.begin(), node.begin()
    assert one.retract("p(a)").cascaded == 1
    assert two.retract("p(b)").cascaded == 1
    one.commit()
    two.commit()
    assert node.ask("q(?x)") == []


def test_a_retracted_pattern_rests_on_its_predicate(node):
    node.tell("p(a)")
    inside = node.begin()
    assert inside.do(lambda kb: kb.retract_pattern("p", [ANY])).retracted == 1
    node.tell("p(b)")
    assert refused(inside) == [{"predicate": "p", "arity": 1, "scope": None}]


def test_what_a_cascade_looked_at_is_noted_when_it_is_read_later(node):
    node.teach("q(?x) :- p(?x), r(?x).")
    node.tell("p(a)", "r(a)", "p(b)", "r(b)")
    inside = node.begin()
    assert inside.retract("p(a)").cascaded == 1
    assert inside.ask("q(?x)") == [["b"]]
    node.kb.retract_fact("r", ["b"])
    assert {"predicate": "r", "arity": 1, "scope": None} in refused(inside)


def test_time_that_changes_a_read(node):
    node.kb.assert_facts([fact("p(a)", ttl=1000)])
    inside = node.begin()
    assert inside.ask("p(?x)") == [["a"]]
    node.clock.advance(2000)
    assert refused(inside) == [{"predicate": "p", "arity": 1, "scope": None}]


def test_time_that_changes_what_it_told(node):
    inside = node.begin()
    inside.tell("p(a)", valid_until=node.clock.now_ms() + 1000)
    assert inside.ask("p(?x)") == [["a"]]
    node.clock.advance(2000)
    assert refused(inside) == [{"time": True}]


def test_a_scope_that_appears_in_a_read_of_all(node):
    inside = node.begin()
    assert inside.ask("p(?x)", scope="*") == []
    node.kb.assert_facts([fact("q(a)", scope="s")])
    assert refused(inside) == [{"scopes": True}]


def test_of_two_that_read_and_write_the_same_one_wins(node):
    node.tell("counter(0)")
    one, two = node.begin(), node.begin()
    for transaction in (one, two):
        assert transaction.ask("counter(?n)") == [["0"]]
        transaction.retract("counter(0)")
        transaction.tell("counter(1)")
    one.commit()
    refused(two)
    assert node.ask("counter(?n)") == [["1"]]


# -- how they end ---------------------------------------------------------------------------------


def test_rolled_back(node):
    inside = node.begin()
    inside.tell("p(a)")
    inside.roll_back()
    assert inside.state() == "rolled_back"
    assert node.ask("p(?x)") == []


def test_a_write_that_fails_rolls_back(node):
    node.teach("@r: q(?x) :- p(?x).")
    inside = node.begin()
    inside.tell("p(a)")
    with pytest.raises(Conflict, match="belongs to another rule"):
        inside.do(lambda kb: kb.assert_rules([parse_rule("@r: q(?x) :- other(?x).")]))
    assert inside.state() == "rolled_back"


def test_a_read_that_fails_does_not(node):
    inside = node.begin()
    inside.tell("p(a)")
    with pytest.raises(InvalidInput):
        inside.do(lambda kb: kb.aggregate("p", "SUM", arg_index=0), writes=False)
    inside.commit()
    assert node.ask("p(?x)") == [["a"]]


def test_a_conflict_strategy_sees_what_is_staged(node):
    inside = node.begin()
    inside.tell("p(a)")
    with pytest.raises(Conflict, match="opposite"):
        inside.do(lambda kb: kb.assert_facts([fact("p(a)", positive=False)], conflict="REJECT"))
    assert inside.state() == "rolled_back"


def test_ids_of_others_are_unknown(node):
    inside = node.begin()
    for database, tenant, id in (("default", "other", inside.id), ("default", "default", "nope")):
        with pytest.raises(UnknownTransaction):
            node.runtime.in_transaction(database, tenant, id)


def test_idle_ones_expire(node):
    inside, used = node.begin(), node.begin()
    inside.tell("p(a)")
    node.clock.advance(40_000)
    used.ask("p(?x)")
    node.clock.advance(40_000)
    assert inside.state() == "expired"
    used.commit()
    assert node.ask("p(?x)") == []


def test_old_ones_expire_even_if_used(node):
    inside = node.begin()
    for _ in range(11):
        node.clock.advance(50_000)
        inside.tell("p(a)")
    node.clock.advance(50_000)
    assert inside.state() == "expired"


def test_a_wall_clock_that_is_set_expires_nothing(node):
    inside = node.begin()
    node.clock.step(10_000_000)
    inside.tell("p(a)")
    node.clock.step(-20_000_000)
    inside.commit()
    assert node.ask("p(?x)") == [["a"]]


def test_limits():
    node = Node(tx_max_operations=3, tx_max_bytes=2000, tx_max_open=2)
    one = node.begin()
    for name in "abc":
        one.tell(f"p({name})")
    with pytest.raises(TooLarge, match="3 operations"):
        one.tell("p(d)")
    assert one.state() == "rolled_back"
    two, _ = node.begin(), node.begin()
    with pytest.raises(RateLimited):
        node.begin()
    with pytest.raises(TooLarge, match="2000 bytes"):
        two.tell(f"p({'x' * 2000})")
    node.begin()
    node.runtime.close()


def test_a_goal_cannot_fill_memory_with_names(node):
    inside = node.begin()
    for number in range(10, 27):
        inside.do(lambda kb, n=number: kb.query_rows("p", [f"{n}" * 30_000]), writes=False)
    with pytest.raises(TooLarge):
        inside.do(lambda kb: kb.query_rows("p", ["x" * 60_000]), writes=False)


def test_where_there_is_no_room_it_stays_open(node, monkeypatch):
    inside = node.begin()
    inside.tell("p(a)")
    with monkeypatch.context() as patch:

        def full(records):
            raise StorageFull("no room")

        patch.setattr(node.runtime._store, "append", full)
        with pytest.raises(StorageFull):
            inside.commit()
    inside.commit()
    assert node.ask("p(?x)") == [["a"]]


@pytest.mark.parametrize("action", [CatalogAction.NUKE_TENANT, CatalogAction.DROP_TENANT, CatalogAction.NUKE_DATABASE])
def test_a_tenant_that_is_emptied_takes_them_along(node, action):
    node.tell("p(a)")
    inside = node.begin()
    inside.ask("p(?x)")
    tenant = "" if action.of_database else "default"
    node.runtime.commit(ChangeSet("default", tenant, (ChangeCatalog(action),)))
    assert inside.state() == "rolled_back"
    assert node.ask("p(?x)") == []


# -- after a restart ------------------------------------------------------------------------------


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_remembers_what_was_committed(tmp_path, clean):
    node = Node(tmp_path)
    done, left = node.begin(), node.begin()
    done.tell("p(a)")
    left.tell("p(b)")
    done.commit()
    if clean:
        node.runtime.snapshot()
    node.runtime._store.close(clean=False)
    again = Node(tmp_path, clock=node.clock)
    assert again.ask("p(?x)") == [["a"]]
    assert Handle(again, done.id).state() == "committed"
    with pytest.raises(UnknownTransaction):
        Handle(again, left.id).commit()
    again.clock.advance(11 * 60_000)
    again.tell("p(c)")
    with pytest.raises(UnknownTransaction):
        Handle(again, done.id).commit()
    again.runtime.close()
