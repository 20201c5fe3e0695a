"""`kbcore check`: formats, exit statuses, selection of codes, and the files of this repository."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbplanner.authoring.formatter import format_text
from kbplanner.check.codes import CODES
from kbplanner.check.texts import check_texts
from kbserver import cli
from kbserver.cli.knowledge.check_formats import CheckedFile, as_text

ROOT = Path(__file__).resolve().parents[2]

FAULTY = 'parent(ann, bob).\nold(?x) :- parent(?y, _), parent(_, ?y).\nkin(?x) :- parent(?x, ?y).\np("é" a).\n'
CLEAN = "parent(ann, bob).\nchild(?x, ?y) :- parent(?y, ?x).\n?- child(?x, ann).\n"

EXPECTED = [
    (2, 5, 7, "error", "K012"),
    (3, 23, 25, "warning", "K104"),
    (4, 7, 8, "error", "K001"),
]


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(cli.cli, ["check", *arguments], input=text)


@pytest.fixture
def faulty(tmp_path):
    file = tmp_path / "a:b,c.kb"
    file.write_text(FAULTY, encoding="utf-8")
    return str(file)


def test_text(faulty):
    result = run(faulty)
    assert result.exit_code == 1
    *lines, count = result.stdout.splitlines()
    assert count == "2 errors, 1 warning in 1 file"
    assert lines == [
        f"{faulty}:{line}"
        for line in (
            (
                "2:5: error[K012]: the variable ?x of the head is not bound by a positive atom (use ?x "
                "in a positive body atom)"
            ),
            (
                '3:23: warning[K104]: the variable ?y is used once (write _ for "any", or ?_y to keep '
                "the name)"
            ),
            (
                '4:7: error[K001]: expected "," or ")" after an argument, found "a" (put a comma '
                "between arguments)"
            ),
        )
    ]


def test_a_terminal_shows_the_source_in_color(monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    monkeypatch.setattr("kbserver.cli.knowledge.check_formats.sys.stdout", Terminal())
    (findings,) = check_texts(["p(a b).\r\n"])
    text = "\n".join(as_text([CheckedFile("f.kb", ["p(a b).\r", ""], findings)]))
    assert "\x1b[31m" in text
    plain = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert plain[0] == 'f.kb:1:5: error[K001]: expected "," or ")" after an argument, found "b"'
    assert plain[1:3] == ["    1 | p(a b).", "      |     ^"]
    assert plain[-1] == "1 error in 1 file"


def test_json(faulty):
    result = run(faulty, "--format", "json")
    rows = json.loads(result.stdout)
    keys = ("line", "column", "endColumn", "severity", "code")
    assert [tuple(row[key] for key in keys) for row in rows] == EXPECTED
    assert list(rows[0]) == ["file", *keys, "message", "hint"]
    assert {row["file"] for row in rows} == {faulty}


def test_sarif(faulty):
    log = json.loads(run(faulty, "--format", "sarif").stdout)
    (part,) = log["runs"]
    rules = part["tool"]["driver"]["rules"]
    assert (log["version"], [rule["id"] for rule in rules]) == (
        "2.1.0",
        [code.code for code in CODES],
    )
    rows = []
    for result in part["results"]:
        place = result["locations"][0]["physicalLocation"]
        region = place["region"]
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert "," not in place["artifactLocation"]["uri"]
        assert region["startLine"] == region["endLine"]
        rows.append(
            (
                *(region[key] for key in ("startLine", "startColumn", "endColumn")),
                result["level"],
                result["ruleId"],
            )
        )
    assert rows == EXPECTED


def test_github(faulty):
    lines = run(faulty, "--format", "github").stdout.splitlines()
    name = faulty.replace(":", "%3A").replace(",", "%2C")
    assert lines[0].startswith(
        f"::error file={name},line=2,col=5,endColumn=7,title=K012 unsafe variable::the variable ?x"
    )
    assert [line.split()[0] for line in lines] == ["::error", "::warning", "::error"]


def test_a_clean_file_prints_nothing(tmp_path):
    file = tmp_path / "clean.kb"
    file.write_text(CLEAN, encoding="utf-8")
    for format in ("text", "github"):
        result = run(str(file), "--format", format)
        assert (result.exit_code, result.stdout) == (0, "")
    assert json.loads(run(str(file), "--format", "json").stdout) == []
    assert run("-", text=CLEAN).exit_code == 0


def test_codes_are_selected_and_ignored(tmp_path):
    text = "f(a).\np(?x) :- f(?x), f(?z), f(?z).\nq(?x) :- g(?x, ?y).\n"

    def reported(*options: str) -> tuple[int, list[str]]:
        result = run("-", "--format", "json", *options, text=text)
        return result.exit_code, [row["code"] for row in json.loads(result.stdout)]

    assert reported() == (1, ["K105", "K101", "K104"])
    assert reported("--select", "K104") == (1, ["K104"])
    assert reported("--select", "cross-product, k101") == (1, ["K105", "K101"])
    assert reported("--ignore", "K104,K105,K101") == (0, [])
    assert reported("--select", "K104", "--ignore", "singleton") == (0, [])
    assert run("-", "--ignore", "K012", text="p(?x) :- f(?y).").exit_code == 1


def test_files_are_checked_together(tmp_path):
    rules, facts = tmp_path / "rules.kb", tmp_path / "facts.kb"
    rules.write_text("child(?x, ?y) :- parent(?y, ?x).\n", encoding="utf-8")
    facts.write_text("parent(ann, bob).\n?- child(?x, ann).\n", encoding="utf-8")
    assert run(str(rules), str(facts)).exit_code == 0
    assert run(str(facts)).exit_code == 1


def test_what_cannot_run_has_status_2(tmp_path):
    binary = tmp_path / "binary.kb"
    binary.write_bytes(b"p(\xff).")
    for arguments in (
        [],
        [str(tmp_path / "none.kb")],
        [str(tmp_path)],
        [str(binary)],
        ["-", "--select", "K999"],
        ["-", "--format", "xml"],
    ):
        result = run(*arguments)
        assert (result.exit_code, result.stdout) == (2, ""), arguments
        assert result.stderr


@pytest.mark.parametrize("code", ["K012", "unsafe", "k012"])
def test_explain(code):
    result = run("--explain", code)
    assert result.exit_code == 0
    assert "unsafe variable" in result.stdout
    assert "    adult(?x) :- person(?y).\n" in result.stdout
    assert run("--explain", "K999").exit_code == 2


# ---- the files and pages of this repository ----

INTENDED = {
    ("docs/examples/family.kb", "unused-predicate"),
    ("docs/how-to/write-rules-as-text.md", "unknown-predicate"),
    ("docs/reference/rule-language.md", "unknown-predicate"),
    ("docs/reference/rule-language.md", "unused-predicate"),
    ("docs/reference/rule-language.md", "negative-recursion"),
}
"""Warnings about what is meant: a rule to try out, blocks of a page that are
excerpts, and recursion through negation that the page explains. Golden files are no programs."""


def sources() -> list[tuple[str, list[str]]]:
    """Return the texts of each `.kb` file, a file together with its tests, and of each page with
    blocks.
    """
    ignored = {".venv", ".tox", "build", "golden", "node_modules"}
    texts = []
    for path in sorted(ROOT.rglob("*")):
        parts = path.relative_to(ROOT).parts
        if path.suffix not in (".kb", ".md") or ignored & {*parts} or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        blocks = [text]
        if path.stem.endswith("_test"):
            continue
        if (tests := path.with_stem(f"{path.stem}_test")).is_file():
            blocks.append(tests.read_text(encoding="utf-8"))
        if path.suffix == ".md":
            blocks = re.findall(r"^```kb\n(.*?)^```", text, flags=re.M | re.S)
        if blocks:
            texts.append(("/".join(parts), blocks))
    return texts


def test_the_files_and_pages_are_clean_but_for_what_is_meant():
    texts = sources()
    assert len(texts) >= 8
    reported = {
        (name, finding.name)
        for name, blocks in texts
        for program in ([blocks] if name.endswith(".kb") else [[block] for block in blocks])
        for findings in check_texts(program)
        for finding in findings
    }
    assert reported == INTENDED


def test_the_files_and_pages_are_formatted():
    texts = [(name, block) for name, blocks in sources() for block in blocks]
    assert [name for name, block in texts if format_text(block) != block] == []


def test_a_mask_of_a_misspelt_predicate_is_a_warning():
    rules = "can_read(?who, ?doc) :- owner(?doc, ?who).\n"
    assert run("-", text=f"@mask can_read/2 1.\n{rules}").exit_code == 0
    misspelt = run("-", text=f"@mask can_raed/2 1.\n{rules}")
    assert misspelt.exit_code == 1
    assert "<stdin>:1:1: warning[K101]" in misspelt.stdout
    assert "did you mean can_read/2?" in misspelt.stdout


CALLS = "item(a).\ncheap(?x) :- item(?x), price(?x, ?p), ?p < 10.\n?- cheap(?x).\n"


def test_predicates_of_plugins_are_named_or_loaded(tmp_path, monkeypatch):
    assert "K101" in run("-", text=CALLS).stdout
    assert run("--external", "price/2", "-", text=CALLS).exit_code == 0
    assert run("--external", "price(in, out)", "-", text=CALLS).exit_code == 0
    assert "K055" in run("--external", "price(out,in)", "-", text=CALLS).stdout
    both = run("--external", "price(out, in)", "--external", "price(in, out)", "-", text=CALLS)
    assert both.exit_code == 0
    assert "price/2 or 'price(in, out)'" in run("--external", "price", "-", text=CALLS).stderr
    description = {
        "databases": {"shop": "sqlite:shop.db"},
        "predicates": {"price": {"database": "shop", "table": "t", "columns": ["a", "b"]}},
    }
    (tmp_path / "predicates.json").write_text(json.dumps(description))
    monkeypatch.setenv("KBCORE_SQL_PREDICATES", str(tmp_path / "predicates.json"))
    assert run("--plugins", "-", text=CALLS).exit_code == 0
    assert "K057" in run("--plugins", "-", text=CALLS + "price(a, 3).\n").stdout
