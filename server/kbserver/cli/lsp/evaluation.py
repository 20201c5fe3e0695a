"""Answers of goals and results of tests, computed in memory for an editor."""

from __future__ import annotations

from collections.abc import Mapping

from kbcore.embed import KnowledgeBase, open_kb
from kbcore.errors import KBError
from kbplanner.authoring.blocks import read_source
from kbserver.cli.knowledge.rule_tests import RuleFile, TestResult, TestRun

MAX_BYTES = 1 << 20
"""Size of the texts together up to which goals are answered."""

MAX_ANSWERS = 1000
TIMEOUT_MS = 500


def answer_counts(texts: Mapping[str, str], goals: list[str]) -> list[str]:
    """Return how many answers each goal has, in words; empty where it has no answer in time.

    `texts` are the files that belong together. They have no errors.
    """
    if sum(map(len, texts.values())) > MAX_BYTES:
        return [""] * len(goals)
    with open_kb() as kb:
        try:
            for text in texts.values():
                program = read_source(text).program
                if program.strip():
                    kb.load(program + "\n")
        except KBError:  # the diagnostics say what is wrong
            return [""] * len(goals)
        return [_count(kb, goal) for goal in goals]


def _count(kb: KnowledgeBase, goal: str) -> str:
    try:
        count = len(kb.ask(goal, limit=MAX_ANSWERS + 1, timeout_ms=TIMEOUT_MS))
    except KBError:
        return ""
    if count > MAX_ANSWERS:
        return f"more than {MAX_ANSWERS:,} answers"
    return "1 answer" if count == 1 else f"{count} answers" if count else "no answer"


def run_test(texts: Mapping[str, str], file: str, name: str) -> TestResult | None:
    """Run a test of a file; None if the file has no test of that name."""
    run = TestRun([RuleFile(key, text, read_source(text)) for key, text in texts.items()])
    tests = [test for test in run.tests() if test[0] == file and test[1].name == name]
    return next(iter(run.results(tests)), None)
