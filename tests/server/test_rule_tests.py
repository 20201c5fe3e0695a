"""`kbcore test`: results, failures with their reasons, coverage, JUnit, selection, and exit
statuses.
"""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from kbcore import RuleSyntaxError, open_kb
from kbserver import cli
from kbserver.cli.knowledge import test as command

RULES = """\
@parents: ancestor(?x, ?y) :- parent(?x, ?y).
@further: ancestor(?x, ?z) :- parent(?x, ?y), ancestor(?y, ?z).
adult(?x) :- age(?x, ?n), ?n >= 18, not ward(?x).
kids(?p, count(*)) :- parent(?p, _).
"""
TESTS = """\
fixture "family" { parent(ann, bob). parent(bob, cid). }
fixture "ages" { age(ann, 40). age(cid, 7). }
test "ancestors" with "family" {
    ?- ancestor(ann, ?who) = [cid, bob].
    ?- ancestor(?x, ?y) = [(ann, bob), (bob, cid), (ann, cid)].
    ?- ancestor(cid, ?x) = [].
    ?- not ancestor(cid, _).
    ?- ancestor(ann, bob) because @parents.
    ?- ancestor(ann, cid) because @further.
}
test "adults" with "family", "ages" {
    age(bob, -3). ward("x y"). parent(dora, bob).
    ?- adult(?x) = [ann].
    ?- adult(ann), parent(ann, ?y).
    ?- kids(?p, ?n), ?n > 0 = [(ann, 1), (bob, 1), (dora, 1)].
}
"""


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(cli.cli, ["test", *arguments], input=text)


@pytest.fixture
def files(tmp_path):
    rules, tests = tmp_path / "rules.kb", tmp_path / "rules_test.kb"
    rules.write_text(RULES, encoding="utf-8")
    tests.write_text(TESTS, encoding="utf-8")
    return [str(rules), str(tests)]


def test_passing_tests(files):
    result = run(*files)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("2 passed in ")
    assert run("-", text=RULES + TESTS).exit_code == 0


def test_tests_do_not_see_the_facts_of_others():
    text = 'test "a" { p(a). ?- p(?x) = [a]. } test "b" { ?- p(?x) = []. }'
    assert run("-", text=text).exit_code == 0


def test_a_missing_answer_is_explained():
    text = (
        RULES
        + 'test "t" { parent(ann, bob). parent(bob, cid).\n?- ancestor(ann, ?x) = [bob, eve]. }'
    )
    result = run("-", text=text)
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "FAILED <stdin>:5: t"
    assert lines[1:6] == [
        "  <stdin>:6:1:",
        "    expected: [bob, eve]",
        "    found:    [bob, cid]",
        "    not expected: [cid]",
        "    ancestor(ann, eve) does not hold.",
    ]
    assert any("missing: " in line for line in lines)
    assert lines[-1].startswith("1 failed, 0 passed in ")


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("?- p(d).", ["expected: p(d)", "found:    no answer", "p(d) does not hold."]),
        ("?- not p(a).", ["expected: not p(a)", "found:    p(a)"]),
        ("?- not p(_).", ["expected: not p(_)", "found:    p(_)"]),
        ("?- p(a) because @two.", ["expected: p(a) because @two", "found:    another reason"]),
        ("?- n(?x) = [3].", ["expected: [3]", "found:    [1]"]),
        ("?- p(?x) = [].", ["expected: []", "found:    [a, b1]", "not expected: [a, b1]"]),
    ],
)
def test_failures(query, shown):
    text = "@one: p(?x) :- q(?x).\n@two: p(?x) :- r(?x).\nn(count(*)) :- q(_).\n"
    result = run("-", text=text + 'test "t" { q(a). r(b1).\n' + query + " }")
    assert result.exit_code == 1
    assert [line.strip() for line in result.stdout.splitlines()[2 : 2 + len(shown)]] == shown


def test_because_knows_the_rule_of_a_best_value():
    text = "@zero: dist(?x, min ?d) :- start(?x), ?d = 0.\n@far: dist(?x, min ?d) :- far(?x, ?d).\n"
    text += 'test "t" { start(a). far(a, 3). far(b, 4).\n?- dist(b, ?d) because @far.\n'
    assert run("-", text=text + "?- dist(a, ?d) because @zero. }").exit_code == 0
    assert run("-", text=text + "?- dist(a, ?d) because @far. }").exit_code == 1


def test_because_knows_each_rule_that_concludes_an_answer():
    text = "@one: p(?x) :- q(?x).\n@two: p(?x) :- r(?x), ?x != b.\n@sum: n(sum(?x)) :- q(?x).\n"
    text += 'test "t" { q(1). r(1). q(b). r(b).\n?- p(1) because @one. ?- p(1) because @two.\n'
    assert run("-", text=text + "?- n(?x) because @sum. }").exit_code == 0
    assert run("-", text=text + "?- p(b) because @two. }").exit_code == 1


def test_coverage(files, tmp_path):
    result = run("--coverage", *files)
    assert result.exit_code == 0
    assert "coverage: 4 of 4 rules, 7 of 7 body literals\n" in result.stdout
    partial = tmp_path / "partial.kb"
    partial.write_text(
        'test "t" { age(ann, 7). parent(a, b).\n?- not adult(ann). ?- not ancestor(b, _). }\n',
        encoding="utf-8",
    )
    lines = run("--coverage", files[0], str(partial)).stdout.splitlines()
    assert lines[:-1] == [
        f"{files[0]}:2:1: @further derived no fact",
        f"{files[0]}:3:1: adult derived no fact",
        f"{files[0]}:3:37: no row reached not ward(?x)",
        f"{files[0]}:4:1: kids derived no fact",
        f"{files[0]}:4:23: no row reached parent(?p, _)",
        "coverage: 1 of 4 rules, 5 of 7 body literals",
    ]


def test_junit(files, tmp_path):
    target = tmp_path / "out.xml"
    failing = tmp_path / "failing.kb"
    failing.write_text('test "a <b>" { ?- adult(ann). ?- adult(bob). }\n', encoding="utf-8")
    assert run("--junit", str(target), *files, str(failing)).exit_code == 1
    suites = ET.fromstring(target.read_text(encoding="utf-8"))
    counts = [(suite.get("name"), suite.get("tests"), suite.get("failures")) for suite in suites]
    assert counts == [(files[1], "2", "0"), (str(failing), "1", "1")]
    (case,) = suites[1]
    assert (case.get("name"), case.get("line")) == ("a <b>", "1")
    assert [element.get("message") for element in case] == [
        f"{failing}:1:16: expected: adult(ann)",
        f"{failing}:1:31: expected: adult(bob)",
    ]
    assert run("--junit", str(tmp_path / "none" / "x.xml"), *files).exit_code == 2


def test_filter(files):
    assert run("--filter", "adult", *files).stdout.startswith("1 passed")
    result = run("--filter", "nothing", *files)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "no test whose name contains 'nothing'" in result.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p(a).", "no test"),
        ('p(a b). test "t" { ?- p(a). }', '<stdin>:1:5: error[K001]: expected "," or ")"'),
        ('test "t" { ?- p(?x) = [(a, b)]. }', "an answer has a value for each of ?x, found 2"),
        ('test "t" { ?- p(a) = [a]. }', "the query has no variables"),
        ('test "t" { ?- p(?x) = [a; b]. }', "expected a list of values"),
        ('test "t" { ?- p(a b). }', '<stdin>:1:19: error[K001]: expected "," or ")"'),
        ('test "t" { p(a) }', "1:16: error[K002]"),
        ('test "t" { p(?x) :- q(?x). }', "<stdin>:1:12: error[K053]: a test has facts and queries"),
        ('fixture "f" { ?- p(a). }', "a fixture has facts only"),
        ('test "t" { p(a). }', "the test has no query"),
        ('test "t" with "f" { ?- p(a). }', '1:1: error[K053]: no fixture "f"'),
        ('test "t" { ?- p(a) because @r. }', 'no rule "@r"'),
        ('test "t" { ?- p(a). } test "t" { ?- p(a). }', 'the test "t" exists already, in line 1'),
        ('test "t" { ?- p(a). ', "the block has no end"),
        ('@r: p(?x) :- q(?y).\ntest "t" { ?- p(a). }', "1:7: error[K012]"),
    ],
)
def test_files_with_errors_have_status_2(text, message):
    result = run("-", text=text)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr


def test_a_missing_dot_before_a_block_is_reported_there():
    result = run("-", text='p(a)\ntest "t" { ?- p(a). }\nq(a).')
    assert result.exit_code == 2
    assert "<stdin>:1:5: error[K002]" in result.stderr


def test_a_changed_file_is_tested_again(tmp_path, monkeypatch):
    file = tmp_path / "a.kb"
    file.write_text("p(a).", encoding="utf-8")
    waits = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            file.write_text("p(a). q(a).", encoding="utf-8")
        if len(waits) == 4:
            os.unlink(file)

    monkeypatch.setattr(command.time, "sleep", wait)
    rounds = command.changes([str(file)])
    rounds_seen = []
    for _ in range(3):
        next(rounds)
        rounds_seen.append(len(waits))
    assert rounds_seen == [0, 2, 4]
    assert run("--watch", "-").exit_code == 2


def test_a_block_is_not_stored():
    with open_kb() as kb:
        for store in (kb.teach, kb.load):
            with pytest.raises(RuleSyntaxError) as caught:
                store("q(a).\n" + TESTS)
            errors = [(error["line"], error["code"]) for error in caught.value.errors]
            assert errors == [
                (2, "test-block"),
                (3, "test-block"),
                (4, "test-block"),
                (12, "test-block"),
            ]
            assert "kbcore test" in caught.value.errors[0]["hint"]
        assert list(kb.ask("q(?x)")) == []


def test_the_tests_of_the_pages_pass(tmp_path):
    page = Path(__file__).resolve().parents[2] / "docs/how-to/test-rules.md"
    blocks = page.read_text(encoding="utf-8").split("```kbtest\n")[1:]
    assert blocks
    for block in blocks:
        text = block.split("```")[0]
        assert run("-", text=text).exit_code == 0, text
        formatted = CliRunner().invoke(cli.cli, ["fmt", "-"], input=text).stdout
        assert formatted == text
