"""The examples give the expected answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.stand_in import StandIn

import kbcore

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture
def kb():
    with kbcore.open_kb() as found:
        yield found


def first(kb, goal):
    return [row[0] for row in kb.ask(goal)]


def test_the_family(kb):
    kb.load(EXAMPLES / "family.kb")
    assert len(kb.ask("ancestor(victoria, philip)")) == 1
    assert kb.ask("ancestor(?x, william), monarch(?x)") == [
        ("charles_iii",), ("edward_vii",), ("elizabeth_ii",), ("george_v",), ("george_vi",), ("victoria",)
    ]  # fmt: skip
    assert first(kb, "monarch_before(?x, george_vi)") == ["edward_vii", "george_v", "victoria"]
    assert first(kb, "passed_over(?x)") == [
        "alfred",
        "alice",
        "andrew",
        "anne",
        "edward",
        "harry",
        "margaret",
        "william",
    ]
    assert first(kb, "cousin(?x, george_v)") == ["alix", "victoria_milford"]
    assert len(kb.ask("cousin(elizabeth_ii, philip)")) == 1


def test_routes(kb):
    kb.load(EXAMPLES / "routes.kb")
    assert kb.ask("minutes(harbour, ?to, ?m)") == [
        ("harbour", "airport", "15"),
        ("harbour", "castle", "9"),
        ("harbour", "market", "5"),
        ("harbour", "station", "2"),
    ]
    assert kb.ask("passengers(harbour, castle, ?p)") == [("harbour", "castle", "300")]
    assert kb.ask("arrival(castle, ?t)") == [("castle", "512")]
    assert first(kb, "far(?to)") == ["airport"]
    kb.retract("line(station, market, 3)")
    assert kb.ask("minutes(harbour, airport, ?m)") == [("harbour", "airport", "17")]


def test_access_control(kb):
    loaded = kb.load(EXAMPLES / "access.kb")
    assert len(loaded.goals) == 3
    assert kb.ask("may(ann, write, budget)") == [("ann", "write", "budget")]
    assert kb.ask("may(bob, read, ?thing)") == [
        ("bob", "read", "finance"),
        ("bob", "read", "projects"),
        ("bob", "read", "report"),
    ]
    assert first(kb, "may(?who, read, report)") == ["ann", "bob", "contractors", "editors", "eve"]


@pytest.mark.parametrize("example", ["debian", "wordnet"])
def test_real_input_has_the_answers_of_a_plain_search(example):
    if example == "wordnet" and not Path("/usr/share/wordnet/data.noun").exists():
        pytest.skip("wordnet-base is not installed")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / example / "run.py")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if example == "debian" and "no package lists" in done.stderr:
        pytest.skip("apt has no package lists here")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WRONG" not in done.stdout


PAGE = EXAMPLES / "index.md"
TERMINAL = re.compile(r"^```terminal\n(.*?)^```$", re.M | re.S)
TIME = re.compile(r"\d+\.\d+ s\b|\d{4}-\d\d-\d\dT[\d:.]+Z")


def commands() -> list[tuple[str, str]]:
    """Each command of the page that needs no server, with what is shown."""
    steps = re.split(r"^\$ ", "\n".join(TERMINAL.findall(PAGE.read_text("utf-8"))), flags=re.M)[1:]
    return [(command, shown) for command, _, shown in (step.partition("\n") for step in steps)]


def test_the_page_of_the_examples_shows_what_they_print(tmp_path):
    folder = tmp_path / "examples"
    shutil.copytree(EXAMPLES, folder)
    prelude = (
        f'kbcore() {{ {sys.executable} -m kbserver.cli "$@"; }}\n'
        f'python() {{ {sys.executable} "$@"; }}\n'
    )
    shown = commands()
    assert len(shown) >= 15
    for command, output in shown:
        done = subprocess.run(
            ["bash", "-c", f"exec 2>&1\n{prelude}{command}"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            cwd=folder,
        )
        assert TIME.sub("TIME", done.stdout.strip()) == TIME.sub("TIME", output.strip()), command


def test_the_page_shows_the_agent_as_it_is():
    (excerpt,) = re.findall(r"```py\n(def turn.*?)```", PAGE.read_text("utf-8"), re.S)
    assert excerpt in (EXAMPLES / "agent" / "run.py").read_text("utf-8")


def test_the_page_names_every_example():
    text = PAGE.read_text("utf-8")
    names = [
        path.name for path in EXAMPLES.iterdir() if path.suffix != ".md" and "__" not in path.name
    ]
    assert [name for name in names if name not in text] == []


def test_the_agent_uses_a_real_model_if_one_is_set(tmp_path):
    with StandIn() as model:
        done = subprocess.run(
            [sys.executable, str(EXAMPLES / "agent" / "run.py")],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
            env={**os.environ, **model.environment()},
        )
        assert len(model.seen) >= 10
    assert done.returncode == 0, done.stderr
    assert "Stored: owns(Cara, Ledger)." in done.stdout  # the model of the tests knows this verb
