"""Conditions: functions that are tests, as items of a body.

`before(?a, ?b)` in a body is the comparison `before(?a, ?b) == true` as a term, and `not before(?a,
?b)` is `before(?a, ?b) == false`. So a test whose arguments are not instants has no value and fails
in both forms, and all that works on comparisons works on conditions.
"""

from __future__ import annotations

from kbplanner.ir.operators import FALSE, FUNCTION, TRUE
from kbplanner.ir.terms import Apply, BodyItem, Comparison


def condition(call: Apply, negated: bool) -> Comparison:
    """Return the body item of a test, possibly under `not`."""
    return Comparison("==", call, FALSE if negated else TRUE)


def condition_of(item: BodyItem) -> tuple[Apply, bool] | None:
    """Return the call of a test, and whether it is under `not`; None if the item is no condition."""
    if not isinstance(item, Comparison) or item.op != "==" or item.negated:
        return None
    call = item.left
    if not isinstance(call, Apply) or call.function not in FUNCTION:
        return None
    is_condition = FUNCTION[call.function].test and item.right in (TRUE, FALSE)
    return (call, item.right == FALSE) if is_condition else None
