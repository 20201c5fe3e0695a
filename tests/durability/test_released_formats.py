"""Folders of every released format open with the same content. See golden/make.py."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from kbcore import open_kb
from kbcore.config import Config
from kbcore.offline.rescue import backup_storage, check_folder, restore_file

GOLDEN = sorted(Path(__file__).with_name("golden").glob("format-*"))
SMALL = replace(Config(), min_free_mb=0, wal_segment_mb=1)


def check(folder) -> None:
    with open_kb(path=str(folder), config=SMALL) as kb:
        assert list(kb.ask("ancestor(ann, ?x)")) == [("ann", "bob"), ("ann", "cid")]
        assert list(kb.ask("ancestor(zoe, ?x)", scope="what-if")) == [
            ("zoe", "ann"),
            ("zoe", "bob"),
            ("zoe", "cid"),
        ]
        assert ('a "quoted" \\ text', "") in list(kb.query("parent", ["?", "?"]))
        assert list(kb.ask("~parent(eve, ?x)")) == [("eve", "bob")]
        (told,) = kb.query("parent", ["ann", "?"]).rows()
        assert (told["confidence"], told["metadata"]) == (0.5, {"source": "a book", "page": 7})
        (seen,) = kb.query("seen", ["?"]).rows()
        assert (seen["ttl"], seen["createdAt"] > 1_700_000_000_000) == (10**12, True)
    with open_kb(path=str(folder), config=SMALL, tenant="other") as kb:
        assert list(kb.ask("note(?x)")) == [("1",), ("2",)]
        assert list(kb.ask("note(?x)", scope="copy")) == [("1",), ("2",)]


def test_a_folder_of_the_first_format_exists() -> None:
    assert [folder.name for folder in GOLDEN][:1] == ["format-1"]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda folder: folder.name)
def test_a_folder_of_an_earlier_version_opens(golden, tmp_path) -> None:
    shutil.copytree(golden, tmp_path / "a")
    report = check_folder(str(tmp_path / "a"), SMALL)
    assert report["sound"]
    assert report["snapshots"]
    assert report["head"] > max(snapshot["seq"] for snapshot in report["snapshots"])
    backup_storage(tmp_path / "file", replace(SMALL, storage_dir=str(tmp_path / "a")))
    restore_file(tmp_path / "file", str(tmp_path / "b"), SMALL)
    for folder in ("a", "b"):
        check(tmp_path / folder)
