"""`kbcore deploy` and `kbcore rules --set`, against a server and on a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.commands import kbcore

RULES = """@module access.
may_enter(?who) :- level(?who, ?level), ?level >= 3.
level(ann, 3). level(bob, 2).
"""


@pytest.fixture
def access(tmp_path: Path) -> Path:
    file = tmp_path / "rules.kb"
    file.write_text(RULES)
    return file


def test_an_edited_threshold_is_deployed_compared_and_rolled_back(own_target, access):
    output = kbcore("deploy", str(access), *own_target).stdout
    assert output == (
        "+ may_enter(?who) :- level(?who, ?level), ?level >= 3.\n"
        "+ level(ann, 3).\n+ level(bob, 2).\n"
        "access: version 1, 3 added, 0 changed, 0 removed\n"
    )
    again = kbcore("deploy", str(access), "--dry-run", *own_target).stdout
    assert again == "access: no change, version 1\n"
    access.write_text(RULES.replace(">= 3", ">= 2").replace("level(bob, 2).", ""))
    changes = (
        "~ may_enter(?who) :- level(?who, ?level), ?level >= 3.\n"
        "  may_enter(?who) :- level(?who, ?level), ?level >= 2.\n"
        "- level(bob, 2).\n"
    )
    dry = kbcore("deploy", str(access), "--dry-run", *own_target, expect=2).stdout
    assert dry == changes + "access: would be version 2, 0 added, 1 changed, 1 removed\n"
    access.write_text(RULES.replace(">= 3", ">= 2"))
    impact = kbcore(
        *("deploy", str(access), "--dry-run", "--impact-goal", "may_enter(?who)", *own_target),
        expect=2,
    )
    assert impact.stdout == changes.replace("- level(bob, 2).\n", "") + (
        "impact: 1 would become true, 0 false\n"
        "  may_enter/1: 1 would become true, 0 false\n"
        "  ?- may_enter(?who): +1 -0\n"
        "    + who = bob\n"
        "access: would be version 2, 0 added, 1 changed, 0 removed\n"
    )
    refused = kbcore("deploy", str(access), "--impact", *own_target, expect=1)
    assert "--impact and --impact-goal are for --dry-run" in refused.stderr
    access.write_text(RULES.replace(">= 3", ">= 2").replace("level(bob, 2).", ""))
    assert kbcore("ask", "may_enter(?who)", *own_target).stdout == "may_enter(ann)\n"
    done = kbcore("deploy", str(access), "--message", "lower", *own_target).stdout
    assert done == changes + "access: version 2, 0 added, 1 changed, 1 removed\n"
    assert kbcore("rules", "--set", "access", "--diff", "1..2", *own_target).stdout == changes
    versions = kbcore("rules", "--set", "access", *own_target).stdout.splitlines()
    assert versions[0].startswith("2  ")
    assert versions[0].endswith("0 added, 1 changed, 1 removed  lower")
    rolled = kbcore("deploy", "--rollback", "access", *own_target).stdout
    assert rolled.endswith("access: version 3, 1 added, 1 changed, 0 removed\n")
    assert kbcore("deploy", "--rollback", "access", "2", *own_target).stdout.endswith(
        "access: version 4, 0 added, 1 changed, 1 removed\n"
    )


def test_statements_of_imported_rule_sets_are_counted_unless_asked_for(own_target, access):
    text = RULES.replace("@module access.", "@module access. import memory.")
    # its last line is in `memory` too: what the file says itself is listed
    text += '@phrase diet/2 "{0} keeps to a {1} diet" "{0} does not keep to a {1} diet".\n'
    access.write_text(text)

    def added(*options: str, expect: int = 0) -> list[str]:
        done = kbcore("deploy", str(access), *options, *own_target, expect=expect)
        return done.stdout.split("\n")

    whole = added("--dry-run", "--verbose", expect=2)
    assert "+ @phrase prefers/2 " in "\n".join(whole)
    (own_phrase,) = (line for line in whole if line.startswith("+ @phrase diet/2"))
    *own, imported, summary, end = added()
    assert set(own) <= set(whole)
    assert "+ may_enter(?who) :- level(?who, ?level), ?level >= 3." in own
    assert own_phrase in own
    assert len(own) == 4
    count = len(whole) - 2 - len(own)
    assert count > 40
    assert imported == f"+ import memory: {count} statements (--verbose lists them)"
    assert summary == f"access: version 1, {count + 4} added, 0 changed, 0 removed"
    assert end == ""
    access.write_text(text.replace("import memory.", ""))
    assert len(added()) == count + 2, "what an import no longer adds is listed"


def test_a_dry_run_of_a_rollback_prints_the_difference_and_changes_nothing(own_target, access):
    def rollback(*options: str, expect: int = 0) -> str:
        done = kbcore("deploy", "--rollback", "access", *options, *own_target, expect=expect)
        return done.stderr if expect == 1 else done.stdout

    kbcore("deploy", str(access), *own_target)
    missing = rollback("--dry-run", expect=1)
    assert missing == rollback(expect=1)
    assert "has no version 0; kept are 1 to 1" in missing
    access.write_text(RULES.replace(">= 3", ">= 2").replace("level(bob, 2).", ""))
    kbcore("deploy", str(access), *own_target)
    changes = (
        "~ may_enter(?who) :- level(?who, ?level), ?level >= 2.\n"
        "  may_enter(?who) :- level(?who, ?level), ?level >= 3.\n"
        "+ level(bob, 2).\n"
    )
    counts = "1 added, 1 changed, 0 removed\n"
    for options in (("--dry-run",), ("1", "--dry-run", "--expect-version", "2")):
        assert rollback(*options, expect=2) == f"{changes}access: would be version 3, {counts}"
    planned = json.loads(rollback("--dry-run", "--json", expect=2))
    assert rollback("2", "--dry-run") == "access: no change, version 2\n"
    for refused in (("--expect-version", "1"), ("7",)):
        assert rollback("--dry-run", *refused, expect=1) == rollback(*refused, expect=1)
    versions = kbcore("rules", "--set", "access", *own_target).stdout.splitlines()
    assert len(versions) == 2, "nothing was stored"
    done = json.loads(rollback("--json"))
    assert planned.keys() == done.keys()
    assert {**done, "commit": None} == planned


def test_what_changes_is_printed_as_json(own_target, access):
    def deployed(*options: str, expect: int = 0) -> dict:
        done = kbcore("deploy", *options, "--json", *own_target, expect=expect)
        return json.loads(done.stdout)

    dry = deployed(str(access), "--dry-run", "--impact", expect=2)
    assert (dry["commit"], dry["impact"]["counts"]["becomesTrue"]) == (None, 3)
    assert deployed(str(access))["facts"]["addedCount"] == 2
    assert deployed(str(access), "--dry-run")["added"] == []
    access.write_text(RULES.replace(">= 3", ">= 2"))
    deployed(str(access))
    assert deployed("--rollback", "access")["version"] == 3


def test_the_expected_version_refuses_a_deployment(own_target, access):
    kbcore("deploy", str(access), "--expect-version", "0", *own_target)
    access.write_text(RULES + "level(cid, 1).\n")
    refused = kbcore("deploy", str(access), "--expect-version", "0", *own_target, expect=1)
    assert "has version 1, not 0" in refused.stderr


def test_a_folder_is_checked_and_its_tests_are_run_first(own_target, tmp_path):
    folder = tmp_path / "doors"
    folder.mkdir()
    rules, tests = folder / "rules.kb", folder / "tests.kb"
    rules.write_text("open(?d) :- key(?d).\n")
    tests.write_text('test "a door with a key" { key(a). ?- open(a). ?- not open(b). }\n')
    done = kbcore("deploy", str(folder), *own_target)
    assert (
        done.stdout == "+ open(?d) :- key(?d).\ndoors: version 1, 1 added, 0 changed, 0 removed\n"
    )
    assert "1 passed" in done.stderr
    assert "\ufffd" not in done.stderr
    rules.write_text("open(?d) :- lock(?d).\n")
    failed = kbcore("deploy", str(folder), *own_target, expect=1)
    assert "1 test failed; nothing was deployed" in failed.stderr
    assert "expected: open(a)" in failed.stderr
    rules.write_text("open(?d) :- not lock(?d).\n")
    refused = kbcore("deploy", str(folder), "--dry-run", *own_target, expect=1)
    assert "rules.kb:1:" in refused.stderr
    assert kbcore("rules", *own_target).stdout == "open(?d) :- key(?d).\n"


def test_files_without_a_name_and_wrong_uses_are_refused(own_target, tmp_path):
    file = tmp_path / "a.kb"
    file.write_text("p(a).\n")
    for arguments, problem in (
        ((str(file),), "name the rule set"),
        ((), "name files or a folder"),
        ((str(tmp_path / "none"),), "no such file"),
        (("--rollback", "x", "--as", "y"), "takes no --as"),
        (("--rollback", "x", "--impact", "--dry-run"), "takes no --as"),
        (("--rollback", "x", "--dry-run"), "no rule set 'x'"),
        (("--rollback", "x", "one"), "number of one version"),
        (("--rollback", "x"), "no rule set 'x'"),
        ((str(file), "--as", "a b"), "is not a name"),
    ):
        assert problem in kbcore("deploy", *arguments, *own_target, expect=1).stderr
    kbcore("deploy", str(file), "--as", "one", "--scope", "s", *own_target)
    assert kbcore("query", "p(?x)", "--scope", "s", *own_target).stdout == "p(a)\n"
    assert "M..N" in kbcore("rules", "--help").stdout
    wrong = kbcore("rules", "--set", "one", "--diff", "1", *own_target, expect=1)
    assert "such as 3..5" in wrong.stderr


def test_a_load_counts_known_rules_and_warns_of_an_edited_one(own_target, tmp_path):
    file = tmp_path / "a.kb"
    file.write_text("adult(?x) :- age(?x, ?n), ?n >= 18.\n")
    first = kbcore("load", str(file), *own_target)
    assert ": 0 facts, 1 rule in" in first.stdout
    assert "constants" not in first.stderr
    again = kbcore("load", str(file), *own_target)
    assert ": 0 facts, 0 rules, 1 rule already known in" in again.stdout
    file.write_text("adult(?x) :- age(?x, ?n), ?n >= 16.\n")
    edited = kbcore("load", str(file), *own_target)
    assert ": 0 facts, 1 rule in" in edited.stdout
    both = "adult(?x) :- age(?x, ?n), ?n >= 18.\nadult(?x) :- age(?x, ?n), ?n >= 21.\n"
    file.write_text(both.replace("18", "16") + both)
    assert "constants" not in kbcore("load", str(file), *own_target).stderr
    assert "differs in constants only" in edited.stderr
    assert "did you mean `kbcore deploy`" in edited.stderr


def test_tests_read_fixtures_from_files(own_target, tmp_path):
    folder = tmp_path / "orders"
    folder.mkdir()
    (folder / "rules.kb").write_text("large(?o) :- order(?o, ?n), ?n >= 100.\n")
    (folder / "orders.csv").write_text("o1,20\no2,150\n")
    test = 'fixture "orders" from "orders.csv" as order.\n'
    test += 'test "large orders" with "orders" { ?- large(?o) = [o2]. }\n'
    (folder / "orders_test.kb").write_text(test)
    assert "1 passed" in kbcore("deploy", str(folder), *own_target).stderr
    asked = kbcore("ask", "order(?o, ?n)", *own_target, expect=1)
    assert "no fact or rule for order/2" in asked.stderr
    (folder / "orders.csv").write_text("o1,200\n")
    (folder / "rules.kb").write_text("large(?o) :- order(?o, ?n), ?n >= 150.\n")
    assert "1 test failed" in kbcore("deploy", str(folder), *own_target, expect=1).stderr
