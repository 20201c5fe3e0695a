"""Errors of the language and its compiler; those that clients know come from `kbtypes`."""

from __future__ import annotations

from collections.abc import Sequence

from kbtypes.errors import BudgetExceeded, InvalidInput, KBError, RuleSyntaxError

__all__ = [
    "BudgetExceeded",
    "Cancelled",
    "EngineFault",
    "ExternalRecursion",
    "InvalidInput",
    "KBError",
    "RecursiveAggregate",
    "RefusedExtremum",
    "RuleSyntaxError",
    "UnboundArgument",
    "UnsafeRule",
]


class UnsafeRule(InvalidInput):
    """A rule whose `variable` is not bound by a positive body atom."""

    def __init__(self, message: str, variable: str, hint: str | None = None) -> None:
        super().__init__(message, {"kind": "unsafe", "variable": variable, "hint": hint})
        self.variable = variable
        self.hint = hint


class RecursiveAggregate(InvalidInput):
    """Rules that recurse through an aggregate; `cycle` lists the predicates of the cycle."""

    def __init__(self, message: str, cycle: Sequence[str]) -> None:
        super().__init__(message, {"kind": "unstratified", "cycle": list(cycle)})
        self.cycle = list(cycle)


class RefusedExtremum(InvalidInput):
    """Rules that keep a best value in a way that cannot be evaluated.

    `kind` is the name of the diagnostic code, `rules` are the indexes of the rules concerned.
    """

    def __init__(self, message: str, kind: str, hint: str, rules: Sequence[int]) -> None:
        super().__init__(message, {"kind": kind, "hint": hint})
        self.kind = kind
        self.hint = hint
        self.rules = tuple(rules)


class UnboundArgument(InvalidInput):
    """A call of an external predicate with too few arguments bound.

    `arguments` are their positions from 1, `variables` the variables in these positions, `modes`
    the ways in which the predicate can be called, `rule` the number of the rule with the call, 0
    for a goal. `text` is the text of the rule.
    """

    def __init__(
        self,
        predicate: str,
        arguments: Sequence[int],
        variables: Sequence[str],
        modes: Sequence[str],
        rule: int = 0,
        text: str | None = None,
    ) -> None:
        numbers = " and ".join(map(str, arguments))
        plural = "s" if len(arguments) > 1 else ""
        where = "" if text is None else f" in the rule {text}"
        named = f" ({', '.join(variables)})" if variables else ""
        super().__init__(
            f"the external predicate {predicate} needs a value for argument{plural} {numbers}"
            f"{named}, which nothing binds{where}",
            {
                "kind": "unbound-argument",
                "predicate": predicate,
                "arguments": list(arguments),
                "variables": list(variables),
                "modes": [["in" if mark == "b" else "out" for mark in mode] for mode in modes],
                "rule": text,
            },
        )
        self.predicate = predicate
        self.arguments = list(arguments)
        self.variables = list(variables)
        self.modes = tuple(modes)
        self.rule = rule

    def within(self, text: str) -> UnboundArgument:
        """Return the same error with the text of its rule."""
        return UnboundArgument(
            self.predicate, self.arguments, self.variables, self.modes, self.rule, text
        )


class ExternalRecursion(InvalidInput):
    """Rules that need all rows of an external predicate, which has rows for given inputs only."""

    def __init__(self, predicates: Sequence[str]) -> None:
        names = " and ".join(predicates)
        super().__init__(
            "rules that recurse through negation cannot depend on the external predicate"
            f" {names}: it has rows for given inputs only",
            {"kind": "external-recursion", "predicates": list(predicates)},
        )
        self.predicates = list(predicates)


class Cancelled(KBError):
    """Work that was stopped from outside, for example at a deadline."""

    code = "BUDGET_EXCEEDED"


class EngineFault(KBError):
    """The engine returned a status that indicates a bug in this program."""

    code = "INTERNAL_ERROR"
