"""The example project is built and installed like a third-party plugin, listed, and passes its
tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "plugins" / "example"


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, str]:
    """An environment in which the example is installed."""
    pytest.importorskip("setuptools", minversion="77")
    source, target = (
        tmp_path_factory.mktemp("source") / "example",
        tmp_path_factory.mktemp("target"),
    )
    shutil.copytree(EXAMPLE, source)
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    done = subprocess.run(
        [*command, "--disable-pip-version-check", "--target", str(target), str(source)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {**os.environ, "PYTHONPATH": str(target)}


def listed(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kbserver.cli", "plugins", "--json"]
    return subprocess.run(
        command, env=environ, capture_output=True, text=True, timeout=120, check=False
    )


def test_it_is_listed_with_what_it_offers(installed):
    done = listed({**installed, "SALIENCE_SCORER": "newest"})
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (row,) = [row for row in found["plugins"] if row["name"] == "example"]
    assert (row["distribution"], row["version"], row["module"]) == (
        "kb-example",
        "1.0",
        "kb_example",
    )
    assert row["hooks"] == {
        "kb_changes_committed": [],
        "kb_merge_strategies": ["LATEST_TOLD"],
        "kb_metrics_sinks": ["slow-log"],
        "kb_salience_scorers": ["newest"],
        "kb_tokenizers": ["words"],
    }
    assert found["chosen"]["SALIENCE_SCORER"] == "newest"


def test_it_can_be_disabled(installed):
    found = json.loads(listed({**installed, "PLUGINS_DISABLED": "example"}).stdout)
    assert "example" not in [row["name"] for row in found["plugins"]]
    assert found["disabled"] == ["example"]


def test_its_own_tests_pass(installed, tmp_path):
    shutil.copytree(EXAMPLE / "tests", tmp_path / "tests")
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        str(tmp_path / "tests"),
    ]
    done = subprocess.run(
        command,
        env=installed,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_plugin_that_cannot_be_loaded_or_is_too_new_is_named(installed, tmp_path):
    folder = Path(installed["PYTHONPATH"])
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "kb_example.py").write_text("import no_such_module\n")
    done = listed({**installed, "PYTHONPATH": str(broken)})
    assert done.returncode == 78
    assert "plugin example (kb-example 1.0) cannot be loaded: ModuleNotFoundError" in done.stderr
    (broken / "kb_example.py").write_text("KB_API_VERSION = 2\n")
    done = listed({**installed, "PYTHONPATH": str(broken)})
    assert (
        "plugin example (kb-example 1.0) is made for version 2 of the plugin protocols, not 1"
        in done.stderr
    )
