"""The public class: every operation takes text or Python values, and answers are made when read."""

from __future__ import annotations

import inspect
import re
import tracemalloc
from array import array
from pathlib import Path

import pytest
from support.reference.engine import ReferenceEngine

import kbcore
from kbcore import (
    Bucket,
    BudgetExceeded,
    Config,
    Conflict,
    InvalidInput,
    KnowledgeBase,
    NotFound,
    NotReady,
    NotUnique,
    RuleSyntaxError,
    open_kb,
    open_runtime,
)
from kbcore.columns.symbol_answers import SymbolAnswers
from kbcore.operations.tenant_kb import TenantKB

FAMILY = """
parent(ann, bob). parent(bob, cy). age(ann, 70). age(bob, 41) [confidence=0.5].
grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).
"""


@pytest.fixture
def kb():
    with open_kb() as opened:
        yield opened


@pytest.fixture
def family(kb):
    kb.tell(FAMILY)
    return kb


# ---- one class ----


def test_the_earlier_name_and_every_way_to_open_give_the_same_class():
    assert kbcore.EmbeddedKB is KnowledgeBase
    with open_runtime(Config(storage_backend="memory")) as runtime:
        runtime.admin().create_database("crm")
        with runtime.open("acme", "crm") as kb:
            assert type(kb) is KnowledgeBase
            assert (kb.database, kb.tenant, repr(kb)) == ("crm", "acme", "<KnowledgeBase crm/acme>")
            kb.tell("p(a)")
        assert runtime.open("acme", "crm").ask("p(?x)") == [("a",)]  # closing left it open
        assert runtime.open("acme").ask("p(?x)") == []
        with pytest.raises(NotFound, match="database 'none' does not exist"):
            runtime.open("acme", "none")


def test_every_public_name_can_be_imported():
    assert [name for name in kbcore.__all__ if not hasattr(kbcore, name)] == []
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = kbcore.nothing


def test_every_error_that_the_page_on_storage_plugins_lists_can_be_imported():
    page = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-storage-plugin.md"
    table = page.read_text(encoding="utf-8").split("## What a store may raise")[1]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    names = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert {"StorageFull", "SnapshotFailed"} < set(names)
    assert [name for name in names if name not in kbcore.__all__] == []


def test_every_operation_of_a_tenant_is_public():
    others = {
        "at_once": "ask_many", "answers": "ask", "answers_json": "ask", "assert_facts": "tell", "assert_rows": "tell_many",
        "assert_rules": "teach", "bindings": "ask", "body_answers": "ask", "contents": "dump",
        "context_with_changes": "ingest", "diff_scopes": "diff", "fork_scope": "fork",
        "infer": "ask", "infer_json": "ask", "infer_table": "ask", "known_predicates": "predicates", "plugins": "bulk",
        "last_window": "context", "matching": "context", "nearest": "context", "merge_scope": "merge", "prove_json": "prove",
        "query_json": "query", "query_page": "query", "query_rows": "query", "query_table": "query",
        "retract_fact": "retract",
        "memory_add": "memory", "memory_facts": "memory", "memory_forget": "memory",
        "memory_search": "memory", "memory_update": "memory", "replace_value": "memory",
        "store_text": "ingest", "deploy_dumped": "load",
        "retract_pattern": "retract", "stored_answers": "query", "tuples": "ask",
        "unknown_predicates": "ask",
        "end_goal": "follow", "goal_answers": "follow", "goal_changes": "follow", "next_due_seconds": "follow",
        "all_to_deliver": "follow", "changes_to_deliver": "follow", "end_goals_of": "purge", "find_goal": "follow",
        "keep_goals": "follow", "keeps_goals": "follow", "note_delivery": "follow", "fact_history": "history",
        "undo_from": "purge", "earlier_changes": "subscribe", "shown_webhook": "follow", "require_present": "known_at",
        "answering": "sql", "check_owner": "viewed", "event_view": "viewed", "of_view": "viewed", "seeing_goal": "viewed",
        "views_with_goals": "viewed", "require_whole": "viewed", "with_trust": "ask",
        "standing_goal": "follow", "standing_goals": "follow", "subscribe_goal": "follow",
        "facts_in_words": "memory", "receipt": "prove",
    }  # fmt: skip
    methods = {
        name for name, _ in inspect.getmembers(TenantKB, inspect.isfunction) if name[0] != "_"
    }
    public = {others.get(name, name) for name in methods}
    assert sorted(name for name in public if not hasattr(KnowledgeBase, name)) == []


# ---- writes ----


@pytest.mark.parametrize("method", ["tell", "teach", "load", "execute"])
def test_facts_and_rules_can_be_given_to_every_method_that_stores(kb, method):
    getattr(kb, method)(FAMILY, scope="s")
    assert kb.count("parent", scope="s") == 2
    assert kb.ask("grandparent(?x, ?y)", scope="s") == [("ann", "cy")]
    assert kb.count("parent") == 0
    assert [rule.scope for rule in kb.rules()] == ["s"]


def test_the_outcome_counts_facts_and_lists_rules(kb):
    assert kb.tell(FAMILY).asserted == 4
    again = kb.teach(FAMILY)
    assert (again.asserted, again.updated, len(again.rules)) == (0, 4, 1)
    assert again.timestamp > 0
    warned = kb.tell("lonely(?x) :- persn(?x)").warnings
    assert warned == ("no facts or rules for persn/1",)


def test_details_apply_to_every_fact_of_a_text_that_has_none_of_its_own(kb):
    kb.tell(
        "p(a). ~p(b) [confidence=0.9, scope=t]. p(c) [metadata='{\"own\": 1}']",
        confidence=0.5,
        metadata={"source": "chat"},
        scope="s",
    )
    rows = {row["args"][0]: row for row in kb.query("p(?x)", scope="*").rows()}
    assert (rows["a"]["confidence"], rows["a"]["metadata"]) == (0.5, {"source": "chat"})
    assert rows["a"]["scope"] == rows["c"]["scope"] == "s"
    assert rows["c"]["metadata"] == {"own": 1}
    (denied,) = kb.query("~p(?x)", scope="t").rows()
    assert (denied["confidence"], denied["negated"]) == (0.9, True)


@pytest.mark.parametrize(
    ("text", "options", "problem"),
    [
        ("", {}, "text: has no fact and no rule"),
        ("p(a). ?- p(?x).", {}, "line 1: a goal is asked, not stored; use ask or execute"),
        ("p(?x) :- q(?x)", {"ttl": 5}, "only `scope` applies to rules"),
        ("p(?x) :- q(?x)", {"conflict": "REJECT"}, "only `scope` applies to rules"),
        ("p(a). p(b", {}, "never closed"),
        (["p", "a"], {}, "text: must be a text, found list"),
        ("p(a)", {"metadata": {"at": {1}}}, "metadata: holds a value of type set"),
        ("p(a)", {"metadata": {1: 2}}, "metadata: has a key that is not a text"),
        ("p(a)", {"metadata": [1]}, "metadata: must be a dict"),
        ("p(a)", {"ttl": 1.5}, "ttl: must be a positive number of milliseconds"),
        ("p(a)", {"confidence": "high"}, "confidence: must be a number from 0 to 1"),
    ],
)
def test_a_text_that_cannot_be_stored_stores_nothing(kb, text, options, problem):
    with pytest.raises(InvalidInput) as caught:
        kb.tell(text, **options)
    assert problem in caught.value.message
    assert kb.predicates("*") == []


def test_a_conflict_strategy_can_be_named(kb):
    kb.tell("~flat(earth)")
    for tell in (
        lambda: kb.tell("flat(earth)", conflict="REJECT"),
        lambda: kb.tell("flat", ["earth"], conflict="REJECT"),
        lambda: kb.tell_many("flat", [("earth",)], conflict="REJECT"),
    ):
        with pytest.raises(Conflict):
            tell()
    kb.tell("flat(earth)", conflict="NEWEST_WINS")
    assert kb.query("~flat(?x)") == []


def test_a_rule_is_retracted_by_id_or_as_text(kb):
    kb.teach(
        "@adult: adult(?x) :- age(?x, ?n), ?n >= 18. p(?x) :- q(?x). r(?x) :- q(?x) [scope=s]."
    )
    assert kb.retract_rule("adult").rule.name == "adult"
    assert kb.retract_rule("p(?a) :- q(?a)").text == "p(?x) :- q(?x)."
    with pytest.raises(NotFound):
        kb.retract_rule("r(?x) :- q(?x).")
    kb.retract_rule("r(?x) :- q(?x).", scope="s")
    kb.teach("p(?x) :- q(?x). p(?x) :- r(?x) [scope=s].")
    for rule in kb.rules():
        assert kb.retract_rule(rule) == rule
    assert kb.rules() == []
    with pytest.raises(NotFound, match="no rule 'adult'"):
        kb.retract_rule("adult")
    with pytest.raises(RuleSyntaxError):
        kb.retract_rule("p(?x) :- q(?x")


@pytest.mark.parametrize("name", ["people.kbx", "a/people.KB", "my people.txt", "people.kb.gz"])
def test_a_file_of_another_type_is_not_read_as_rules(kb, name):
    with pytest.raises(
        InvalidInput, match=r"looks like a file; the name must end in \.kb, \.jsonl"
    ):
        kb.load(name)


def test_a_text_to_load_is_not_taken_for_a_file(kb):
    assert kb.load("raining. version(1.5).").asserted == 2
    with pytest.raises(FileNotFoundError):
        kb.load("people.kb")


# ---- answers ----


def test_answers_as_tuples_dicts_and_python_values(family):
    ages = family.ask("age(?who, ?n)", values="python")
    assert ages == [("ann", 70), ("bob", 41)]
    assert ages.dicts() == [{"who": "ann", "n": 70}, {"who": "bob", "n": 41}]
    assert ages[1] == ("bob", 41)
    assert ages[-1:] == [("bob", 41)]
    assert ages[::-1] == [("bob", 41), ("ann", 70)]
    assert ages.count() == len(ages) == 2
    assert ages.count(("ann", 70)) == 1
    assert ("bob", 41) in ages
    assert family.query("age(?who, ?n)", values="python").dicts()[0] == {"who": "ann", "n": 70}
    both = family.ask("age(?who, ?n), parent(?who, ?child), ?n > 50", values="python")
    assert both.dicts() == [{"who": "ann", "n": 70, "child": "bob"}]
    assert family.ask("parent(ann, bob)").dicts() == [{}]
    assert family.ask("parent(_, ?x)").dicts() == [{"x": "bob"}, {"x": "cy"}]
    with pytest.raises(IndexError):
        ages[2]
    with pytest.raises(InvalidInput, match="values: must be one of text, python"):
        family.ask("age(?who, ?n)", values="int")


def test_python_values_follow_the_numbers_of_the_language(kb):
    texts = ["1", "1.5", "-2e3", "007", "true", "false", "True", "1e", "", "9223372036854775808"]
    kb.tell_many("v", [(str(index), text) for index, text in enumerate(texts)])
    values = [value for _, value in kb.ask("v(?i, ?x)", values="python")]
    assert values == [1, 1.5, -2000.0, "007", True, False, "True", "1e", "", 2.0**63]
    assert [type(value) for value in values[:3]] == [int, float, float]


def test_one_answer(family):
    assert family.ask("grandparent(ann, ?who)").one() == ("ann", "cy")
    assert family.ask("age(ann, ?n)", values="python").one() == ("ann", 70)
    with pytest.raises(NotFound, match=r"grandparent\(cy, \?who\) has no answer$"):
        family.ask("grandparent(cy, ?who)").one()
    with pytest.raises(NotFound, match="has no answer; no fact or rule for granparent/2"):
        family.ask("granparent(ann, ?who)").one()
    with pytest.raises(NotUnique, match=r"parent\(\?x, \?y\) has 2 answers, expected one"):
        family.ask("parent(?x, ?y)").one()
    assert family.ask("parent(?x), age(?x, ?n), nothing").unknown == [
        "parent/1 (did you mean parent/2?)",
        "nothing/0",
    ]


def test_answers_are_those_of_the_time_of_the_question(family):
    asked = {
        "one": family.ask("parent(?x, ?y)"),
        "rule": family.ask("grandparent(?x, ?y)"),
        "body": family.ask("parent(?x, ?y), age(?x, ?n)"),
        "stored": family.query("parent(?x, ?y)"),
    }
    before = {name: list(answers) for name, answers in asked.items()}
    family.tell("parent(cy, dee)")
    family.retract("parent(ann, bob)")
    family.tell("parent(bob, cy)", confidence=0.25)
    assert {name: list(answers) for name, answers in asked.items()} == before
    for name in ("one", "stored"):
        gone, kept = asked[name].rows()
        assert gone["args"] == ["ann", "bob"]
        assert (gone["metadata"], gone["createdAt"]) == ({"outdated": True}, None)
        assert (kept["args"], kept["confidence"]) == (["bob", "cy"], 0.25)
    assert [row["args"] for row in asked["rule"].rows()] == [["ann", "cy"]]
    assert asked["body"].rows() == asked["body"].dicts()


def test_rows_of_every_scope_belong_to_their_answers(kb):
    for scope in (None, "s", "t"):
        kb.tell("p(a). p(b)", scope=scope)
    answers = kb.ask("p(?x)", scope="*", offset=1, limit=4)
    assert answers == [("b",), ("a",), ("b",), ("a",)]
    assert [row["scope"] for row in answers.rows()] == [None, "s", "s", "t"]
    kb.retract("p(a)", scope="s")
    assert [(row["scope"], row["args"][0]) for row in answers.rows()] == [
        (None, "b"),
        ("s", "a"),
        ("s", "b"),
        ("t", "a"),
    ]


def test_answers_outlive_the_tenant_and_the_knowledge_base():
    with open_kb() as kb:
        kb.tell("p(a). p(b). q(?x) :- p(?x).")
        answers = kb.ask("q(?x)"), kb.query("p(?x)")
        kb.admin().nuke_tenant("default", "default")
        assert kb.ask("p(?x)") == []
        assert answers[0] == answers[1] == [("a",), ("b",)]
    assert answers[0] == answers[1] == [("a",), ("b",)]
    for use in (
        lambda: kb.tell("p(c)"),
        lambda: kb.ask("p(?x)"),
        lambda: kb.context(),
        lambda: kb.dump(),
    ):
        with pytest.raises(NotReady, match="the knowledge base is closed"):
            use()
    kb.close()
    assert repr(kb) == "<KnowledgeBase default/default>"


def test_answers_do_not_change_the_rows_they_were_made_of():
    rows = array("I", [1])
    answers = SymbolAnswers(ReferenceEngine(), 1)
    answers.append(None, rows, 1)
    answers.append("s", array("I", [2]), 1)
    assert rows == array("I", [1])
    assert list(answers.scopes()) == [None, "s"]


def test_counting_many_answers_makes_no_objects_for_them(kb):
    count = 20_000
    kb.tell_many("p", [(f"name-{n}", str(n)) for n in range(count)])
    kb.tell("q(?x, ?y) :- p(?x, ?y)")
    for ask in (
        lambda: kb.ask("q(?x, ?y)"),
        lambda: kb.query("p(?x, ?y)"),
        lambda: kb.ask("p(?x, ?y), q(?x, ?y)"),
    ):
        tracemalloc.start()
        answers = ask()
        assert len(answers) == answers.count() == count
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < count * 64  # with tuples and their strings it is 200 bytes an answer
        assert repr(answers).endswith(f"... {count - 10} more])")
        assert len(list(answers)) == count


def test_limits_and_points_in_time(kb):
    kb.tell("p(a) [confidence=0.4]. p(b). p(c) [validFrom=0, validUntil=1000].")
    assert kb.ask("p(?x)", limit=1) == [("a",)]
    assert kb.ask("p(?x)", limit=1, offset=1) == [("b",)]
    assert kb.ask("p(?x)", offset=5) == []
    assert kb.ask("p(?x)", min_confidence=0.5) == [("b",)]
    assert kb.ask("p(?x)", as_of=500) == [("c",)]
    assert kb.query("p(?x)", as_of=500) == [("c",)]
    assert kb.query("p(?x)", limit=1) == [("a",)]
    assert kb.count("p", as_of=500) == 1
    assert kb.recall("p(?x)", at=500)[0]["args"] == ["c"]
    for wrong in ({"limit": -1}, {"limit": True}, {"offset": -1}, {"min_confidence": 2}):
        with pytest.raises(InvalidInput, match=f"{next(iter(wrong))}: must be"):
            kb.ask("p(?x)", **wrong)
    with pytest.raises(InvalidInput, match="min_confidence: needs a goal of one literal"):
        kb.ask("p(?x), p(?y)", min_confidence=0.5)


def test_undefined_answers_have_dicts_too(kb):
    kb.tell("win(?x) :- move(?x, ?y), not win(?y). move(d, d). move(a, b).")
    answers = kb.ask("win(?x)", include_undefined=True)
    assert answers.dicts() == [{"x": "a"}, {"x": "d"}]
    assert answers.rows()[1]["metadata"]["truth"] == "undefined"


# ---- other reads ----


def test_aggregates_name_a_variable(family):
    assert family.aggregate("sum", "age(?who, ?n)", of="?n") == 111
    assert family.aggregate("AVG", "age", ["?who", "?n"], of="n") == 55.5
    assert family.aggregate("max", "age(_, ?n)") == 70
    assert family.aggregate("min", "age(bob, ?n)") == 41
    assert family.aggregate("sum", "age(_, _)", of=1) == 111
    assert family.aggregate("count", "age(_, _)") == 2
    assert family.aggregate("min", "age(cy, ?n)") is None
    family.tell("age(cy, unknown)")
    assert family.aggregate("sum", "age(_, ?n)", skip_non_numeric=True) == 111
    for call, problem in (
        (lambda: family.aggregate("sum", "age(_, ?n)"), "'unknown' is not a number; skip_non_numeric"),
        (lambda: family.aggregate("sum", "age(?who, ?n)"), "of: must name one variable of the pattern"),
        (lambda: family.aggregate("sum", "age(?who, ?n)", of="?m"), r"'\?m' is not a variable"),
        (lambda: family.aggregate("sum", "age(?who, ?n)", of=2), "of: age has 2 arguments, counted from 0"),
        (lambda: family.aggregate("mean", "age(?who, ?n)", of="n"), "op: must be one of COUNT"),
        (lambda: family.aggregate("sum", "~age(?who, ?n)", of="n"), "explicit negatives"),
    ):  # fmt: skip
        with pytest.raises(InvalidInput, match=problem):
            call()


def test_counts_of_predicates_and_patterns(family):
    family.tell("parent(x)")
    assert family.count("parent") == 3
    assert family.count("parent(ann, ?x)") == family.count("parent", ["ann", "?x"]) == 1
    assert family.count("parent(?x, ?x)") == 0


def test_proofs_are_objects(family):
    (proof,) = family.prove("grandparent(ann, ?who)")
    assert proof.answer["args"] == ["ann", "cy"]
    assert proof.text == family.explain("grandparent", ["ann", "?who"])
    assert proof.text.splitlines()[1:] == [
        "  parent(ann, bob)  stored",
        "  parent(bob, cy)  stored",
    ]
    (dag,) = family.prove("grandparent", ["ann", "cy"], form="dag")
    assert "nodes" in dag.proof
    with pytest.raises(InvalidInput, match="only a proof of the form tree"):
        _ = dag.text
    with pytest.raises(InvalidInput, match="form: must be one of tree, dag"):
        family.prove("parent(ann, ?x)", form="graph")
    with pytest.raises(InvalidInput, match="goal: must be one atom, found 2"):
        family.prove("parent(ann, ?x), parent(?x, ?y)")
    assert "grandparent/2[bf]" in family.plan("grandparent(ann, ?x)")
    assert family.plans("grandparent(ann, ?x)", analyze=True)[0]["answers"] == 1


def test_predicates(family):
    names = [(info.predicate, info.arity, info.facts, info.rules) for info in family.predicates()]
    assert names == [("age", 2, 2, 0), ("grandparent", 2, 0, 1), ("parent", 2, 2, 0)]


def test_a_dump_goes_to_a_text_a_path_or_a_file(family, tmp_path):
    text = family.dump()
    assert text.splitlines()[1] == "age(bob, 41) [confidence=0.5]."
    path = tmp_path / "all.jsonl"
    assert family.dump(path) is None
    assert family.dump(str(tmp_path / "all.kb")) is None
    with (tmp_path / "other.txt").open("w") as file:
        family.dump(file, "kb")
    assert (tmp_path / "all.kb").read_text() == (tmp_path / "other.txt").read_text() == text
    for source in (text, path, tmp_path / "all.kb"):
        with open_kb() as copy:
            copy.load(source)
            assert copy.dump() == text
    for wrong in ({"target": tmp_path / "a.txt"}, {"format": "csv"}):
        with pytest.raises(InvalidInput, match="must"):
            family.dump(**wrong)


def test_a_failed_dump_leaves_the_earlier_file(family, tmp_path, monkeypatch):
    path = tmp_path / "all.kb"
    family.dump(path)
    before = path.read_text()

    def broken(*arguments):
        yield "p(a)."
        raise OSError("the disk is full")

    monkeypatch.setattr("kbcore.python_api.reads.dump_lines", broken)
    with pytest.raises(OSError, match="the disk is full"):
        family.dump(path)
    assert [file.name for file in tmp_path.iterdir()] == ["all.kb"]
    assert path.read_text() == before


# ---- context windows ----


def test_a_window_takes_plain_arguments(family):
    window = family.context(goals=["grandparent(ann, ?who)"], max_facts=5, session="s1")
    assert window.text == (
        "% Goal: grandparent(ann, ?who)\n"
        "grandparent(ann, cy).  % because #1, #2\n"
        "parent(ann, bob).  % #1\nparent(bob, cy).  % #2\n"
        "% Rules\ngrandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)."
    )
    assert window.tokens > 0
    pair = ("grandparent", ["ann", "?who"])
    again = family.context(goals=[pair], max_facts=5)  # salience falls between the two
    assert [(e.text, e.goal, e.provenance) for e in again.entries] == [
        (e.text, e.goal, e.provenance) for e in window.entries
    ]
    family.tell("parent(bob, dee)")
    changes = family.context_diff("s1")
    assert "grandparent(ann, dee)" in changes.text
    assert not changes.removed
    family.retract("parent(bob, dee)")
    assert "% No longer true: grandparent(ann, dee)." in family.context_diff("s1").text
    natural = family.context_diff("s1", format="natural", goals="parent(ann, ?x)")
    assert natural.text == ""
    assert family.context_diff("unknown").refresh
    family.clear_session("s1")
    assert family.context_diff("s1").refresh
    assert family.context_summary().facts == 4


def test_windows_of_a_query_and_of_buckets(family):
    assert family.context(query="who is a parent?").entries[0].predicate == "parent"
    for buckets in ({"kin": ["parent"], "years": ["age"]},
                    [Bucket("kin", ("parent",)), Bucket("years", ("age",))]):  # fmt: skip
        window = family.context(buckets=buckets, max_facts=4)
        assert {name: stats.facts_included for name, stats in window.buckets.items()} == {
            "kin": 2,
            "years": 2,
        }
    window = family.context(predicates=["age"], max_tokens=None, max_facts=None)
    assert {entry.predicate for entry in window.entries} == {"age"}


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"max_fact": 5}, "max_fact: is not an option of a context window; did you mean max_facts"),
        ({"color": 5}, "color: is not an option of a context window; the options are goals, query"),
        ({"max_facts": 0}, "max_facts: must be a whole number of at least 1"),
        ({"max_facts": "5"}, "max_facts: must be a whole number of at least 1"),
        ({"min_relevance": 2}, "min_relevance: must be a number from 0 to 1"),
        ({"min_coverage": 2}, "min_coverage: must be a number from 0 to 1"),
        ({"predicates": "age"}, "predicates: must be a list of names"),
        ({"buckets": {"a": "age"}}, "buckets['a']: must be a list of predicates"),
        ({"buckets": ["age"]}, "buckets: must be a list of Bucket, or a dict of lists"),
        ({"goals": 3}, "goals: must be a text or a list of texts"),
        ({"goals": ["age(?x"]}, "goals[0]: line 1, column 4"),
        ({"goals": [3]}, "goals[0]: must be a text, found int"),
        ({"goals": ["1 < 2, 2 < 3"]}, "goals[0]: needs at least one literal"),
        ({"format": "xml"}, "format: must be one of structured, natural, facts"),
        ({"scope": "a b"}, "scope: 'a b' is not a name"),
    ],
)
def test_options_of_a_window_are_checked_by_name(family, options, problem):
    for use in (
        lambda: family.context(**options),
        lambda: family.ingest("age(cy, 3)", **options),
    ):
        with pytest.raises(InvalidInput) as caught:
            use()
        assert problem in caught.value.message
    assert family.count("age") == 2


def test_prose_is_kept_as_episodes_where_the_setting_says_so():
    with open_kb(config=Config(extraction_fallback="episode")) as kb:
        kb.add_episode("ann", "hi")
        done = kb.ingest(["ann: hello\nthere", "nice\nday", "likes(ann, tea)"])
        assert (done.episodes, done.unread) == (2, (1, 2, 3, 4))
        statements = [(speaker, text) for speaker, text, _ in kb.ask("said(?x, ?y, ?z)")]
        assert statements == [("ann", "hello\nthere"), ("user", "nice\nday")]
        (when,) = {when for _, _, when in kb.ask("said(?x, ?y, ?z)")}
        assert len(when) == len("2026-01-31T12:00:00.000Z")


def test_a_text_or_turns_can_be_ingested(family):
    options = {"goals": "grandparent(ann, ?who)", "session": "chat"}
    first = family.ingest("parent(bob, dee)\nHello!", **options)
    assert (len(first.facts), first.asserted, first.unread) == (1, 1, (2,))
    assert first.changes is None
    second = family.ingest(["Well.", "parent(bob, eve)"], **options)
    assert second.changes.text.splitlines()[0] == "% New"
    assert "grandparent(ann, eve)" in second.changes.text
    assert second.window.entries[0].predicate == "grandparent"
    with pytest.raises(InvalidInput, match=r"text\[1\]: must be a text"):
        family.ingest(["p(a)", 3])


# ---- errors and transactions ----


@pytest.mark.parametrize(
    ("use", "field"),
    [
        (lambda kb: kb.fork("a", "a"), "target"),
        (lambda kb: kb.fork("a", "*"), "source"),
        (lambda kb: kb.merge("a", "a"), "target"),
        (lambda kb: kb.diff("*", None), "source"),
        (lambda kb: kb.consolidate(min_group_size=1), "min_group_size"),
        (lambda kb: kb.salient(minimum=2), "minimum"),
        (lambda kb: kb.prioritize("p(a)"), "priority"),
        (lambda kb: kb.prioritize("p(a)", priority=2), "priority"),
        (lambda kb: kb.recall("p(?x)"), "at"),
        (lambda kb: kb.ask(["p"]), "goal"),
        (lambda kb: kb.query(3), "predicate"),
        (lambda kb: kb.ask("p", "abc"), "args"),
        (lambda kb: kb.ask("p(?x)", as_of="yesterday"), "as_of"),
        (lambda kb: kb.prove("p(?x)", nodes=0), "nodes"),
        (lambda kb: kb.dump(3), "target"),
        (lambda kb: kb.tell("p(x)", ["x"]), "predicate"),
        (lambda kb: kb.tell_many("p(x)", [("x",)]), "predicate"),
        (lambda kb: kb.ask("p(x)", ["x"]), "goal"),
        (lambda kb: kb.ingest(3), "text"),
        (lambda kb: kb.retract_rule(3), "rule"),
        (lambda kb: kb.prioritize("p(a)", 1.0), "priority"),
    ],
)
def test_errors_name_the_argument(kb, use, field):
    with pytest.raises(InvalidInput) as caught:
        use(kb)
    assert list(caught.value.details["fields"]) == [field]
    assert caught.value.message.startswith(f"{field}: ")
    assert '"args"' not in caught.value.message  # which is the wording of JSON bodies


def test_text_is_accepted_wherever_a_fact_is_named(family):
    family.tell("~age(ann, 70)")
    family.prioritize("age(bob, 41)", priority=1.0)
    assert family.salient("age(bob, ?n)")[0]["args"] == ["bob", "41"]
    assert family.salient("age", ["bob", "?n"]) != []
    assert len(family.recall("~age(ann, ?n)", at="2999-01-01T00:00:00Z")) == 1
    assert family.explain("age(ann, ?n), parent(ann, ?x)").startswith("?n = 70, ?x = bob")
    assert family.retract("~age(ann, 70)").retracted == 1
    family.tell("n(0). n(?y) :- n(?x), ?y = ?x + 1.")
    with pytest.raises(BudgetExceeded):
        family.ask("n(?x)", timeout_ms=20)


def test_every_read_works_inside_a_transaction(family):
    with family.transaction() as inside:
        assert type(inside) is KnowledgeBase
        inside.tell("parent(cy, dee)")
        inside.retract_rule("grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z)")
        inside.teach("@gp: grandparent(?x, ?z) :- parent(?x, ?y), parent(?y, ?z).")
        answers = inside.ask("grandparent(?x, ?z)")
        assert answers.rows()[1]["args"] == ["bob", "dee"]
        assert inside.query("parent(?x, ?y)").count() == 3
        assert "parent(cy, dee)." in inside.dump()
        assert "@gp: " in inside.dump()
        assert inside.aggregate("count", "parent(_, _)") == 3
        assert inside.prove("grandparent(bob, ?x)")[0].answer["args"] == ["bob", "dee"]
        assert len(inside.context(goals="grandparent(bob, ?x)").entries) == 3
        assert "parent(cy, dee)." not in family.dump()
    assert answers == [("ann", "cy"), ("bob", "dee")]
    assert "parent(cy, dee)." in family.dump()


def test_a_preview_takes_texts_and_changes_nothing(kb):
    kb.tell(FAMILY)
    rows = kb.dump()
    preview = kb.preview(
        ["parent(cy, di)", "parent(cy, eve)."], forget=["parent(ann, ?x)"], limit=1
    )
    assert [change.text for change in preview.becomes_true] == ["parent(cy, di)"]
    assert preview.counts.becomes_true > 2
    (rule,) = kb.rules()
    for name in (rule.id, rule.text):
        assert kb.preview(forget_rules=name).counts.becomes_false == 1
    scoped = kb.preview("parent(x, y). parent(y, z).", teach="q(?x) :- parent(?x, _)", scope="s")
    assert {row.scope for row in scoped.by_predicate} == {"s"}
    assert scoped.counts.becomes_true == 5
    assert kb.dump() == rows


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"tell": "p(?x)."}, "variable"),
        ({"tell": "?- p(?x)."}, "tell: line 1: a goal is asked"),
        ({"forget": "p(?x, "}, "forget: "),
        ({"forget": 5}, "forget"),
        ({"forget_rules": "none"}, "no rule 'none'"),
        ({"tell": "p(a)", "limit": -1}, "limit: must be a whole number"),
        ({"tell": "p(a)", "scope": "*"}, "scope: "),
    ],
)
def test_a_preview_refuses_what_the_change_would_refuse(kb, options, problem):
    with pytest.raises((InvalidInput, NotFound), match=problem):
        kb.preview(**options)


def test_a_preview_inside_a_transaction_is_refused(kb):
    with (
        pytest.raises(InvalidInput, match="a preview cannot be part of a transaction"),
        kb.transaction() as transaction,
    ):
        transaction.preview("p(a)")


def test_an_equivalence_is_stored_as_its_rules(kb):
    taught = kb.teach("@equivalence same/2.")
    assert [rule.text for rule in taught.rules] == [
        "same(?y, ?x) :- same(?x, ?y).",
        "same(?x, ?z) :- same(?x, ?y), same(?y, ?z).",
        "contradiction(different, ?x, ?y) :- different(?x, ?y), same(?x, ?y).",
    ]
    kb.load("same(bob, robert). same(robert, bert). stay(bert, rome).")
    assert kb.ask("same(bert, ?x)") == [("bert", "bert"), ("bert", "bob"), ("bert", "robert")]
    assert kb.ask("same(bob, ?x), stay(?x, ?town)") == [("bert", "rome")]
    outcome = kb.retract("same(robert, bert)")
    assert (outcome.retracted, outcome.cascaded, outcome.newly_derivable) == (1, 4, 0)
    assert kb.ask("same(bert, ?x)") == []
    assert len(kb.ask("same(?x, ?y)")) == 4
