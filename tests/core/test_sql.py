"""Conditions in SQL: what they select, and the rules and facts that are refused."""

from __future__ import annotations

import sqlite3
import sys

import pytest

import kbcore
from kbcore.bulk import sql as bulk_sql
from kbcore.errors import ConfigError, InvalidInput
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Predicate
from kbplanner.syntax.printer import print_constant

DOCUMENTS = "documents=document(id, owner, size)"

RULES = """
    shared(memo, staff). shared(memo, all). member(ann, staff). parent(staff, all).
    in_group(?who, ?group) :- member(?who, ?group).
    in_group(?who, ?group) :- in_group(?who, ?lower), parent(?lower, ?group).
    can_read(?who, ?doc) :- document(?doc, ?who, _).
    can_read(?who, ?doc) :- shared(?doc, ?group), in_group(?who, ?group).
"""


@pytest.fixture
def kb():
    with kbcore.open_kb("memory:") as opened:
        opened.tell(RULES)
        yield opened


def selected(condition: str, rows) -> list[str]:
    """Return the ids of the rows of a table of documents that meet a condition."""
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE documents (id TEXT, owner TEXT, size)")
        db.executemany("INSERT INTO documents VALUES (?, ?, ?)", rows)
        query = f"SELECT id FROM documents WHERE {condition} ORDER BY id"
        return [row[0] for row in db.execute(query)]


def test_facts_of_recursive_rules_without_tables_are_written_into_the_condition(kb):
    condition = kb.sql("can_read(ann, ?doc)", [DOCUMENTS], dialect="sqlite")
    rows = [("memo", "bob", 1), ("plan", "ann", 2), ("notes", "bob", 3)]
    assert selected(condition, rows) == ["memo", "plan"]


def test_a_goal_without_answers_selects_no_row(kb):
    condition = kb.sql("in_group(zed, ?doc)", [DOCUMENTS], dialect="sqlite")
    assert selected(condition, [("memo", "zed", 1)]) == []


def test_a_table_takes_the_place_of_stored_facts(kb):
    kb.tell("document(old, ann, 1).")
    condition = kb.sql("can_read(ann, ?doc)", [DOCUMENTS], dialect="sqlite")
    assert selected(condition, [("old", "bob", 1)]) == []


@pytest.mark.parametrize(
    "name",
    ["o'brien", "a\\", "'; DROP TABLE documents; --", '"', "?", "%s:x", "__SQLGLOT__LB__", "a\nb"],
)
def test_constants_are_quoted(kb, name):
    goal = f"can_read({print_constant(name)}, ?doc)"
    condition = kb.sql(goal, [DOCUMENTS], dialect="sqlite")
    assert selected(condition, [("x", name, 1), ("y", "bob", 1), ("z", "\n", 1)]) == ["x"]


def test_a_nul_character_is_refused(kb):
    with pytest.raises(InvalidInput, match="NUL"):
        kb.sql(f"can_read({print_constant(chr(0))}, ?doc)", [DOCUMENTS])


def test_numbers_are_read_as_the_language_reads_them(kb):
    kb.tell("big(?doc) :- document(?doc, _, ?size), ?size > 9.")
    sizes = ["10", "9.5", "1e1", "010", "9", "ten", "", None, 10, 9.5, 8, "-10", "1_0", " 10"]
    condition = kb.sql("big(?doc)", [DOCUMENTS], dialect="sqlite")
    rows = [(str(at), "ann", size) for at, size in enumerate(sizes)]
    assert [int(each) for each in selected(condition, rows)] == [0, 1, 2, 8, 9]


def test_a_null_is_no_value_under_not(kb):
    kb.tell("open(?doc) :- document(?doc, ?owner, _), not member(?owner, staff).")
    kb.tell("odd(?doc) :- document(?doc, ?owner, _), ?owner != ann.")
    rows = [("a", None, 1), ("b", "bob", 1), ("c", "ann", 1)]
    for goal in ("open(?doc)", "odd(?doc)"):
        assert selected(kb.sql(goal, [DOCUMENTS], dialect="sqlite"), rows) == ["b"]


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("r(?x) :- document(?x, ?y, _). r(?x) :- r(?y), document(?x, ?y, _).", "recursion of r/1"),
        ("c(?o, count(*)) :- document(_, ?o, _). r(?o) :- c(?o, 2).", "aggregate"),
        ("b(?o, max ?s) :- document(_, ?o, ?s). r(?o) :- b(?o, _).", "best value"),
        ("r(?x) :- document(?x, _, ?s), ?s * 2 > 10.", "computes"),
        ('r(?x) :- document(?x, _, ?s), matches(?x, "a+").', "matches"),
        ('r(?x) :- document(?x, _, ?s), ?s < "2026-01-01".', "instant"),
        ("r(?x) :- document(?x, _, ?s), ?s < now().", "now"),
        ("t(?x) :- member(?x, _), ?y = now(). r(?x) :- document(?x, ?o, _), t(?o).", "now"),
        (
            "r(?x) :- document(?x, _, _), not q(?x). q(?x) :- document(?x, _, _), not r(?x).",
            "recursion through negation",
        ),
    ],
)
def test_what_sql_does_not_say_is_refused_with_the_rule(kb, rule, problem):
    kb.tell(rule)
    with pytest.raises(InvalidInput, match=problem) as refusal:
        kb.sql("r(?x)", [DOCUMENTS])
    assert "the rule" in str(refusal.value) or "r/1" in str(refusal.value)


def test_facts_that_end_are_refused(kb):
    kb.tell("member(zed, all)", valid_until="2999-01-01T00:00:00Z")
    with pytest.raises(InvalidInput, match=r"member/2 end.*--table 'TABLE=member"):
        kb.sql("can_read(ann, ?doc)", [DOCUMENTS])


def test_too_many_facts_are_refused_with_advice(kb):
    kb.tell("".join(f"shared(d{at}, staff). " for at in range(bulk_sql.MAX_ROWS)))
    with pytest.raises(InvalidInput, match=r"shared/2.*--table 'TABLE=shared\(column1, column2\)"):
        kb.sql("can_read(ann, ?doc)", [DOCUMENTS])
    shares = "shares=shared(document, grp)"
    assert "d999" not in kb.sql("can_read(ann, ?doc)", [DOCUMENTS, shares])


def test_a_long_condition_names_the_predicate(kb):
    kb.tell("".join(f"shared({'x' * 900}{at}, staff). " for at in range(300)))
    with pytest.raises(InvalidInput, match=r"characters.*shared/2"):
        kb.sql("can_read(ann, ?doc)", [DOCUMENTS])


def test_a_table_that_no_rule_reads_is_refused(kb):
    kb.tell("""
        can_read(?who, ?doc) :- document(?doc, ?who).
        can_read(?who, ?doc) :- listed(?doc), person(?who), not banned(?who).
        listed(plan). person(ann).
    """)
    documents = "documents=document(id, owner)"
    for tables, message in (
        (
            [documents, "bans=baned(who)"],
            r"bans: no rule reads baned/1 \(did you mean banned/1\?\)",
        ),
        ([documents, "bans=banned(who, until)"], r"no rule reads banned/2 \(did you mean banned/1"),
        ([documents, "other=elsewhere(id)"], "other: no rule reads elsewhere/1$"),
        (["documents=documnt(id, owner)"], r"documnt/2 \(did you mean document/2\?\)"),
    ):
        with pytest.raises(InvalidInput, match=message):
            kb.sql("can_read(ann, ?doc)", tables)
    only_rows = ["files=file(id)", "bans=banned(who)"]
    assert "banned" not in kb.sql("can_read(ann, ?doc)", only_rows[:1])
    assert "bans" in kb.sql("can_read(ann, ?doc)", only_rows)


@pytest.mark.parametrize(
    ("goal", "tables", "options", "field"),
    [
        ("can_read(ann, plan)", [DOCUMENTS], {}, "goal"),
        ("can_read(?a, ?b)", [DOCUMENTS], {}, "goal"),
        ("can_read(ann, ?b)", [], {}, "table"),
        ("can_read(ann, ?b)", ["documents"], {}, "table"),
        ("can_read(ann, ?b)", ["a b=document(id)"], {}, "table"),
        ("can_read(ann, ?b)", ["d=document(id, id)"], {}, "table"),
        ("can_read(ann, ?b)", [DOCUMENTS, DOCUMENTS], {}, "table"),
        ("can_read(ann, ?b)", DOCUMENTS, {}, "tables"),
        ("can_read(ann, ?b)", [DOCUMENTS], {"dialect": "mysql"}, "dialect"),
        ("can_read(ann, ?b)", [DOCUMENTS], {"scope": "*"}, "scope"),
    ],
)
def test_wrong_arguments_are_named(kb, goal, tables, options, field):
    with pytest.raises(InvalidInput) as refusal:
        kb.sql(goal, tables, **options)
    assert list(refusal.value.details["fields"]) == [field]


def test_a_missing_package_is_named(kb, monkeypatch):
    monkeypatch.setitem(sys.modules, "sqlglot", None)
    with pytest.raises(ConfigError, match="pip install sqlglot"):
        kb.sql("can_read(ann, ?doc)", [DOCUMENTS])


class Counting:
    """A dialect that only counts."""

    def condition(self, table, column, answers):
        return f"{table}.{column}: {len(answers.branches)} branches"


class Plugin:
    @hookimpl
    def kb_sql_dialects(self):
        return {"counting": Counting()}

    @hookimpl
    def kb_predicates(self):
        price = Predicate("price", 2, (("in", "out"),), lambda call: [])
        return {"price/2": price}


def test_plugins_offer_dialects_and_their_predicates_are_refused():
    with kbcore.open_kb("memory:", plugins=[Plugin()]) as kb:
        kb.tell(RULES)
        condition = kb.sql("can_read(ann, ?doc)", [DOCUMENTS], dialect="counting")
        assert condition == "documents.id: 2 branches"
        kb.tell("cheap(?x) :- document(?x, ?o, _), price(?o, 5).")
        with pytest.raises(InvalidInput, match="a plugin gives the rows of price/2"):
            kb.sql("cheap(?doc)", [DOCUMENTS])
