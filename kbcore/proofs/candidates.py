"""Results of the search for why a goal does not hold, and their text."""

from __future__ import annotations

from dataclasses import dataclass

from kbcore.reason.predicates import MissingPredicate
from kbcore.state.rulebook import ParsedRule
from kbplanner.ir.terms import Atom, BodyItem
from kbplanner.syntax.printer import print_atom, print_item, print_term
from kbtypes.proofs import why_not_lines

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
    goal has too many rules: other candidates may get farther. `falls_short` says at which level the
    goal follows where its predicate requires a higher one.
    """

    goal: str
    truth: str = FALSE
    candidates: tuple[WhyNotCandidate, ...] = ()
    denied_by: Atom | None = None
    near_facts: tuple[Atom, ...] = ()
    unknown_predicates: tuple[MissingPredicate, ...] = ()
    truncated: bool = False
    falls_short: str | None = None

    @property
    def holds(self) -> bool:
        """True if the goal has an answer."""
        return self.truth == TRUE

    @property
    def text(self) -> str:
        """The explanation in words."""
        return "\n".join(why_not_lines(self, _written))


def _written(part: BodyItem | Atom | str) -> str:
    """Return a premise, an atom or the name of a scope in the rule language."""
    if isinstance(part, str):
        return print_term(part)
    return print_atom(part) if isinstance(part, Atom) else print_item(part)
