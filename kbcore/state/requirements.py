"""Checks of requirements: what they need to be declared, and what may be stored then.

The answers of a predicate with a requirement follow at its level, or are not given. A fact or a
rule of it below the level would give none, and is refused. A rule that reads it would conclude from
answers that are not given, unless its own answers need at least the same level: it is refused too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from kbcore.errors import Conflict, Forbidden, InvalidInput
from kbcore.state.changes import (
    AssertFacts,
    AssertRows,
    AssertRules,
    Change,
    Declare,
    RestoreFacts,
    RetractRule,
    UseLabels,
)
from kbcore.state.labels import Dimensions, Labels, admits, meets
from kbcore.state.rulebook import ParsedRule
from kbcore.state.tenant import Tenant
from kbplanner.ir.dimensions import Dimension
from kbplanner.ir.requirements import Requirement
from kbplanner.ir.terms import BodyItem, Literal, Rule
from kbplanner.pacing import YieldNow, paced
from kbtypes.results import DIMENSION_ID_SUFFIX, REQUIREMENT_ID_SUFFIX

ITEMS_PER_YIELD = 500
"""Facts or rules checked between two calls of `yield_now`: about a millisecond."""

Required = Mapping[tuple[str, int], Requirement]
"""Requirements by name and arity of the predicate."""


def concerns_requirements(tenant: Tenant | None, changes: Iterable[Change]) -> bool:
    """Return True if changes are to be checked: a tenant has requirements, or gets some."""
    if tenant is not None and tenant.rules.required:
        return True
    return any(
        isinstance(each, Requirement)
        for change in changes
        if isinstance(change, Declare)
        for each in change.declarations
    )


def needed_view(required: Requirement) -> Labels:
    """Return the view of the level that a requirement names."""
    return ((required.dimension, required.level),)


def text_of(required: Requirement) -> str:
    """Return a requirement as messages name it."""
    return f"{required.signature} requires {required.dimension} >= {required.level}"


def check_requirements(
    tenant: Tenant,
    changes: Iterable[Change],
    labels: Labels,
    standing: Callable[[], Iterable[tuple[Labels, Sequence[BodyItem]]]],
    yield_now: YieldNow,
) -> None:
    """Check changes of a tenant, which have these labels where they name no others; `standing`
    returns the goals whose answers are kept current, each with its view.

    Raises Forbidden, which names the dimension, for facts and rules below the level that is
    required, InvalidInput for a rule that reads what it may not and for a level that is not
    declared, and Conflict if such facts or rules are stored, or a standing goal asks them.
    """
    required, dimensions, is_new = _declared(tenant, changes)
    if not required:
        return
    if is_new:
        _check_levels(required, dimensions)
        _check_stored(tenant, required, dimensions, yield_now)
        _check_standing(standing(), required, dimensions, yield_now)
    own = labels
    for change in changes:
        if isinstance(change, UseLabels):
            own = change.labels
            continue
        _check_level(set(_named(change, yield_now)), required, own, dimensions)
        for rule in change.rules if isinstance(change, AssertRules) else ():
            _check_body(rule, required, dimensions)


def _named(change: Change, yield_now: YieldNow) -> Iterator[tuple[str, int]]:
    """Yield the predicates of the facts and rules that a change stores."""
    if isinstance(change, AssertFacts):
        for fact in paced(change.facts, yield_now, ITEMS_PER_YIELD):
            yield fact.predicate, len(fact.args)
    elif isinstance(change, RestoreFacts):
        for restored in paced(change.facts, yield_now, ITEMS_PER_YIELD):
            yield restored.predicate, len(restored.args)
    elif isinstance(change, AssertRows):
        yield from ((rows.predicate, rows.arity) for rows in change.rows)
    elif isinstance(change, AssertRules):
        for rule in paced(change.rules, yield_now, ITEMS_PER_YIELD):
            yield rule.rule.head.predicate, rule.rule.head.arity


def _declared(tenant: Tenant, changes: Iterable[Change]) -> tuple[Required, Dimensions, bool]:
    """Return the requirements and dimensions after changes, and True if these change any."""
    required = dict(tenant.rules.required)
    dimensions = dict(tenant.rules.dimensions())
    is_new = False
    for change in changes:
        if isinstance(change, Declare):
            for each in change.declarations:
                if isinstance(each, Requirement):
                    required[each.predicate, each.arity], is_new = each, True
                elif isinstance(each, Dimension):
                    dimensions[each.name], is_new = each, True
        elif isinstance(change, RetractRule) and change.id.endswith(REQUIREMENT_ID_SUFFIX):
            name, _, arity = change.id[1 : -len(REQUIREMENT_ID_SUFFIX)].rpartition("/")
            required.pop((name, int(arity) if arity.isdigit() else -1), None)
            is_new = True
        elif isinstance(change, RetractRule) and change.id.endswith(DIMENSION_ID_SUFFIX):
            dimensions.pop(change.id[1 : -len(DIMENSION_ID_SUFFIX)], None)
            is_new = True
    return required, dimensions, is_new


def _check_levels(required: Required, dimensions: Dimensions) -> None:
    for each in required.values():
        dimension = dimensions.get(each.dimension)
        if dimension is None or each.level not in dimension.values or not dimension.is_ordered:
            raise InvalidInput(f"{text_of(each)}, and no @levels {each.dimension} have it")


def _check_standing(
    standing: Iterable[tuple[Labels, Sequence[BodyItem]]],
    required: Required,
    dimensions: Dimensions,
    yield_now: YieldNow,
) -> None:
    for view, body in paced(standing, yield_now, ITEMS_PER_YIELD):
        for item in body:
            if isinstance(item, Literal):
                each = required.get((item.atom.predicate, item.atom.arity))
                if each is not None and not meets(each, view, dimensions):
                    raise Conflict(f"{text_of(each)}: a standing goal asks it; end the goal first")


def _check_stored(
    tenant: Tenant, required: Required, dimensions: Dimensions, yield_now: YieldNow
) -> None:
    for _, stored in tenant.stored():
        each = required.get((stored.schema.predicate, stored.schema.arity))
        if each is None or not stored.has_labels:
            continue
        several = (labels for stack in stored.stacked.values() for labels in stack)
        for labels in (*stored.labels.used(), *set(several)):
            if not admits(needed_view(each), labels, dimensions):
                raise Conflict(f"{text_of(each)}: facts below are stored; retract them first")
    for rule in paced(tenant.rules.all(), yield_now, ITEMS_PER_YIELD):
        head = rule.rule.head
        own = required.get((head.predicate, head.arity))
        for labels in tenant.rules.labels_of(rule):
            if own is not None and not admits(needed_view(own), labels, dimensions):
                raise Conflict(f"{text_of(own)}: rules below are stored; retract them first")
        _check_body(rule, required, dimensions)


def _check_level(
    names: Iterable[tuple[str, int]], required: Required, labels: Labels, dimensions: Dimensions
) -> None:
    for name in names:
        each = required.get(name)
        if each is not None and not admits(needed_view(each), labels, dimensions):
            raise Forbidden(
                f"{text_of(each)}: its facts and rules are not stored below",
                {"dimension": each.dimension},
            )


def _check_body(stored: ParsedRule, required: Required, dimensions: Dimensions) -> None:
    rule: Rule = stored.rule
    own = required.get((rule.head.predicate, rule.head.arity))
    view = () if own is None else needed_view(own)
    for item in rule.body:
        if not isinstance(item, Literal):
            continue
        each = required.get((item.atom.predicate, item.atom.arity))
        if each is not None and not meets(each, view, dimensions):
            raise InvalidInput(
                f"{text_of(each)}, so a rule reads it only if its own predicate requires that too:"
                f" {stored.text}"
            )
