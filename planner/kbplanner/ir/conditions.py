"""Conditions of a body that are written like atoms: tests, and generators, which give values.

`before(?a, ?b)` in a body is the comparison `before(?a, ?b) == true` as a term, and `not before(?a,
?b)` is `before(?a, ?b) == false`. So a test whose arguments are not instants has no value and fails
in both forms, and all that works on comparisons works on tests.

`range(1, 5, ?x)`, `member(?x, [a, b])` and `split(?text, ",", ?x)` are comparisons with the
operator `in`: the left side is one of the values of the right side. Where nothing else binds the
left side the engine yields the values; otherwise it tests the left side with the function that
MEMBERSHIP names, without yielding any. csrc/text/generate.c yields and tests the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from kbplanner.ir.operators import FALSE, FUNCTION, TRUE
from kbplanner.ir.terms import Apply, BodyItem, Comparison, Expr
from kbplanner.ir.values.numbers import whole

IN = "in"
"""The operator of generators as terms."""


def condition(call: Apply, negated: bool) -> Comparison:
    """Return the body item of a test, possibly under `not`."""
    return Comparison("==", call, FALSE if negated else TRUE)


def condition_of(item: BodyItem) -> tuple[Apply, bool] | None:
    """Return the call of a test, and whether it is under `not`; None if the item is no
    condition.
    """
    if not isinstance(item, Comparison) or item.op != "==" or item.negated:
        return None
    call = item.left
    if not isinstance(call, Apply) or call.function not in FUNCTION:
        return None
    is_condition = FUNCTION[call.function].test and item.right in (TRUE, FALSE)
    return (call, item.right == FALSE) if is_condition else None


def generator(call: Apply, element: Expr, negated: bool) -> Comparison:
    """Return the body item of a generator with the element it gives."""
    return Comparison(IN, element, call, negated)


def generator_of(item: BodyItem) -> Apply | None:
    """Return the call of a generator; None if the item is none."""
    if isinstance(item, Comparison) and item.op == IN and isinstance(item.right, Apply):
        return item.right
    return None


GENERATED_VALUES = 100.0
"""Assumed number of values of a generator whose arguments are not constants."""


def generated_values(function: str, args: Sequence[Expr]) -> float:
    """Estimate the number of values of a generator."""
    if function == "member":
        return float(len(args))
    if function == "range" and all(isinstance(arg, str) for arg in args):
        first, end = (whole(str(arg)) for arg in args)
        if first is not None and end is not None:
            return float(max(end - first, 0))
    return GENERATED_VALUES


def generate(function: str, args: Sequence[str]) -> Iterable[str] | None:
    """Return the values of a generator, perhaps some of them twice; None if it has no meaning for
    these arguments.
    """
    return _VALUES[function](args)


def _member(args: Sequence[str]) -> Iterable[str]:
    return args


def _bounds(args: Sequence[str]) -> tuple[int, int] | None:
    first, end = whole(args[0]), whole(args[1])
    return (first, end) if first is not None and end is not None else None


def _range(args: Sequence[str]) -> Iterable[str] | None:
    """Return the whole numbers from the first one to before the second."""
    bounds = _bounds(args)
    return None if bounds is None else map(str, range(*bounds))


def _split(args: Sequence[str]) -> Iterable[str] | None:
    text, separator = args
    return text.split(separator) if separator else None


def _is_member(args: Sequence[str]) -> str:
    return TRUE if args[0] in args[1:] else FALSE


def _is_in_range(args: Sequence[str]) -> str | None:
    bounds, value = _bounds(args[1:]), whole(args[0])
    if bounds is None:
        return None
    is_plain = value is not None and str(value) == args[0]
    return TRUE if is_plain and bounds[0] <= int(args[0]) < bounds[1] else FALSE


def _is_part(args: Sequence[str]) -> str | None:
    part, *whole = args
    parts = _split(whole)
    return None if parts is None else TRUE if part in parts else FALSE


_VALUES: Mapping[str, Callable[[Sequence[str]], Iterable[str] | None]] = {
    "member": _member,
    "range": _range,
    "split": _split,
}

MEMBERSHIP_FUNCTIONS: Mapping[str, Callable[[Sequence[str]], str | None]] = {
    "is_member": _is_member,
    "is_in_range": _is_in_range,
    "is_part": _is_part,
}
"""The body of each test of an element, which takes the element before the arguments."""
