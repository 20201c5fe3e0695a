"""Labels of stored items, and views: which items a read admits.

A tenant declares dimensions: levels such as `@levels trust: web < user.`, and groups such as
`@groups team: hr, eng.` An item has at most one level and some groups of each dimension. Without a
level it has the highest one, and without groups it belongs to everybody. A view has a level of some
dimensions, which admits that level and those above, and groups of others, which admit the items of
any of them and of everybody. What a view says nothing about, it does not restrict.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kbcore.errors import Forbidden, InvalidInput
from kbplanner.ir.dimensions import Dimension, WrittenLabel
from kbplanner.ir.requirements import Requirement

Values = str | tuple[str, ...]
"""A level, or sorted groups."""

Labels = tuple[tuple[str, Values], ...]
"""The labels of an item, or what a view restricts: dimensions in order, each with its values."""

NO_LABELS: Labels = ()
"""The labels of most items. As a view it admits everything."""

ALL_OF = "*"
"""Among the groups of a view: it admits only what all of the others may see."""

Dimensions = Mapping[str, Dimension]

MAX_LABEL_SETS = 4096
"""Maximum number of different labels in a tenant."""


def labels_from(value: object, dimensions: Dimensions, field: str) -> Labels:
    """Return the labels that a request gives an item, such as `{"trust": "web"}`.

    Raises InvalidInput, which names the `field`.
    """
    labels = _read(value, dimensions, field)
    for name, values in labels:
        if not values:
            raise InvalidInput.at(field, f"{name} has at least one group")
    return labels


def view_from(value: object, dimensions: Dimensions, field: str) -> Labels:
    """Return the view that a request asks for, such as `{"trust": "user", "team": ["eng"]}`.

    Without groups of a dimension it admits only what belongs to everybody. Raises InvalidInput,
    which names the `field`.
    """
    return _read(value, dimensions, field)


def _read(value: object, dimensions: Dimensions, field: str) -> Labels:
    if not isinstance(value, Mapping):
        raise InvalidInput.at(field, 'is an object, such as {"trust": "user"}')
    read: dict[str, Values] = {}
    for name, named in value.items():
        dimension = dimensions.get(name) if isinstance(name, str) else None
        if dimension is None:
            declared = ", ".join(sorted(dimensions)) or "none"
            problem = f"no levels or groups have this name; those that are declared: {declared}"
            raise InvalidInput.at(field, problem)
        if dimension.is_ordered:
            if named not in dimension.values:
                levels = " < ".join(dimension.values)
                raise InvalidInput.at(field, f"{name} is one of {levels}")
            read[dimension.name] = str(named)
            continue
        groups = (named,) if isinstance(named, str) else named
        if not isinstance(groups, Sequence) or any(each not in dimension.values for each in groups):
            listed = ", ".join(dimension.values)
            raise InvalidInput.at(field, f"{name} is a list of groups: {listed}")
        read[dimension.name] = tuple(sorted(set(groups)))
    return tuple(sorted(read.items()))


def to_json(labels: Labels) -> dict[str, Any]:
    """Return labels or a view as requests and answers have them."""
    return {name: values if isinstance(values, str) else list(values) for name, values in labels}


def from_json(value: Mapping[str, Any]) -> Labels:
    """Return labels or a view from their JSON object; what is declared does not matter."""
    return tuple(
        (name, each if isinstance(each, str) else tuple(sorted(set(each))))
        for name, each in sorted(value.items())
    )


def write_labels(labels: Labels) -> tuple[WrittenLabel, ...]:
    """Return labels as the options of a statement."""
    return tuple(
        WrittenLabel(name, (values,))
        if isinstance(values, str)
        else WrittenLabel(name, values, len(values) > 1)
        for name, values in labels
    )


def admits(view: Labels, labels: Labels, dimensions: Dimensions) -> bool:
    """Return True if a view admits an item with labels."""
    own = dict(labels)
    return all(
        name not in own or _meets(values, own[name], dimensions.get(name)) for name, values in view
    )


def _meets(view: Values, own: Values, dimension: Dimension | None) -> bool:
    if isinstance(view, str) or isinstance(own, str):
        return _rank(own, dimension) >= _rank(view, dimension)
    if ALL_OF in view:
        return set(own) >= set(view) - {ALL_OF}
    return not set(own).isdisjoint(view)


def _rank(level: Values, dimension: Dimension | None) -> int:
    """Return the height of a level, -1 for one that is not declared."""
    known = () if dimension is None else dimension.values
    return known.index(level) if isinstance(level, str) and level in known else -1


def dominates(labels: Labels, others: Labels, dimensions: Dimensions) -> bool:
    """Return True if every view that admits an item with `others` admits one with `labels`: what
    the second says may change the first.
    """
    own = dict(others)
    return all(
        name in own and _covers(values, own[name], dimensions.get(name)) for name, values in labels
    )


def _covers(values: Values, others: Values, dimension: Dimension | None) -> bool:
    if isinstance(values, str) or isinstance(others, str):
        return _rank(values, dimension) >= _rank(others, dimension)
    return set(others) <= set(values)


def dominating(labels: Labels, view: Labels, dimensions: Dimensions) -> Labels:
    """Return the view of the items that a view admits and whose labels dominate some labels.

    What it does not admit says nothing about an item with these labels: a reader of the item may
    not see it.
    """
    own, seen = dict(labels), dict(view)
    for name, each in dimensions.items():
        if each.is_ordered:
            levels = (own.get(name, each.values[-1]), seen.get(name, each.values[0]))
            seen[name] = max(levels, key=lambda level: _rank(level, each))
            continue
        groups = own.get(name, ())
        is_seen = name not in seen or set(groups) <= set(seen[name])
        seen[name] = (ALL_OF, *groups) if groups and is_seen else ()
    return _without(seen, dimensions, 0)


def meets(required: Requirement, view: Labels, dimensions: Dimensions) -> bool:
    """Return True if all that a view admits has at least the level that is required."""
    dimension = dimensions.get(required.dimension)
    if dimension is None or required.level not in dimension.values:
        return False
    levels = dimension.values
    own = dict(view).get(required.dimension, levels[0])
    return _rank(own, dimension) >= levels.index(required.level)


def narrowed(granted: Labels, asked: Labels, dimensions: Dimensions) -> Labels:
    """Return the view of a request with a key: what the key grants, narrowed by what is asked.

    A lowest level restricts nothing and is left out. Raises Forbidden, which names the dimension,
    if more is asked than granted.
    """
    _check_declared(granted, dimensions)
    view = dict(granted)
    for name, values in asked:
        if name in view and not _within(view[name], values, dimensions[name]):
            raise Forbidden(f"the key may not see all of this: {name}", {"dimension": name})
        view[name] = values
    return _without(view, dimensions, 0)


def _within(bound: Values, values: Values, dimension: Dimension) -> bool:
    if isinstance(values, str):
        return _rank(values, dimension) >= _rank(bound, dimension)
    return set(values) <= set(bound)


def lowered(granted: Labels, asked: Labels, dimensions: Dimensions) -> Labels:
    """Return the labels of what a request with a key stores: those of the key, lowered by what is
    asked.

    A highest level is no label and is left out. Raises Forbidden, which names the dimension, if a
    level above that of the key or other groups are asked.
    """
    _check_declared(granted, dimensions)
    labels = dict(granted)
    for name, values in asked:
        if name in labels:
            if isinstance(values, str):
                bound = _rank(labels[name], dimensions[name])
                allowed = _rank(values, dimensions[name]) <= bound
            else:
                allowed = set(values) <= set(labels[name])
            if not allowed:
                raise Forbidden(f"the key may not write these labels: {name}", {"dimension": name})
        labels[name] = values
    return _without(labels, dimensions, -1)


def is_declared(view: Labels, dimensions: Dimensions) -> bool:
    """Return True if all levels and groups of a view are declared."""
    for name, values in view:
        known = dimensions.get(name)
        each = (values,) if isinstance(values, str) else values
        if known is None or known.is_ordered != isinstance(values, str):
            return False
        if not set(each) - {ALL_OF} <= set(known.values):
            return False
    return True


def _check_declared(granted: Labels, dimensions: Dimensions) -> None:
    """Raise Forbidden if a key has levels or groups that the tenant does not declare."""
    for name, values in granted:
        if not is_declared(((name, values),), dimensions):
            problem = f"the key has values of {name} that the tenant does not declare"
            raise Forbidden(problem, {"dimension": name})


def _without(values: Mapping[str, Values], dimensions: Dimensions, usual: int) -> Labels:
    """Return labels or a view without the levels at the index `usual` of their dimensions."""
    return tuple(
        (name, each)
        for name, each in sorted(values.items())
        if not (isinstance(each, str) and each == dimensions[name].values[usual])
    )
