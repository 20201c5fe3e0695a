"""Every workload still runs, at tiny sizes, and all engines have the same answers. Nothing is said
about times.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import documents
import measure
import names
import run
import table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.mark.parametrize("workload", run.WORKLOADS)
def test_workload_runs_small(workload: str) -> None:
    command = [sys.executable, str(HERE / "run.py"), "--small", "--only", workload]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    header, rule, *rows = done.stdout.split("\n\n", 1)[1].splitlines()
    assert header.startswith("workload")
    assert set(rule) == {"-", " "}
    assert len(rows) >= 2


def test_peers_that_are_left_out_are_named_in_one_line() -> None:
    command = [sys.executable, str(HERE / "run.py"), "--small", "--only", "join", "--peers"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "sqlite" not in done.stdout.split("\n\n", 1)[1].splitlines()[0]


@pytest.mark.parametrize("size", documents.SIZES)
@pytest.mark.parametrize("seed", [1, 2])
def test_cedarpy_decides_as_we_do(size: int, seed: int) -> None:
    pytest.importorskip("cedarpy", reason="cedarpy is not installed")
    base = documents.drive(size, seed)
    asked = documents.checks(base, 150, seed)
    other = documents.cedar(base)
    with documents.ours(base) as decide:
        decisions = [decide(*pair) for pair in asked]
    assert decisions == [other(*pair) for pair in asked]
    assert {True, False} <= set(decisions)


def test_other_answers_fail_the_run() -> None:
    row = table.Row("w", "1", 3, measure.Sample(1.0, 3), {"sqlite": measure.Sample(1.0, 4)})
    row.compare()
    assert row.wrong == "w 1: 3 answers, but {'sqlite': 4}"


@pytest.mark.parametrize(
    ("duckdb", "swipl", "met"),
    [
        (measure.Sample(1.0), measure.Sample(8.0), True),
        (measure.Sample(0.9), measure.Sample(8.0), False),
        (measure.Sample(1.0), measure.Sample(7.9), False),
        (measure.Sample(1.0), measure.too_late(8.0), True),
        (measure.Sample(1.0), measure.too_late(7.0), None),
        (measure.Sample(0.9), None, False),
        (measure.Sample(1.0), None, None),
    ],
)
def test_a_floor_is_met_when_every_peer_is_slow_enough(
    duckdb: measure.Sample, swipl: measure.Sample | None, met: bool | None
) -> None:
    peers = {"duckdb": duckdb} | ({"swipl": swipl} if swipl else {})
    row = table.Row("w", "1", None, measure.Sample(1.0), peers, floors=table.BATCH)
    row.compare()
    assert row.met is met


def test_the_tail_of_a_stream_counts_too() -> None:
    ours, peer = measure.Sample(1.0, tail=2.0), measure.Sample(1.5, tail=1.9)
    row = table.Row("w", "1", None, ours, {"sqlite": peer}, floors=table.STREAM)
    row.compare()
    assert (row.met, row.ratio) == (False, "sqlite 1.5 / 0.95")


def test_a_table_is_written_between_its_marks_and_nothing_else_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    begin, end = table.BEGIN.format("table"), table.END.format("table")
    page.write_text(f"before\n{begin}\nold\n{end}\nafter\n")
    table.write_markdown(page, "table", "new")
    assert page.read_text() == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    table.write_markdown(page, "point-goal", "more")
    assert page.read_text().startswith(f"before\n{begin}\n\nnew\n\n{end}\nafter\n<!-- point-goal")


def test_the_page_about_names_has_the_measured_error_rates() -> None:
    page = (ROOT / "docs" / "how-to" / "merge-names-of-the-same-thing.md").read_text()
    for rule, rates in names.rates(names.pairs()):
        row = f"| {rule} | {rates.precision:.3f} | {rates.recall:.3f} | {rates.wrong} "
        assert f"{row}| {rates.missed} |" in page
