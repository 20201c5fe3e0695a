"""The folders that `make test-changed` runs for a change, and the environments that CI runs."""

from __future__ import annotations

import os
import re
import subprocess
from configparser import ConfigParser
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from support import changed
from support.changed import (
    ALWAYS,
    BY_PATH,
    EVERYTHING,
    FAULT_PATHS,
    FAULTS,
    LONGEST_FIRST,
    NOT_TESTS,
    QUICK,
    ROOT,
    TOUCHED,
    environments,
    select,
    touched,
)

TOX = ConfigParser(interpolation=None)
TOX.read(ROOT / "tox.ini", encoding="utf-8")
ENVIRONMENTS_BY_NAME = {".pkg", "audit", "bench", "frameworks", "fuzz", "slow"}
"""Environments that only run when named; `.pkg` builds the wheel for the others."""

FOLDERS_BY_NAME = {"bench", "frameworks", "fuzz"}
"""Folders of tests that only environments outside CI run."""


@pytest.mark.parametrize(
    ("paths", "folders"),
    [
        (["csrc/run/run.c"], {"engine", "planner", "property", "durability"}),
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


@pytest.mark.parametrize(
    ("paths", "added"),
    [
        ([], set()),
        (["kbcore/durable/commit.py", "tests/core/test_csv.py", "CHANGELOG.md"], set()),
        (["csrc/run.c"], {"asan"}),
        (["planner/kbplanner/engine/binding.py"], {"asan", "extras-spark"}),
        (["plugins/kbplugins/bulk_spark.py"], {"extras-spark"}),
        (["server/console/src/main.ts"], {"browser"}),
        (["deploy/Dockerfile", "docs/index.md"], {"release", "browser"}),
        (["tox.ini"], set(BY_PATH)),
        (["tests/support/servers.py"], set(BY_PATH)),
    ],
)
def test_environments_of_a_change(paths: list[str], added: set[str]) -> None:
    chosen = select(paths)
    assert set(chosen.environments) == {*ALWAYS, *added}
    for environment in BY_PATH.keys() - added:
        assert any(line.startswith(f"{environment} is left out: ") for line in chosen.reasons)


def test_every_environment_of_tox_is_selected_always_or_by_paths() -> None:
    listed = TOX["tox"]["env_list"].replace("py3{10,13}", "py310, py313")
    sections = {name.partition(":")[2] for name in TOX.sections() if name.startswith("testenv:")}
    assert sections - ENVIRONMENTS_BY_NAME == {*ALWAYS, *BY_PATH} - {"py310", "py313"}
    assert sorted(re.split(r",\s*", listed)) == sorted((*ALWAYS, *BY_PATH))
    assert sorted(LONGEST_FIRST) == sorted((*ALWAYS, *BY_PATH))
    assert f"ENVS   ?= {','.join(LONGEST_FIRST)}\n" in (ROOT / "Makefile").read_text("utf-8")
    for prefix in (*EVERYTHING, *FAULT_PATHS, *(each for row in BY_PATH.values() for each in row)):
        assert list(ROOT.glob(f"{prefix.rstrip('/')}*")), prefix


def commands(environment: str) -> list[str]:
    """Return the words of an environment's commands, with those of the section `adapters` in their
    place.
    """
    section = "testenv" if environment.startswith("py3") else f"testenv:{environment}"
    text = TOX[section]["commands"]
    for name, value in TOX["adapters"].items():
        text = text.replace(f"{{[adapters]{name}}}", value)
    return text.split()


def test_every_folder_of_tests_runs_in_an_environment() -> None:
    words = {word for each in (*ALWAYS, *BY_PATH) for word in commands(each)}
    folders = {
        path.relative_to(ROOT / "tests").parts[0] for path in ROOT.glob("tests/*/**/test_*.py")
    }
    run = {word.removeprefix("tests/").partition("/")[0] for word in words}
    assert folders - run == FOLDERS_BY_NAME


def test_what_one_environment_leaves_out_another_runs() -> None:
    ignored = {word.partition("=")[2] for word in commands("full") if "--ignore=" in word}
    assert ignored
    assert ignored <= set(commands("extras-spark"))
    assert all((ROOT / "tests" / path).is_file() for path in ignored)


def test_fault_paths_always_run_the_fault_tests() -> None:
    assert "full" in ALWAYS
    assert FAULTS in commands("full")
    for prefix in FAULT_PATHS:
        paths = [str(path.relative_to(ROOT)) for path in ROOT.glob(f"{prefix}*")]
        files = [path for path in paths if (ROOT / path).is_file()]
        assert files, prefix
        for path in files:
            assert FAULTS in touched([path]), path
            assert "full" in select([path]).environments


class History:
    """A git repository with commits of chosen ages."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.git("init", "-q", "-b", "main")

    def git(self, *arguments: str, **environ: str) -> str:
        identity = {
            f"GIT_{role}_{key}": value
            for role in ("AUTHOR", "COMMITTER")
            for key, value in (("NAME", "a"), ("EMAIL", "a@b.example"))
        }
        done = subprocess.run(
            ["git", *arguments],
            cwd=self.root,
            env={**os.environ, **identity, **environ},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.strip()

    def date(self, hours: float) -> str:
        return (datetime.now(timezone.utc) - timedelta(hours=hours)).isoformat(timespec="seconds")

    def write(self, path: str, text: str = "") -> None:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def commit(self, path: str, *, hours: float, text: str = "") -> str:
        self.write(path, text)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", path, "--allow-empty", GIT_COMMITTER_DATE=self.date(hours))
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """A history whose oldest commit states the version."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(changed, "ROOT", tmp_path)
    made = History(tmp_path)
    made.commit("pyproject.toml", hours=60, text='version = "1.0.0"\n')
    return made


def test_the_base_is_the_newest_commit_older_than_four_hours(history: History) -> None:
    history.commit("csrc/a.c", hours=50)
    base = history.commit("docs/a.md", hours=5)
    history.commit("deploy/a", hours=3)
    history.commit("kbcore/a.py", hours=1)
    chosen = environments({})
    assert chosen.reasons[0] == f"compared with commit {base[:8]}"
    assert set(chosen.environments) == {*ALWAYS, "release"}


def test_an_old_commit_of_a_branch_merged_now_is_part_of_the_change(history: History) -> None:
    history.commit("docs/a.md", hours=50)
    history.git("switch", "-q", "-c", "side")
    history.commit("csrc/a.c", hours=5)
    history.git("switch", "-q", "main")
    history.commit("docs/b.md", hours=6)
    history.git("merge", "-q", "--no-ff", "-m", "merge", "side", GIT_COMMITTER_DATE=history.date(1))
    assert set(environments({}).environments) == {*ALWAYS, "asan"}


def test_a_file_that_moved_counts_with_both_paths(history: History) -> None:
    history.commit("csrc/a.c", hours=5, text="int a;\n" * 50)
    (history.root / "docs").mkdir()
    history.git("mv", "csrc/a.c", "docs/a.c")
    history.commit("kbcore/b.py", hours=1)
    history.write("deploy/not\u00e9.txt")
    assert set(environments({}).environments) == {*ALWAYS, "asan", "browser", "release"}


@pytest.mark.parametrize(
    ("environ", "reason"),
    [
        ({"CI_FULL": "1"}, "CI_FULL is set"),
        ({"CI_BASE": "no-commit"}, "CI_BASE=no-commit is no commit"),
    ],
)
def test_every_environment_runs_when_asked_or_without_base(
    history: History, environ: dict[str, str], reason: str
) -> None:
    history.commit("docs/a.md", hours=5)
    history.commit("kbcore/a.py", hours=1)
    assert set(environments({}).environments) == set(ALWAYS)
    assert set(environments({"CI_FULL": "0"}).environments) == set(ALWAYS)
    chosen = environments(environ)
    assert set(chosen.environments) == {*ALWAYS, *BY_PATH}
    assert reason in chosen.reasons[0]


def test_a_version_or_a_history_without_base_runs_every_environment(history: History) -> None:
    assert "no base is known" in environments({}).reasons[0]
    base = history.commit("docs/a.md", hours=5)
    assert "no base is known" in environments({}).reasons[0]
    history.commit("pyproject.toml", hours=1, text='version = "1.0.1"\n')
    assert "the version changes from 1.0.0 to 1.0.1" in environments({}).reasons[0]
    assert set(environments({"CI_BASE": base}).environments) == {*ALWAYS, *BY_PATH}
    assert set(environments({"CI_BASE": "HEAD"}).environments) == set(ALWAYS)
