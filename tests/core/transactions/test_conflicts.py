"""Conflicts that make the commit of a transaction fail, and changes that do not."""

from __future__ import annotations

from support.transactions import ANY, REACH, fact, refused

from kbplanner.syntax.parser import parse_rule


def test_a_read_that_no_longer_holds(node):
    node.teach(*REACH)
    inside = node.begin()
    assert inside.ask("reach(a, ?x)") == []
    inside.tell("seen(a)")
    node.tell("edge(a, b)")
    assert refused(inside) == [{"predicate": "edge", "arity": 2, "scope": None}]
    assert node.ask("seen(?x)") == []


def test_a_read_of_an_unknown_constant(node):
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


def test_rules_taught_in_two_transactions(node):
    inside = node.begin()
    inside.do(lambda kb: kb.assert_rules([parse_rule("q(?x) :- p(?x).")]))
    node.teach("q(?x) :- r(?x).")
    assert refused(inside) == [{"rules": True}]


def test_a_fact_retracted_by_both(node):
    node.tell("p(a)")
    inside = node.begin()
    assert inside.retract("p(a)").retracted == 1
    node.kb.retract_fact("p", ["a"])
    assert refused(inside) == [{"fact": "p(a)", "scope": None}]


def test_a_fact_retracted_here_and_changed_elsewhere(node):
    node.tell("p(a)")
    inside = node.begin()
    inside.retract("p(a)")
    node.kb.assert_facts([fact("p(a)", confidence=0.5)])
    assert refused(inside) == [{"fact": "p(a)", "scope": None}]


def test_a_fact_asserted_here_and_retracted_elsewhere(node):
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


def test_a_retracted_pattern_depends_on_its_predicate(node):
    node.tell("p(a)")
    inside = node.begin()
    assert inside.do(lambda kb: kb.retract_pattern("p", [ANY])).retracted == 1
    node.tell("p(b)")
    assert refused(inside) == [{"predicate": "p", "arity": 1, "scope": None}]


def test_reads_of_a_cascade_are_recorded_when_they_are_made(node):
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


def test_time_that_changes_an_asserted_fact(node):
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


def test_of_two_transactions_with_the_same_reads_and_writes_one_commits(node):
    node.tell("counter(0)")
    one, two = node.begin(), node.begin()
    for transaction in (one, two):
        assert transaction.ask("counter(?n)") == [["0"]]
        transaction.retract("counter(0)")
        transaction.tell("counter(1)")
    one.commit()
    refused(two)
    assert node.ask("counter(?n)") == [["1"]]
