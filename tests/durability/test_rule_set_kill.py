"""kill -9 during deployments: a rule set has one of its versions as a whole, and no acknowledged
one is lost.
"""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest
from support.runtimes import runtime

RULES = 40

WRITER = """
import sys
import kbcore
kb = kbcore.open_kb("wal", path=sys.argv[1])
known = {each.name: each.version for each in kb.rule_sets()}.get("access", 0)
for version in range(known + 1, known + 10_000):
    text = "".join(
        f"can{i}(?x) :- level(?x, ?l), ?l >= {version}.\\n" for i in range(RULES)
    ) + "".join(f"limit({version}, {i}).\\n" for i in range(RULES))
    deployed = kb.deploy(text, "access", expected_version=version - 1)
    print(deployed.version, flush=True)
"""


def deploy_and_kill(folder: Path, count: int) -> int:
    """Deploy versions, and kill the process after it has acknowledged some; return the last."""
    program = WRITER.replace("RULES", str(RULES))
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(count)]
        process.kill()
        acknowledged += map(int, process.stdout.read().split())
    return acknowledged[-1]


def check_versions(folder: Path, acknowledged: int) -> int:
    """Check that what is stored is one version as a whole; return its number."""
    with runtime(folder) as node:
        kb = node.open()
        (rule_set,) = kb.rule_sets()
        version = rule_set.version
        assert version in (acknowledged, acknowledged + 1)
        assert (rule_set.rules, rule_set.facts) == (RULES, RULES)
        texts = {rule.text for rule in kb.rules()}
        assert texts == {f"can{i}(?x) :- level(?x, ?l), ?l >= {version}." for i in range(RULES)}
        limits = {tuple(map(str, row)) for row in kb.ask("limit(?v, ?i)")}
        assert limits == {(str(version), str(i)) for i in range(RULES)}
        assert kb.rule_set_versions("access")[0].version == version
    return version


def rounds(folder: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)
    last = 0
    for _ in range(count):
        acknowledged = deploy_and_kill(folder, chance.randrange(1, 12))
        assert acknowledged > last
        last = check_versions(folder, acknowledged)


def test_a_deployment_survives_kills(tmp_path: Path) -> None:
    rounds(tmp_path, 2, seed=1)


@pytest.mark.crash
def test_deployments_survive_thirty_kills(tmp_path: Path) -> None:
    rounds(tmp_path, 30, seed=2)
