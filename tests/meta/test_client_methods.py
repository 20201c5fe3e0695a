"""The modules of the clients that are written from the operations of the server are current."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_methods_that_only_translate_are_written_from_the_operations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT / "docs")
    import client_methods

    for path, make in client_methods.MODULES.items():
        assert path.read_text(encoding="utf-8") == make(), "run python docs/generate.py"
