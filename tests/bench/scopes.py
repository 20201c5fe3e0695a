"""What forks, merges and context windows ask of a relation: a copy, the difference of two, the most
salient rows.
"""

from __future__ import annotations

import random
from array import array
from collections.abc import Iterator, Mapping

from measure import Effort, Sample, median_of
from table import Row

from kbplanner.engine.backend import Attribute
from kbplanner.engine.engine import Engine, Relation
from kbplanner.engine.salience import Salience

HOUR = 3_600_000
NOW = 1_700_000_000_000
HOW = Salience(0.5, 0.3, 0.2, HOUR, NOW)
TOP = 100
CELL = 8

SHORT = 20e-6
"""A pass that takes no longer than this is too short beside the call itself to say anything."""


def scopes(effort: Effort, peers: Mapping[str, object]) -> Iterator[Row]:
    """One relation of pairs, loaded over ten hours."""
    count = effort.pick(1_000_000, 5000)
    draw = random.Random(40)
    engine = Engine()
    engine.intern_many([f"n{i}" for i in range(max(count // 5, 100))])
    names = max(count // 5, 100)
    base = engine.relation(2)
    while base.counts().rows < count:
        more = count - base.counts().rows
        base.insert(array("I", [draw.randrange(names) + 1 for _ in range(2 * more)]), more)
    ids = array("I", range(count))
    base.set_attribute(
        Attribute.CREATED_AT,
        ids,
        [NOW - 10 * HOUR + 36 * HOUR * i // count // 4 for i in range(count)],
    )
    size = f"{count:,}"
    yield from copies(base, size, effort)
    yield from differences(base, draw, count, size, effort)
    yield ranked(base, f"top {TOP} by salience, never accessed", 1, size, effort)
    base.set_attribute(Attribute.LAST_ACCESS, ids, [NOW - draw.randrange(10 * HOUR) for _ in ids])
    base.set_attribute(Attribute.ACCESSES, ids, [draw.choice((1, 1, 1, 2, 5, 40)) for _ in ids])
    base.set_attribute(Attribute.PRIORITY, ids, [draw.random() for _ in ids])
    base.set_attribute(Attribute.CONFIDENCE, ids, [draw.random() for _ in ids])
    yield ranked(base, f"top {TOP} by salience, every cell set", 5, size, effort)
    all_scores = median_of(lambda: len(base.salience(ids, HOW)), effort)
    yield Row("salience of every row", size, all_scores.answers, all_scores)
    below = median_of(lambda: len(base.least_salient(0.1, HOW)), effort)
    yield Row("rows below a salience of 0.1", size, below.answers, below)
    base.drop()
    engine.close()


def copies(base: Relation, size: str, effort: Effort) -> Iterator[Row]:
    """A fork: the copy, and the first question that needs an index; bytes of both together."""
    copy = base.copy()
    held = base.bytes()

    def fork() -> int:
        one = base.copy()
        live = one.counts().live
        one.drop()
        return live

    def with_index() -> int:
        one = base.copy()
        one.index([0])
        live = one.counts().live
        one.drop()
        return live

    plain = moved(copy.bytes(), effort)
    yield compared(
        "copy of a relation", size, median_of(fork, effort), plain, 3, "memcpy of its bytes"
    )
    indexed = median_of(with_index, effort)
    yield Row("copy, then an index on first use", size, indexed.answers, indexed)
    row = Row(
        "bytes of a relation and its copy", size, None, f"{(held + copy.bytes()) / 1e6:.3g} MB"
    )
    row.ratio, row.floor = f"{(held + copy.bytes()) / held:.3g} × one", "≤ 2 × one"
    row.met = held + copy.bytes() <= 2 * held
    yield row
    copy.drop()


def differences(
    base: Relation, draw: random.Random, count: int, size: str, effort: Effort
) -> Iterator[Row]:
    """A merge: nearly equal relations in the same order, and equal ones in another."""
    copy = base.copy()
    rows, ids = base.match([0, 0])
    gone = sorted(draw.sample(range(count), 100))
    copy.delete(array("I", [rows[2 * i + j] for i in gone for j in (0, 1)]), len(gone))
    same = median_of(lambda: sum(map(len, base.compare(copy)[:4])), effort)
    yield Row("difference of two relations, 100 rows", size, same.answers, same)
    copy.drop()
    order = list(ids)
    draw.shuffle(order)
    other = base.copy()
    other.delete(rows, count)
    other.insert(array("I", [rows[2 * i + j] for i in order for j in (0, 1)]), count)
    shuffled = median_of(lambda: base.compare(other).equal, effort)
    yield Row("difference of two relations, in another order", size, shuffled.answers, shuffled)
    other.drop()


def ranked(base: Relation, label: str, columns: int, size: str, effort: Effort) -> Row:
    """The best rows, beside one pass over as many bytes as their cells have."""
    ours = median_of(lambda: len(base.most_salient(TOP, HOW)[0]), effort)
    plain = passed(columns * CELL * base.counts().rows, effort)
    return compared(label, size, ours, plain, 5, "memcmp of its cells")


def compared(label: str, size: str, ours: Sample, plain: Sample, times: int, what: str) -> Row:
    """A row judged against a plain pass over memory."""
    row = Row(label, size, ours.answers, ours)
    if ours.seconds is None or plain.seconds is None:
        raise AssertionError("both were measured")
    row.ratio = f"{ours.seconds / plain.seconds:.3g} × {what} ({plain})"
    row.floor = f"≤ {times} × {what}"
    row.met = None if plain.seconds < SHORT else ours.seconds <= times * plain.seconds
    return row


def moved(size: int, effort: Effort) -> Sample:
    """Copy that many bytes to where bytes were copied before."""
    source, target = bytes(size), memoryview(bytearray(size))

    def move() -> int:
        target[:] = source
        return size

    return median_of(move, effort)


def passed(size: int, effort: Effort) -> Sample:
    """Compare that many bytes with as many others."""
    one, other = bytes(size), bytearray(size)
    return median_of(lambda: int(one == other), effort)
