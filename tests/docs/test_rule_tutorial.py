"""The tutorial of rules with tests: its blocks make the finished files, its commands print what it
shows.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "tutorial" / "rules-with-tests.md"
FINISHED = ROOT / "docs" / "examples" / "returns"

BLOCK = re.compile(r"^```(\w+) ?(\S*)\n(.*?)^```$", re.M | re.S)
SECONDS = re.compile(r"in \d+\.\d+ s")


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """The folder of a reader who does what the page says, and each command with what is shown and
    printed.
    """
    folder = tmp_path_factory.mktemp("tutorial")
    printed = []
    for language, file, body in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        path = folder / file
        if language == "text":
            path.write_text(body, encoding="utf-8")
        elif language in ("kb", "kbtest"):
            before = path.read_text(encoding="utf-8") + "\n" if path.exists() else ""
            path.write_text(before + body, encoding="utf-8")
        elif language == "terminal":
            command, _, shown = body.removeprefix("$ ").partition("\n")
            prelude = f'kbcore() {{ {sys.executable} -m kbserver.cli "$@"; }}\n'
            done = subprocess.run(
                ["sh", "-c", f"exec 2>&1\n{prelude}{command}"],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
            )
            printed.append((command, shown, done.stdout))
    return folder, printed


def test_the_commands_print_what_is_shown(session):
    _, printed = session
    assert len(printed) >= 10
    for command, shown, output in printed:
        assert SECONDS.sub("", output) == SECONDS.sub("", shown), command


def test_the_blocks_are_the_finished_files(session):
    folder, _ = session
    for name in ("returns.kb", "returns_test.kb"):
        written = (folder / name).read_text(encoding="utf-8")
        assert written == (FINISHED / name).read_text(encoding="utf-8")
