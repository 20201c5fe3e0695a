"""Administration of databases and tenants."""

from __future__ import annotations

import gc
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.content import content
from support.examples import examples
from support.runtimes import runtime

from kbcore.errors import AlreadyExists, Conflict, NotFound, UnknownDatabase
from kbcore.state.facts import Fact
from kbplanner.ir.terms import ANONYMOUS, Atom, Variable
from kbplanner.syntax.parser import parse_rule


def fill(node, database, tenant, *names, scope=None):
    kb = node.knowledge_base(database, tenant)
    kb.assert_facts([Fact("p", (name,), scope=scope) for name in names or ("a",)])
    return kb


def stored(node, database, tenant, scope=None):
    return [
        row["args"][0]
        for row in node.knowledge_base(database, tenant).query_rows("p", [ANONYMOUS], scope=scope)
    ]


def test_databases_and_tenants_are_created_and_deleted(tmp_path):
    with runtime(tmp_path) as node:
        admin = node.admin()
        assert [(d.name, d.tenants, d.facts) for d in admin.databases()] == [("default", 0, 0)]
        admin.create_database("d")
        with pytest.raises(AlreadyExists):
            admin.create_database("d")
        with pytest.raises(AlreadyExists):
            admin.create_database("default")
        assert admin.create_tenant("d", "t") is True
        assert admin.create_tenant("d", "t") is False
        fill(node, "d", "u", "x", "y")
        fill(node, "d", "u", "z", scope="s")
        assert admin.tenants("d") == ["t", "u"]
        assert [(d.name, d.tenants, d.facts) for d in admin.databases()] == [
            ("d", 2, 3),
            ("default", 0, 0),
        ]
        admin.nuke_tenant("d", "u")
        assert admin.tenants("d") == ["t", "u"]
        assert stored(node, "d", "u", "*") == []
        fill(node, "d", "u", "new")
        admin.drop_tenant("d", "t")
        before = content(node)
    for _ in range(2):
        with runtime(tmp_path) as node:
            assert content(node) == before
            assert node.admin().tenants("d") == ["u"]
            assert stored(node, "d", "u") == ["new"]
    with runtime(tmp_path) as node:
        node.admin().drop_database("d")
        node.system.store.close(clean=False)
    with runtime(tmp_path) as node:
        assert [d.name for d in node.admin().databases()] == ["default"]
        with pytest.raises(UnknownDatabase):
            node.knowledge_base("d", "u")


def test_unknown_databases_and_tenants_cannot_be_deleted():
    with runtime() as node:
        admin = node.admin()
        for call in (admin.drop_database, admin.nuke_database, admin.tenants):
            with pytest.raises(UnknownDatabase):
                call("nowhere")
        for call in (admin.drop_tenant, admin.nuke_tenant):
            with pytest.raises(NotFound):
                call("default", "nobody")
            with pytest.raises(UnknownDatabase):
                call("nowhere", "nobody")
        with pytest.raises(UnknownDatabase):
            admin.create_tenant("nowhere", "t")
        with pytest.raises(Conflict):
            admin.drop_database("default")
        admin.nuke_database("default")


def test_nuke_empties_every_tenant_and_keeps_the_names(tmp_path):
    with runtime(tmp_path) as node:
        admin = node.admin()
        for tenant in ("t", "u"):
            kb = fill(node, "default", tenant)
            kb.assert_rules([parse_rule("q(?x) :- p(?x).")])
            kb.fork_scope(None, "s")
        admin.nuke_database("default")
        for tenant in ("t", "u"):
            kb = node.knowledge_base("default", tenant)
            assert (kb.rules(), kb.scopes(), stored(node, "default", tenant, "*")) == ([], [], [])
        assert admin.tenants("default") == ["t", "u"]
        before = content(node)
    with runtime(tmp_path) as node:
        assert content(node) == before


@pytest.mark.parametrize("way", ["nuke", "drop", "nuke-database", "drop-database"])
def test_memory_of_a_deleted_tenant_is_released(way):
    with runtime() as node:
        admin = node.admin()
        admin.create_database("d")
        kb = fill(node, "d", "t", "a", "b")
        kb.assert_rules(
            [
                parse_rule(text)
                for text in (
                    "q(?x) :- p(?x).",
                    "w(?x) :- q(?x), not v(?x).",
                    "v(?x) :- q(?x), not w(?x).",
                )
            ]
        )
        for name in ("q", "w"):
            assert len(kb.tuples(Atom(name, (Variable("x"),)))) == (2 if name == "q" else 0)
        kb.infer(goal("q"))
        kb.prove(goal("q"))
        kb.fork_scope(None, "s")
        kb.diff_scopes(None, "s")
        kb.retract_fact("p", ("a",))
        engine = weakref.ref(node.read_tenant("d", "t").engine)
        gc.collect()
        gc.disable()
        try:
            calls = {"nuke": admin.nuke_tenant, "drop": admin.drop_tenant}
            if way in calls:
                calls[way]("d", "t")
            else:
                {"nuke-database": admin.nuke_database, "drop-database": admin.drop_database}[way](
                    "d"
                )
            assert engine() is None
        finally:
            gc.enable()


def goal(name):
    from kbplanner.ir.terms import Literal

    return Literal(Atom(name, (Variable("x"),)))


def test_a_handle_works_after_its_tenant_was_replaced():
    with runtime() as node:
        kb = fill(node, "default", "t")
        node.admin().drop_tenant("default", "t")
        assert stored(node, "default", "t") == []
        fill(node, "default", "t", "b")
        assert [row["args"] for row in kb.query_rows("p", [ANONYMOUS])] == [["b"]]


NAMES = [
    "a",
    "A",
    "a.b",
    "a:b",
    "a@b",
    "a-b",
    "a_b",
    "ab",
    "a.",
    ".a",
    "...",
    "a..b",
    "default",
    "null",
    "None",
    "0",
    "00",
]
NAMES += ["-"]
ODD_NAMES = ["a*", "**", "%61", "a%2Eb", "a/b"]
scopes = st.sampled_from(NAMES)
names = st.sampled_from(NAMES + ODD_NAMES)


@examples(80)
@given(
    st.lists(st.tuples(names, names, st.none() | scopes), min_size=1, max_size=12),
    st.sampled_from(["fact", "scope", "tenant", "nuke", "database", "fork"]),
    st.integers(0, 11),
)
def test_look_alike_constants_are_different(places, verb, which):
    """Facts of every database, tenant and scope, with one of these changed: all others stay as they
    were.
    """
    with runtime() as node:
        admin = node.admin()
        expected = {}
        for place in dict.fromkeys(places):
            database, tenant, scope = place
            if database not in [known.name for known in admin.databases()]:
                admin.create_database(database)
            fill(node, database, tenant, repr(place), scope=scope)
            expected[place] = [repr(place)]
        database, tenant, scope = victim = places[which % len(places)]
        kb = node.knowledge_base(database, tenant)
        if verb == "fact":
            kb.retract_fact("p", (repr(victim),), scope=scope)
            expected[victim] = []
        elif verb == "scope" and scope is not None:
            kb.drop_scope(scope)
            expected[victim] = []
        elif verb == "fork":
            target = next(name for name in NAMES if name != scope)
            kb.fork_scope(scope, target, overwrite=True)
            expected[database, tenant, target] = [repr(victim)]
        elif verb in ("tenant", "nuke"):
            (admin.drop_tenant if verb == "tenant" else admin.nuke_tenant)(database, tenant)
            expected.update({place: [] for place in expected if place[:2] == (database, tenant)})
        elif verb == "database" and database != "default":
            admin.drop_database(database)
            expected = {place: known for place, known in expected.items() if place[0] != database}
        for (where, who, inside), known in expected.items():
            assert stored(node, where, who, inside) == known
