"""Every workload still runs, at tiny sizes, and all engines have the same answers. Nothing is said about times."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.mark.parametrize("workload", ["closure", "same-generation", "proportion", "access", "loading", "http"])
def test_workload_runs_small(workload):
    command = [sys.executable, str(HERE / "run.py"), "--small", "--only", workload]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    header, rule, *rows = done.stdout.split("\n\n", 1)[1].splitlines()
    assert header.startswith("workload")
    assert set(rule) == {"-", " "}
    assert len(rows) >= 3
