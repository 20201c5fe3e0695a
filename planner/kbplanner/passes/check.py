"""Checks that refuse rules without a meaning: unsafe rules, reserved names, facts with variables.

Safety is range restriction: every variable of the head, of a negated atom and of a comparison has
to be bound by a positive body atom, or be computed by `=` from such variables. The order of the
body does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from kbplanner.errors import InvalidInput, UnsafeRule
from kbplanner.ir.conditions import condition_of, generator_of
from kbplanner.ir.inputs import Input
from kbplanner.ir.limits import DEFAULT_LIMITS, Limits
from kbplanner.ir.operators import STRING_TESTS
from kbplanner.ir.terms import (
    Aggregate,
    Apply,
    Atom,
    Comparison,
    Extremum,
    HeadTerm,
    Literal,
    Rule,
    Variable,
    applications,
    expression_variables,
)
from kbplanner.ir.values.pattern import compile_pattern
from kbplanner.ir.values.texts import natural
from kbplanner.syntax.diagnostics import Diagnostic, RuleWarning, diagnostic, syntax_error
from kbplanner.syntax.printer import print_row
from kbplanner.syntax.statements import FactStatement, RuleStatement, Statement, TextSpan

UNDER_NOT_HINT = 'write _ for "any"'
"""Hint for a variable that occurs only under `not`."""

MAX_SHOWN_CHARS = 200
"""Maximum length of a fact or an argument in an error."""

_UPPER_WORD = re.compile(r"[A-Z][A-Za-z0-9_]*")


def check_fact(atom: Atom, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse an atom that cannot be a fact: InvalidInput names what is wrong."""
    _check_new_name(atom, limits)
    if problem := limits.args_problem(len(atom.args)):
        raise InvalidInput.at("args", problem)
    for at, arg in enumerate(atom.args):
        if not isinstance(arg, str):
            raise InvalidInput.at(f"args[{at}]", f"a fact has no variables, found {_shown(arg)}")
        if problem := limits.constant_problem(arg):
            raise InvalidInput.at(f"args[{at}]", problem)


def type_mismatch(declared: Input, args: Sequence[str], at: int) -> str:
    """Say that the argument of a fact at an index is not of the type that an input declares."""
    value, fact = shortened(args[at]), shortened(print_row(declared.predicate, args, False))
    return (
        f"the argument {declared.args[at]} of {declared.signature} is of the type"
        f' {declared.types[at]}, found "{value}" in {fact}'
    )


def shortened(text: str) -> str:
    """Return at most MAX_SHOWN_CHARS characters of a fact or an argument, for an error."""
    return text if len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS] + "..."


def check_rule(rule: Rule, limits: Limits = DEFAULT_LIMITS) -> list[RuleWarning]:
    """Refuse a rule that cannot be stored; return warnings about one that is accepted but looks
    wrong.

    Raises UnsafeRule for an unbound variable, InvalidInput for everything else.
    """
    _check_new_name(rule.head, limits)
    check_evaluable(rule, limits)
    return variable_lookalikes(rule)


def check_evaluable(rule: Rule, limits: Limits = DEFAULT_LIMITS) -> None:
    """Refuse a rule that cannot be evaluated; its head may have any name. Raises as `check_rule`
    does.
    """
    if not rule.body:
        raise InvalidInput("a rule needs a body: assert the head as a fact instead")
    if problem := limits.body_problem(len(rule.body)):
        raise InvalidInput.at("body", problem)
    if rule.confidence is not None and not 0.0 <= rule.confidence <= 1.0:
        raise InvalidInput.at("confidence", "must be a number from 0 to 1")
    _check_atoms(rule, limits)
    _check_safety(rule)
    _check_builtins(rule)


def rule_errors(rule: Rule, limits: Limits = DEFAULT_LIMITS) -> list[InvalidInput]:
    """Return every reason to refuse a rule that the parser accepts: unsafe variables and others."""
    errors: list[InvalidInput] = []
    checks: tuple[Callable[[], None], ...] = (
        partial(_check_new_name, rule.head, limits),
        partial(_check_atoms, rule, limits),
        partial(_check_builtins, rule),
    )
    for check in checks:
        try:
            check()
        except InvalidInput as error:
            errors.append(error)
    return [*errors, *unsafe_variables(rule)]


def variable_lookalikes(rule: Rule) -> list[RuleWarning]:
    """Warn about a rule without variables that repeats an upper-case word, as `p(X) :- q(X)`."""
    head = [arg for arg in rule.head.args if isinstance(arg, str) and _UPPER_WORD.fullmatch(arg)]
    body = set(_body_constants(rule))
    if any(True for _ in rule.head.variables()) or any(
        True for item in rule.body for _ in item.variables()
    ):
        return []
    return [
        RuleWarning("looks-like-variable", f'"{word}" is a constant here', f"did you mean ?{word}?")
        for word in dict.fromkeys(head)
        if word in body
    ]


def check_statements(
    statements: Iterable[Statement], limits: Limits = DEFAULT_LIMITS
) -> list[RuleWarning]:
    """Check all facts and rules of a text; warnings carry their position.

    Raises RuleSyntaxError with the errors of all statements, each at its line and column.
    """
    warnings: list[RuleWarning] = []
    errors: list[Diagnostic] = []
    for statement in statements:
        try:
            if isinstance(statement, RuleStatement):
                for warning in check_rule(statement.rule, limits):
                    warnings.append(
                        RuleWarning(warning.code, warning.message, warning.hint, statement.span)
                    )
            elif isinstance(statement, FactStatement):
                check_fact(statement.atom, limits)
        except UnsafeRule as error:
            if isinstance(statement, RuleStatement):
                errors.append(
                    _placed(
                        statement,
                        statement.where(error.variable),
                        "unsafe",
                        error.message,
                        error.hint,
                    )
                )
        except InvalidInput as error:
            errors.append(_placed(statement, statement.span, "invalid", error.message, None))
    if errors:
        raise syntax_error(errors)
    return warnings


# ---- goals ----


def counterpart(literal: Literal) -> Atom:
    """Return the atom of a negated goal with the other sign, whose rows are its answers.

    Raises UnsafeRule for `not ~p` with variables: it holds for every value except those asserted or
    concluded with `~`, so that its answers cannot be listed.
    """
    atom = literal.atom
    variable = next(iter(atom.variables()), None)
    if not atom.positive and variable is not None:
        name = str(variable)
        message = f'the variable {name} occurs only under "not"'
        raise UnsafeRule(
            message,
            name,
            "add a literal that gives it values, or ask for the atom with ~ and without not",
        )
    return Atom(atom.predicate, atom.args, not atom.positive)


# ---- safety ----


def bound_variables(rule: Rule) -> set[str]:
    """Return the names of bound variables: in positive body atoms, or computed by `=`."""
    bound: set[str] = set()
    waiting: list[tuple[str, frozenset[str]]] = []
    for item in rule.body:
        if isinstance(item, Literal):
            if not item.negated:
                bound.update(_names(item.variables()))
        elif (call := generator_of(item)) is not None:
            if isinstance(item.left, Variable) and not (item.negated or item.left.anonymous):
                waiting.append((item.left.name, frozenset(_names(expression_variables(call)))))
        elif item.op == "=" and not item.negated:
            for target, source in ((item.left, item.right), (item.right, item.left)):
                if isinstance(target, Variable) and not target.anonymous:
                    waiting.append((target.name, frozenset(_names(expression_variables(source)))))
    # Each round binds a variable or ends the loop, so there are at most as many rounds as
    # equations.
    while True:
        computed = {name for name, needed in waiting if name not in bound and needed <= bound}
        if not computed:
            return bound
        bound |= computed


def _check_safety(rule: Rule) -> None:
    for error in unsafe_variables(rule):
        raise error


def unsafe_variables(rule: Rule) -> Iterator[UnsafeRule]:
    """Yield an error for each unsafe occurrence of a variable, those of the head first."""
    bound = bound_variables(rule)
    hint = _lookalike_hint(rule)
    for item in rule.body:
        # First: the variable of a generator without its inputs is unbound in consequence.
        if (call := generator_of(item)) is not None:
            missing = list(_unsafe_in_generator(call, bound, hint))
            if missing:
                yield from missing
                return
    for arg in rule.head.args:
        variable = arg.variable if isinstance(arg, (Aggregate, Extremum)) else arg
        if not isinstance(variable, Variable):
            continue
        if variable.anonymous:
            message = 'a rule head cannot say "any value": the head has "_"'
            yield UnsafeRule(message, "_", "name the variable and use it in the body")
        elif variable.name not in bound:
            message = f"the variable {variable} of the head is not bound by a positive atom"
            yield UnsafeRule(
                message, str(variable), hint or f"use {variable} in a positive body atom"
            )
    for item in rule.body:
        if isinstance(item, Literal):
            if item.negated:
                yield from _unsafe_in_negated(item, bound, hint)
        else:
            yield from _unsafe_in_comparison(item, bound, hint)


def _unsafe_in_negated(item: Literal, bound: set[str], hint: str | None) -> Iterator[UnsafeRule]:
    for name in _names(item.variables()):
        if name not in bound:
            message = f'the variable ?{name} occurs only under "not"'
            yield UnsafeRule(message, "?" + name, hint or UNDER_NOT_HINT)


def _unsafe_in_generator(call: Apply, bound: set[str], hint: str | None) -> Iterator[UnsafeRule]:
    for name in dict.fromkeys(_names(expression_variables(call))):
        if name not in bound:
            message = (
                f"the variable ?{name} in {call.function}(...) is not bound by a positive atom"
            )
            own = f"{call.function} gives values to its variable only; use ?{name} in a positive body atom"
            yield UnsafeRule(message, "?" + name, hint or own)


def _unsafe_in_comparison(
    item: Comparison, bound: set[str], hint: str | None
) -> Iterator[UnsafeRule]:
    for variable in item.variables():
        if variable.anonymous:
            yield UnsafeRule(
                '"_" has no value to compare or compute with', "_", "name the variable"
            )
        elif variable.name not in bound:
            test = condition_of(item)
            call = test[0] if test else generator_of(item)
            name = call.function if call else item.op if item.op in STRING_TESTS else None
            what = f"in {name}(...)" if name else "of a comparison"
            message = f"the variable {variable} {what} is not bound by a positive atom"
            yield UnsafeRule(
                message, str(variable), hint or f"use {variable} in a positive body atom"
            )


def _check_builtins(rule: Rule) -> None:
    """Refuse an invalid pattern or group, and `*` in an aggregate other than `count`."""
    for item in rule.body:
        if not isinstance(item, Comparison):
            continue
        if item.op == "matches":
            if not isinstance(item.right, str):
                raise InvalidInput("the pattern of matches(...) has to be a constant")
            compile_pattern(item.right)
        for side in (item.left, item.right):
            for call in applications(side):
                if call.function == "capture":
                    _check_capture(call)
    for arg in rule.head.args:
        if isinstance(arg, Aggregate) and arg.variable is None and arg.function != "count":
            raise InvalidInput(f"{arg.function}(*) is not offered: name the variable")


def _check_capture(call: Apply) -> None:
    """Refuse a pattern or a group of `capture` that is not a constant, or not valid."""
    _, pattern, group = call.args
    if not isinstance(pattern, str):
        raise InvalidInput("the pattern of capture(...) has to be a constant")
    number = natural(group) if isinstance(group, str) else None
    if number is None:
        raise InvalidInput("the group of capture(...) has to be a number: 0, 1, 2, ...")
    compile_pattern(pattern, number)


def _names(variables: Iterator[Variable]) -> Iterator[str]:
    return (variable.name for variable in variables if not variable.anonymous)


# ---- words that look like variables ----


def _lookalike_hint(rule: Rule) -> str | None:
    """Return a hint for an unsafe rule with an upper-case word that may have been meant as a
    variable.
    """
    words = [arg for arg in rule.head.args if isinstance(arg, str)]
    words += _body_constants(rule)
    lookalikes = [word for word in dict.fromkeys(words) if _UPPER_WORD.fullmatch(word)]
    if not lookalikes:
        return None
    return f'"{lookalikes[0]}" is a constant here: did you mean ?{lookalikes[0]}?'


def _body_constants(rule: Rule) -> Iterator[str]:
    for item in rule.body:
        sides: tuple[object, ...] = (
            item.atom.args if isinstance(item, Literal) else (item.left, item.right)
        )
        yield from (side for side in sides if isinstance(side, str))


# ---- names and positions ----


def _check_atoms(rule: Rule, limits: Limits) -> None:
    _check_name(rule.head, limits)
    for item in rule.body:
        if isinstance(item, Literal):
            _check_body_atom(item.atom, limits)


def _check_name(atom: Atom, limits: Limits) -> None:
    if problem := limits.predicate_problem(atom.predicate):
        raise InvalidInput.at("predicate", problem)
    if problem := limits.args_problem(len(atom.args)):
        raise InvalidInput.at("args", problem)


def _check_new_name(atom: Atom, limits: Limits) -> None:
    if problem := limits.name_problem(atom.predicate):
        raise InvalidInput.at("predicate", problem)


def _check_body_atom(atom: Atom, limits: Limits) -> None:
    if problem := limits.predicate_problem(atom.predicate):
        raise InvalidInput.at("predicate", problem)
    if problem := limits.args_problem(len(atom.args)):
        raise InvalidInput.at("args", problem)
    if any(isinstance(arg, (Aggregate, Extremum)) for arg in atom.args):
        raise InvalidInput("an aggregate is only allowed in a rule head")


def _placed(
    statement: Statement, span: TextSpan, code: str, message: str, hint: str | None
) -> Diagnostic:
    source, first = "", 1
    if isinstance(statement, RuleStatement):
        source = statement.text.split("\n")[span.line - statement.span.line].rstrip()
        first = statement.span.column if span.line == statement.span.line else 1
    return diagnostic(span, source, code, message, hint, first)


def _shown(arg: HeadTerm) -> str:
    return f'"{arg}"' if isinstance(arg, Variable) else "an aggregate"
