"""Bytecode: which word is rejected, and that nothing that passes can do harm."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from engine import assembler as asm
from engine.assembler import (
    BASE,
    CLASSES,
    DELTA,
    DERIVED,
    FIRST,
    FULL,
    LEAST,
    absent,
    compare,
    component,
    emit,
    group,
    intersect,
    key,
    load,
    member,
    pattern,
    plan,
    probe,
    rule,
    same,
    scan,
)
from kbplanner.engine.backend import RunLimits, RunState
from kbplanner.engine.engine import Engine, opcodes
from kbplanner.errors import BudgetExceeded, EngineFault
from kbplanner.ir.limits import MAX_REGISTERS
from kbplanner.ir.operators import AGGREGATES

BEST = [(2, BASE), (1, DERIVED), (2, LEAST), (0, DERIVED)]
SLOTS = [(2, BASE), (1, DERIVED), (2, DERIVED), (0, DERIVED)]
FIRST_ROWS = [(2, BASE), (1, DERIVED), (2, FIRST + 1), (0, DERIVED)]


def refused_at(engine, words):
    with pytest.raises(EngineFault) as caught:
        engine.load(words)
    return caught.value.details["word"]


def one(*steps, slots=SLOTS, recursive=False, params=1, registers=6):
    """A plan of one rule; its first step starts at word HEAD."""
    return plan(
        slots,
        component(rule(1, *steps), recursive=recursive),
        answer=1,
        params=params,
        registers=registers,
    )


HEAD = 8 + 2 * len(SLOTS) + 3 + 3


def test_the_table_of_opcodes():
    table = opcodes()
    assert list(table) == [
        "END", "COMPONENT", "RULE", "SCAN", "PROBE", "MEMBER", "ABSENT", "COMPARE", "COPY", "EMIT",
        "CALL", "AGGREGATE", "TEST", "MATCHES", "EQUAL", "INTERSECT", "CAPTURE", "GENERATE",
    ]  # fmt: skip
    assert [number for number, _ in table.values()] == list(range(18))
    assert [operands for _, operands in table.values()] == [
        0,
        2,
        2,
        -1,
        -1,
        -1,
        -1,
        3,
        2,
        -1,
        -1,
        -1,
        3,
        -1,
        2,
        -1,
        -1,
        -1,
    ]


def test_good_plans(engine):
    engine.load(asm.closure())
    engine.load(asm.reach())
    engine.load(plan([(0, DERIVED)], answer=0, registers=0))
    engine.load(plan([(64, DERIVED)], component(), answer=0))
    engine.load(plan([(0, DERIVED)], answer=0, registers=MAX_REGISTERS))
    engine.load(
        one(
            scan(0, DELTA, load(1), same(1)),
            compare("<=", 1, 0, negated=True),
            asm.copy(5, 1),
            emit(1, 5),
        )
    )
    engine.load(one(emit(3)))
    engine.load(meeting([key(1), load(3)], [key(2), same(3)]))


SCANNED = scan(0, DELTA, load(1), load(2))
MEET = HEAD + len(SCANNED) + 1


def meeting(columns, others, *, slot=0, view=FULL):
    return one(SCANNED, intersect(0, FULL, columns, slot, view, others), emit(3))


FAULTS = {
    "intersection without a value": (meeting([key(1), key(2)], [key(1), key(2)]), MEET),
    "intersection of two values": (meeting([load(3), load(4)], [same(3), key(1)]), MEET + 2),
    "intersection without a key": (meeting([0, load(3)], [same(3), key(1)]), MEET + 2),
    "intersection that does not meet": (meeting([key(1), load(3)], [key(1), key(2)]), MEET + 4),
    "intersection that meets twice": (meeting([key(1), load(3)], [same(3), same(3)]), MEET + 7),
    "intersection by the value alone": (meeting([key(1), load(3)], [same(3)], slot=1), MEET + 4),
    "intersection with a key of its own": (meeting([key(1), load(3)], [same(3), key(3)]), MEET + 7),
    "intersection that loads again": (meeting([key(1), load(3)], [same(3), load(4)]), MEET + 7),
    "intersection with an unknown view": (
        meeting([key(1), load(3)], [same(3), key(1)], view=3),
        MEET + 5,
    ),
    "intersection with an unknown slot": (
        meeting([key(1), load(3)], [same(3), key(1)], slot=9),
        MEET + 4,
    ),
    "parameter written": (one(scan(0, DELTA, load(0), 0), emit(3)), HEAD + 3),
    "register out of range": (one(scan(0, DELTA, load(6), 0), emit(3)), HEAD + 3),
    "register written twice": (one(scan(0, DELTA, load(1), load(1)), emit(3)), HEAD + 4),
    "register written again later": (one(SCANNED, scan(0, FULL, load(2), 0), emit(3)), HEAD + 8),
    "key read before it is written": (one(scan(0, DELTA, key(1), 0), emit(3)), HEAD + 3),
    "key of this very step": (one(scan(0, DELTA, load(1), key(1)), emit(3)), HEAD + 4),
    "same as nothing": (one(scan(0, DELTA, same(1), load(1)), emit(3)), HEAD + 3),
    "same as another step": (one(SCANNED, scan(0, FULL, same(1), 0), emit(3)), HEAD + 8),
    "same as a parameter": (one(scan(0, DELTA, same(0), 0), emit(3)), HEAD + 3),
    "anything with an operand": (one(scan(0, DELTA, 1, 0), emit(3)), HEAD + 3),
    "slot out of range": (one(scan(4, DELTA, 0, 0), emit(3)), HEAD + 1),
    "view out of range": (one(scan(0, 3, 0, 0), emit(3)), HEAD + 2),
    "probe without a key": (one(probe(0, DELTA, load(1), 0), emit(3)), HEAD + 3),
    "member with a load": (one(member(0, DELTA, key(0), load(1)), emit(3)), HEAD + 4),
    "absent with a load": (one(absent(0, key(0), load(1)), emit(3)), HEAD + 3),
    "absent of what is never made": (one(absent(1, key(0)), emit(3)), HEAD + 1),
    "compare with an unknown test": (one([asm.OP["COMPARE"], 16, 0, 0], emit(3)), HEAD + 1),
    "compare of nothing": (one(compare("<", 0, 3), emit(3)), HEAD + 3),
    "copy to a parameter": (one(asm.copy(0, 0), emit(3)), HEAD + 1),
    "copy of itself": (one(asm.copy(1, 1), emit(3)), HEAD + 2),
    "emit of nothing": (one(SCANNED, emit(2, 1, 3)), HEAD + 8),
    "emit to a base relation": (one(SCANNED, emit(0, 1, 2)), HEAD + 6),
    "an unknown opcode": (one([len(asm.OP)], emit(3)), HEAD),
    "an unknown function": (one([asm.OP["CALL"], 99, 1, 1, 0], emit(3)), HEAD + 1),
    "a function of too few values": (one([asm.OP["CALL"], 0, 1, 1, 0], emit(3)), HEAD + 3),
    "too many registers": (plan([(0, DERIVED)], answer=0, registers=MAX_REGISTERS + 1), 4),
    "a function of too many values": (
        one([asm.OP["CALL"], 7, 1, 65, *[0] * 65], emit(3)),
        HEAD + 3,
    ),
    "a function of a register without a value": (
        one([asm.OP["CALL"], 0, 1, 2, 0, 2], emit(3)),
        HEAD + 5,
    ),
    "a function of its own value": (one([asm.OP["CALL"], 0, 1, 2, 0, 1], emit(3)), HEAD + 5),
    "a function into a parameter": (one([asm.OP["CALL"], 0, 0, 2, 0, 0], emit(3)), HEAD + 2),
    "a function into a register too far": (one([asm.OP["CALL"], 0, 6, 2, 0, 0], emit(3)), HEAD + 2),
    "groups of a base relation": (one(group(0, load(1), load(2))), HEAD + 1),
    "groups of old rows": (one([asm.OP["AGGREGATE"], 1, FULL, load(1), 0]), HEAD + 1),
    "groups inside a loop": (one(SCANNED, group(1, load(3))), HEAD + 6),
    "groups by a key": (one(group(1, key(0))), HEAD + 3),
    "an unknown aggregate": (one(group(2, load(1), 0, (len(AGGREGATES), 0, 2))), HEAD + 6),
    "an aggregate of a column too far": (one(group(2, load(1), 0, (1, 2, 2))), HEAD + 7),
    "an aggregate of a column of a flag": (one(group(3, (0, 1, 1))), HEAD + 5),
    "an aggregate into a parameter": (one(group(2, load(1), 0, (1, 1, 0))), HEAD + 8),
    "an aggregate into a column of the group": (one(group(2, load(1), 0, (1, 1, 1))), HEAD + 8),
    "more aggregates than columns": (one([asm.OP["AGGREGATE"], 3, DELTA, 65]), HEAD + 3),
    "groups of what is not complete": (one(group(1, load(1)), emit(3)), HEAD + 1),
    "groups of best rows": (one(group(2, load(1), 0), slots=BEST), HEAD + 1),
    "an intersection with best rows": (
        one(
            SCANNED,
            intersect(0, FULL, [key(1), load(3)], 2, FULL, [key(2), same(3)]),
            emit(3),
            slots=BEST,
        ),
        MEET + 4,
    ),
    "an intersection of best rows": (
        one(
            SCANNED,
            intersect(2, FULL, [key(1), load(3)], 0, FULL, [key(2), same(3)]),
            emit(3),
            slots=BEST,
        ),
        MEET,
    ),
    "best rows without a column": (one(emit(3), slots=[*SLOTS[:3], (0, LEAST)]), 8 + 6),
    "a key of more columns than the row": (
        one(emit(3), slots=[*SLOTS[:2], (2, FIRST + 3), SLOTS[3]]),
        8 + 4,
    ),
    "first rows without a column": (one(emit(3), slots=[*SLOTS[:3], (0, FIRST)]), 8 + 6),
    "an absence of a first row": (
        one(SCANNED, absent(2, key(1), key(2)), emit(3), slots=FIRST_ROWS),
        HEAD + 6,
    ),
    "a first row as a member": (
        one(SCANNED, member(2, FULL, key(1), key(2)), emit(3), slots=FIRST_ROWS),
        HEAD + 6,
    ),
    "classes of three columns": (one(emit(3), slots=[*SLOTS[:2], (3, CLASSES), SLOTS[3]]), 8 + 4),
    "numbers into a parameter": (one([asm.OP["EQUAL"], 0, 0], emit(3)), HEAD + 1),
    "numbers of nothing": (one([asm.OP["EQUAL"], 1, 1], emit(3)), HEAD + 2),
    "an unknown test": (one(SCANNED, [asm.OP["TEST"], 3, 1, 2], emit(3)), HEAD + 6),
    "a test of too many bits": (one(SCANNED, [asm.OP["TEST"], 16, 1, 2], emit(3)), HEAD + 6),
    "a test of nothing": (one(SCANNED, [asm.OP["TEST"], 0, 1, 3], emit(3)), HEAD + 8),
    "a pattern for nothing": (one(pattern(1, 0), emit(3)), HEAD + 2),
    "a pattern negated twice": (one([asm.OP["MATCHES"], 2, 0, 1, 0], emit(3)), HEAD + 1),
    "an empty pattern": (one(pattern(0), emit(3)), HEAD + 3),
    "a pattern past the end": (one([asm.OP["MATCHES"], 0, 0, 500, 0], emit(3)), HEAD + 3),
    "a pattern too long": (one(pattern(0, *[0] * 5000), emit(3)), HEAD + 3),
    "a pattern that does not end": (one(pattern(0, 4), emit(3)), HEAD + 4),
    "a pattern of unknown words": (one(pattern(0, 8, 0), emit(3)), HEAD + 4),
    "an unknown generator": (one([asm.OP["GENERATE"], 3, 1, 2, 0, 0], emit(3)), HEAD + 1),
    "a generator of too few values": (one([asm.OP["GENERATE"], 1, 1, 1, 0], emit(3)), HEAD + 3),
    "a generator of too many values": (
        one([asm.OP["GENERATE"], 0, 1, 65, *[0] * 65], emit(3)),
        HEAD + 3,
    ),
    "a generator of its own value": (
        one([asm.OP["GENERATE"], 1, 1, 2, 0, 1], emit(3)),
        HEAD + 5,
    ),
    "a generator into a parameter": (
        one([asm.OP["GENERATE"], 1, 0, 2, 0, 0], emit(3)),
        HEAD + 2,
    ),
    "a group into a parameter": (one([asm.OP["CAPTURE"], 0, 0, 1, 0], emit(3)), HEAD + 1),
    "a group of nothing": (one([asm.OP["CAPTURE"], 1, 2, 1, 0], emit(3)), HEAD + 2),
    "a group of an empty pattern": (one([asm.OP["CAPTURE"], 1, 0, 0], emit(3)), HEAD + 3),
    "a group of unknown words": (one([asm.OP["CAPTURE"], 1, 0, 2, 8, 0], emit(3)), HEAD + 4),
    "a pattern of too many ranges": (one(pattern(0, 1, 2, 97, 98, 0), emit(3)), HEAD + 4),
    "a pattern with a jump out of it": (one(pattern(0, 3, 3, 0), emit(3)), HEAD + 5),
    "a pattern with a jump into a word": (one(pattern(0, 2, 1, 3, 0), emit(3)), HEAD + 5),
    "a component inside a rule": (one([asm.OP["COMPONENT"], 0, 0], emit(3)), HEAD),
    "reads what it emits": (one(scan(1, DELTA, load(1)), emit(1, 1)), HEAD + 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_inside_a_rule(engine, fault):
    words, word = FAULTS[fault]
    assert refused_at(engine, words) == word


def test_best_rows_take_no_seeds(engine):
    words = plan([(1, LEAST)], answer=0, seed=0)
    assert refused_at(engine, words) == 6


def changed(words, at, value):
    copy = words[:]
    copy[at] = value
    return copy


def test_faults_of_the_frame(engine):
    good = asm.reach()
    slots = 8 + 2 * 3
    for at, value, word in [
        (0, 0, 0),
        (1, 2, 1),
        (2, 0xFFFFFFFF, 2),
        (2, 0x0FFFFFFF, 2),
        (3, 9, 3),
        (4, 0x10001, 4),
        (5, 0xFFFFFFFF, 5),
        (6, 3, 6),
        (6, 0, 6),
        (7, 3, 7),
        (7, 0, 7),
        (8, 65, 8),
        (9, 71, 9),
        (slots, 2, slots),
        (slots + 1, 2, slots + 1),
        (slots + 2, 4, len(good) - 1),
        (slots + 2, 0xFFFFFFFF, slots + 2),
        (slots + 5, 1, slots + 5),
        (slots + 5, 0xFFFFFFFF, slots + 5),
        (len(good) - 1, 1, len(good) - 1),
    ]:
        assert refused_at(engine, changed(good, at, value)) == word, (at, value)
    for length in range(len(good)):
        assert refused_at(engine, good[:length]) <= length
    assert refused_at(engine, good + array("I", [0])) == len(good)


def test_components_come_in_order(engine):
    slots = [(1, BASE), (1, DERIVED), (1, DERIVED)]
    first = rule(1, scan(0, DELTA, load(0)), emit(1, 0))
    second = rule(2, scan(1, DELTA, load(0)), emit(2, 0))
    negated = rule(2, scan(0, DELTA, load(0)), absent(1, key(0)), emit(2, 0))
    engine.load(plan(slots, component(first), component(second), answer=2))
    engine.load(plan(slots, component(first), component(negated), answer=2))
    engine.load(plan(slots, component(first, second, recursive=True), answer=2))
    for parts in (
        [component(second), component(first)],
        [component(negated), component(first)],
        [component(first, second)],
        [component(first, negated, recursive=True)],
        [component(first), component(first)],
    ):
        refused_at(engine, plan(slots, *parts, answer=2))


def try_to_run(engine, words):
    """Load and, if that passes, run with little of everything; any outcome but a crash will do."""
    try:
        compiled = engine.load(words)
    except EngineFault as fault:
        return fault.details["word"] <= len(words)
    base = []
    for slot in range(words[2]):
        arity, derived = words[8 + 2 * slot], words[9 + 2 * slot]
        if not derived:
            relation = engine.relation(arity)
            flat = array(
                "I", [1 + (row * 3 + column) % 5 for row in range(6) for column in range(arity)]
            )
            relation.insert(flat, 6 if arity else 1)
            base.append(relation)
    run = engine.open_run(
        compiled, base, [1 + i % 5 for i in range(words[3])], RunLimits(300, 1 << 20, 3000)
    )
    try:
        if words[6] != asm.NO_SLOT:
            arity = words[8 + 2 * words[6]]
            run.seed(array("I", [1 + i % 5 for i in range(2 * arity)]), 2)
        for fuel in (1, 7, 1 << 30):
            if run.step(fuel) == RunState.DONE:
                break
        for relation in base:
            relation.insert(array("I", [3] * relation.arity), 1)
        run.step(1 << 30)
    except BudgetExceeded:
        pass
    except EngineFault as fault:
        return "paused" in str(fault)
    finally:
        run.close()
        for relation in base:
            relation.drop()
    return True


@pytest.fixture(scope="module")
def hostile():
    engine = Engine()
    engine.intern_many(["1", "2", "x", "y", "z"])
    yield engine
    engine.close()


GOOD = [
    asm.closure(),
    asm.reach(),
    asm.computing(),
    one(
        SCANNED,
        asm.call(1, 3, 1, 2),
        [asm.OP["EQUAL"], 4, 3],
        probe(0, FULL, key(4), 0),
        emit(1, 3),
        recursive=True,
    ),
    plan(
        SLOTS,
        component(rule(1, SCANNED, emit(2, 1, 2))),
        component(rule(2, group(2, load(1), 0, (2, 1, 2)), emit(1, 2))),
        answer=1,
    ),
    one(
        SCANNED,
        probe(0, FULL, key(2), load(3)),
        absent(0, key(3), 0),
        compare("<", 1, 3),
        emit(2, 1, 3),
    ),
    one(
        scan(0, DELTA, load(1), same(1)),
        member(0, FULL, key(1), key(0)),
        asm.copy(2, 1),
        emit(1, 2),
    ),
    plan(
        SLOTS,
        component(rule(1, SCANNED, emit(1, 1)), rule(2, SCANNED, emit(1, 2))),
        component(
            rule(3, SCANNED, absent(1, key(1)), emit(2, 1, 2)), rule(4, absent(1, 0), emit(3))
        ),
        answer=2,
    ),
]
WORDS = st.one_of(
    st.integers(0, 12),
    st.sampled_from(
        [
            0xFFFFFFFF,
            0x80000000,
            0x40000000,
            0x4B425031,
            load(1),
            key(1),
            same(1),
            load(2),
            key(2),
            0x10000,
        ]
    ),
    st.integers(0, 0xFFFFFFFF),
)


@examples(600)
@given(
    base=st.sampled_from(GOOD),
    edits=st.lists(st.tuples(st.integers(0, 200), WORDS), max_size=4),
    data=st.data(),
)
def test_changed_plans_do_no_harm(hostile, base, edits, data):
    words = base[:]
    for at, value in edits:
        words[at % len(words)] = value
    if data.draw(st.integers(0, 9)) == 0:
        at = data.draw(st.integers(0, len(words)))
        words = words[:at] + array("I", data.draw(st.lists(WORDS, max_size=3))) + words[at:]
    assert try_to_run(hostile, words)


@examples(200)
@given(st.lists(WORDS, max_size=60))
def test_random_words_do_no_harm(hostile, words):
    assert try_to_run(hostile, array("I", [0x4B425031, 1, *words]))


REGISTERS = st.integers(0, 5)


@st.composite
def steps(draw):
    """A step that is well formed by itself, with registers and kinds at random."""
    slot = draw(st.integers(0, 3))
    arity = SLOTS[slot][0]
    kinds = st.one_of(
        st.just(0),
        st.builds(load, REGISTERS),
        st.builds(key, REGISTERS),
        st.builds(same, REGISTERS),
    )
    op = draw(
        st.sampled_from(
            [
                "SCAN",
                "PROBE",
                "MEMBER",
                "ABSENT",
                "COMPARE",
                "COPY",
                "CALL",
                "TEST",
                "MATCHES",
                "EQUAL",
            ]
        )
    )
    if op == "CALL":
        return asm.call(
            draw(st.integers(0, 14)),
            draw(REGISTERS),
            *draw(st.lists(REGISTERS, min_size=1, max_size=3)),
        )
    if op == "TEST":
        return [asm.OP[op], draw(st.integers(0, 11)), draw(REGISTERS), draw(REGISTERS)]
    if op == "MATCHES":
        return pattern(draw(REGISTERS), *draw(st.lists(st.integers(0, 6), max_size=5)), 0)
    if op == "EQUAL":
        return [asm.OP[op], draw(REGISTERS), draw(REGISTERS)]
    if op == "COMPARE":
        return [asm.OP[op], draw(st.integers(0, 15)), draw(REGISTERS), draw(REGISTERS)]
    if op == "COPY":
        return [asm.OP[op], draw(REGISTERS), draw(REGISTERS)]
    view = [] if op == "ABSENT" else [draw(st.integers(0, 2))]
    return [asm.OP[op], slot, *view, *(draw(kinds) for _ in range(arity))]


@st.composite
def heads(draw):
    slot = draw(st.integers(1, 3))
    return emit(slot, *(draw(REGISTERS) for _ in range(SLOTS[slot][0])))


@examples(600)
@given(data=st.data(), recursive=st.booleans())
def test_made_up_rules_do_no_harm(hostile, data, recursive):
    rules = [
        rule(n, *data.draw(st.lists(steps(), max_size=3)), data.draw(heads()))
        for n in range(data.draw(st.integers(1, 3)))
    ]
    words = plan(
        SLOTS, component(*rules, recursive=recursive), answer=1, seed=1, params=2, registers=6
    )
    assert try_to_run(hostile, words)
