"""The root of all errors, and the errors of the language and its compiler.

An error carries data, not prose: `code` (one word of the error table), `message` (one sentence for
a person) and `details` (a JSON object or None). Only the HTTP package knows status codes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar


class KBError(Exception):
    """Base class of all errors that kbcore raises.

    `code` names the kind for programs, `message` describes it for a person, `details` holds data
    for programs.
    """

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] | None = dict(details) if details else None


class InvalidInput(KBError):
    """A request or text that cannot be accepted; `details` names the field where one is at
    fault.
    """

    code = "VALIDATION_ERROR"

    @classmethod
    def at(cls, field: str, problem: str) -> InvalidInput:
        """Name one offending field: message `field: problem`, details `{"fields": {field:
        [problem]}}`.
        """
        return cls(f"{field}: {problem}", {"fields": {field: [problem]}})


class RuleSyntaxError(InvalidInput):
    """A text in the rule language with one or more errors.

    `errors` is a list of `{line, column, endColumn, code, message, hint, source}`; lines and
    columns count from 1, columns in code points.
    """

    def __init__(self, message: str, errors: Sequence[Mapping[str, Any]]) -> None:
        super().__init__(message, {"errors": [dict(error) for error in errors]})
        self.errors = [dict(error) for error in errors]

    def within(self, path: str) -> RuleSyntaxError:
        """Return the same error, naming the field that holds the text."""
        placed = RuleSyntaxError(f"{path}: {self.message}", self.errors)
        placed.details = {"errors": placed.errors, "fields": {path: [self.message]}}
        return placed


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


class BudgetExceeded(KBError):
    """Work that exceeded its budget: `limit` names the budget, `value` is its size, `rule` the rule
    at work, if any.
    """

    code = "BUDGET_EXCEEDED"

    def __init__(self, message: str, limit: str, value: int, rule: str | None = None) -> None:
        super().__init__(message, {"limit": limit, "value": value, "rule": rule})

    @classmethod
    def of_run(cls, limit: str, value: int, rule: str | None = None) -> BudgetExceeded:
        """Return the error of a run or a model that reached a limit."""
        return cls(f"the evaluation exceeded its budget {limit} of {value}", limit, value, rule)


class Cancelled(KBError):
    """Work that was stopped from outside, for example at a deadline."""

    code = "BUDGET_EXCEEDED"


class EngineFault(KBError):
    """The engine returned a status that indicates a bug in this program."""

    code = "INTERNAL_ERROR"
