"""`kbcore export`, `kbcore import` and `kbcore bulk run --into-tenant`: facts as tables."""

from __future__ import annotations

import importlib.util
import os
import sys

import duckdb
import pytest
from support import bulk
from support.commands import kbcore
from support.servers import Server

FACTS = """
edge(a, b). edge(b, c). edge(x, y, z) [confidence=0.5]. flag. ~edge(c, a).
'a/b.2'('?x', '1'). name(ann) [metadata='{"by": "me"}']. name(bob) [ttl=100000].
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
"""
NAMES = ["a%2Fb%2E2", "edge.2", "edge.3", "flag", "name", "~edge"]

needs_arrow = pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason="pyarrow is not installed",
)


@pytest.fixture(params=["folder", "server"])
def target(request, tmp_path):
    """Options that select a knowledge base with FACTS, without the tenant."""
    if request.param == "folder":
        options = ("--storage-dir", str(tmp_path / "kb"))
        kbcore("tell", *options, FACTS)
        yield options
        return
    with Server(tmp_path / "data") as server:
        options = ("--url", f"http://127.0.0.1:{server.address[1]}")
        kbcore("tell", *options, FACTS)
        yield options


@pytest.mark.parametrize("ending", ["parquet", pytest.param("arrow", marks=needs_arrow)])
def test_exported_facts_are_imported_as_they_were(target, tmp_path, ending, monkeypatch):
    monkeypatch.setattr("kbserver.cli.shared.pages.PAGE_ROWS", 1)
    done = kbcore("export", *target, "--to", str(tmp_path / "out"), "--format", ending)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        f"{name}.{ending}" for name in NAMES
    ]
    assert f"edge.2.{ending}: 2 facts" in done.stdout
    for lost in ("edge.3.%s: 1 fact has a confidence", "name.%s: 1 fact has metadata"):
        assert f"{lost % ending}, which is not in the file" in done.stderr
    assert "1 fact has a validity" in done.stderr
    assert done.stderr.count("which is not in the file") == 3
    there = ("--tenant", "copy")
    imported = kbcore("import", *target, *there, str(tmp_path / "out")).stdout
    assert "edge.2: 2 facts in" in imported
    again = kbcore("import", *target, *there, str(tmp_path / "out")).stdout
    assert "edge.2: 0 facts, 2 already known in" in again
    expected = [line.partition(" [")[0].rstrip(".") for line in dumped(target) if ":-" not in line]
    assert [line.rstrip(".") for line in dumped((*target, *there))] == expected


def dumped(target):
    return kbcore("dump", *target).stdout.splitlines()


def test_derived_relations_are_exported_by_goal(target, tmp_path):
    goals = ("--goal", "reach(a, ?to)", "--goal", "flag", "--predicate", "edge")
    kbcore("export", *target, "--to", str(tmp_path), *goals)
    assert set(bulk.read(tmp_path / "reach.parquet")) == {("a", "b"), ("a", "c")}
    assert len(bulk.read(tmp_path / "flag.parquet")) == 1
    assert not (tmp_path / "name.parquet").exists()
    with duckdb.connect() as db:
        described = db.execute(f"DESCRIBE SELECT * FROM '{tmp_path}/reach.parquet'").fetchall()
    assert [column[:2] for column in described] == [("arg1", "VARCHAR"), ("to", "VARCHAR")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--goal", "reach(?x"), "--goal:1:"),
        (("--goal", "not reach(?x, ?y)"), "an atom without `not`"),
        (("--goal", "edge(?x, ?y)", "--predicate", "edge"), "two tables for edge/2"),
        (("--goal", "reach(?x, ?y)", "--goal", "reach(a, ?y)"), "two tables for reach/2"),
        (("--predicate", "egde"), "--predicate egde: no stored facts"),
        (("--scope", "*"), "a table has no column for the scope"),
        (("--format", "csv"), "--format 'csv': no plugin offers it; choose from: arrow, parquet"),
    ],
)
def test_exports_that_cannot_be_are_refused(tmp_path, options, problem):
    target = ("--storage-dir", str(tmp_path / "kb"))
    kbcore("tell", *target, FACTS)
    status = 2 if options[0] in ("--scope", "--format") else 1
    error = kbcore("export", *target, "--to", str(tmp_path / "out"), *options, expect=status).stderr
    assert problem in error
    assert not (tmp_path / "out").exists()


def test_existing_files_stay_as_they_are(tmp_path):
    target = ("--storage-dir", str(tmp_path / "kb"))
    kbcore("tell", *target, "p(a). q(b).")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "q.parquet").write_text("mine")
    error = kbcore("export", *target, "--to", str(tmp_path / "out"), expect=1).stderr
    assert "q.parquet exists" in error
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["q.parquet"]


@pytest.mark.parametrize(
    ("name", "query", "problem"),
    [
        ("p", "SELECT 1.5 AS x", "column 1 (x) has the type DECIMAL(2,1)"),
        ("p", "SELECT NULL::TEXT AS x", "1 row with NULL"),
        ("p.3", "SELECT 'a' AS x", "the name says 3 arguments, but the file has 1"),
        ("p", "SELECT repeat('x', 70000) AS x", "p.parquet: "),
    ],
)
def test_tables_that_are_no_facts_are_refused(tmp_path, name, query, problem):
    (tmp_path / "in").mkdir()
    bulk.write(tmp_path / "in" / f"{name}.parquet", query)
    target = ("--storage-dir", str(tmp_path / "kb"))
    assert problem in kbcore("import", *target, str(tmp_path / "in"), expect=1).stderr


def test_an_import_names_what_it_does_not_find(tmp_path):
    target = ("--storage-dir", str(tmp_path / "kb"))
    (tmp_path / "in").mkdir()
    error = kbcore("import", *target, str(tmp_path / "in"), expect=1).stderr
    assert "has no file that ends in .arrow or .parquet" in error
    bulk.write(tmp_path / "in" / "p.parquet", "SELECT 1 AS x")
    error = kbcore("import", *target, str(tmp_path / "in"), "--predicate", "q", expect=1).stderr
    assert "--predicate q: " in error
    (tmp_path / "in" / "p.parquet").write_text("none")
    assert (
        "is not a Parquet file" in kbcore("import", *target, str(tmp_path / "in"), expect=1).stderr
    )


@needs_arrow
def test_arrow_tables_of_other_types_are_refused(tmp_path):
    import pyarrow as pa

    target = ("--storage-dir", str(tmp_path / "kb"))
    (tmp_path / "in").mkdir()
    path = tmp_path / "in" / "p.arrow"
    for values, problem in (([1.5], "has the type double"), (["a", None], "null")):
        batch = pa.record_batch([pa.array(values)], names=["x"])
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        assert problem in kbcore("import", *target, str(tmp_path / "in"), expect=1).stderr
    path.write_text("none")
    assert (
        "is not an Arrow IPC file"
        in kbcore("import", *target, str(tmp_path / "in"), expect=1).stderr
    )


def test_without_their_packages_the_commands_say_what_to_install(tmp_path, monkeypatch):
    target = ("--storage-dir", str(tmp_path / "kb"))
    kbcore("tell", *target, "p(a).")
    for package, ending in (("duckdb", "parquet"), ("pyarrow", "arrow")):
        monkeypatch.setitem(sys.modules, package, None)
        options = ("--to", str(tmp_path / "out"), "--format", ending)
        error = kbcore("export", *target, *options, expect=78).stderr
        assert f"pip install {package}" in error


def test_answers_of_a_bulk_run_go_into_a_tenant_once(target, tmp_path):
    kbcore("export", *target, "--to", str(tmp_path / "facts"), "--predicate", "edge")
    (tmp_path / "rules.kb").write_text("reach(?x, ?z) :- edge(?x, ?y), edge(?y, ?z).")
    run = ("bulk", "run", str(tmp_path / "rules.kb"), "--facts", str(tmp_path / "facts"))
    into = (*target, "--goal", "reach(?x, ?y)", "--into-tenant", "derived", "--scope", "night")
    assert "tenant derived: reach: 1 fact in" in kbcore(*run, *into).stdout
    assert "tenant derived: reach: 0 facts, 1 already known" in kbcore(*run, *into).stdout
    stored = kbcore("query", *target, "--tenant", "derived", "--scope", "night", "reach(?x, ?y)")
    assert stored.stdout == "reach(a, c)\n"


def test_a_run_needs_a_place_for_its_answers(tmp_path):
    (tmp_path / "rules.kb").write_text("p(a).")
    run = ("bulk", "run", str(tmp_path / "rules.kb"), "--goal", "p(?x)")
    assert "use --out or --into-tenant" in kbcore(*run, expect=2).stderr
    out = ("--out", str(tmp_path / "out"))
    assert "add --into-tenant" in kbcore(*run, *out, "--scope", "s", expect=2).stderr
    nowhere = ("--into-tenant", "t", "--url", "http://127.0.0.1:9")
    assert "no answer from http://127.0.0.1:9" in kbcore(*run, *out, *nowhere, expect=69).stderr
    assert not (tmp_path / "out").exists()
