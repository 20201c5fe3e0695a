"""`kbcore storage copy, check`, and commands on a storage of any kind."""

from __future__ import annotations

import re

import pytest
from support.commands import kbcore


def test_a_knowledge_base_is_checked_and_copied(tmp_path):
    file, folder = f"sqlite:{tmp_path / 'kb.sqlite'}", f"wal:{tmp_path / 'kb'}"
    kbcore("tell", "--storage-url", file, "parent(ann, bob)", "parent(bob, cid)")
    kbcore("teach", "--storage-url", file, "anc(?x, ?y) :- parent(?x, ?y).")
    told = kbcore("storage", "check", file).stdout
    assert re.fullmatch(
        rf"{file} is sound: 2 records, 2 facts, recovered from .*; content [0-9a-f]{{16}}\n", told
    )
    copied = kbcore("storage", "copy", file, folder).stdout
    assert copied.startswith(f"copied to {folder}: 2 records, 2 facts, ")
    assert copied[-17:] == told[-17:]
    assert (
        kbcore("ask", "--storage-dir", str(tmp_path / "kb"), "anc(ann, ?x)").stdout
        == "anc(ann, bob)\n"
    )
    assert "is not empty" in kbcore("storage", "copy", file, folder, expect=1).stderr


@pytest.mark.parametrize(
    ("args", "status", "said"),
    [
        (("storage", "check", "sqlite:nowhere.sqlite"), 78, "there is no such file"),
        (("storage", "check", "what"), 78, "must be a URL"),
        (("storage", "copy", "wal:nowhere", "memory:"), 78, "there is no such folder"),
        (("storage", "copy", "wal:nowhere"), 2, "Missing argument 'TO'"),
        (("ask", "--storage-url", "what", "p(?x)"), 78, "must be a URL"),
        (("ask", "--storage-url", "wal:a", "--storage-dir", "a", "p(?x)"), 1, "not both"),
    ],
)
def test_mistakes_are_one_clear_line(tmp_path, monkeypatch, args, status, said):
    monkeypatch.chdir(tmp_path)
    done = kbcore(*args, expect=status)
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_damage_ends_with_status_65(tmp_path):
    url = f"sqlite:{tmp_path / 'kb.sqlite'}"
    kbcore("tell", "--storage-url", url, "p(a)")
    data = (tmp_path / "kb.sqlite").read_bytes()
    (tmp_path / "kb.sqlite").write_bytes(data[: len(data) // 2])
    assert str(tmp_path) in kbcore("storage", "check", url, expect=65).stderr
