"""Servers and scripts that tests fork behave as those that are started."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from support.loaded_processes import ForkedServer, can_fork, run_script
from support.servers import Server


@pytest.fixture(autouse=True)
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork, also where CI starts each process."""
    monkeypatch.delenv("KB_TEST_STARTS", raising=False)


def test_a_forked_server_ends_as_a_started_one(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert isinstance(server.process, ForkedServer)
        assert server.post("/tell", {"predicate": "p", "args": ["a"]})[0] == 200
        assert server.process.poll() is None
        server.kill()
        assert server.process.returncode == -signal.SIGKILL
    with Server(tmp_path) as server:
        assert b'"a"' in server.post("/ask", {"predicate": "p", "args": ["?x"]})[1]
        assert server.stop() == 0


def test_a_forked_server_has_its_own_settings_and_log(tmp_path: Path) -> None:
    with (
        Server(tmp_path / "a", log=tmp_path / "log", MAX_TEXT_BODY_BYTES="100") as small,
        Server(tmp_path / "b") as other,
    ):
        body = {"predicate": "p", "args": ["a" * 100]}
        assert small.post("/tell", body)[0] == 413
        assert other.post("/tell", body)[0] == 200
        assert small.stop() == 0
    assert (tmp_path / "log").read_text("utf-8")
    assert "MAX_TEXT_BODY_BYTES" not in os.environ


def test_processes_that_an_interpreter_starts_otherwise_are_no_forks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert can_fork({**os.environ, "LOG_LEVEL": "INFO"}, ["--fsync-policy", "never"])
    assert not can_fork(os.environ, ["--workers", "2"])
    assert not can_fork({**os.environ, "WORKERS": "2"})
    assert not can_fork({**os.environ, "PYTHONPATH": "elsewhere"})
    assert not can_fork({**os.environ, "LD_PRELOAD": "libasan.so"})
    monkeypatch.setenv("KB_TEST_STARTS", "whole")
    assert not can_fork(os.environ)


def test_a_script_runs_as_the_main_module_of_its_folder(tmp_path: Path) -> None:
    script = tmp_path / "page.py"
    script.write_text(
        "import os, sys, other\nassert __name__ == '__main__'\n"
        "assert sys.modules['__main__'].other is other\nopen('ran', 'w').close()\n"
    )
    (tmp_path / "other.py").write_text("")
    run_script(script, seconds=60)
    assert (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["assert False", "import warnings; warnings.warn('w')", "exit(3)"])
def test_a_script_that_fails_or_warns_is_reported(tmp_path: Path, text: str) -> None:
    script = tmp_path / "page.py"
    script.write_text(text)
    with pytest.raises(subprocess.CalledProcessError):
        run_script(script, seconds=60)
