"""One scope of a tenant: its stored relations, and the metadata of the facts that have any."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isnan
from typing import Any
from weakref import WeakSet

from kbcore.state.facts import Row
from kbcore.state.intervals import (
    EARLIER_KEY,
    EVIDENCE_KEY,
    RESTATED_KEY,
    STATED_KEY,
    Interval,
    earlier_of,
    interval_at,
    restated_of,
    within,
    without_reserved,
)
from kbcore.state.labels import Labels, to_json
from kbcore.state.row_labels import RowLabels
from kbplanner.engine.backend import FOREVER, NO_ROW, Attribute, Engine, Relation, beginning
from kbplanner.engine.columns import dicts_of
from kbplanner.ir.schema import RelationSchema
from kbplanner.pacing import YieldNow, go_on, let_go, paced

RowKey = tuple[int, ...]
"""The symbols of a row: unlike row ids, they never change."""


_NO_ROW = array("I", [NO_ROW]).tobytes()

FLIP_HIDDEN, FLIP_SHOWN, FLIP_GONE = 0, 1, 2
"""Kind of change of a row, in the two lowest bits of a flip; the row id is in the bits above."""

ROWS_PER_YIELD = 500
"""Rows removed, or read for an index, between two calls of `yield_now`: about a millisecond."""

MAX_FLIPS = 1 << 16
"""Flips recorded for a reader that does not read them; beyond this it must scan the whole
relation."""


class MetadataThen:
    """The metadata of a relation's facts at one point in time, unaffected by later writes."""

    __slots__ = ("__weakref__", "_before", "_held")

    def __init__(self, held: dict[RowKey, Mapping[str, Any]]) -> None:
        self._held = held
        self._before: dict[RowKey, Mapping[str, Any] | None] = {}

    def get(self, row: RowKey) -> Mapping[str, Any] | None:
        """Return the metadata of a fact at that time, None if it had none."""
        now = self._held.get(row)  # read first: a concurrent writer calls `keep` before it writes
        return self._before.get(row, now)

    def keep(self, row: RowKey) -> None:
        """Save the metadata of a fact before it changes."""
        if row not in self._before:
            self._before[row] = self._held.get(row)


_SHOWN = (
    Attribute.CREATED_AT,
    Attribute.VALID_FROM,
    Attribute.VALID_UNTIL,
    Attribute.TTL,
    Attribute.CONFIDENCE,
)
"""The attributes of a fact in its external form."""


class FactsThen:
    """Facts of a stored relation at one point in time, unaffected by later writes.

    Made under the read lock, and read without it. A fact takes 40 bytes more than its symbols.
    """

    def __init__(self, stored: StoredRelation, rows: array[int], ids: array[int]) -> None:
        self._schema, self._scope = stored.schema, stored.scope
        self._symbols = rows
        self._columns = [stored.relation.attributes(attribute, ids) for attribute in _SHOWN]
        self._metadata = stored.metadata_then()
        self._labels = stored.labels.of(ids) if stored.labels.counts else []

    def __len__(self) -> int:
        return len(self._columns[0])

    def rows(self, engine: Engine, start: int, stop: int) -> list[Row]:
        """Return the facts from `start` up to, not including, `stop` in their external form."""
        arity = self._schema.arity
        symbols = self._symbols[start * arity : stop * arity]
        columns = [column[start:stop] for column in self._columns]
        rows = _external(
            self._schema, self._scope, engine.texts(symbols), symbols, columns, self._metadata
        )
        return _labelled(rows, self._labels[start:stop]) if self._labels else rows


def _labelled(rows: list[Row], labels: Sequence[Labels]) -> list[Row]:
    """Give rows in their external form the labels of their facts."""
    for row, own in zip(rows, labels, strict=True):
        if own:
            row["labels"] = to_json(own)
    return rows


def _external(
    schema: RelationSchema,
    scope: str | None,
    texts: list[str],
    symbols: array[int],
    columns: Sequence[Sequence[int] | Sequence[float]],
    metadata: Mapping[RowKey, Mapping[str, Any]] | MetadataThen | None,
    as_of: int | None = None,
) -> list[Row]:
    """Return facts in their external form, from their texts, symbols and cells of _SHOWN.

    With `as_of`, a fact whose closed interval contains that time has the values of the interval.
    """
    created, starts, ends, ttls, confidences = columns
    arity, count = schema.arity, len(created)
    bounds = range(0, arity * count, arity) if arity else [0] * count
    args = [texts[at : at + arity] for at in bounds]
    if metadata:
        keys = (tuple(symbols[at : at + arity]) for at in bounds)
        own: list[dict[str, Any]] = [dict(metadata.get(key) or {}) for key in keys]
    else:
        own = [{} for _ in bounds]
    template = {
        "predicate": schema.predicate,
        "args": None,
        "negated": not schema.positive,
        "scope": scope,
        "metadata": None,
        "createdAt": None,
        "validFrom": None,
        "validUntil": None,
        "ttl": None,
        "confidence": None,
    }
    cells: dict[str, list[Any]] = {"args": args, "metadata": own}
    cells.update(_shown_cells(created, starts, ends, ttls, confidences))
    rows: list[Row] = dicts_of(template, count, cells)
    if metadata:
        for row in rows:
            evidence = row["metadata"].pop(EVIDENCE_KEY, None)
            if as_of is not None and EARLIER_KEY in row["metadata"]:
                _show_interval(row, as_of)
            row["metadata"].pop(EARLIER_KEY, None)
            row["metadata"].pop(STATED_KEY, None)
            row["metadata"].pop(RESTATED_KEY, None)
            if evidence is not None:
                row["evidence"] = [dict(span) for span in evidence]
    return rows


def _shown_cells(
    created: Sequence[float],
    starts: Sequence[float],
    ends: Sequence[float],
    ttls: Sequence[float],
    confidences: Sequence[float],
) -> Iterator[tuple[str, list[Any]]]:
    """Yield the members of facts that have a value in any of them, from the cells of _SHOWN."""
    begun = list(created)
    if any(starts):
        begun = [beginning(int(start), int(at)) for start, at in zip(starts, begun, strict=True)]
    yield "createdAt", list(created)
    yield "validFrom", begun
    if min(ends, default=FOREVER) != FOREVER:
        yield "validUntil", [None if end == FOREVER else end for end in ends]
    if any(ttls):
        yield "ttl", [ttl or None for ttl in ttls]
    if not all(map(isnan, confidences)):
        yield "confidence", [None if isnan(each) else each for each in confidences]


def _show_interval(row: Row, as_of: int) -> None:
    """Give a row the values of its closed interval that contains a point in time, if any does."""
    interval = interval_at(row["metadata"], as_of)
    if interval is not None:
        row.update(
            metadata=dict(interval.metadata),
            createdAt=interval.created_at,
            validFrom=interval.start,
            validUntil=interval.end,
            ttl=None,
            confidence=interval.confidence,
        )


MAX_RECORDED = 1 << 11
"""Changed rows of a relation that are recorded for readers that can do without."""


_RECORDS = threading.Lock()
"""Held while a journal of a relation begins."""


class RowRecord:
    """The latest changes of a stored relation: rows with the visibility they had before.

    `start` is the number of changes that were forgotten.
    """

    __slots__ = ("arity", "changes", "readers", "start")

    def __init__(self, arity: int) -> None:
        self.arity = arity
        self.changes: list[tuple[RowKey, bool]] = []
        self.start = 0
        self.readers: WeakSet[RowJournal] = WeakSet()

    @property
    def end(self) -> int:
        """The number of changes so far."""
        return self.start + len(self.changes)

    def note(self, symbols: array[int], was_visible: bool) -> None:
        """Record rows before a change."""
        if not any(each.needs_all or each.position >= self.start for each in self.readers):
            count = len(symbols) // self.arity if self.arity else 1
            self.start = self.end + count  # no reader can follow any more
            self.changes.clear()
            return
        rows = zip(*[iter(symbols)] * self.arity, strict=True) if self.arity else [()]
        self.changes.extend((row, was_visible) for row in rows)
        if len(self.changes) > 2 * MAX_RECORDED:
            needed = min((each.position for each in self.readers if each.needs_all), default=None)
            start = self.end - MAX_RECORDED
            start = start if needed is None else min(start, needed)
            del self.changes[: start - self.start]
            self.start = start


class RowJournal:
    """The changes of a stored relation since a reader looked at it.

    With `needs_all` none of them is forgotten while a reader holds the journal.
    """

    __slots__ = ("__weakref__", "_record", "needs_all", "position", "stored")

    def __init__(self, stored: StoredRelation, record: RowRecord, needs_all: bool) -> None:
        self.stored = stored
        self.needs_all = needs_all
        self.position = record.end
        self._record = record

    @property
    def is_lost(self) -> bool:
        """True if changes were forgotten."""
        return self.stored.gone or self.position < self._record.start

    @property
    def count(self) -> int:
        """The number of recorded changes, each of a row that may have changed several times."""
        return self._record.end - self.position

    def take(self) -> tuple[list[RowKey], list[RowKey]]:
        """Return the rows that are visible and were not, and those that were and are not; and begin
        again.
        """
        changes = self.peek()
        self.position = self._record.end
        return changes

    def peek(self) -> tuple[list[RowKey], list[RowKey]]:
        """Return the same as `take`, which then still returns them."""
        added: list[RowKey] = []
        removed: list[RowKey] = []
        record, stored, position = self._record, self.stored, self.position
        if position == record.end or stored.gone:
            return added, removed
        rows: dict[RowKey, bool] = {}
        for row, was_visible in record.changes[position - record.start :]:
            rows.setdefault(row, was_visible)
        relation, arity = stored.relation, stored.schema.arity
        ids = relation.locate(array("I", [symbol for row in rows for symbol in row]), len(rows))
        for (row, was_visible), id in zip(rows.items(), ids, strict=True):
            visible = id != NO_ROW
            if visible and row in stored.limited:
                count = len(relation.match(list(row), limit=1)[1]) if arity else _visible(stored)
                visible = count > 0
            if visible and not was_visible:
                added.append(row)
            elif was_visible and not visible:
                removed.append(row)
        return added, removed


def _visible(stored: StoredRelation) -> int:
    return stored.relation.counts().visible


class _SupportedFacts:
    """The facts with evidence in each episode.

    A message mostly supports one fact, which is held without a dict around it: that would be half
    of what the evidence of a message takes in memory.
    """

    def __init__(self) -> None:
        self._rows: dict[str, RowKey | dict[RowKey, None]] = {}

    def of(self, episode: str) -> Iterable[RowKey]:
        """Return the facts with evidence in an episode."""
        rows = self._rows.get(episode)
        if rows is None:
            return ()
        return (rows,) if isinstance(rows, tuple) else rows

    def move(
        self, row: RowKey, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
    ) -> None:
        """Follow a change of the metadata of a fact."""
        for span in (before or {}).get(EVIDENCE_KEY, ()):
            self._remove(span["episode"], row)
        for span in (after or {}).get(EVIDENCE_KEY, ()):
            self._add(span["episode"], row)

    def _add(self, episode: str, row: RowKey) -> None:
        rows = self._rows.setdefault(episode, row)
        if isinstance(rows, dict):
            rows[row] = None
        elif rows != row:
            self._rows[episode] = {rows: None, row: None}

    def _remove(self, episode: str, row: RowKey) -> None:
        rows = self._rows.get(episode)
        if isinstance(rows, dict):
            rows.pop(row, None)
        if rows in (row, {}):
            del self._rows[episode]


class StoredRelation:
    """The asserted facts of one predicate, arity and sign in one scope.

    `metadata` holds a dict for each fact that has one, changed by `describe` only. `limited` holds
    the facts with their own validity window; those not valid now are hidden in the engine.
    `expired` holds those whose window has ended, `lapsed` those of them with a `ttl` and no closed
    interval. `scheduled` has the next time (epoch milliseconds)
    at which the tenant checks the window of a fact. `version` is the tenant's stamp of the last
    change, 0 before any; `gone` is True once the scope was deleted. `flips` records which rows were
    hidden, shown or removed, for a reader that caches by row id and sets it; None: there is no such
    reader, or the row ids have changed. `record` has the rows that were added, removed, hidden
    or shown, while there are readers of them. `renumbered` counts how often the row ids have
    changed. `_supported` has the facts with evidence by episode, None until a reader needs it.

    `labels` has the labels of the facts that have any. A fact that is stored with several labels
    has all of them in `stacked`, and its details with each of them in `layers`: a relation for each
    of the labels. Here it has its newest details, and their labels.
    """

    def __init__(self, schema: RelationSchema, scope: str | None, relation: Relation) -> None:
        self.schema = schema
        self.scope = scope
        self.relation = relation
        self.metadata: dict[RowKey, Mapping[str, Any]] = {}
        self._looking: WeakSet[MetadataThen] | None = None
        self._supported: _SupportedFacts | None = None
        self.limited: set[RowKey] = set()
        self.scheduled: dict[RowKey, int] = {}
        self.expired: set[RowKey] = set()
        self.lapsed: set[RowKey] = set()
        self.version = 0
        self.gone = False
        self.flips: array[int] | None = None
        self.record: RowRecord | None = None
        self.renumbered = 0
        self.labels = RowLabels(relation)
        self.stacked: dict[RowKey, tuple[Labels, ...]] = {}
        self.layers: dict[Labels, StoredRelation] = {}

    @property
    def has_labels(self) -> bool:
        """True if any of the facts has labels."""
        return bool(self.labels.counts or self.stacked)

    def drop(self, yield_now: YieldNow = go_on) -> None:
        """Release the relation; it must not be used any more."""
        self.gone = True
        metadata, self.metadata = self.metadata, {}  # a new dict: readers of the old one go on
        self._supported = None
        if not self._looking:
            let_go(metadata, yield_now)
        for each in (self.limited, self.scheduled, self.expired, self.lapsed):
            let_go(each, yield_now)
        let_go(self.stacked, yield_now)
        for layer in self.layers.values():
            layer.drop(yield_now)
        self.relation.drop()

    def insert(self, rows: array[int], count: int) -> tuple[array[int], int]:
        """Add visible rows as `Relation.insert` does."""
        if not self._is_recorded():
            return self.relation.insert(rows, count)
        before = self.relation.counts().rows
        ids, added = self.relation.insert(rows, count)
        if added:
            new = self.relation.rows(array("I", range(before, before + added)))
            self._note_change(new, added, was_visible=False)
        return ids, added

    def hide(self, rows: array[int], ids: array[int], hidden: bool) -> int:
        """Hide visible rows, or show hidden ones; return how many have changed."""
        changed = self.relation.hide(rows, len(ids), hidden)
        if changed:
            self.note(ids, FLIP_HIDDEN if hidden else FLIP_SHOWN)
            if self._is_recorded():
                self._note_change(rows, len(ids), was_visible=hidden)
        return changed

    def journal(self, *, needs_all: bool) -> RowJournal:
        """Return a journal of the changes from now on; the caller holds a lock of the tenant."""
        with _RECORDS:  # readers of the tenant may begin at the same time
            record = self.record
            if record is None:
                record = self.record = RowRecord(self.schema.arity)
            journal = RowJournal(self, record, needs_all)
            record.readers.add(journal)
        return journal

    def _is_recorded(self) -> bool:
        if self.record is None:
            return False
        if not self.record.readers:
            self.record = None
            return False
        return True

    def _note_change(self, rows: array[int], count: int, *, was_visible: bool) -> None:
        if count and self.record is not None:
            self.record.note(rows, was_visible)

    def remove(self, rows: array[int], count: int) -> None:
        """Delete stored rows with their metadata and windows."""
        if self._is_recorded():
            self._note_removed(rows, count)
        if self.flips is not None:
            self.note(self.relation.locate(rows, count), FLIP_GONE)
        before = self.relation.counts().rows
        if self.labels.counts:
            self.labels.leave(rows, count)
        self.relation.delete(rows, count)
        if self.relation.counts().rows != before:
            self.renumbered += 1
            self.flips = None
        if self.metadata or self.limited:
            arity = self.schema.arity
            for i in range(count):
                key = tuple(rows[i * arity : (i + 1) * arity])
                self.describe(key, None)
                self.limited.discard(key)
                self.expired.discard(key)
                self.lapsed.discard(key)

    def take(
        self, engine: Engine, rows: array[int], ids: array[int], yield_now: YieldNow
    ) -> tuple[list[RowKey], list[Row]]:
        """Delete stored rows; return their symbols and their external form.

        `yield_now` is called about once a millisecond.
        """
        arity = self.schema.arity
        keys: list[RowKey] = []
        taken: list[Row] = []
        parts: list[array[int]] = []
        for start in paced(range(0, len(ids), ROWS_PER_YIELD), yield_now, 1):
            part = ids[start : start + ROWS_PER_YIELD]
            symbols = rows[start * arity : (start + len(part)) * arity]
            taken += self.rows(engine, symbols, part)
            keys += [tuple(symbols[i * arity : (i + 1) * arity]) for i in range(len(part))]
            parts.append(symbols)
        for symbols in paced(
            parts, yield_now, 1
        ):  # later than all ids are read, which this may change
            self.remove(symbols, len(symbols) // arity if arity else 1)
        return keys, taken

    def _note_removed(self, rows: array[int], count: int) -> None:
        if not self.limited:
            self._note_change(rows, count, was_visible=True)
            return
        arity = self.schema.arity
        for start in range(0, count * arity, arity) if arity else range(count):
            row = rows[start : start + arity]
            visible = len(self.relation.match(list(row))[1]) > 0
            self._note_change(row, 1, was_visible=visible)

    def describe(self, row: RowKey, metadata: Mapping[str, Any] | None) -> None:
        """Set the metadata of a fact, or remove it."""
        if self._looking:
            for then in list(self._looking):
                then.keep(row)
        if self._supported is not None:
            self._supported.move(row, self.metadata.get(row), metadata)
        if metadata:
            self.metadata[row] = dict(metadata)
        else:
            self.metadata.pop(row, None)

    def describe_many(self, rows: Sequence[RowKey], metadata: Sequence[Mapping[str, Any]]) -> None:
        """Set the metadata of facts as `describe` does, in the same order."""
        if self._looking or self._supported is not None or not all(metadata):
            for row, described in zip(rows, metadata, strict=True):
                self.describe(row, described)
        else:
            self.metadata.update(zip(rows, map(dict, metadata), strict=True))

    def supported_by(self, episode: str, yield_now: YieldNow = go_on) -> Iterable[RowKey]:
        """Return the facts with evidence in an episode, hidden ones too; the caller holds the read
        lock.

        The first call, or `prepare_support`, reads the metadata of all facts; from then on each
        write updates the index.
        """
        if not self.metadata:
            return ()
        return self.prepare_support(yield_now).of(episode)

    def prepare_support(self, yield_now: YieldNow = go_on) -> _SupportedFacts:
        """Return the facts with evidence by episode, for `supported_by`; the caller holds the read
        lock.
        """
        known = self._supported
        if known is None:
            known = _SupportedFacts()
            for row, metadata in paced(self.metadata.items(), yield_now, ROWS_PER_YIELD):
                known.move(row, None, metadata)
            self._supported = known  # another reader may have made an equal one in between
        return known

    def metadata_then(self) -> MetadataThen | None:
        """Return the current metadata, unaffected by later writes while the caller holds it.

        None if there are none.
        """
        if not self.metadata:
            return None
        then = MetadataThen(self.metadata)
        if self._looking is None:
            self._looking = WeakSet()
        self._looking.add(then)
        return then

    def note(self, ids: array[int], flip: int) -> None:
        """Record that rows are now hidden, shown or gone."""
        if self.flips is not None:
            self.flips.extend([id << 2 | flip for id in ids])
            if len(self.flips) > MAX_FLIPS:
                self.flips = None

    def touch(self, ids: array[int], times: int, at: int) -> None:
        """Count `times` accesses of each row, the last one at `at` (epoch milliseconds).

        NO_ROW is skipped.
        """
        if _NO_ROW in ids.tobytes():  # a search in bytes is faster, with some false positives
            ids = array("I", [id for id in ids if id != NO_ROW])
        if times > 1:
            known = self.relation.attributes(Attribute.ACCESSES, ids)
            self.relation.set_attribute(
                Attribute.ACCESSES, ids, [min(int(n) + times, FOREVER) - 1 for n in known]
            )
        if len(ids):
            self.relation.touch(ids, at)

    def raise_accesses(self, ids: array[int], max_accesses: int) -> None:
        """Add one access to each row that has fewer than `max_accesses`, without an access time.

        NO_ROW is skipped, and a repeated row counts once.
        """
        if _NO_ROW in ids.tobytes():  # as in `touch`
            ids = array("I", [row for row in ids if row != NO_ROW])
        counts = self.relation.attributes(Attribute.ACCESSES, ids)
        # All cells are written, because selecting the rows that change would take longer.
        raised = [int(count) + (count < max_accesses) for count in counts]
        if raised:
            self.relation.set_attribute(Attribute.ACCESSES, ids, raised)

    def copy(self, yield_now: YieldNow = go_on) -> StoredRelation:
        """Return the same facts in a separate relation of the same version.

        The caller holds a lock of the tenant; `yield_now` is called about once a millisecond.
        """
        copy = StoredRelation(self.schema, self.scope, self.relation.copy())
        copy.metadata = dict(paced(self.metadata.items(), yield_now))
        copy.limited, copy.expired, copy.lapsed = (
            set(paced(each, yield_now)) for each in (self.limited, self.expired, self.lapsed)
        )
        copy.version = self.version
        if self.has_labels:
            copy.labels = self.labels.copied(copy.relation)
            copy.stacked = dict(paced(self.stacked.items(), yield_now))
            copy.layers = {labels: each.copy(yield_now) for labels, each in self.layers.items()}
        return copy

    def rows(
        self, engine: Engine, rows: array[int], ids: array[int], as_of: int | None = None
    ) -> list[Row]:
        """Return rows of this relation in their external form, from their symbols and ids.

        With `as_of`, a fact whose closed interval contains that time has the values of the
        interval.
        """
        if not len(ids):
            return []
        columns = [self.relation.attributes(attribute, ids) for attribute in _SHOWN]
        texts = engine.texts(rows)
        external = _external(self.schema, self.scope, texts, rows, columns, self.metadata, as_of)
        return _labelled(external, self.labels.of(ids)) if self.labels.counts else external

    def intervals(self, engine: Engine, rows: array[int], ids: array[int]) -> list[Row]:
        """Return a row for each interval of some facts that is not empty, the oldest interval of a
        fact first.

        A row has `restated`: the times in the interval from which the fact was stated again.
        """
        intervals: list[Row] = []
        arity = self.schema.arity
        for index, row in enumerate(self.rows(engine, rows, ids)):
            key = tuple(rows[index * arity : (index + 1) * arity])
            metadata = self.metadata.get(key, {})
            for each in earlier_of(metadata):
                (own,) = self.rows(engine, array("I", key), ids[index : index + 1], each.start)
                intervals.append({**own, "restated": each.restated})
            start, end = row["validFrom"], row["validUntil"]
            if end is None or start < end:
                times = within(restated_of(metadata), start, FOREVER if end is None else end)
                intervals.append({**row, "restated": times})
        return intervals

    def holding(
        self, engine: Engine, ids: array[int], numbers: array[int], now: int
    ) -> Iterator[tuple[int, tuple[str, ...], int | None]]:
        """Yield those of some facts that hold at `now` or later: the number that belongs to the id,
        the arguments, and the beginning.

        The beginning is None, and there are no arguments, for a fact that begins later, or was
        stated again or holds once more then.
        """
        read = self.relation.attributes
        ends = read(Attribute.VALID_UNTIL, ids)
        if not self.metadata:
            chosen = [index for index, end in enumerate(ends) if end > now]
            ids = array("I", [ids[index] for index in chosen])
            numbers = array("I", [numbers[index] for index in chosen])
            ends = [ends[index] for index in chosen]
        if not len(ids):
            return
        arity = self.schema.arity
        begins, created = read(Attribute.VALID_FROM, ids), read(Attribute.CREATED_AT, ids)
        rows = self.relation.rows(ids)
        texts = engine.texts(rows)
        cells = zip(numbers, begins, created, ends, strict=True)
        for index, (number, cell, creation, end) in enumerate(cells):
            start, at = beginning(int(cell), int(creation)), index * arity
            if self.metadata:
                metadata = self.metadata.get(tuple(rows[at : at + arity]), {})
                later = [each.end > now for each in earlier_of(metadata)]
                if any(later) or any(time >= now for time in restated_of(metadata)):
                    yield number, (), None
                    continue
            if end > now:
                is_later = start > now
                args = () if is_later else tuple(texts[at : at + arity])
                yield number, args, None if is_later else start

    def newest_interval(self, row: RowKey, ids: array[int], until: int) -> Interval:
        """Return the newest interval of a fact as a closed one that ends at `until`."""
        created, confidence = (
            self.relation.attributes(each, ids)[0]
            for each in (Attribute.CREATED_AT, Attribute.CONFIDENCE)
        )
        metadata = self.metadata.get(row, {})
        start = next(self.windows(ids))[0]
        return Interval(
            start,
            until,
            int(created),
            None if isnan(confidence) else confidence,
            dict(without_reserved(metadata)),
            within(restated_of(metadata), start, until),
        )

    def windows(self, ids: array[int]) -> Iterator[tuple[int, int]]:
        """Yield the validity window [from, until) of each fact, in epoch milliseconds."""
        read = self.relation.attributes
        columns = (
            read(a, ids)
            for a in (Attribute.CREATED_AT, Attribute.VALID_FROM, Attribute.VALID_UNTIL)
        )
        for created, start, end in zip(*columns, strict=True):
            yield beginning(int(start), int(created)), int(end)

    def windows_at(self, rows: array[int], ids: array[int], at: int) -> Iterator[tuple[int, int]]:
        """Yield for each fact the interval [from, until) that contains a point in time (epoch
        milliseconds), or its newest one if none does.
        """
        arity = self.schema.arity
        for index, (start, end) in enumerate(self.windows(ids)):
            if not start <= at < end and self.metadata:
                key = tuple(rows[index * arity : (index + 1) * arity])
                earlier = interval_at(self.metadata.get(key), at)
                if earlier is not None:
                    start, end = earlier.start, earlier.end
            yield start, end


PartitionKey = tuple[str | None, int]
"""The identity of a partition while it exists: its name, and the number of partitions lost before
it."""

NEVER_KEPT = -1
"""In place of that number, and without a name: one of the partitions that stand for scopes never
written to. They are all empty, and share cached results."""


class Partition:
    """The stored relations of one scope; `name` is None for the base partition."""

    def __init__(
        self,
        engine: Engine,
        name: str | None,
        lost: int = 0,
        relations: dict[RelationSchema, StoredRelation] | None = None,
    ) -> None:
        self._engine = engine
        self.name = name
        self.key: PartitionKey = (None if lost == NEVER_KEPT else name, lost)
        self._relations = {} if relations is None else relations

    def get(self, schema: RelationSchema) -> StoredRelation | None:
        """Return the relation of a stored schema, None if no fact or rule has needed it yet."""
        return self._relations.get(schema)

    def need(self, schema: RelationSchema) -> StoredRelation:
        """Return the relation of a stored schema, created empty if it does not exist."""
        relation = self._relations.get(schema)
        if relation is None:
            new = StoredRelation(schema, self.name, self._engine.relation(schema.arity))
            relation = self._relations.setdefault(schema, new)
        return relation

    def writable(self, schema: RelationSchema) -> StoredRelation:
        """Return the relation of a stored schema, for changes."""
        return self.need(schema)

    def adopt(self, other: StoredRelation, yield_now: YieldNow = go_on) -> StoredRelation:
        """Copy a relation of another partition of the tenant to this partition, which has none of
        its schema yet.
        """
        copy = self._relations[other.schema] = other.copy(yield_now)
        for stored in (copy, *copy.layers.values()):
            stored.scope = self.name
        return copy

    def bind(self, schema: RelationSchema) -> Relation:
        """Return the engine's relation of a stored schema."""
        return self.need(schema).relation

    def relations(self) -> list[StoredRelation]:
        """Return all relations, including empty ones."""
        return list(self._known())

    def named(
        self, predicate: str, arity: int | None = None, positive: bool | None = None
    ) -> list[StoredRelation]:
        """Return the relations of a predicate, of one arity and sign or of all, in order of arity
        and sign.
        """
        relations = [
            relation
            for relation in self._known()
            if relation.schema.predicate == predicate
            and arity in (None, relation.schema.arity)
            and positive in (None, relation.schema.positive)
        ]
        return sorted(relations, key=lambda r: (r.schema.arity, not r.schema.positive))

    def visible(self) -> int:
        """Count the facts that are valid now."""
        return sum(relation.relation.counts().visible for relation in self.relations())

    def live(self) -> int:
        """Count the stored facts, valid now or not."""
        return sum(relation.relation.counts().live for relation in self.relations())

    def _known(self) -> Iterable[StoredRelation]:
        return self._relations.values()

    # -- statistics for the planner ----------------------------------------------------------------

    def rows(self, schema: RelationSchema) -> int:
        """Count the visible rows of a stored relation."""
        relation = self.get(schema)
        return relation.relation.counts().visible if relation else 0

    def distinct(self, schema: RelationSchema, columns: Sequence[int]) -> int:
        """Count the distinct values of columns of a stored relation, 0 if unknown."""
        relation = self.get(schema)
        return relation.relation.distinct(columns) if relation else 0

    def denied(self, schemas: Iterable[RelationSchema]) -> frozenset[RelationSchema]:
        """Return those of the stored relations that have visible rows."""
        return frozenset(schema for schema in schemas if self.rows(schema))


def located(relation: Relation, rows: array[int], count: int) -> tuple[array[int], array[int]]:
    """Return those of `count` rows that are stored, with their ids."""
    arity = relation.arity
    ids = relation.locate(rows, count)
    if NO_ROW not in ids:
        return rows, ids
    stored_rows, stored_ids = array("I"), array("I")
    for i, id in enumerate(ids):
        if id != NO_ROW:
            stored_rows.extend(rows[i * arity : (i + 1) * arity])
            stored_ids.append(id)
    return stored_rows, stored_ids
