"""The folders that `make test-changed` runs for a change."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.changed import NOT_TESTS, QUICK, ROOT, TOUCHED, touched


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["csrc/run/run.c"], {"engine", "planner", "property"}),
        (["kbcore/durable/commit.py"], {"core", "durability"}),
        (["docs/index.md", "deploy/README.md"], {"docs"}),
        (["tests/core/test_csv.py"], {"core/test_csv.py"}),
        (["tests/core/test_csv.py", "kbcore/plug/ports.py"], {"core", "plugins"}),
        (["tests/core/conftest.py"], {"core"}),
        (["tests/core/test_that_was_removed.py"], {"core"}),
        (["tests/conftest.py"], {"meta"}),
        (["tests/support/http.py", "setup.py"], set(QUICK)),
        ([], set()),
    ],
)
def test_folders_of_a_change(paths: list[str], folders: set[str]) -> None:
    assert touched(paths) == folders


def test_rows_name_what_exists() -> None:
    for prefix, folders in TOUCHED.items():
        assert list(ROOT.glob(f"{prefix}*")), prefix
        assert all((ROOT / "tests" / folder).is_dir() for folder in folders), prefix


def test_every_earlier_row_is_reached() -> None:
    rows = list(TOUCHED)
    hidden = [row for at, row in enumerate(rows) if any(map(row.startswith, rows[:at]))]
    assert hidden == []
    assert all(Path(ROOT / "tests" / name).is_dir() for name in NOT_TESTS)
