"""Answers in libraries that read Apache Arrow: pyarrow, polars, DuckDB and nanoarrow."""

from __future__ import annotations

import importlib.util
import io
import json
import os
from itertools import pairwise

import pytest

from kbcore import open_kb

LIBRARIES = ("duckdb", "nanoarrow", "polars", "pyarrow")

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in LIBRARIES)
    and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason=f"needs {', '.join(LIBRARIES)}",
)

NAMES = ["a", "b", "c", "ö", "", 'quote " and \n line', "x" * 300]


@pytest.fixture(scope="module")
def kb():
    with open_kb() as kb:
        kb.tell_many("edge", list(pairwise(NAMES)))
        kb.tell_many("amount", [("a", 1), ("b", -20), ("c", 3)])
        kb.tell_many("rate", [("a", 1), ("b", 0.5)])
        kb.tell_many("flag", [("a", True), ("b", False), ("c", True)])
        kb.tell_many("big", [(f"n{n % 7000}", n) for n in range(70_001)])
        kb.teach("path(?x, ?y) :- edge(?x, ?y). path(?x, ?z) :- path(?x, ?y), edge(?y, ?z).")
        yield kb


def rows_of_every_library(table):
    """The rows of a table, which every library must read alike, through capsules and the stream."""
    import duckdb
    import nanoarrow
    import polars
    import pyarrow as pa

    whole = pa.table(table)
    whole.validate(full=True)
    streamed = pa.ipc.open_stream(io.BytesIO(b"".join(table.ipc_stream()))).read_all()
    streamed.validate(full=True)
    assert streamed.schema == whole.schema
    rows = whole.to_pylist()
    assert streamed.to_pylist() == rows
    assert whole.num_rows == table.num_rows
    assert polars.DataFrame(table).to_dicts() == rows
    assert polars.read_ipc_stream(io.BytesIO(b"".join(table.ipc_stream()))).to_dicts() == rows
    given = table  # DuckDB finds it by the name of the variable
    read = duckdb.sql("SELECT * FROM given").fetchall()
    del given
    assert read == [tuple(row.values()) for row in rows]
    read_nano = nanoarrow.ArrayStream(table).read_all()
    assert len(read_nano) == len(rows)
    return rows


@pytest.mark.parametrize("goal", ["path(?x, ?y)", "path(a, ?y)", "edge(?x, ?y), edge(?y, ?z)"])
def test_every_library_reads_the_names(kb, goal):
    answers = kb.ask(goal)
    rows = rows_of_every_library(answers.arrow())
    assert rows == answers.dicts()


def test_several_batches(kb):
    answers = kb.query("big(?name, ?n)")
    assert rows_of_every_library(answers.arrow()) == answers.dicts()


def test_each_name_is_stored_once(kb):
    import pyarrow as pa

    table = pa.table(kb.query("big(?name, ?n)"))
    (chunk,) = table.column("name").chunks
    assert isinstance(chunk, pa.DictionaryArray)
    assert (len(chunk), len(chunk.dictionary)) == (70_001, 7000)


def test_answers_outlive_the_knowledge_base():
    import pyarrow as pa

    with open_kb() as kb:
        kb.tell("p", ["a"])
        stream = pa.RecordBatchReader.from_stream(kb.query("p(?x)"))
        unread = kb.query("p(?x)").__arrow_c_stream__()
    assert stream.read_all().to_pylist() == [{"x": "a"}]
    del unread


def test_no_answers_and_no_variables(kb):
    assert rows_of_every_library(kb.ask("path(c, ?x), edge(?x, nothing)").arrow()) == []
    assert rows_of_every_library(kb.ask("path(a, c)").arrow()) == [{"holds": True}]
    assert rows_of_every_library(kb.ask("path(c, a)").arrow()) == []
    assert rows_of_every_library(kb.ask("path(_, b)").arrow()) == [{"holds": True}]


def test_columns_of_python_values(kb):
    import pyarrow as pa

    expected = {
        "amount": ([-20, 1, 3], pa.int64()),
        "rate": ([0.5, 1.0], pa.float64()),
        "flag": ([False, True, True], pa.bool_()),
    }
    for predicate, (values, kind) in expected.items():
        table = kb.query(f"{predicate}(?name, ?value)", values="python").arrow()
        rows = rows_of_every_library(table)
        assert sorted(row["value"] for row in rows) == values
        assert pa.table(table).schema.field("value").type == kind
    kb.tell("mixed", ["a", 1])
    kb.tell("mixed", ["b", "text"])
    kb.tell("mixed", ["c", 2**60])
    kb.tell("mixed", ["d", 0.5])
    table = kb.query("mixed(?name, ?value)", values="python").arrow()
    texts = [row["value"] for row in rows_of_every_library(table)]
    assert texts == ["1", "text", str(2**60), "0.5"]


def test_confidence_and_metadata_are_further_columns():
    with open_kb() as kb:
        kb.tell("seen", ["a"], confidence=0.5, metadata={"by": "camera"})
        kb.tell("seen", ["b"])
        answers = kb.ask("seen(?confidence)", min_confidence=0.1)
        rows = rows_of_every_library(answers.arrow())
        assert [(row["confidence"], row["confidence_"]) for row in rows] == [
            ("a", 0.5),
            ("b", None),
        ]
        assert [row["metadata"] and json.loads(row["metadata"]) for row in rows] == [
            {"by": "camera"},
            None,
        ]


def test_the_scope_is_a_column_if_all_are_asked():
    with open_kb() as kb:
        kb.tell("p", ["a"])
        kb.tell("p", ["b"], scope="team")
        kb.teach("q(?x) :- p(?x).")
        rows = rows_of_every_library(kb.ask("q(?x)", scope="*").arrow())
        assert rows == [{"x": "a", "scope": None}, {"x": "b", "scope": "team"}]
        rows = rows_of_every_library(kb.ask("q(?x)", scope="*", min_confidence=0.0).arrow())
        assert {row["scope"] for row in rows} == {None, "team"}
