"""`import NAME.`: shipped rule sets, and those of installed packages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
from support.http import serve_in_memory
from support.stalls import CALLS_BETWEEN
from support.turns import Turns

import kbcore
from kbcore import open_kb
from kbcore.errors import RuleSyntaxError
from kbcore.language.rule_set_files import RuleSetFile, digest_of
from kbplanner.authoring.formatter import format_text
from kbplanner.check.texts import ReadText, check_texts
from kbplanner.syntax import imports, parser
from kbplanner.syntax.parser import parse_program
from kbserver.cli.knowledge.rule_tests import run_of
from kbserver.cli.lsp.project import Project

FILES = {
    "tax.kb": "import rates.\ntax(?who, ?tax) :- income(?who, ?sum), rate(?rate), ?tax = ?sum * ?rate.",
    "rates.kb": "rate(0.2).",
    "both.kb": "import tax. import rates. @module other. @input income(person, sum).",
    "ring_a.kb": "import ring_b.",
    "ring_b.kb": "import ring_a.",
    "broken.kb": "p(a).\nq(",
    "asking.kb": "?- p(a).",
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed package that offers rule sets; a file that no entry point names is missing."""
    folder = tmp_path / "acme_rules"
    folder.mkdir()
    (folder / "__init__.py").touch()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    info = tmp_path / "acme_rules-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-rules\nVersion: 1.0\n")
    names = [*(Path(name).stem for name in FILES), "missing", "memory"]
    points = "".join(f"{name} = acme_rules:{name}.kb\n" for name in names)
    (info / "entry_points.txt").write_text(f"[kb_rule_sets]\n{points}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "acme_rules", raising=False)
    forget()
    yield folder
    forget()


def forget() -> None:
    imports.installed.cache_clear()
    imports.text_of.cache_clear()
    parser._imported.clear()


def test_a_loaded_text_has_the_rules_of_what_it_imports(package: Path):
    with open_kb() as kb:
        kb.load("import tax.\nimport rates.\nincome(ann, 100).\n")
        assert kb.ask("tax(ann, ?tax)")[0][1] == "20"
        assert len(kb.kb.rules()) == 1


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "/etc/passwd", "kbcore:memory.kb", "memory.kb", "", "x" * 50_000],
)
def test_an_import_never_names_a_file(name: str):
    with pytest.raises(RuleSyntaxError) as raised:
        parse_program(f'import "{name}".')
    (problem,) = raised.value.errors
    assert problem["message"].startswith("there is no installed rule set")
    assert len(problem["message"]) < 100


def test_many_imports_give_turns_and_are_there_once():
    once = len(parse_program("import memory."))
    turns = Turns()
    with turns.counted():
        statements = parse_program("import memory.\n" * 3000, yield_now=turns)
    turns()
    assert len(statements) == once
    assert turns.most_calls < CALLS_BETWEEN


def test_many_words_at_the_head_give_turns():
    turns = Turns()
    with turns.counted():
        parse_program("@strict.\n" * 5000 + "@input p(a: text).", yield_now=turns)
    turns()
    assert turns.most_calls < CALLS_BETWEEN


def test_the_shipped_rule_set_is_imported_as_its_text_is_loaded():
    with open_kb() as kb:
        text = (files("kbcore") / "memory.kb").read_text()
        imported = kb.load("import memory.\n")
        assert (imported.rules, imported.warnings) == (kb.load(text).rules, ())
        kb.tell('happened(e1, ann, swim, "2026-01-01").')
        assert kb.ask("times(ann, swim, ?n)")[0][2] == "1"


def test_a_package_does_not_replace_a_shipped_rule_set(package: Path):
    assert imports.installed()["memory"] == "kbcore:memory.kb"


@pytest.mark.parametrize(
    ("text", "place", "message", "hint"),
    [
        ("p(a).\nimport memroy.", (2, 8), "no installed rule set 'memroy'", "did you mean memory?"),
        ("import ring_a.", (1, 8), "imports itself: ring_a, ring_b, ring_a", None),
        ("import broken.", (1, 8), "'broken' has an error at line 2", None),
        ("import asking.", (1, 8), "'asking' has a query", None),
        ("import missing.", (1, 8), "'missing' cannot be read", None),
        ('import "/etc/passwd".', (1, 8), "no installed rule set '/etc/passwd'", ...),
        ('import "../tax.kb".', (1, 8), "no installed rule set '../tax.kb'", ...),
        ("import tax", (1, 1), "expected the name of a rule set and a period", ...),
        ("import tax, rates.", (1, 1), "expected the name of a rule set and a period", ...),
    ],
)
def test_what_cannot_be_imported_is_refused_with_its_place(
    package: Path, text: str, place: tuple[int, int], message: str, hint: object
):
    with pytest.raises(RuleSyntaxError) as caught:
        parse_program(text)
    (error,) = caught.value.details["errors"]
    assert (error["line"], error["column"], error["code"]) == (*place, "import")
    assert message in error["message"]
    assert hint is ... or error["hint"] == hint
    ((finding,),) = check_texts([text])
    assert (finding.line, finding.column) == place


def test_import_is_a_predicate_too():
    (fact,) = parse_program("import(tea).")
    assert fact.atom.predicate == "import"


def test_a_deployed_rule_set_has_what_it_imports_once(package: Path):
    with open_kb() as kb:
        text = "import both.\nimport tax.\n"
        assert kb.deploy(text, name="mine").facts.added == ["rate(0.2)."]
        assert len(kb.rule_set("mine").statements) == 3
        assert kb.deploy("import both.", name="mine").commit is None
        kb.deploy("import tax.", name="theirs")
        kb.deploy("", name="mine")
        kb.tell("income(ann, 50).")
        assert kb.ask("tax(ann, ?tax)")[0][1] == "10"


def test_strict_is_about_the_files_of_a_set_and_not_about_what_they_import():
    with open_kb() as kb:
        kb.deploy("@strict.\nimport memory.\n@input p(n: number).", name="mine")
        strict = [each.text for each in kb.inputs() if "strict" in each.text]
        assert strict == ["@input p(n: number) [strict=true]."]
        kb.deploy("import memory.", name="theirs")
        assert len(kb.rule_sets()) == 2


def test_a_new_text_of_the_package_is_deployed(package: Path):
    with open_kb() as kb:
        rules = [RuleSetFile("rules.kb", "% import of rates\nimport tax.\n")]
        kb.deploy(rules[0].text, name="mine")
        before = digest_of(rules)
        (package / "rates.kb").write_text("rate(0.3).")
        forget()
        assert digest_of(rules) != before
        assert kb.deploy(rules[0].text, name="mine").facts.removed == ["rate(0.2)."]


def test_over_http_an_import_is_taught_and_deployed(package: Path):
    with serve_in_memory() as served:
        assert served.client.post("/teach", {"text": "import tax."}).status_code == 200
        served.client.post("/tell", {"text": "income(ann, 100)"})
        assert served.client.post("/ask", {"text": "tax(ann, ?x)"}).get_json()[0]["args"][1] == "20"
        known = ", ".join(sorted(imports.installed()))
        refused = served.client.post("/teach", {"text": 'p(a).\nimport "rates.kb".'})
        assert refused.status_code == 400
        (error,) = refused.get_json()["details"]["errors"]
        assert (error["line"], error["column"], error["hint"]) == (2, 8, f"installed: {known}")
        headers = {"X-Tenant-ID": "t"}
        body = {"text": "import rats."}
        answer = served.client.flask.put("/rulesets/mine", json=body, headers=headers)
        assert answer.status_code == 400
        assert answer.get_json()["details"]["errors"][0]["hint"] == "did you mean rates?"


def test_check_and_tests_know_what_a_file_imports(package: Path):
    text = (
        "import tax.\n@input income(person, sum).\npays(?who) :- tax(?who, ?tax), ?tax > 0.\n"
        'test "pays" { income(ann, 1). ?- pays(ann). ?- rate(?r) = ["0.2"]. }\n'
    )
    assert check_texts([text, "import rates.\nlow :- rate(?r), ?r < 1."]) == [[], []]
    run = run_of([("a.kb", ReadText.of(text))])
    assert [result.has_passed for result in run.results(run.tests(), coverage=True)] == [True]
    assert [(entry.file, entry.derived) for entry in run.coverage] == [("a.kb", True)]
    (changed,) = (entry.rule.head for entry in run.coverage)
    assert run.with_rule(run.coverage[0], "pays(?w) :- tax(?w, ?t), ?t > 9.").fails(changed)


def test_the_language_server_knows_what_a_file_imports(package: Path):
    text = "import tax.\npays(?who) :- tax(?who, ?tax), income(?who, ?sum), ?tax > 0.\n"
    project = Project({"file:///a.kb": text})
    assert list(project.findings()) == ["file:///a.kb"]
    at = text.index("tax(")
    (place,) = project.definitions("file:///a.kb", at)
    assert place.file == (package / "tax.kb").as_uri()
    assert "1 rule" in str(project.description("file:///a.kb", at))
    offered = [each.text for each in project.completions("file:///a.kb", len("import ta"))]
    assert {"memory", "tax"} <= set(offered)
    with pytest.raises(kbcore.errors.InvalidInput, match="imported rule set"):
        project.rename("file:///a.kb", at, "levy")


def test_an_import_is_formatted():
    assert format_text("p(a).\nimport   memory .") == "p(a).\nimport memory.\n"
