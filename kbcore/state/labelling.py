"""Facts with labels: what is stored and removed where facts have labels, or get some.

A fact is a row with the labels of its assertion. Asserted again with other labels it becomes a
stack: a row of its own with its own details in the layer of each of the labels, and the newest of
them in the relation itself. A write changes only what its view admits and its labels dominate.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain

from kbcore.errors import Conflict, TooLarge
from kbcore.state.changes import (
    Change,
    Declare,
    Delta,
    EvictReason,
    Parted,
    RetractRule,
    UseLabels,
)
from kbcore.state.facts import Fact, Row
from kbcore.state.labels import (
    MAX_LABEL_SETS,
    NO_LABELS,
    Dimensions,
    Labels,
    admits,
    dominates,
    to_json,
)
from kbcore.state.partition import RowKey, StoredRelation
from kbcore.state.tenant import Tenant
from kbplanner.engine.backend import DETAILS, NO_ROW, Attribute
from kbplanner.ir.dimensions import Dimension
from kbplanner.pacing import YieldNow, paced
from kbtypes.results import DIMENSION_ID_SUFFIX

FACTS_PER_YIELD = 200
"""Facts stored or removed between two calls of `yield_now`: about a millisecond."""

Insert = Callable[[StoredRelation, "array[int]", Sequence[Fact]], None]
"""Function that asserts facts in a relation, from their symbols."""


def assert_labelled(
    tenant: Tenant,
    stored: StoredRelation,
    symbols: array[int],
    facts: Sequence[Fact],
    labels: Labels,
    insert: Insert,
) -> None:
    """Assert facts with labels: each as a row of its own where it is stored with others."""
    arity = stored.schema.arity
    ids = stored.relation.locate(symbols, len(facts))
    rows = [tuple(symbols[i * arity : (i + 1) * arity]) for i in range(len(facts))]
    if labels:
        tenant.use_labels(labels)
    if all(id == NO_ROW for id in ids) and len(set(rows)) == len(rows):
        insert(stored, symbols, facts)
        if labels:
            stored.labels.put(stored.relation.locate(symbols, len(facts)), labels)
        return
    for index, (fact, row) in enumerate(zip(facts, rows, strict=True)):
        own = symbols[index * arity : (index + 1) * arity]
        if row not in stored.stacked:
            if stored.relation.locate(own, 1)[0] == NO_ROW:
                insert(stored, own, [fact])
                if labels:
                    stored.labels.put_row(row, labels)
                continue
            before = stored.labels.get(row)
            if before == labels:
                insert(stored, own, [fact])
                continue
            layer = need_layer(tenant, stored, before)
            copy_row(stored, row, layer, row, tenant)
            stored.stacked[row] = (before,)
        layer = need_layer(tenant, stored, labels)
        insert(layer, own, [fact])
        others = (each for each in stored.stacked[row] if each != labels)
        stored.stacked[row] = (*others, labels)
        show_newest(tenant, stored, row)


def labels_used(changes: Iterable[Change], labels: Labels = NO_LABELS) -> set[Labels]:
    """Return the labels that changes store with, which have `labels` where they name no others."""
    named = {change.labels for change in changes if isinstance(change, UseLabels)}
    return (named | {labels}) - {NO_LABELS}


def concerns_dimensions(changes: Iterable[Change]) -> bool:
    """Return True if changes declare dimensions, or withdraw them."""
    return any(
        change.id.endswith(DIMENSION_ID_SUFFIX)
        if isinstance(change, RetractRule)
        else isinstance(change, Declare)
        and any(isinstance(each, Dimension) for each in change.declarations)
        for change in changes
    )


def concerns_labels(changes: Sequence[Change], labels: Labels = NO_LABELS) -> bool:
    """Return True if `check_labelled` has something to check."""
    return bool(labels_used(changes, labels)) or concerns_dimensions(changes)


def check_labelled(tenant: Tenant, changes: Sequence[Change], labels: Labels) -> None:
    """Check changes, which have these labels where they name no others, on the state at the write.

    Raises Conflict for changes that would lose labels, those of dimensions that are in use, and for
    labels that are not declared any more.
    """
    used = labels_used(changes, labels)
    if concerns_dimensions(changes):
        _check_dimensions(tenant, changes, used)
        return
    dimensions = tenant.rules.dimensions()
    for each in used:
        for name, values in each:
            known = dimensions.get(name)
            named = {values} if isinstance(values, str) else set(values)
            if known is None or not named <= set(known.values):
                raise Conflict(f"labels of {name} are not declared any more", {"dimension": name})


def refuse_more_sets(tenant: Tenant, used: set[Labels]) -> None:
    """Raise TooLarge if a tenant would get too many different labels."""
    new = used - tenant.label_sets.keys() - {NO_LABELS}
    if new and len(tenant.label_sets) + len(new) > MAX_LABEL_SETS:
        raise TooLarge(
            f"a tenant has at most {MAX_LABEL_SETS} different labels",
            {"limit": "labelSets", "value": MAX_LABEL_SETS},
        )


def _check_dimensions(tenant: Tenant, changes: Iterable[Change], used: set[Labels]) -> None:
    in_use: dict[str, set[str]] = {}
    for labels in chain(tenant.label_sets, used):
        for name, values in labels:
            in_use.setdefault(name, set()).update((values,) if isinstance(values, str) else values)
    left = tenant.rules.dimensions()
    for change in changes:
        if isinstance(change, RetractRule) and change.id.endswith(DIMENSION_ID_SUFFIX):
            left.pop(change.id[1 : -len(DIMENSION_ID_SUFFIX)], None)
        for each in change.declarations if isinstance(change, Declare) else ():
            if isinstance(each, Dimension):
                before = left.get(each.name, each)
                if each.name in in_use and before.is_ordered != each.is_ordered:
                    raise Conflict(f"labels of {each.name} are in use: they stay of their kind")
                if each.is_ordered and before.values[-1] != each.values[-1]:
                    raise Conflict(
                        f"the highest level of {each.name} stays {before.values[-1]}: what has it"
                        " is stored without a label; retract the declaration first"
                    )
                left[each.name] = each
    for name, own in in_use.items():
        if name not in left or not own <= set(left[name].values):
            raise Conflict(f"labels of {name} are in use: {', '.join(sorted(own))}")


def need_layer(tenant: Tenant, stored: StoredRelation, labels: Labels) -> StoredRelation:
    """Return the relation with the details of facts that are stored with several labels."""
    layer = stored.layers.get(labels)
    if layer is None:
        relation = tenant.engine.relation(stored.schema.arity)
        layer = stored.layers[labels] = StoredRelation(stored.schema, stored.scope, relation)
    return layer


def put_details(
    tenant: Tenant,
    stored: StoredRelation,
    row: RowKey,
    labels: Labels,
    source: StoredRelation,
    *,
    newest: bool,
) -> None:
    """Store the details that a fact has in `source` with labels: above all others of the fact, or
    below them.
    """
    if row not in stored.stacked:
        if stored.relation.locate(array("I", row), 1)[0] == NO_ROW:
            copy_row(source, row, stored, row, tenant)
            if labels:
                stored.labels.put_row(row, labels)
            return
        before = stored.labels.get(row)
        if before == labels:
            copy_row(source, row, stored, row, tenant)
            return
        copy_row(stored, row, need_layer(tenant, stored, before), row, tenant)
        stored.stacked[row] = (before,)
    copy_row(source, row, need_layer(tenant, stored, labels), row, tenant)
    others = [each for each in stored.stacked[row] if each != labels]
    stored.stacked[row] = (*others, labels) if newest else (labels, *others)
    show_newest(tenant, stored, row)


def remove_details(
    tenant: Tenant, stored: StoredRelation, row: RowKey, gone: Collection[Labels]
) -> None:
    """Remove what a stored fact has with some labels."""
    stack = stored.stacked.get(row)
    if stack is None:
        if stored.labels.get(row) in gone:
            stored.remove(array("I", row), 1)
            tenant.changed(1, stored)
        return
    for labels in gone:
        if labels in stack:
            stored.layers[labels].remove(array("I", row), 1)
    stored.stacked[row] = tuple(labels for labels in stack if labels not in gone)
    show_newest(tenant, stored, row)


def show_newest(tenant: Tenant, stored: StoredRelation, row: RowKey) -> None:
    """Give a fact that is stored with several labels its newest details.

    One that is left with a single one of them is no stack any more; one without any is removed.
    """
    left = stored.stacked[row]
    symbols = array("I", row)
    if len(left) <= 1:
        del stored.stacked[row]
    if not left:
        stored.remove(symbols, 1)
        tenant.changed(1, stored)
        return
    newest = left[-1]
    copy_row(stored.layers[newest], row, stored, row, tenant)
    stored.labels.put_row(row, newest)
    if len(left) == 1:
        stored.layers[newest].remove(symbols, 1)


def copy_row(
    source: StoredRelation,
    row: RowKey,
    target: StoredRelation,
    own: RowKey,
    tenant: Tenant,
    attributes: Iterable[Attribute] = DETAILS,
) -> None:
    """Store a fact with the details it has in another relation, with these attributes.

    `own` are its symbols in the engine of the target, which belongs to `tenant`.
    """
    symbols = array("I", own)
    ids = source.relation.locate(array("I", row), 1)
    stored, added = target.insert(symbols, 1)
    for attribute in attributes:
        if source.relation.uses(attribute) or target.relation.uses(attribute):
            cells = source.relation.attributes(attribute, ids)
            target.relation.set_attribute(attribute, stored, cells)
    if source.metadata or target.metadata:
        target.describe(own, source.metadata.get(row))
    limited = row in source.limited
    if limited or own in target.limited:
        target.limited.add(own)
        tenant.limit(target, own)
        if not limited:
            target.limited.discard(own)
    tenant.changed(added, target)


OUTWEIGHED = "outweighed"
"""The member of a row whose labels do not dominate those of what is written: it decides nothing
about it, because not every reader of that may see the row."""


def intervals_seen(
    tenant: Tenant,
    stored: StoredRelation,
    matching: tuple[array[int], array[int]],
    view: Labels,
    labels: Labels,
) -> list[Row]:
    """Return a row for each interval of some facts, by their symbols and ids, that a view admits.

    Of a fact with several labels, it has the newest details whose labels dominate `labels`, and the
    newest of the others, which are marked as OUTWEIGHED.
    """
    dimensions = tenant.rules.dimensions()
    rows, ids = matching
    arity = stored.schema.arity
    intervals: list[Row] = []
    for index in range(len(ids)):
        row = tuple(rows[index * arity : (index + 1) * arity])
        stack = stored.stacked.get(row)
        known = (stored.labels.get(row),) if stack is None else stack
        seen = [each for each in known if admits(view, each, dimensions)]
        weighing = [each for each in seen if dominates(each, labels, dimensions)]
        for group in (weighing, [each for each in seen if each not in weighing]):
            if not group:
                continue
            own = group[-1]
            layer = stored if stack is None else stored.layers[own]
            at = layer.relation.locate(array("I", row), 1)
            for interval in layer.intervals(tenant.engine, array("I", row), at):
                interval.pop("labels", None)
                if own and not view:
                    interval["labels"] = to_json(own)
                if group is not weighing:
                    interval[OUTWEIGHED] = True
                intervals.append(interval)
    return intervals


def stacked_rows(tenant: Tenant, stored: StoredRelation, row: RowKey, now: int) -> Iterator[Row]:
    """Yield the details of a fact with several labels that are valid at `now` or later, in the
    order in which they were stored last, in their external form.
    """
    symbols = array("I", row)
    for labels in stored.stacked[row]:
        layer = stored.layers[labels]
        ids = layer.relation.locate(symbols, 1)
        _, end = next(layer.windows(ids))
        if now < end:
            (row_then,) = layer.rows(tenant.engine, symbols, ids)
            yield {**row_then, "labels": to_json(labels)} if labels else row_then


def details_of(
    tenant: Tenant, stored: StoredRelation, row: RowKey
) -> Iterator[tuple[Labels, StoredRelation]]:
    """Yield the labels of a stored fact, each with the relation that has its details, where these
    are valid now.
    """
    now = tenant.at(0)
    layers = [(labels, stored.layers[labels]) for labels in stored.stacked.get(row, ())]
    for labels, layer in layers or [(stored.labels.get(row), stored)]:
        start, end = next(layer.windows(layer.relation.locate(array("I", row), 1)))
        if start <= now < end:
            yield labels, layer


def add_layers(
    tenant: Tenant, stored: StoredRelation, symbols: array[int], rows: Sequence[Row]
) -> None:
    """Give the rows of facts with several labels their valid details with each, as `byLabels`: the
    row itself shows the last of them.
    """
    arity, now = stored.schema.arity, tenant.at(0)
    for index, row in enumerate(rows):
        key = tuple(symbols[index * arity : (index + 1) * arity])
        if key in stored.stacked:
            row["byLabels"] = list(stacked_rows(tenant, stored, key, now))


def may_change(delta: Delta, labels: Labels, dimensions: Dimensions) -> bool:
    """Return True if a change may end or remove an item with labels: its view admits the item, and
    its own labels dominate those of the item.
    """
    return admits(delta.view, labels, dimensions) and dominates(delta.labels, labels, dimensions)


def changed_by(
    stored: StoredRelation, row: RowKey, delta: Delta, dimensions: Dimensions
) -> list[StoredRelation]:
    """Return the relations with the details of a stored fact that a change may change.

    What the web says ends nothing that a user has said, for those who believe only users.
    """
    stack = stored.stacked.get(row)
    labels = (stored.labels.get(row),) if stack is None else stack
    return [
        stored if stack is None else stored.layers[each]
        for each in labels
        if may_change(delta, each, dimensions)
    ]


def settle(tenant: Tenant, stored: StoredRelation, row: RowKey) -> None:
    """Show the newest details of a fact after a change of its layers."""
    if row in stored.stacked:
        show_newest(tenant, stored, row)


def shown_of(
    tenant: Tenant, stored: StoredRelation, row: RowKey, is_seen: Callable[[Labels], bool]
) -> list[Row]:
    """Return a fact with several labels in its external form, with the newest details of those for
    which `is_seen` returns True; empty if there are none.
    """
    seen = list(filter(is_seen, stored.stacked[row]))
    if not seen:
        return []
    own = seen[-1]
    symbols, layer = array("I", row), stored.layers[own]
    rows = layer.rows(tenant.engine, symbols, layer.relation.locate(symbols, 1))
    return [{**each, "labels": to_json(own)} if own else each for each in rows]


Goes = Callable[[StoredRelation, RowKey], bool]
"""Function that returns True for the details of a fact, by their layer, that are removed."""


def all_go(layer: StoredRelation, row: RowKey) -> bool:
    """Return True: all details are removed."""
    return True


def labels_in(stored: StoredRelation, layer: StoredRelation, row: RowKey) -> Labels:
    """Return the labels of the details that a fact has in a layer, or in the relation itself."""
    if layer is stored:
        return stored.labels.get(row)
    return next(labels for labels, each in stored.layers.items() if each is layer)


def take_admitted(
    tenant: Tenant,
    stored: StoredRelation,
    rows: Sequence[RowKey],
    delta: Delta,
    yield_now: YieldNow,
    goes: Goes = all_go,
) -> tuple[array[int], int, list[RowKey]]:
    """Remove from stacks what a change may remove; return the symbols and the number of the facts
    that are to be removed as a whole, and the facts that have lost some of their details.

    `goes` returns True for the details that are to be removed.
    """
    dimensions = tenant.rules.dimensions()
    whole, count, parted = array("I"), 0, list[RowKey]()
    for row in paced(rows, yield_now, FACTS_PER_YIELD):
        stack = stored.stacked.get(row)
        if stack is None:
            own = stored.labels.get(row)
            stays = not (may_change(delta, own, dimensions) and goes(stored, row))
            note_parted(tenant, stored, row, delta, (own,) if stays else ())
            if not stays:
                whole.extend(row)
                count += 1
            continue
        gone = {
            labels
            for labels in stack
            if may_change(delta, labels, dimensions) and goes(stored.layers[labels], row)
        }
        note_parted(tenant, stored, row, delta, [each for each in stack if each not in gone])
        if not gone:
            continue
        for labels in gone:
            stored.layers[labels].remove(array("I", row), 1)
        left = tuple(labels for labels in stack if labels not in gone)
        if left:
            stored.stacked[row] = left
            show_newest(tenant, stored, row)
            parted.append(row)
        else:
            del stored.stacked[row]
            whole.extend(row)
            count += 1
    return whole, count, parted


def note_parted(
    tenant: Tenant, stored: StoredRelation, row: RowKey, delta: Delta, left: Iterable[Labels]
) -> None:
    """Note what a fact has with each of its labels before a change, and with which it has it still,
    if somebody hears of changes.
    """
    if delta.retold is None:
        return
    symbols = array("I", row)
    atom = stored.scope, stored.schema, tuple(tenant.engine.texts(symbols))
    if (delta.number, atom) in delta.parted:
        return
    before = []
    for labels in stored.stacked.get(row) or (stored.labels.get(row),):
        layer = stored.layers[labels] if row in stored.stacked else stored
        (own,) = layer.rows(tenant.engine, symbols, layer.relation.locate(symbols, 1))
        own.pop("labels", None)
        before.append((labels, own))
    delta.parted[delta.number, atom] = Parted(before, tuple(left))


def lapses(stored: StoredRelation, reason: EvictReason, labels: Labels) -> Goes:
    """Return the function that says which details of a fact an eviction removes: a summary is
    replaced with its own labels only.
    """

    def goes(layer: StoredRelation, row: RowKey) -> bool:
        if reason is EvictReason.REPLACED:
            own = stored.labels.get(row)
            return own == labels if layer is stored else layer is stored.layers.get(labels)
        return reason is not EvictReason.EXPIRED or row in layer.lapsed

    return goes
