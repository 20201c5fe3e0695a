"""`kbcore test`: results, failures with their reasons, coverage, JUnit, selection, and exit
statuses.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from click.testing import CliRunner, Result

from kbcore import RuleSyntaxError, open_kb
from kbplanner.authoring.formatter import format_text
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


def test_watching_sees_the_files_of_fixtures(folder, monkeypatch):
    file, table = folder / "orders_test.kb", folder / "data" / "orders.csv"
    waits = []

    def wait(seconds):
        waits.append(seconds)
        assert len(waits) < 10
        if len(waits) == 2:
            table.write_text(table.read_text() + "o9,dan,900\n")
        if len(waits) == 4:
            (folder / "more.jsonl").unlink()

    monkeypatch.setattr(command.time, "sleep", wait)
    rounds = command.changes([str(file)])
    rounds_seen = []
    for _ in range(3):
        next(rounds)
        rounds_seen.append(len(waits))
    assert rounds_seen == [0, 2, 4]


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


# ---- time ----

DUE = "due_soon(?x) :- due(?x, ?day), days_between(now(), ?day) < 7.\n".replace(
    "days_between(now(), ?day) < 7", "?n = days_between(now(), ?day), ?n >= 0, ?n < 7"
)
TIMED = """\
test "a week before" at "2026-03-01" { due(a, "2026-03-05"). ?- due_soon(?x) = [a]. }
test "an hour of a day" at "2026-03-05T23:00:00+01:00" {
    due(a, "2026-03-06"). due(b, "2026-04-01").
    ?- due_soon(?x) = [a].
}
test "long ago" at "1999-12-31" { due(a, "2000-01-01"). ?- due_soon(a). }
"""


def test_a_test_has_its_own_present():
    assert run("-", text=DUE + TIMED).exit_code == 0


def test_the_present_of_all_tests():
    text = DUE + 'test "t" { due(a, "2031-01-03"). ?- due_soon(a). }'
    assert run("-", text=text).exit_code == 1
    assert run("--now", "2031-01-01", "-", text=text).exit_code == 0
    result = run("--now", "soon", "-", text=text)
    assert result.exit_code == 2
    assert "--now: 'soon' is no date and no instant" in result.stderr


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ('test "t" at "monday" { ?- p(a). }', "expected a date or an instant after at"),
        ('test "t" at monday { ?- p(a). }', "expected a date or an instant after at"),
        ('fixture "f" at "2026-03-01" { p(a). }', "a fixture has no time"),
    ],
)
def test_a_wrong_present(header, message):
    result = run("-", text=header)
    assert result.exit_code == 2
    assert message in result.stderr


def test_tests_do_not_see_facts_of_others():
    blocks = [f'test "t{n}" {{ p({n}). ?- p(?x) = [{n}]. }}\n' for n in range(5)]
    assert run("-", text="".join(blocks)).stdout.startswith("5 passed")


def test_a_test_that_cannot_add_its_facts_leaves_the_others(files):
    text = '@key p(?x, _).\ntest "a" { p(a, 1). ?- p(a, 1). }\ntest "b" { p(a, 2). ?- p(a, 2). }\n'
    assert run("-", text=text).exit_code == 0


# ---- coverage of declarations, thresholds, mutants ----

DECLARED = """\
@key lives_in(?who, _).
@input lives_in(who, city) "where a person lives".
@equivalence same_as/2.
@phrase lives_in/2 "{0} lives in {1}".
big(?x) :- size(?x, ?n), ?n >= 3.
test "big" { size(a, 3). ?- big(a). ?- not big(b). }
"""


def test_declarations_are_no_part_of_the_coverage():
    result = run("--coverage", "-", text=DECLARED)
    assert result.exit_code == 0
    assert "coverage: 1 of 1 rule, 2 of 2 body literals\n" in result.stdout


def test_a_coverage_below_the_threshold_fails(files):
    assert run("--min-coverage", "100", *files).exit_code == 0
    text = RULES + 'test "t" { parent(a, b). ?- ancestor(a, b). }'
    result = run("--min-coverage", "60", "-", text=text)
    assert result.exit_code == 1
    assert "is below 60 %" in result.stderr
    assert run("--min-coverage", "10", "-", text=text).exit_code == 0


def test_changes_that_no_test_notices():
    result = run("--mutate", "-", text=DECLARED)
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [
        "<stdin>:5:26: no test fails without ?n >= 3",
        "mutation: 2 of 3 changes noticed",
    ]
    noticed = DECLARED.replace("size(a, 3).", "size(a, 3). size(b, 2).")
    assert run("--mutate", "-", text=noticed).exit_code == 0


def test_changes_that_are_no_rules_are_left_out():
    text = (
        'p(?x) :- q(?x, ?y), ?z = ?y + 1, ?z > 1.\ntest "t" { q(a, 1). q(b, 0). ?- p(?x) = [a]. }\n'
    )
    result = run("--mutate", "-", text=text)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[-1] == "mutation: 3 of 3 changes noticed"


FILE_TESTS = """\
@input order(id, owner, total: number).
large(?o) :- order(?o, _, ?n), ?n >= 100.
fixture "orders" from "data/orders.csv" as order.
fixture "more" from "more.jsonl".
test "large orders" with "orders" { ?- large(?o) = [o2]. }
test "with others" with "orders", "more" { order(o4, ann, 300). ?- large(?o) = [o2, o3, o4]. }
test "none" { ?- not large(_). }
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "orders.csv").write_text("id,owner,total\no1,ann,20\no2,bob,150\n")
    (tmp_path / "more.jsonl").write_text('{"predicate": "order", "args": ["o3", "cid", "100"]}\n')
    (tmp_path / "orders_test.kb").write_text(FILE_TESTS)
    return tmp_path


def test_fixtures_are_read_from_files(folder):
    result = run(str(folder / "orders_test.kb"))
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("3 passed in ")
    checked = CliRunner().invoke(cli.cli, ["check", str(folder / "orders_test.kb")])
    assert (checked.stdout, checked.exit_code) == ("", 0)
    assert format_text(FILE_TESTS).startswith(FILE_TESTS[: FILE_TESTS.index("test")])


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ('fixture "f" from "../f.csv" as p.', "in the folder of the test file"),
        ('fixture "f" from "a/../../f.csv" as p.', "in the folder of the test file"),
        ('fixture "f" from "/etc/f.csv" as p.', "in the folder of the test file"),
        ('fixture "f" from "C:/f.csv" as p.', "in the folder of the test file"),
        ('fixture "f" from "a\\\\..\\\\f.csv" as p.', "in the folder of the test file"),
        ('fixture "f" from "passwd".', "ends in .csv, .tsv, .jsonl"),
        ('fixture "f" from "f.jsonl" as p.', "each line of a file of JSON lines has its own"),
        ('fixture "f" from orders.', "expected the path of a file in quotes"),
        ('fixture "f" from "f.csv" as .', "expected the path of a file in quotes"),
        ('fixture "f" from "f.csv" as p', "expected the path of a file in quotes"),
        ('fixture "f" from "f.csv" as p. fixture "f" { p(a). }', "exists already"),
    ],
)
def test_fixtures_that_name_no_file_of_the_folder(statement, message):
    result = run("-", text=f'q(?x) :- p(?x).\n{statement}\ntest "t" {{ ?- not q(a). }}\n')
    assert result.exit_code == 2
    assert message in result.stderr


def test_files_that_cannot_be_read_fail_the_tests_that_need_them(folder):
    path = folder / "orders_test.kb"
    outside = folder.parent / f"{folder.name}-outside.csv"
    outside.write_text("o9,eve,900\n")
    orders = folder / "data" / "orders.csv"
    orders.unlink()
    orders.symlink_to(outside)
    result = run(str(path))
    assert "data/orders.csv is outside of the folder" in result.stdout
    assert "1 passed" in result.stdout
    orders.unlink()
    assert "No such file" in run(str(path)).stdout
    orders.write_text("o1,ann,20\no2\n")
    assert "line 2" in run(str(path)).stdout
    orders.write_text("o2,ann,150\n")
    (folder / "more.jsonl").write_text('{"head": {"predicate": "p", "args": []}, "body": []}\n')
    assert run(str(path)).exit_code == 1
    assert "in no folder" in run("-", text=FILE_TESTS).stdout


def test_a_strict_input_counts_in_tests(folder):
    path = folder / "orders_test.kb"
    path.write_text(f"@strict.\n{FILE_TESTS}")
    assert run(str(path)).exit_code == 0
    (folder / "data" / "orders.csv").write_text("o1,ann,much\n")
    result = run(str(path))
    assert 'the argument total of order/3 is of the type number, found "much"' in result.stdout
    assert "1 passed" in result.stdout


def test_a_fixture_of_a_file_is_not_stored():
    with open_kb() as kb, pytest.raises(RuleSyntaxError, match="a fixture is no fact"):
        kb.tell('p(a). fixture "orders" from "orders.csv" as order. p(b).')


def test_results_as_json(files, tmp_path):
    passed = run("--json", "--coverage", *files)
    report = json.loads(passed.stdout)
    assert (passed.exit_code, passed.stderr) == (0, "")
    assert (report["passed"], report["failed"]) == (2, 0)
    assert [test["name"] for test in report["tests"]] == ["ancestors", "adults"]
    assert report["coverage"]["percent"] == 100
    assert report["coverage"]["rules"] == {"covered": 4, "total": 4}
    assert report["coverage"]["uncovered"] == []
    failing = tmp_path / "failing.kb"
    failing.write_text('test "no" {\n  age(ann, 17).\n  ?- adult(?x) = [ann].\n}\n')
    failed = run("--json", "--coverage", "--filter", "no", *files, str(failing))
    report = json.loads(failed.stdout)
    assert (failed.exit_code, report["passed"], report["failed"]) == (1, 0, 1)
    (test,) = report["tests"]
    assert (test["file"], test["line"], test["passed"]) == (str(failing), 1, False)
    assert [(each["line"], each["column"]) for each in test["failures"]] == [(3, 3)]
    assert "ann" in test["failures"][0]["message"]
    missing = [each["message"] for each in report["coverage"]["uncovered"]]
    assert "adult derived no fact" in missing
    none = run("--json", "--filter", "nothing", *files)
    assert (none.exit_code, json.loads(none.stdout)["tests"]) == (2, [])
    failing.write_text("p(.")
    broken = run("--json", str(failing))
    report = json.loads(broken.stdout)
    assert (broken.exit_code, report["tests"]) == (2, [])
    assert (report["errors"][0]["file"], report["errors"][0]["line"]) == (str(failing), 1)
    failing.write_text('test "all" { age(ann, 20). ?- adult(ann). }')
    mutated = run("--json", "--mutate", "--filter", "all", *files, str(failing))
    mutants = json.loads(mutated.stdout)["mutants"]
    assert mutated.exit_code == 1
    assert len(mutants["survivors"]) == mutants["count"] - mutants["noticed"] > 0
    assert mutants["survivors"][0]["file"] == files[0]
