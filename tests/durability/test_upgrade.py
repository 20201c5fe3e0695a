"""A storage folder that an earlier release wrote opens with the answers that this release gave."""

from __future__ import annotations

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from kbcore import Config, __version__, open_runtime
from kbserver import create_app

FOLDER = Path(__file__).with_name("upgrades")
RELEASES = sorted(path for path in FOLDER.iterdir() if path.is_dir() and path.name[0].isdigit())

REWORDED = {
    "in_range(?x) :- range(?low, ?high, ?x), before(?low, ?high).": (
        "in_range(?x) :- 'range'(?low, ?high, ?x), 'before'(?low, ?high)."
    )
}
"""Rules whose text a later version writes differently, because it has new words. Their id, which is
made from the text, changes with it."""


def recorder() -> Any:
    spec = importlib.util.spec_from_file_location("record_upgrade", FOLDER / "record.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def covers(answer: Any, recorded: Any) -> bool:
    """True if an answer has all of a recorded one; objects may have new keys."""
    if isinstance(recorded, dict):
        if text := REWORDED.get(recorded.get("text", "")):
            recorded = {**recorded, "text": text, "id": answer["id"]}
        return isinstance(answer, dict) and all(
            key in answer and covers(answer[key], value) for key, value in recorded.items()
        )
    if isinstance(recorded, list):
        return (
            isinstance(answer, list)
            and len(answer) == len(recorded)
            and all(map(covers, answer, recorded))
        )
    return type(answer) is type(recorded) and answer == recorded


def differences(client: Any, release: Path) -> list[str]:
    answers = json.loads((release / "answers.json").read_text(encoding="utf-8"))
    assert len(answers) >= 30
    wrong = []
    for method, path, tenant, body, status, recorded in answers:
        answer = recorder().send(client, (method, path, tenant, body))
        if answer[0] != status or not covers(answer[1], recorded):
            wrong.append(f"{path} {body}: {answer}, recorded: {status} {recorded}")
    return wrong


def test_each_earlier_release_is_recorded():
    changes = (FOLDER.parents[2] / "CHANGELOG.md").read_text(encoding="utf-8")
    released = [
        line.split()[1].strip("[]") for line in changes.splitlines() if line.startswith("## ")
    ]
    earlier = [version for version in released if version not in ("Unreleased", __version__)]
    assert [release.name for release in RELEASES] == sorted(earlier)


@pytest.mark.parametrize("release", RELEASES, ids=lambda release: release.name)
def test_the_folder_of_a_release_has_the_same_answers(release: Path, tmp_path: Path):
    storage = tmp_path / "storage"
    shutil.copytree(release / "storage", storage)
    config = Config(storage_dir=str(storage), min_free_mb=0, wal_segment_mb=1)
    before = sorted(path.name for path in storage.glob("snap-*"))
    with open_runtime(config) as runtime:
        client = create_app(runtime).test_client()
        assert differences(client, release) == []
        assert client.post("/admin/snapshot").status_code == 200
    assert sorted(path.name for path in storage.glob("snap-*")) != before
    with open_runtime(config) as runtime:  # from the snapshot of the present version
        assert differences(create_app(runtime).test_client(), release) == []
    with open_runtime(config) as runtime:
        client = create_app(runtime).test_client()
        headers = {"X-Tenant-ID": "family"}
        body = {"predicate": "parent", "args": ["cid", "fay"]}
        assert client.post("/tell", json=body, headers=headers).status_code == 200
        answer = client.post("/ask", json={"text": "ancestor(ann, fay)"}, headers=headers)
        assert len(answer.get_json()) == 1


def test_a_changed_answer_is_a_difference():
    recorded = {"facts": [{"args": ["a"], "confidence": 1}]}
    assert covers({"facts": [{"args": ["a"], "confidence": 1, "new": 0}], "count": 1}, recorded)
    assert not covers({"facts": [{"args": ["b"], "confidence": 1}]}, recorded)
    assert not covers({"facts": [{"args": ["a"], "confidence": True}]}, recorded)
    assert not covers({"facts": []}, recorded)
