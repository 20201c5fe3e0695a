"""The page about rules in CI, and the steps of the GitHub Action, in a local git repository."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.commands import kbcore
from support.servers import Server

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "deploy-rules.md").read_text(encoding="utf-8")
PAGE = PAGE.partition("\n## Rules from a pull request to production\n")[2]
ACTION = yaml.safe_load((ROOT / "deploy" / "github-action" / "action.yml").read_text())
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.M | re.S)
RULES = "@module access.\n\nmay_enter(?who) :- level(?who, ?level), ?level >= 3.\n"
TESTS = 'test "level 3" {\n    level(ann, 3).\n    ?- may_enter(?who) = [ann].\n}\n'


class Repository:
    """A git repository, and an environment in which commands talk to a server."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        bin_folder = folder.parent / "bin"
        bin_folder.mkdir()
        command = bin_folder / "kbcore"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m kbserver.cli "$@"\n')
        command.chmod(0o755)
        git = {
            f"GIT_{who}_{what}": value
            for who in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", "Ann"), ("EMAIL", "ann@example.com"))
        }
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("KBCORE_")},
            **git,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}",
        }
        (folder / "access").mkdir(parents=True)
        self.shell("git init -q -b main .")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")

    def shell(self, script: str, expect: int = 0, **more: str) -> str:
        """Run a script as GitHub runs those of bash, and return its standard output."""
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=self.folder,
            env={**self.environment, **more},
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Repository]:
    with Server(tmp_path / "data") as server:
        url = f"http://127.0.0.1:{server.address[1]}"
        kbcore("tell", "level(ann, 3)", "level(bob, 2)", "--url", url)
        yield Repository(tmp_path / "repository", url)


def test_the_steps_of_the_page_go_from_a_branch_to_production(repository: Repository) -> None:
    blocks = BLOCK.findall(PAGE)
    for text in (body for language, body in blocks if language == "kbtest"):
        name, _, content = text.partition("\n")
        repository.write(name.removeprefix("% "), content)
    repository.shell("git add . && git commit -q -m 'Rules'")
    printed, compared = "", 0
    for language, body in blocks:
        if language == "sh":
            printed = repository.shell(body, KBCORE_URL=repository.url)
        elif language == "text":
            assert printed == body
            compared += 1
    assert compared == 2
    assert printed.endswith("access: no change, version 3\n")
    versions = kbcore("rules", "--set", "access", "--url", repository.url).stdout.splitlines()
    assert [line.split()[0] for line in versions] == ["3", "2", "1"]
    assert "Level 2 may enter" in versions[1]


class Steps:
    """The steps of the action, run as its runner does."""

    def __init__(self, repository: Repository, runner_folder: Path, **inputs: str) -> None:
        self.repository, self.folder = repository, runner_folder
        self.inputs = {
            name.replace("_", "-"): each.get("default", "")
            for name, each in ACTION["inputs"].items()
        }
        self.inputs |= {name.replace("_", "-"): value for name, value in inputs.items()}
        runner_folder.mkdir()
        self.summary, self.output = runner_folder / "summary", runner_folder / "output"
        self.output.touch()

    def run(self, name: str, expect: int = 0) -> str | None:
        """Run a step; return what it prints, None if its condition is not met."""
        (step,) = [each for each in ACTION["runs"]["steps"] if each["name"] == name]
        condition = re.fullmatch(r"inputs\.([\w-]+) != ''", step.get("if", ""))
        if condition and not self.inputs[condition[1]]:
            return None
        assert step["shell"] == "bash"
        environment = {key: self._value(value) for key, value in step.get("env", {}).items()}
        return self.repository.shell(
            step["run"],
            expect,
            **environment,
            RUNNER_TEMP=str(self.folder),
            GITHUB_STEP_SUMMARY=str(self.summary),
            GITHUB_OUTPUT=str(self.output),
        )

    def _value(self, expression: Any) -> str:
        name = re.fullmatch(r"\$\{\{ inputs\.([\w-]+) \}\}", expression)
        assert name is not None, expression
        return self.inputs[name[1]]


def test_the_action_checks_formats_tests_and_compares(
    repository: Repository, tmp_path: Path
) -> None:
    repository.write("access/rules of doors.kb", RULES)
    repository.write("access/tests.kb", TESTS)
    goals = "may_enter(?who)\nmay_enter(bob)\n"
    steps = Steps(repository, tmp_path / "first", folder="access", url=repository.url, goals=goals)
    assert steps.run("Install") is None
    for name in ("Check", "Format", "Test", "Impact"):
        steps.run(name)
    results = ElementTree.parse(repository.folder / "kbcore-tests.xml").getroot()
    assert [case.get("name") for case in results.iter("testcase")] == ["level 3"]
    comment = (repository.folder / "kbcore-impact.md").read_text()
    assert "    + may_enter(?who) :- level(?who, ?level), ?level >= 3.\n" in comment
    assert "      ?- may_enter(?who): +1 -0\n        + who = ann\n" in comment
    assert "      ?- may_enter(bob): +0 -0\n" in comment
    assert steps.summary.read_text() == comment
    assert steps.output.read_text() == "changes=true\n"
    kbcore("deploy", str(repository.folder / "access"), "--url", repository.url)
    again = Steps(repository, tmp_path / "again", folder="access", url=repository.url)
    again.run("Impact")
    assert again.output.read_text() == "changes=false\n"
    offline = Steps(repository, tmp_path / "offline", folder="access")
    assert offline.run("Impact") is None


@pytest.mark.parametrize(
    ("step", "rules", "tests", "status"),
    [
        ("Check", RULES.replace("?level >=", "?lvl >="), TESTS, 1),
        ("Format", RULES.replace(" :- ", ":-"), TESTS, 1),
        ("Test", RULES.replace(">= 3", ">= 4"), TESTS, 1),
        ("Test", RULES, "", 2),
        ("Impact", RULES.replace(">= 3", ">= 4"), TESTS, 1),
    ],
    ids=["unbound", "layout", "failing test", "no test", "deployment"],
)
def test_a_step_of_the_action_fails(
    repository: Repository, tmp_path: Path, step: str, rules: str, tests: str, status: int
) -> None:
    repository.write("access/rules.kb", rules)
    repository.write("access/tests.kb", tests)
    steps = Steps(repository, tmp_path / "steps", folder="access", url=repository.url)
    steps.run("Check", 1 if step == "Check" else 0)
    if step != "Check":
        steps.run(step, status)
    assert steps.output.read_text() == ""
