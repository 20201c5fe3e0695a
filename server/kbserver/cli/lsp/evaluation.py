"""Answers of goals and results of tests, computed in memory for an editor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kbcore.embed import KnowledgeBase, open_kb
from kbcore.errors import KBError
from kbplanner.authoring.blocks import read_source
from kbplanner.check.texts import ReadText
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.knowledge.rule_tests import TestResult, run_of

MAX_BYTES = 1 << 20
"""Size of the texts together up to which goals are answered."""

MAX_ANSWERS = 1000
TIMEOUT_MS = 500


def answer_counts(texts: Mapping[str, str], goals: list[str]) -> list[str]:
    """Return how many answers each goal has, in words; empty where it has no answer in time.

    `texts` are the files that belong together.
    """
    with _loaded(texts) as kb:
        return [""] * len(goals) if kb is None else [_count(kb, goal) for goal in goals]


def join_orders(texts: Mapping[str, str], predicate: str, arity: int) -> list[str]:
    """Return the steps of each rule of a predicate in the order of evaluation.

    The plan is that of a goal with a variable for each argument, with the facts of the files. Empty
    if there is no plan.
    """
    with _loaded(texts) as kb:
        if kb is None:
            return []
        try:
            plan = kb.plans(predicate, [f"?a{number}" for number in range(arity)])[0]
        except KBError:
            return []
        heads = {rule.text: rule.rule.head for rule in kb.rules()}
    steps: dict[int, str] = {}
    for stratum in plan["strata"]:
        for version in stratum["rules"]:
            head = heads.get(version["text"])
            if head is None or (head.predicate, len(head.args)) != (predicate, arity):
                continue
            steps.setdefault(version["id"], _steps(version["steps"]))
    return [steps[number] for number in sorted(steps)]


def _steps(steps: list[dict[str, Any]]) -> str:
    texts = []
    for step in steps[:-1]:  # the last one emits the head
        if "atom" not in step or step["operator"] == "intersect":
            texts.append(step["text"])
        elif not step["relation"].startswith("demand "):
            texts.append(f"{step['operator']} {step['atom']}")
    return ", then ".join(texts)


@contextmanager
def _loaded(texts: Mapping[str, str]) -> Iterator[KnowledgeBase | None]:
    """Yield a knowledge base with the files; None if they have errors or are too large."""
    if sum(map(len, texts.values())) > MAX_BYTES:
        yield None
        return
    with open_kb() as kb:
        try:
            for text in texts.values():
                program = read_source(text).program
                if program.strip():
                    kb.load(program + "\n")
        except KBError:  # the diagnostics say what is wrong
            yield None
        else:
            yield kb


def _count(kb: KnowledgeBase, goal: str) -> str:
    try:
        count = len(kb.ask(goal, limit=MAX_ANSWERS + 1, timeout_ms=TIMEOUT_MS))
    except KBError:
        return ""
    if count > MAX_ANSWERS:
        return f"more than {MAX_ANSWERS:,} answers"
    return counted(count, "answer") if count else "no answer"


def run_test(
    texts: Mapping[str, str], file: str, name: str, folder_of: Callable[[str], Path | None]
) -> TestResult | None:
    """Run a test of a file; None if the file has no test of that name. `folder_of` returns the
    folder of a file.
    """
    read = {file: ReadText.of(text) for file, text in texts.items()}
    run = run_of(read.items(), folder_of=folder_of)
    tests = [test for test in run.tests() if test[0] == file and test[1].name == name]
    return next(iter(run.results(tests)), None)
