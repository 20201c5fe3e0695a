"""Lines of the difference between two versions of a rule set, and of what a deployment would make
true and false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from kbplanner.syntax.diagnostics import counted, printable

NOTHING_IMPORTED: Mapping[str, str] = {}


def difference_lines(
    outcome: Mapping[str, Any], imported: Mapping[str, str] = NOTHING_IMPORTED
) -> Iterator[str]:
    """Yield the lines of a difference between two versions of a rule set.

    `imported` are statements with the names of the rule sets that they come from: those that were
    added are counted for each rule set, not listed.
    """
    facts = outcome["facts"]
    counts = Counter[str]()
    for part in (outcome, facts):
        for text in part["removed"]:
            yield f"- {printable(text)}"
        for pair in part["changed"]:
            yield f"~ {printable(pair['before'])}"
            yield f"  {printable(pair['after'])}"
        for text in part["added"]:
            if text in imported:
                counts[imported[text]] += 1
            else:
                yield f"+ {printable(text)}"
    for name, count in counts.items():
        yield f"+ import {printable(name)}: {counted(count, 'statement')} (--verbose lists them)"
    for kind in ("added", "changed", "removed"):
        hidden = facts[f"{kind}Count"] - len(facts[kind])
        if hidden:
            yield f"... and {counted(hidden, 'more fact')} {kind}"


def impact_lines(impact: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the impact of a deployment: predicates, then goals with their answers."""
    yield f"impact: {_counts(impact['counts'])}"
    for each in impact["byPredicate"]:
        sign = "not " if each["negated"] else ""
        scope = f" [scope={printable(each['scope'])}]" if each["scope"] else ""
        yield f"  {sign}{printable(each['predicate'])}/{each['arity']}{scope}: {_counts(each)}"
    for goal in impact["goals"]:
        true, false = goal["becomesTrueCount"], goal["becomesFalseCount"]
        yield f"  ?- {printable(goal['goal'])}: +{true} -{false}"
        for sign, answers, count in (
            ("+", goal["becomesTrue"], true),
            ("-", goal["becomesFalse"], false),
        ):
            for answer in answers:
                yield f"    {sign} {_answer(answer)}"
            if count > len(answers):
                yield f"    {sign} ... and {count - len(answers)} more"
    if impact["truncated"]:
        yield "  the comparison reached a limit and is not complete"


def _counts(counts: Mapping[str, Any]) -> str:
    true, false, undefined = (counts[f"becomes{each}"] for each in ("True", "False", "Undefined"))
    more = f", {undefined} undefined" if undefined else ""
    return f"{true} would become true, {false} false{more}"


def _answer(answer: Mapping[str, str]) -> str:
    """Return an answer as text; a goal without variables has one without values."""
    texts = (f"{name} = {printable(value)}" for name, value in answer.items())
    return ", ".join(texts) or "true"
