"""An assembler for bytecode, so that tests of the engine need no planner."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from kbplanner.engine.engine import opcodes

OP = {name: number for name, (number, _) in opcodes().items()}
FULL, DELTA, OLD = 0, 1, 2
BASE, DERIVED, DEMAND, LEAST, GREATEST, CLASSES = range(6)
FIRST = 6
"""The kind of a relation of first rows is this number and the columns of its key."""
NO_SLOT = 0xFFFFFFFF
COMPARE = {"=": 0, "!=": 1, "==": 2, "!==": 3, "<": 4, "<=": 5, ">": 6, ">=": 7}

ANY = 0


def load(register: int) -> int:
    return 1 << 30 | register


def key(register: int) -> int:
    return 2 << 30 | register


def same(register: int) -> int:
    return 3 << 30 | register


def scan(slot: int, view: int, *columns: int) -> list[int]:
    return [OP["SCAN"], slot, view, *columns]


def probe(slot: int, view: int, *columns: int) -> list[int]:
    return [OP["PROBE"], slot, view, *columns]


def member(slot: int, view: int, *columns: int) -> list[int]:
    return [OP["MEMBER"], slot, view, *columns]


def intersect(
    slot: int, view: int, columns: Sequence[int], other: int, other_view: int, others: Sequence[int]
) -> list[int]:
    return [OP["INTERSECT"], slot, view, *columns, other, other_view, *others]


def absent(slot: int, *columns: int) -> list[int]:
    return [OP["ABSENT"], slot, *columns]


def compare(op: str, a: int, b: int, *, negated: bool = False) -> list[int]:
    return [OP["COMPARE"], COMPARE[op] + 8 * negated, a, b]


def copy(to: int, source: int) -> list[int]:
    return [OP["COPY"], to, source]


def emit(slot: int, *registers: int) -> list[int]:
    return [OP["EMIT"], slot, *registers]


def call(function: int, to: int, *registers: int) -> list[int]:
    return [OP["CALL"], function, to, len(registers), *registers]


def group(slot: int, *words: int | tuple[int, int, int]) -> list[int]:
    """Column words, then folds: (function, column, register)."""
    folds = [word for word in words if isinstance(word, tuple)]
    columns = [word for word in words if not isinstance(word, tuple)]
    return [
        OP["AGGREGATE"],
        slot,
        DELTA,
        *columns,
        len(folds),
        *(part for fold in folds for part in fold),
    ]


def pattern(register: int, *program: int) -> list[int]:
    return [OP["MATCHES"], 0, register, len(program), *program]


def rule(number: int, *steps: list[int]) -> list[int]:
    words = [word for step in steps for word in step]
    return [OP["RULE"], number, len(words), *words]


def component(*rules: list[int], recursive: bool = False) -> list[int]:
    return [OP["COMPONENT"], int(recursive), len(rules), *(word for one in rules for word in one)]


def plan(
    slots: Sequence[tuple[int, int]],
    *components: list[int],
    answer: int,
    seed: int = NO_SLOT,
    params: int = 0,
    registers: int = 8,
) -> array[int]:
    """`slots` are pairs (arity, kind), with a kind such as BASE."""
    words = [0x4B425031, 1, len(slots), params, registers, len(components), seed, answer]
    for slot in slots:
        words.extend(slot)
    for one in components:
        words.extend(one)
    words.append(OP["END"])
    return array("I", words)


def closure() -> array[int]:
    """Slot 0 edge (base), slot 1 path: the closure by a left-linear rule."""
    return plan(
        [(2, BASE), (2, DERIVED)],
        component(
            rule(1, scan(0, DELTA, load(0), load(1)), emit(1, 0, 1)),
            rule(
                2, scan(1, DELTA, load(0), load(1)), probe(0, FULL, key(1), load(2)), emit(1, 0, 2)
            ),
            rule(
                2, scan(0, DELTA, load(1), load(2)), probe(1, OLD, load(0), key(1)), emit(1, 0, 2)
            ),
            recursive=True,
        ),
        answer=1,
    )


def paths() -> array[int]:
    """Slot 0 edge (base), slot 1 demand for starts, slot 2 paths from them: right-linear, guarded
    by its demand.
    """
    guarded, step = member(1, OLD, key(0)), probe(0, FULL, key(0), load(1))
    return plan(
        [(2, BASE), (1, DEMAND), (2, DERIVED)],
        component(
            rule(1, scan(1, DELTA, load(0)), step, emit(2, 0, 1)),
            rule(1, scan(0, DELTA, load(0), load(1)), guarded, emit(2, 0, 1)),
            rule(0, scan(1, DELTA, load(0)), step, emit(1, 1)),
            rule(0, scan(0, DELTA, load(0), load(1)), guarded, emit(1, 1)),
            rule(2, scan(1, DELTA, load(0)), step, probe(2, FULL, key(1), load(2)), emit(2, 0, 2)),
            rule(
                2,
                scan(0, DELTA, load(0), load(1)),
                guarded,
                probe(2, FULL, key(1), load(2)),
                emit(2, 0, 2),
            ),
            rule(
                2,
                scan(2, DELTA, load(1), load(2)),
                probe(0, OLD, load(0), key(1)),
                guarded,
                emit(2, 0, 2),
            ),
            recursive=True,
        ),
        answer=2,
        seed=1,
    )


def computing() -> array[int]:
    """Slot 0 pairs (base); 1: pairs with what is computed of them; 2: groups of those; 3: pairs of
    equal numbers.
    """
    made = [
        call(0, 2, 0, 1),
        call(10, 3, 0, 1),
        call(12, 4, 3),
        pattern(3, 1, 1, 48, 0x10FFFF, 0),
        emit(1, 0, 2, 4),
    ]
    return plan(
        [(2, BASE), (3, DERIVED), (4, DERIVED), (2, DERIVED)],
        component(rule(1, scan(0, DELTA, load(0), load(1)), *made)),
        component(
            rule(
                2, group(1, load(0), ANY, ANY, (1, 1, 1), (4, 1, 2), (0, 0, 3)), emit(2, 0, 1, 2, 3)
            )
        ),
        component(
            rule(
                3,
                scan(0, DELTA, load(0), load(1)),
                [OP["EQUAL"], 2, 0],
                probe(0, FULL, ANY, key(2)),
                [OP["TEST"], 10, 0, 1],
                emit(3, 0, 2),
            )
        ),
        answer=2,
        registers=8,
    )


def reach() -> array[int]:
    """Slot 0 edge (base), slot 1 seed and answer: what can be reached from the seeds."""
    return plan(
        [(2, BASE), (1, DERIVED), (1, DERIVED)],
        component(
            rule(1, scan(1, DELTA, load(0)), emit(2, 0)),
            rule(2, scan(2, DELTA, load(0)), probe(0, FULL, key(0), load(1)), emit(2, 1)),
            rule(2, scan(0, DELTA, load(0), load(1)), member(2, OLD, key(0)), emit(2, 1)),
            recursive=True,
        ),
        answer=2,
        seed=1,
    )
