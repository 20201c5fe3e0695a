"""`kbcore fmt`: files in place, standard input, --check, --diff, and files that do not parse."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbplanner.authoring.formatter import format_text
from kbserver import cli

ROOT = Path(__file__).resolve().parents[2]

UGLY = "p( a ).% one\r\n\n\n\nq(?x):-p(?x),not ~r( ?x ) ."
CLEAN = "p(a).  % one\n\nq(?x) :- p(?x), not ~r(?x).\n"


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(cli.cli, ["fmt", *arguments], input=text)


@pytest.fixture
def ugly(tmp_path):
    file = tmp_path / "ugly.kb"
    file.write_bytes(UGLY.encode())
    return file


def test_files_are_rewritten_in_place(ugly, tmp_path):
    ugly.chmod(0o640)
    link = tmp_path / "link.kb"
    link.symlink_to(ugly)
    result = run(str(link))
    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == f"reformatted {link}\n"
    assert ugly.read_bytes() == CLEAN.encode()
    assert stat.S_IMODE(ugly.stat().st_mode) == 0o640
    assert link.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["link.kb", "ugly.kb"]
    written = ugly.stat()
    assert run(str(ugly)).stderr == ""
    assert ugly.stat().st_ino == written.st_ino


def test_standard_input():
    result = run("-", text=UGLY)
    assert (result.exit_code, result.stdout) == (0, CLEAN)
    assert run("-", text=CLEAN).stdout == CLEAN


def test_check_names_the_files_and_writes_nothing(ugly, tmp_path):
    clean = tmp_path / "clean.kb"
    clean.write_text(CLEAN, encoding="utf-8")
    result = run("--check", str(clean), str(ugly))
    assert (result.exit_code, result.stdout) == (1, f"would reformat {ugly}\n")
    assert ugly.read_bytes() == UGLY.encode()
    assert run("--check", str(clean)).exit_code == 0
    assert run("--check", "-", text=UGLY).stdout == "would reformat <stdin>\n"


def test_diff(ugly):
    result = run("--diff", str(ugly))
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == [f"--- {ugly}", f"+++ {ugly} formatted"]
    assert "+q(?x) :- p(?x), not ~r(?x).\n" in result.stdout
    assert "\\ No newline at end of file\n" in result.stdout
    assert ugly.read_bytes() == UGLY.encode()
    both = run("--check", "--diff", str(ugly))
    assert both.exit_code == 1
    assert (both.stdout, both.stderr) == (result.stdout, f"would reformat {ugly}\n")


def test_a_file_that_does_not_parse_stays_as_it_is(ugly, tmp_path):
    broken, binary = tmp_path / "broken.kb", tmp_path / "binary.kb"
    broken.write_text("p( a ).\nq(a b).\n", encoding="utf-8")
    binary.write_bytes(b"p(\xff).")
    result = run(str(broken), str(tmp_path / "none.kb"), str(binary), str(ugly))
    assert result.exit_code == 2
    assert f'{broken}:2:5: error[K001]: expected "," or ")"' in result.stderr
    assert "none.kb: no such file" in result.stderr
    assert "binary.kb: not UTF-8" in result.stderr
    assert broken.read_text(encoding="utf-8") == "p( a ).\nq(a b).\n"
    assert ugly.read_bytes() == CLEAN.encode()
    assert run("-", text="p(").stdout == ""


def test_a_failed_write_leaves_the_old_content(ugly, monkeypatch, tmp_path):
    def no_space(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("kbserver.cli.knowledge.fmt.os.fsync", no_space)
    result = run(str(ugly))
    assert result.exit_code == 2
    assert "no space left on device" in result.stderr
    assert ugly.read_bytes() == UGLY.encode()
    assert os.listdir(tmp_path) == ["ugly.kb"]


def test_hooks_of_pre_commit_name_commands():
    hooks = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entries = [line.split(": kbcore ")[1] for line in hooks.splitlines() if "entry:" in line]
    assert entries == ["check", "fmt", "test"]
    assert set(entries) <= set(cli.COMMANDS)


# ---- the layout ----


def test_long_rules_have_one_item_on_each_line():
    items = [f"{name * 20}(?x)" for name in "abcd"]
    text = f"@r: h(?x) :- {', '.join(items)} [confidence=0.5].\n?- {', '.join(items)}."
    separator = ",\n    "
    goal = ",\n   ".join(items)
    assert format_text(text) == (
        f"@r: h(?x) :-\n    {separator.join(items)}\n    [confidence=0.5].\n?- {goal}.\n"
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("\n\n% only\n\n\n", "% only\n"),
        ("\ufeffp.", None),
        ("p. q.\nr.   s(?x):-q(?x).t.", "p. q.\nr.\ns(?x) :- q(?x).\nt.\n"),
        ("p % a\n .% b\n", "p.  % a\n% b\n"),
        ("/* x */ p(a).", "/* x */\np(a).\n"),
        ("?- p(?x) % last", "?- p(?x).  % last\n"),
        ("?- ?x=-3,?y=?x - -3 .", "?- ?x = -3, ?y = ?x - -3.\n"),
        ("h(?x):-p(?x),\n% why\nq(?x).", "h(?x) :-\n    p(?x),\n    % why\n    q(?x).\n"),
        ("h( count( * ) ):-p(_).", "h(count(*)) :- p(_).\n"),
        ("@phrase 'p q'/ 2 \"{0} {1}\".", "@phrase 'p q'/2 \"{0} {1}\".\n"),
        (
            "f(a)[metadata='{\"a\": 1}' , confidence = 1].",
            "f(a) [metadata='{\"a\": 1}', confidence=1].\n",
        ),
    ],
)
def test_layout(text, expected):
    expected = "p.\n" if expected is None else expected
    assert format_text(text) == expected
    assert format_text(expected) == expected


def test_results_as_json(ugly, tmp_path):
    clean, broken, missing = (tmp_path / name for name in ("clean.kb", "broken.kb", "missing.kb"))
    clean.write_text(CLEAN)
    broken.write_text("p(a).\nq(.\n")
    checked = run("--json", "--check", "--diff", str(ugly), str(clean))
    assert (checked.exit_code, checked.stderr) == (1, "")
    first, second = json.loads(checked.stdout)
    assert first.pop("diff").startswith(f"--- {ugly}\n")
    assert first == {"file": str(ugly), "result": "would reformat"}
    assert second == {"file": str(clean), "result": "unchanged"}
    assert ugly.read_bytes() == UGLY.encode()
    written = run("--json", str(ugly), str(broken), str(missing))
    assert (written.exit_code, written.stderr) == (2, "")
    done, failed, unread = json.loads(written.stdout)
    assert (done["result"], ugly.read_bytes()) == ("reformatted", CLEAN.encode())
    assert failed["result"] == unread["result"] == "failed"
    assert (failed["errors"][0]["line"], failed["errors"][0]["code"]) == (2, "K008")
    assert "missing.kb" in unread["errors"][0]["message"]
    assert run("--json", "--check", str(ugly)).exit_code == 0
    refused = run("--json", "-", text=UGLY)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert json.loads(run("--json", "--check", "-", text=UGLY).stdout)[0]["file"] == "<stdin>"
