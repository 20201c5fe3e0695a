"""Results of the search for why a goal does not hold, and their text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kbcore.reason.predicates import MissingPredicate
from kbcore.state.rulebook import ParsedRule
from kbplanner.ir.terms import Atom, BodyItem
from kbplanner.syntax.printer import print_atom, print_item, print_term

TRUE, FALSE, UNDEFINED = "true", "false", "undefined"
"""Truth values of a goal."""


@dataclass(frozen=True, slots=True)
class WhyNotCandidate:
    """An instance of a rule that nearly concludes the goal.

    `rule` is None if the goal itself is examined: a goal of several literals, a negated one, or one
    with too little confidence. `bindings` are the values of named variables. The `satisfied`
    premises hold, and `missing` is the next one and does not hold under these bindings; variables
    in it stand for any value. If a negated premise is missing, `blocked_by` is an atom that holds
    and makes it false. With `undefined` the missing premise is undefined by recursion through
    negation, else it is false. `because` is the nearest candidate for the missing premise, if the
    request asked for more than one level.
    """

    rule: ParsedRule | None
    scope: str | None
    bindings: dict[str, str]
    satisfied: tuple[BodyItem, ...]
    missing: BodyItem
    blocked_by: Atom | None = None
    undefined: bool = False
    because: WhyNotCandidate | None = None


@dataclass(frozen=True, slots=True)
class WhyNot:
    """Explanation of a goal without answers: the rule instances that got farthest, best first.

    A goal that holds has no candidates. `truth` is "true", "false" or "undefined". `denied_by` is
    the explicit negative of the goal, if it holds. `near_facts` are stored facts that differ from
    the goal in one constant. `unknown_predicates` are predicates without facts and rules, of the
    goal and of missing premises. `truncated` says that the budget ended the search, or that the
    goal has too many rules: other candidates may get farther.
    """

    goal: str
    truth: str = FALSE
    candidates: tuple[WhyNotCandidate, ...] = ()
    denied_by: Atom | None = None
    near_facts: tuple[Atom, ...] = ()
    unknown_predicates: tuple[MissingPredicate, ...] = ()
    truncated: bool = False

    @property
    def holds(self) -> bool:
        """True if the goal has an answer."""
        return self.truth == TRUE

    @property
    def text(self) -> str:
        """The explanation in words."""
        return "\n".join(_lines(self))


def _lines(result: WhyNot) -> Iterator[str]:
    """Yield the lines of an explanation in words."""
    if result.holds:
        yield f"{result.goal} holds."
        return
    verdict = "does not hold"
    if result.truth == UNDEFINED:
        verdict = "is undefined: it depends on its own negation"
    yield f"{result.goal} {verdict}."
    if result.denied_by is not None:
        yield f"Its explicit negative holds: {print_atom(result.denied_by)}"
    for unknown in result.unknown_predicates:
        yield f"No fact or rule for {unknown}"
    if not result.candidates:
        yield (
            "The search was stopped by its limits before a rule was examined."
            if result.truncated
            else "No rule concludes it, and no stored fact matches."
        )
    for number, candidate in enumerate(result.candidates, 1):
        yield from _candidate_lines(candidate, f"{number}. ", "   ")
    if result.near_facts:
        yield "Stored facts that differ in one argument:"
        yield from (f"   {print_atom(fact)}" for fact in result.near_facts)
    if result.truncated and result.candidates:
        yield "The search was stopped by its limits: other rule instances may get farther."


def _candidate_lines(candidate: WhyNotCandidate, first: str, indent: str) -> Iterator[str]:
    scope = "" if candidate.scope is None else f" [scope {print_term(candidate.scope)}]"
    if candidate.rule is None:
        yield f"{first}The goal{scope}"
    else:
        yield f"{first}Rule {candidate.rule.text}{scope}"
    for item in candidate.satisfied:
        yield f"{indent}holds: {print_item(item)}"
    missing = print_item(candidate.missing)
    if candidate.blocked_by is not None:
        yield f"{indent}missing: {missing}, because {print_atom(candidate.blocked_by)} holds"
    elif candidate.undefined:
        yield f"{indent}missing: {missing}, which is undefined"
    else:
        values = candidate.bindings.items()
        named = [f"{name} is {value}" for name, value in values if not name.startswith("?")]
        yield f"{indent}missing: {missing}{', where ' + named[0] if named else ''}"
    if candidate.because is not None:
        yield from _candidate_lines(candidate.because, f"{indent}because: ", indent + "   ")
