"""Tables of SQLite, PostgreSQL and DuckDB as predicates."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.postgres import psycopg

from kbcore import Config, open_kb
from kbcore.errors import ConfigError, PredicateFailed
from kbcore.plug.conformance import PredicateConformance
from kbcore.plug.ports import Predicate
from kbplugins import predicates_sql

SCHEMA = [
    "CREATE TABLE prices (item VARCHAR(40), cents INTEGER, kilos NUMERIC(10, 3), day DATE)",
    """INSERT INTO prices VALUES ('apple', 3, 0.5, '2026-01-02'), ('nut', 1, 2, '2026-01-03'),
       ('melon', 12, 1.25, NULL), ('Apple', 3, 0.5, '2026-01-02'), ('void', NULL, 1, NULL)""",
    'CREATE TABLE "odd names" ("a ""b" VARCHAR(9), "select" VARCHAR(9))',
    "INSERT INTO \"odd names\" VALUES ('x', 'y'), ('x', 'y'), ('', 'é')",
]
PREDICATES: dict[str, dict[str, Any]] = {
    "price": {"table": "prices", "columns": ["item", "cents"]},
    "weight": {
        "table": "prices",
        "columns": ["item", "cents", "kilos"],
        "modes": [["in", "in", "out"], ["out", "out", "in"]],
    },
    "since": {"table": "prices", "columns": ["item", "day"]},
    "every": {"table": "prices", "columns": ["item"], "modes": [["out"], ["in"]]},
    "odd": {"table": "odd names", "columns": ['a "b', "select"], "pure": True},
}


def sqlite(tmp_path) -> tuple[str, Callable[[str], Any]]:
    path = tmp_path / "shop.db"

    def run(statement: str) -> None:
        connection = sqlite3.connect(path)
        try:
            with connection:
                connection.execute(statement)
        finally:
            connection.close()

    return f"sqlite:{path}", run


def duckdb(tmp_path) -> tuple[str, Callable[[str], Any]]:
    module = pytest.importorskip("duckdb")
    path = str(tmp_path / "shop.duckdb")

    def run(statement: str) -> None:
        with module.connect(path) as connection:
            connection.execute(statement)

    return f"duckdb:{path}", run


@pytest.fixture(params=["sqlite", "duckdb", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path) -> str:
    """The URL of a database with the tables of SCHEMA."""
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_url")
        with psycopg().connect(url, autocommit=True) as connection:
            for statement in SCHEMA:
                connection.execute(statement)
        return url
    url, run = {"sqlite": sqlite, "duckdb": duckdb}[request.param](tmp_path)
    for statement in SCHEMA:
        run(statement)
    return url


def described(tmp_path, url: str, predicates: dict[str, dict[str, Any]] = PREDICATES) -> Config:
    path = tmp_path / "predicates.json"
    content = {
        "databases": {"shop": url},
        "predicates": {name: {"database": "shop"} | each for name, each in predicates.items()},
    }
    path.write_text(json.dumps(content), encoding="utf-8")
    return Config(storage_backend="memory", sql_predicates=str(path))


@pytest.fixture
def config(tmp_path, shop: str) -> Config:
    return described(tmp_path, shop)


class Conforms(PredicateConformance, abstract=True):
    """Each subclass tests one of the predicates on all three databases."""

    predicate_name = ""

    @pytest.fixture
    def predicate(self, config: Config) -> Predicate:
        self.config = config
        return self.make_predicate()

    def make_predicate(self) -> Predicate:
        return predicates_sql.kb_predicates(self.config)[self.predicate_name]


class TestPrice(Conforms):
    predicate_name = "price/2"
    known: Sequence = [("apple", "3"), ("nut", "1"), ("melon", "12"), ("Apple", "3")]
    unknown = ("nothing", "many")


class TestWeight(Conforms):
    predicate_name = "weight/3"
    known: Sequence = [("apple", "3", "0.5"), ("nut", "1", "2"), ("melon", "12", "1.25")]
    unknown = ("nothing", "x", "1e")


class TestSince(Conforms):
    predicate_name = "since/2"
    known: Sequence = [("apple", "2026-01-02"), ("nut", "2026-01-03")]
    unknown = ("nothing", "2026-02-31")


class TestEvery(Conforms):
    predicate_name = "every/1"
    known: Sequence = [("apple",), ("void",)]
    unknown = ("nothing",)


class TestOdd(Conforms):
    predicate_name = "odd/2"
    known: Sequence = [("x", "y"), ("", "é")]
    unknown = ("z", "z")


def test_rules_join_facts_with_a_table(config):
    with open_kb(config=config) as kb:
        kb.execute("basket(ann, apple). basket(ann, melon). basket(bob, pen). basket(bob, void).")
        kb.teach("""
            cost(?who, sum(?cents)) :- basket(?who, ?item), price(?item, ?cents).
            unknown(?item) :- basket(_, ?item), not price(?item, _).
            twin(?x, ?y) :- price(?x, ?c), every(?x), price(?y, ?c), ?x != ?y.
        """)
        assert list(kb.ask("cost(?who, ?sum)")) == [("ann", "15")]
        assert list(kb.ask("unknown(?item)")) == [("pen",), ("void",)]
        assert list(kb.ask("twin(?x, ?y)")) == [("Apple", "apple"), ("apple", "Apple")]
        assert list(kb.ask("price(?item, 3)")) == [("Apple", "3"), ("apple", "3")]
        assert not kb.ask("price(?item, 03)")
        assert not kb.ask("price(?item, '3; DROP TABLE prices')")
        assert kb.ask("weight(?item, ?cents, 0.5)")


def test_each_request_reads_the_table_again(tmp_path):
    url, run = sqlite(tmp_path)
    for statement in SCHEMA:
        run(statement)
    config = described(tmp_path, url)
    with open_kb(config=config) as kb:
        assert list(kb.ask("price(apple, ?c)")) == [("apple", "3")]
        assert list(kb.ask("odd(x, ?c)")) == [("x", "y")]
        run("UPDATE prices SET cents = 4")
        run('UPDATE "odd names" SET "select" = \'new\'')
        assert list(kb.ask("price(apple, ?c)")) == [("apple", "4")]
        assert list(kb.ask("odd(x, ?c)")) == [("x", "y")]  # declared pure


def test_many_inputs_take_several_statements(config):
    with open_kb(config=config) as kb:
        kb.tell_many("item", [(f"i{number}",) for number in range(1500)])
        kb.tell("item", ["nut"])
        kb.teach("w(?x, ?k) :- item(?x), price(?x, ?c), weight(?x, ?c, ?k).")
        assert list(kb.ask("w(?x, ?k)")) == [("nut", "2")]


def test_the_database_is_read_only(config, shop):
    description = predicates_sql.read_description(config.sql_predicates)
    database = predicates_sql.open_database(description.databases["shop"])
    with pytest.raises(Exception, match=r"(?i)read.?only"), database.connection(5) as connection:
        connection.execute("INSERT INTO prices (item) VALUES ('x')")


@pytest.mark.parametrize(
    ("table", "column"), [("missing", "item"), ("prices", "missing")], ids=["table", "column"]
)
def test_a_table_that_cannot_be_read_is_named_without_its_details(
    tmp_path, shop, table, column, caplog
):
    config = described(tmp_path, shop, {"price": {"table": table, "columns": [column]}})
    with open_kb(config=config) as kb, pytest.raises(PredicateFailed, match="price/1"):
        kb.ask("price(apple)")
    assert "missing" in caplog.text


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"databases": {"shop": "mysql://host"}}, "must begin with sqlite:FILE"),
        ({"databases": []}, "an object 'databases'"),
        ({"databases": {"shop": 1}}, "must be a text"),
        ({"predicates": {"p": {"database": "other"}}}, "names no database"),
        ({"predicates": {"p": {"database": "shop", "columns": []}}}, "columns must be"),
        ({"predicates": {"p": {"database": "shop", "columns": ["a"]}}}, "table must be"),
        (
            {"predicates": {"p": {"database": "shop", "columns": ["a"], "table": "t", "x": 1}}},
            "must be an object with the keys",
        ),
        (
            {"predicates": {"p": {"database": "shop", "columns": ["a"], "table": "t", "pure": 1}}},
            "pure must be",
        ),
        (
            {"predicates": {"p": {"database": "shop", "columns": ["a"], "table": "t", "modes": 1}}},
            "modes must be",
        ),
    ],
)
def test_a_wrong_description_prevents_the_start(tmp_path, change, problem):
    path = tmp_path / "predicates.json"
    content = {"databases": {"shop": "sqlite:shop.db"}, "predicates": {}}
    path.write_text(json.dumps(content | change), encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        predicates_sql.kb_predicates(Config(sql_predicates=str(path)))


def test_a_description_that_cannot_be_read_is_named(tmp_path):
    assert predicates_sql.kb_predicates(Config()) == {}
    with pytest.raises(ConfigError, match="cannot read"):
        predicates_sql.kb_predicates(Config(sql_predicates=str(tmp_path / "none.json")))
    (tmp_path / "bad.json").write_text("{")
    with pytest.raises(ConfigError, match="is no JSON"):
        predicates_sql.kb_predicates(Config(sql_predicates=str(tmp_path / "bad.json")))


def test_a_driver_that_is_not_installed_is_named(monkeypatch):
    def missing(name: str):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr("kbplugins.predicates_sql.databases.importlib.import_module", missing)
    for url, name in (("postgresql://host/db", "psycopg"), ("duckdb:file", "duckdb")):
        with pytest.raises(ConfigError, match=f"needs {name}: install it with"):
            predicates_sql.open_database(url)
