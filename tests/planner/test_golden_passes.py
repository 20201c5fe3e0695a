"""Golden files of the passes: programs before and after each one. `KB_GOLDEN=write` rewrites them.

A file has cases: a line `# name`, rules, a goal, `---`, and the program after the pass named by the
file. A line `% external price/2: bf` declares a predicate of a plugin with its mode.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kbplanner.compile.build import build
from kbplanner.compile.explain import explain, show
from kbplanner.compile.rules import RuleSet
from kbplanner.evaluate.evaluate import adornment_of
from kbplanner.ir.calls import infer_modes
from kbplanner.ir.program import Program
from kbplanner.ir.schema import RelationSchema
from kbplanner.passes import PASSES, PassContext
from kbplanner.passes.differentiate import differentiate
from kbplanner.passes.lower import lower
from kbplanner.passes.order import NoStatistics
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.statements import GoalStatement, RuleStatement

FOLDER = Path(__file__).parent / "golden" / "passes"
EXTERNAL = re.compile(r"^% external (\w+)/(\d+): ([bf]+)$", re.M)
STAGES = ["lower", "linearise", *(name for name, _ in PASSES), "plan", "differentiate"]


def cases():
    for path in sorted(FOLDER.glob("*.kb")):
        for part in re.split(r"^(?=# )", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
            yield pytest.param(path, part, id=f"{path.stem}: {part.splitlines()[0][2:]}")


def after(stage: str, text: str) -> str:
    statements = parse_program(text)
    rules = RuleSet([s.rule for s in statements if isinstance(s, RuleStatement)])
    goal = next(s for s in statements if isinstance(s, GoalStatement)).literal.atom
    modes = {RelationSchema(name, len(mode)): (mode,) for name, _, mode in EXTERNAL.findall(text)}
    form = rules.with_external(modes) if modes else rules
    clauses = lower(rules.rules) if stage == "lower" else form.clauses(frozenset())
    context = PassContext(adornment_of(goal.args), NoStatistics())
    stored = RelationSchema(goal.predicate, goal.arity, goal.positive)
    inferred = infer_modes(clauses, form.external)
    program = Program(clauses, rules.conclusions(stored), external=form.external, modes=inferred)
    for name, run in PASSES:
        if stage in ("lower", "linearise"):
            break
        program = run(program, context)
        if name == stage:
            break
    if stage == "differentiate":
        return changes_of(program)
    return explain(build(program, NoStatistics())) if stage == "plan" else show(program)


def changes_of(program: Program) -> str:
    lines = []
    for number, part in enumerate(differentiate(program) or (), 1):
        for kind in ("fallen", "onward", "closure", "new", "again", "tests"):
            if clauses := getattr(part, kind):
                lines += [f"% component {number}, {kind}", show(Program(clauses, program.goal))]
    return "\n".join(lines) or "% not maintained"


def test_every_pass_has_a_golden_file():
    assert sorted(path.stem for path in FOLDER.glob("*.kb")) == sorted(STAGES)


@pytest.mark.parametrize(("path", "part"), list(cases()))
def test_golden(path, part):
    source, _, expected = part.partition("---\n")
    result = after(path.stem, source)
    if os.environ.get("KB_GOLDEN") == "write":
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace(part, f"{source}---\n{result}\n\n"), encoding="utf-8")
    else:
        assert result == expected.strip()
