"""Commands with labels in texts: dump and load over HTTP, check, fmt, sql, and completion."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.commands import kbcore
from support.servers import Server

from kbserver.cli.lsp.project import Project

TEXT = """@levels trust: web < tool < user.
@groups team: hr, eng.
p(b) [trust=web, confidence=0.5].
p(c).
p(a) [team=hr, confidence=0.25].
p(a) [team=(eng, hr), confidence=0.75].
q(?x) :- p(?x) [trust=tool].
q(?x) :- p(?x) [trust=web].
@requires r(?x) trust >= user.
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with Server(tmp_path_factory.mktemp("kb")) as running:
        yield running


@pytest.fixture
def url(server, monkeypatch):
    monkeypatch.setenv("KBCORE_URL", f"http://127.0.0.1:{server.address[1]}")


@pytest.mark.parametrize("form", ["kb", "jsonl"])
def test_a_dump_of_a_server_is_loaded_into_another_tenant(url, tmp_path: Path, form: str) -> None:
    source = tmp_path / "source.kb"
    source.write_text(TEXT, encoding="utf-8")
    kbcore("load", "--tenant", f"from-{form}", str(source))
    dump = tmp_path / f"dump.{form}"
    kbcore("dump", "--tenant", f"from-{form}", str(dump))
    kbcore("load", "--tenant", f"to-{form}", str(dump))
    again = kbcore("dump", "--tenant", f"to-{form}").stdout
    assert sorted(again.splitlines()) == sorted(TEXT.splitlines())
    seen = kbcore("dump", "--tenant", f"to-{form}", "--view", '{"trust": "user", "team": ["eng"]}')
    assert "p(a) [confidence=0.75]." in seen.stdout
    assert "p(b)" not in seen.stdout
    assert "q(" not in seen.stdout


def test_a_condition_of_a_guarded_predicate_needs_a_view(url, tmp_path: Path) -> None:
    source = tmp_path / "rules.kb"
    source.write_text(
        TEXT + "r(?x) :- person(?x), not bad(?x). bad(ann) [trust=web]. bad(bob).", encoding="utf-8"
    )
    kbcore("load", "--tenant", "sql", str(source))
    command = ["sql", "r(?x)", "--table", "people=person(name)", "--tenant", "sql"]
    refused = kbcore(*command, expect=None)
    assert refused.exit_code != 0
    assert "r/1 requires --view" in refused.stderr
    text = kbcore(*command, "--view", '{"trust": "user"}').stdout
    assert "bob" in text
    assert "ann" not in text


def test_a_file_with_labels_is_checked_and_formatted(tmp_path: Path) -> None:
    file = tmp_path / "rules.kb"
    file.write_text("@levels trust: web<user.\np(a)   [trust= web].\n", encoding="utf-8")
    kbcore("check", str(file))
    kbcore("fmt", str(file))
    assert file.read_text("utf-8") == "@levels trust: web < user.\np(a) [trust=web].\n"
    file.write_text("@levels trust: web < user.\np(a) [trst=web].\n", encoding="utf-8")
    refused = kbcore("check", str(file), expect=None)
    assert "rules.kb:2:7: error[K041]" in refused.stdout
    assert "did you mean trust?" in refused.stdout


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("p(a) [", {"confidence", "trust", "team"}),
        ("p(a) [confidence=0.5, tr", {"confidence", "trust", "team"}),
        ("p(a) [trust=", {"web", "tool", "user"}),
        ("q(?x) :- p(?x) [team=(hr, ", {"hr", "eng"}),
    ],
)
def test_options_and_levels_are_completed(before: str, expected: set[str]) -> None:
    text = "@levels trust: web < tool < user. @groups team: hr, eng. " + before
    texts = {each.text for each in Project({"f": text}).completions("f", len(text))}
    assert texts >= expected
    assert "p" not in texts
