"""Every operation of the client, on a knowledge base in this process and on servers."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from urllib.parse import urlsplit

import pytest
from support.proxies import Proxy

from kbcore_client import (
    BudgetExceeded,
    Conflict,
    InvalidInput,
    ModelNotConfigured,
    NotFound,
    NotUnique,
    Retries,
    RuleSyntaxError,
    Settings,
    connect,
)
from kbcore_client.windows import Bucket

FAMILY = "parent(ann, bob). parent(bob, cy)."
ANCESTOR = """ancestor(?x, ?y) :- parent(?x, ?y).
ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z)."""


@pytest.fixture
def family(kb):
    kb.tell(FAMILY)
    kb.teach(ANCESTOR)
    return kb


def test_facts_are_stored_once_and_counted(kb):
    first = kb.tell("parent", ["ann", "bob"], confidence=0.5, metadata={"source": "chat"})
    again = kb.tell("parent(ann, bob)")
    assert (first.asserted, first.updated) == (1, 0)
    assert (again.asserted, again.updated) == (0, 1)
    assert first.timestamp <= again.timestamp
    assert kb.tell_many("age", [["ann", 41], ["bob", 12.5], ["cy", True]]).asserted == 3
    ages = kb.query("age", ["?who", "?n"], values="python")
    assert ages == [("ann", 41), ("bob", 12.5), ("cy", True)]
    assert kb.count("age") == 3
    assert kb.count("age(ann, ?n)") == kb.count("age", ["ann", "?n"]) == 1


def test_details_of_a_fact_come_back_in_its_row(kb):
    until = datetime.now(timezone.utc) + timedelta(hours=1)
    kb.tell("likes", ["ann", "tea"], valid_until=until, confidence=0.25, metadata={"a": [1]})
    kb.tell("likes(ann, milk)", negated=True)
    (row,) = kb.query("likes(ann, ?what)").rows()
    assert (row["args"], row["confidence"], row["metadata"]) == (["ann", "tea"], 0.25, {"a": [1]})
    assert row["validUntil"] == int(until.timestamp() * 1000)
    assert kb.query("~likes(ann, ?what)") == [("ann", "milk")]


def test_answers_are_tuples_dicts_and_rows(family):
    answers = family.ask("ancestor(ann, ?who)")
    assert answers == [("ann", "bob"), ("ann", "cy")]
    assert answers.dicts() == [{"who": "bob"}, {"who": "cy"}]
    assert [row["args"] for row in answers.rows()] == [["ann", "bob"], ["ann", "cy"]]
    assert len(answers) == answers.count() == 2
    assert answers[0] == ("ann", "bob")
    assert answers[-1:] == [("ann", "cy")]
    assert repr(answers) == "AnswerSet([('ann', 'bob'), ('ann', 'cy')])"
    assert family.ask("ancestor", ["ann", "?who"]).dicts() == answers.dicts()
    assert family.ask("ancestor(ann, cy)").dicts() == [{}]


def test_a_goal_of_several_literals_has_the_values_of_its_variables(family):
    answers = family.ask("parent(?x, ?y), ancestor(?y, ?z)")
    assert answers == [("ann", "bob", "cy")]
    assert answers.dicts() == answers.rows() == [{"x": "ann", "y": "bob", "z": "cy"}]
    assert family.ask("parent(?x, ?y), not parent(?y, _)").dicts() == [{"x": "bob", "y": "cy"}]


def test_several_goals_are_answered_at_once(family):
    goals = ["ancestor(ann, ?who)", "parent(ann, ?x), ancestor(?x, ?y)", "not parent(cy, ann)"]
    answers = family.ask_many(goals)
    assert answers == [family.ask(goal) for goal in goals]
    assert [each.dicts() for each in answers] == [family.ask(goal).dicts() for goal in goals]
    assert [len(each) for each in family.ask_many(iter(goals), limit=1)] == [1, 1, 1]
    family.tell_many("age", [["ann", 41]])
    (ages,) = family.ask_many(["age(ann, ?n)"], values="python")
    assert ages.one() == ("ann", 41)
    assert family.ask_many([]) == []


def test_each_of_several_goals_has_its_unknown_predicates(family):
    answers = family.ask_many(["parents(?x)", "ancestor(ann, ?x)", "friend(?x)"])
    assert [[name.partition(" ")[0] for name in each.unknown] for each in answers] == [
        ["parents/1"],
        [],
        ["friend/1"],
    ]


@pytest.mark.parametrize(
    ("goals", "field"),
    [
        (["parent(?x, ?y)", "p("], "goals[1]"),
        (["parent(?x, ?y)", "parent(?x, ?y), ?z > 2"], "goals[1]"),
        (["parent(?x, ?y)", 5], "goals[1]"),
        ("parent(?x, ?y)", "goals"),
    ],
)
def test_a_bad_goal_of_several_is_named(family, goals, field):
    with pytest.raises(InvalidInput) as refused:
        family.ask_many(goals)
    assert field in refused.value.details["fields"]


def test_one_answer_or_an_error_that_names_the_goal(family):
    assert family.ask("parent(ann, ?who)").one() == ("ann", "bob")
    with pytest.raises(NotUnique) as several:
        family.ask("parent(?x, ?y)").one()
    assert several.value.details == {"goal": "parent(?x, ?y)", "count": 2}
    with pytest.raises(NotFound, match=r"parents\(\?x\) has no answer; no fact or rule for parent"):
        family.ask("parents", ["?x"]).one()


def test_limits_and_offsets(family):
    assert family.ask("ancestor(?x, ?y)", limit=1, offset=1) == [("ann", "cy")]
    family.tell("likes(ann, Tea). likes(bob, coffee).")
    assert family.query("likes(?x, ?y)", contains="TEA") == [("ann", "Tea")]
    assert family.query("likes(?x, ?y)", offset=1) == [("bob", "coffee")]


def test_pages_are_fetched_one_by_one(kb):
    kb.tell_many("n", [[number] for number in range(25)])
    pages = list(kb.query_pages("n(?x)", page_size=10, values="python"))
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [value for page in pages for (value,) in page] == list(range(25))
    assert [len(page) for page in kb.ask_pages("n", ["?x"], page_size=20)] == [20, 5]
    started = kb.ask_pages("n(?x)", page_size=20)
    next(started)
    kb.tell("n(100)")
    with pytest.raises(Conflict) as changed:
        next(started)
    assert changed.value.details == {"reason": "changed"}


def test_aggregates(kb):
    kb.tell("salary(ann, 10). salary(bob, 20). salary(cy, much).")
    assert kb.aggregate("sum", "salary(_, ?n)", skip_non_numeric=True) == 30
    assert kb.aggregate("max", "salary(?who, ?n)", of="?n", skip_non_numeric=True) == 20
    assert kb.aggregate("avg", "salary", ["bob", "?n"]) == 20
    assert kb.aggregate("min", "wage(?n)") is None
    with pytest.raises(InvalidInput, match="of: must name one variable"):
        kb.aggregate("sum", "salary(?who, ?n)")
    with pytest.raises(InvalidInput, match="much"):
        kb.aggregate("sum", "salary(_, ?n)")


def test_proofs_and_their_text(family):
    (proof,) = family.prove("ancestor(ann, cy)")
    assert proof.answer["args"] == ["ann", "cy"]
    assert proof.text == family.explain("ancestor(ann, cy)")
    assert proof.text.splitlines()[1:] == [
        "  parent(ann, bob)  stored",
        "  ancestor(bob, cy)  by ancestor(?x, ?y) :- parent(?x, ?y).",
        "    parent(bob, cy)  stored",
    ]
    (dag,) = family.prove("ancestor", ["ann", "cy"], form="dag")
    assert dag.proof["root"]
    with pytest.raises(InvalidInput, match="only a proof of the form tree"):
        _ = dag.text
    with pytest.raises(InvalidInput, match="form: "):
        family.prove("ancestor(ann, cy)", form="star")


def test_why_a_goal_has_no_answer(family):
    why = family.why_not("ancestor(ann, zoe)", depth=2)
    assert not why.holds
    assert why.candidates[0].satisfied[0].text == "parent(ann, bob)"
    assert why.candidates[0].missing.text == "ancestor(bob, zoe)"
    assert why.candidates[0].because is not None
    assert why.text.startswith("ancestor(ann, zoe) does not hold.\n1. Rule ancestor(")
    assert family.why_not("ancestor(ann, cy)").holds


def test_what_would_make_a_goal_true_or_false(family):
    how = family.how_to("ancestor", ["cy", "zoe"], limit=1)
    assert (how.truth, how.truncated) == ("false", False)
    assert [(each.add, each.remove) for each in how.proposals] == [(("parent(cy, zoe)",), ())]
    assert how.text == (
        "ancestor(cy, zoe) would be true after one of these changes:\n1. add parent(cy, zoe)"
    )
    asserted = family.how_to("ancestor(cy, zoe)", changing=["ancestor"], limit=1)
    assert asserted.proposals[0].add == ("ancestor(cy, zoe)",)
    removed = family.how_to("ancestor(ann, bob)", make="false")
    assert removed.proposals[0].remove == ("parent(ann, bob)",)
    with pytest.raises(InvalidInput, match="make"):
        family.how_to("ancestor(ann, bob)", make="maybe")


def test_rules_are_listed_and_retracted(family):
    first, second = family.rules()
    assert first.text == "ancestor(?x, ?y) :- parent(?x, ?y)."
    outcome = family.teach("lonely(?x) :- friend(?x, ?y), not lonly(?x)")
    assert outcome.rules[0] in family.rules()
    assert any("lonly/1" in warning for warning in outcome.warnings)
    family.retract_rule(second)
    family.retract_rule("ancestor(?a, ?b) :- parent(?a, ?b).")
    family.retract_rule(outcome.rules[0].id)
    assert family.rules() == []
    with pytest.raises(NotFound):
        family.retract_rule("no-such-rule")


def test_retractions_report_conclusions(family):
    outcome = family.retract("parent(bob, cy)")
    assert (outcome.retracted, outcome.cascaded, outcome.counted) == (1, 2, True)
    assert {tuple(atom["args"]) for atom in outcome.cascaded_atoms} == {
        ("bob", "cy"),
        ("ann", "cy"),
    }
    assert family.forget("parent", ["ann", "?who"], count=False).atoms[0]["args"] == ["ann", "bob"]
    assert family.retract("parent(ann, bob)").retracted == 0


def test_previews_change_nothing(family):
    preview = family.preview("parent(cy, dee)", forget="parent(ann, bob)")
    assert preview.counts.becomes_true == 3
    assert [change.text for change in preview.becomes_true] == [
        "parent(cy, dee)",
        "ancestor(bob, dee)",
        "ancestor(cy, dee)",
    ]
    assert preview.becomes_false[0].stored
    assert family.count("parent") == 2


def test_texts_are_checked(kb):
    (finding,) = kb.check("parent(?x, ann).")
    assert (finding.line, finding.column, finding.severity) == (1, 8, "error")
    assert kb.check("parent(ann, ?x)", kind="goal") == []
    assert kb.check("parent(ann, ?x", kind="goal")[0].severity == "error"


def test_scripts_run_in_order(kb):
    executed = kb.execute("p(a). q(?x) :- p(?x). ?- q(?x).")
    assert executed.asserted == 1
    assert [answer["bindings"] for answer in executed.answers] == [{"?x": "a"}]
    assert executed.questions[0].answers == 1


def test_transactions_are_atomic(kb):
    with kb.transaction() as inside:
        inside.tell("p(a)")
        assert inside.ask("p(?x)") == [("a",)]
        assert kb.ask("p(?x)") == []
    assert kb.ask("p(?x)") == [("a",)]
    with pytest.raises(NotFound), kb.transaction() as inside:  # noqa: PT012
        inside.tell("p(b)")
        inside.ask("q(?x)").one()
    assert kb.ask("p(?x)") == [("a",)]
    with pytest.raises(Conflict) as conflict, kb.transaction() as inside:  # noqa: PT012
        inside.tell(f"p(n{len(inside.ask('p(?x)'))})")
        kb.tell("p(c)")
    assert conflict.value.details["changed"] == [{"predicate": "p", "arity": 1, "scope": None}]
    assert kb.count("p") == 2


def test_scopes_are_forked_compared_merged_and_dropped(kb):
    kb.tell("p(a)")
    assert kb.fork("draft").copied == 1
    kb.tell("p(b)", scope="draft")
    assert kb.scopes() == ["draft"]
    diff = kb.diff(None, "draft")
    assert ([row["args"] for row in diff.added], diff.unchanged) == ([["b"]], 1)
    with pytest.raises(Conflict):
        kb.fork("draft")
    assert kb.merge("draft").merged == 1
    assert kb.drop_scope("draft") == 2
    assert kb.ask("p(?x)") == [("a",), ("b",)]
    with pytest.raises(NotFound):
        kb.drop_scope("draft")


def test_context_windows_and_their_changes(family):
    window = family.context(goals=["ancestor(ann, ?who)"], max_facts=5, session="s1", explain=True)
    assert window.goal_driven
    assert window.text.startswith("% Goal: ancestor(ann, ?who)")
    assert {entry.predicate for entry in window.entries} == {"parent", "ancestor"}
    assert window.rules[0].startswith("ancestor(")
    assert window.entries[0].why
    family.retract("parent(bob, cy)")
    diff = family.context_diff("s1")
    assert diff.previous == window.id
    assert {removed.reason for removed in diff.removed} == {"retracted"}
    assert "No longer true" in diff.text
    family.clear_session("s1")
    assert family.context_diff("s1").refresh
    buckets = {"family": ["parent"]}
    assert family.context(buckets=buckets).buckets["family"].facts_included == 1
    assert family.context(buckets=[Bucket("all", weight=2.0)]).buckets["all"].facts_included == 1
    assert family.context_summary().facts == 1
    with pytest.raises(InvalidInput, match="is not an option of a context window"):
        family.context(max_fact=3)
    with pytest.raises(InvalidInput, match="max_facts: "):
        family.context(max_facts=0)


def test_texts_are_ingested(kb):
    ingested = kb.ingest(["likes(ann, tea)", "What a day."], goals="likes(ann, ?what)")
    assert [(fact.predicate, fact.args) for fact in ingested.facts] == [("likes", ("ann", "tea"))]
    assert ingested.unread == (2,)
    assert [entry.args for entry in ingested.window.entries] == [("ann", "tea")]


def test_memory(kb):
    kb.tell("mood(ann, good)")
    kb.tell_many("visit", [["ann", number] for number in range(6)])
    kb.prioritize("mood(ann, good)", priority=1.0)
    (row,) = kb.salient("mood", limit=1)
    assert row["salience"] > 0.7  # 0.65 with the priority that facts begin with
    consolidated = kb.consolidate(predicates=["visit"])
    assert consolidated.facts[0]["predicate"] == "visit_consolidated"
    assert kb.decay(0.0, dry_run=True).evicted == 0
    at = datetime.now(timezone.utc) + timedelta(seconds=1)
    assert [row["args"] for row in kb.recall("mood", ["ann", "?how"], at)] == [["ann", "good"]]
    with pytest.raises(NotFound):
        kb.prioritize("mood", ["zoe", "bad"], 0.5)
    with pytest.raises(InvalidInput, match="priority: is required"):
        kb.prioritize("mood(ann, good)")


def test_predicates_and_plans(family):
    listed = {(info.predicate, info.facts, info.rules) for info in family.predicates()}
    assert listed == {("ancestor", 0, 2), ("parent", 2, 0)}
    assert "ancestor" in family.plan("ancestor(ann, ?x)")
    assert family.plans("ancestor(ann, ?x)", analyze=True)[0]["answers"] == 2
    assert family.phrases() == family.inputs() == []
    family.teach('@input parent(who, child) "who is a parent of whom".')
    (declared,) = family.inputs()
    assert declared.id == "@parent/2 input"
    assert [(info.args, info.gloss) for info in family.predicates()] == [
        ((), None),
        (("who", "child"), "who is a parent of whom"),
    ]
    family.retract_rule(declared)
    assert family.inputs() == family.masks() == []
    family.teach("@mask parent/2 1.")
    (mask,) = family.masks()
    assert (mask.id, mask.text) == ("@parent/2 mask", "@mask parent/2 1.")
    family.retract_rule(mask)
    assert family.masks() == []


def test_tenants_share_a_connection(kb):
    other = kb.open(f"{kb.tenant}-other")
    other.tell("p(a)")
    assert kb.ask("p(?x)") == []
    assert other.ask("p(?x)") == [("a",)]


def test_errors_name_arguments_as_python_does(kb):
    with pytest.raises(InvalidInput, match="valid_from: ") as error:
        kb.tell("p", ["a"], valid_from="yesterday")
    assert list(error.value.details["fields"]) == ["valid_from"]
    with pytest.raises(InvalidInput, match=r"args\[1\]: ") as error:
        kb.tell("p", ["a", "?x"])
    assert list(error.value.details["fields"]) == ["args[1]"]
    with pytest.raises(InvalidInput, match=r"args\[0\]: must be a finite number"):
        kb.ask("p", [float("nan")])
    with pytest.raises(InvalidInput, match="args: must be a list"):
        kb.ask("p", "abc")
    with pytest.raises(InvalidInput, match="target: "):
        kb.fork("no name!")
    with pytest.raises(InvalidInput, match="goal"):
        kb.teach("?- p(?x).")


def test_syntax_errors_have_carets_and_every_error(kb):
    with pytest.raises(RuleSyntaxError) as error:
        kb.teach("p(?x) :- q(?x.\nr(?y).")
    assert str(error.value).splitlines()[1:3] == ["  1 | p(?x) :- q(?x.", "    |           ^"]
    assert [each["line"] for each in error.value.errors] == [1, 2]
    with pytest.raises(RuleSyntaxError):
        kb.ask("p(?x")
    assert kb.predicates() == []


def test_a_goal_over_its_limit(kb):
    kb.tell_many("n", [[number] for number in range(300)])
    kb.teach("pair(?x, ?y, ?z) :- n(?x), n(?y), n(?z), ?x != ?y.")
    with pytest.raises(BudgetExceeded) as error:
        kb.ask("pair(?x, ?y, ?z)", timeout_ms=20)
    assert error.value.details["limit"] in ("timeMs", "derivedRows", "memoryBytes", "answers")


def test_events_are_yielded_as_they_are_committed(kb):
    stream = kb.events(since=kb.tell("p(a)").timestamp - 1)
    lost = next(stream)
    kb.tell("p(b)")
    event = next(event for event in stream if event.type == "fact_asserted")
    stream.close()
    assert lost.type in ("events_lost", "fact_asserted")
    assert event.atom["predicate"] == "p"
    assert event.id


def test_events_go_on_after_a_lost_connection(http_url):
    """Every fact is reported once and in order, although the connection is cut after each."""
    url = urlsplit(http_url)
    proxy = Proxy((url.hostname, url.port))
    retries = Retries(attempts=10, first_delay=0.01, max_delay=0.05)
    with (
        connect(http_url, tenant="cut") as writer,
        connect(proxy.url, tenant="cut", settings=Settings(retries=retries)) as kb,
    ):
        start = next(writer.events(since=writer.tell("start(1)").timestamp - 1)).id
        writer.tell("n(0)")
        seen = []
        for event in kb.events(since=start, predicate="n"):
            seen.append(event.atom["args"][0])
            if len(seen) == 20:
                break
            proxy.cut()
            writer.tell("n", [len(seen)])
            proxy.heal()
        assert seen == [str(number) for number in range(20)]
    proxy.close()


def test_quoted_constants_that_look_like_variables_are_constants(kb):
    kb.tell('p("?x", 1). p("_", 2). p(a, 3).')
    assert kb.query('p("?x", ?n)').one() == ("?x", "1")
    assert [len(page) for page in kb.query_pages('p("_", ?n)')] == [1]
    for read in (kb.count, kb.salient):
        with pytest.raises(InvalidInput, match="begins with"):
            read('p("?x", ?n)')
    assert kb.retract('p("_", ?n)').retracted == 1
    assert kb.retract('p("?x", 1)').retracted == 1
    assert list(kb.query("p(?x, ?n)")) == [("a", "3")]


def test_neighbours_are_counted_and_paged(family):
    family.tell("likes(bob, tea)")
    found = family.neighbours("bob")
    assert found.total == 3
    assert {(each.predicate, each.facts) for each in found.predicates} == {
        ("parent", 2),
        ("likes", 1),
    }
    out = family.neighbours("bob", direction="out", predicates=["parent"])
    assert [row["args"] for row in out.facts] == [["bob", "cy"]]
    assert len(family.neighbours("bob", limit=1, offset=2).facts) == 1
    with pytest.raises(InvalidInput, match="direction"):
        family.neighbours("bob", direction="up")


def test_slow_goals_have_their_time(kb):
    assert kb.slow_goals() == []
    kb.teach("big(?x, ?y, ?z) :- n(?x), n(?y), n(?z).")
    kb.tell_many("n", [[number] for number in range(70)])
    assert kb.ask("big(?x, ?y, ?z)").count() == 70**3
    (slow,) = kb.slow_goals()
    assert slow.goal == "big(?x, ?y, ?z)"
    assert (slow.outcome, slow.count) == ("answered", 1)
    assert slow.ms >= 10


def test_without_a_model_texts_are_refused(kb):
    with pytest.raises(ModelNotConfigured):
        kb.extract("Ann likes tea.")
    kb.tell("likes(ann, tea)")
    with pytest.raises(ModelNotConfigured):
        kb.synthesize("What does Ann like?")


def test_values_that_cannot_be_computed_are_counted(kb):
    kb.teach("n(9223372036854775807). n(5). p(?y) :- n(?x), ?y = ?x + 1.")
    assert (list(kb.ask("p(?x)")), kb.ask("p(?x)").warnings) == ([("6",)], 1)
    assert kb.ask("p(?x), ?x > 1").warnings == 1
    assert kb.ask("p(?x)", min_confidence=0.1).warnings == 1
    assert kb.ask("n(?x)").warnings == kb.query("n(?x)").warnings == 0


def test_a_view_shows_what_it_admits_and_labels_what_is_stored(kb):
    kb.teach("@levels trust: web < user. @groups team: hr, eng.")
    kb.tell("person(ann)")
    web = kb.viewed(labels={"trust": "web"})
    web.tell("person(eve)")
    assert [each.id for each in kb.dimensions()] == ["@trust labels", "@team labels"]
    assert kb.ask("person(?x)").count() == 2
    user = kb.viewed({"trust": "user"})
    assert list(user.ask("person(?x)")) == [("ann",)]
    user.viewed(labels={"team": ["hr"]}).tell("person(mia)")
    assert list(user.viewed({"team": ["eng"]}).ask("person(mia)")) == []
    with pytest.raises(InvalidInput):
        kb.viewed({"mood": "good"}).ask("person(?x)").count()
    with user.transaction() as inside:
        inside.viewed(labels={"trust": "web"}).tell("person(zoe)")
        inside.tell("person(zia)")
        assert ("zoe",) not in list(inside.ask("person(?x)"))
    trust = {row["args"][0]: row["trust"] for row in kb.ask("person(?x)", with_trust=True).rows()}
    assert trust == {"ann": "user", "eve": "web", "mia": "user", "zoe": "web", "zia": "user"}
    with pytest.raises(InvalidInput):
        kb.ask("person(?x), person(?x)", with_trust=True).count()
