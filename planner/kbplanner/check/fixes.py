"""Fixes: replacements of the text of a finding that editors can offer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kbplanner.passes.check import UNDER_NOT_HINT
from kbplanner.syntax.arity import nearest_name
from kbplanner.syntax.expected import CORRECT_OPERATORS
from kbplanner.syntax.printer import print_constant
from kbtypes.results import Finding


@dataclass(frozen=True, slots=True)
class Fix:
    """A replacement of the text that a finding marks; `inserts` if the marked text stays behind
    it.
    """

    title: str
    text: str
    inserts: bool = False


def fixes_of(finding: Finding, marked: str, predicates: Iterable[str] = ()) -> list[Fix]:
    """Return the fixes of a finding, the most likely first.

    `marked` is the text that it marks, `predicates` are the names of known predicates.
    """
    name = finding.name
    replacements: list[str] = []
    if name == "singleton" and marked.startswith("?"):
        replacements = ["_", f"?_{marked[1:]}"]
    elif name == "unsafe" and finding.hint == UNDER_NOT_HINT:
        replacements = ["_"]
    elif name == "wrong-arrow":
        replacements = [":-"]
    elif name == "wrong-operator":
        replacements = [CORRECT_OPERATORS[marked]] if marked in CORRECT_OPERATORS else []
    elif name == "wrong-conjunction":
        replacements = [","]
    elif name == "lone-question-mark":
        replacements = ["_"]
    elif name == "bad-word":
        replacements = [f'"{marked}"']
    elif name == "smart-quote":
        replacements = ["'" if marked in "‘’‚‛" else '"']
    elif name == "unknown-predicate":
        known = [each for each in predicates if each != marked]
        nearest = nearest_name(marked, known)
        replacements = [] if nearest is None else [print_constant(nearest)]
    elif name == "missing-period":
        return [Fix('Add "."', ".", inserts=True)]
    return [Fix(f"Replace {marked} by {each}", each) for each in replacements]
