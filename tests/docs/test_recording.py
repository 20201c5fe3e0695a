"""The recording of a shell session shows what its commands print now."""

from __future__ import annotations

import importlib.util
import json
import os
import re
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.fixture(scope="module")
def recording() -> ModuleType:
    """The script that makes the recording."""
    spec = importlib.util.spec_from_file_location("recording", DOCS / "recording.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_recording_is_current(recording: ModuleType) -> None:
    stored = recording.FILE.read_text("utf-8")
    assert recording.without_times(recording.recording()) == recording.without_times(stored)


def test_the_recording_is_an_asciicast_of_about_two_minutes(recording: ModuleType) -> None:
    header, *events = map(json.loads, recording.FILE.read_text("utf-8").splitlines())
    assert header["version"] == 2
    assert 90 <= header["duration"] <= 150
    times = [time for time, _, _ in events]
    assert times == sorted(times)
    assert {kind for _, kind, _ in events} == {"o"}
    output = re.sub(r"\x1b\[[0-9;]*m", "", "".join(data for _, _, data in events))
    assert [line for line in recording.SESSION if f"$ {line}\r\n" not in output] == []


def test_a_command_that_fails_ends_the_recording(recording: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="exit status 2"):
        recording.run("kbcore ask --nothing", tmp_path, dict(os.environ))
