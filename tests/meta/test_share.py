"""The share of the expensive tests that a CI run takes: no test is left out for ever."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import share
from support.changed import FAULT_PATHS, FAULTS, KILLS, ROOT
from support.share import (
    MAX_WHOLE_SECONDS,
    MIN_SECONDS,
    RUNS,
    chosen_share,
    costs,
    read_share,
    seconds_by_file,
    summary,
    whole_tests,
    write_costs,
)

PARAMETERS = ("", "[a]", "[b-1]", "[None]", "[x[0]]")
ITEMS = [f"{function}{parameters}" for function in costs() for parameters in PARAMETERS]
CHEAP = "core/test_csv.py::test_that_is_not_listed[1]"


@pytest.mark.parametrize("first", [0, 1, 7, 406])
@pytest.mark.parametrize("of", [1, 2, 3, RUNS, 5])
def test_consecutive_runs_take_each_item_once(first: int, of: int) -> None:
    shares = [read_share(f"{turn}/{of}") for turn in range(first, first + of)]
    for item in ITEMS:
        assert sum(each.takes(item) for each in shares) == 1, item
    assert all(each.takes(CHEAP) for each in shares)


def test_shares_take_about_the_same_time() -> None:
    total = sum(costs().values())
    for turn in range(RUNS):
        each = read_share(f"{turn}/{RUNS}")
        seconds = sum(cost for function, cost in costs().items() if each.takes(function))
        assert 0.8 < seconds / (total / RUNS) < 1.2


def test_named_files_and_folders_run_whole() -> None:
    file = next(iter(costs())).partition("::")[0]
    whole = read_share(f"0/{RUNS} {FAULTS} {file}")
    for item in ITEMS:
        if item.startswith((f"{FAULTS}/", f"{file}::")):
            assert whole.takes(item)
    plain = read_share(f"0/{RUNS}")
    assert not all(plain.takes(item) for item in ITEMS if item.startswith(f"{file}::"))


@pytest.mark.parametrize("text", ["1", "1/0", "a/4", "1/2/3"])
def test_a_malformed_share_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        read_share(text)


def test_a_change_of_the_engine_workers_clusters_or_storage_runs_the_fault_tests_whole() -> None:
    for prefix in FAULT_PATHS:
        whole, reasons = whole_tests([f"{prefix}x.py"])
        assert whole == [FAULTS, *KILLS]
        assert prefix in reasons[0]
    assert whole_tests(["kbcore/scopes/x.py"]) == ([], [])
    assert all((ROOT / "tests" / each).exists() for each in (FAULTS, *KILLS))


def test_changed_files_run_whole_until_they_take_too_long() -> None:
    files = sorted(seconds_by_file(), key=lambda file: (seconds_by_file()[file], file))
    whole, reasons = whole_tests(f"tests/{file}" for file in files)
    assert whole == files[: len(whole)]
    assert len(whole) < len(files)
    assert sum(seconds_by_file()[file] for file in whole) <= MAX_WHOLE_SECONDS
    assert "run whole, as they changed" in reasons[0]
    assert "take a share" in reasons[1]
    assert whole_tests([f"tests/{files[0]}"])[0] == [files[0]]


def test_a_full_run_takes_every_item() -> None:
    assert chosen_share({"CI_FULL": "1"}) == (
        "",
        ["every item of the tests runs: CI_FULL is set"],
    )


def test_a_run_says_what_it_leaves_out() -> None:
    items = ["core/test_b.py::test_x[1]", "core/test_a.py::test_y", "core/test_b.py::test_x[2]"]
    assert summary(items, 12) == (
        "left out 3 of 12 items, whose turn is in another run: core/test_a.py 1, core/test_b.py 2"
    )


def test_costs_of_functions_that_exist_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__).relative_to(ROOT / "tests")
    existing = f"{here}::test_a_run_says_what_it_leaves_out"
    known = {existing: 5.0, f"{here}::test_gone": 4.0, "core/test_gone.py::test_x": 3.0}
    monkeypatch.setattr(share, "costs", lambda: known)
    write_costs(tmp_path / "costs", {"core/test_new.py::test_y": 7.26, "core/a.py::test_z": 0.1})
    assert (tmp_path / "costs").read_text() == f"7.3 core/test_new.py::test_y\n5.0 {existing}\n"
    assert MIN_SECONDS > 0.1
