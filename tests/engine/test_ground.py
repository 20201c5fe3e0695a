"""Ground programs: the C solver, the reference and a naive fixpoint agree; malformed arrays."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbplanner.engine import ground as reference
from kbplanner.engine import ground_solver
from kbplanner.engine.binding import ffi, lib
from kbplanner.engine.engine import Engine
from kbplanner.engine.ground import NONE, Ground
from kbplanner.errors import BudgetExceeded, EngineFault

NODES = 6
instances = st.lists(
    st.tuples(st.integers(0, NODES - 1), st.lists(st.integers(0, NODES - 1), max_size=3)),
    max_size=14,
)


def made(free: list[tuple[int, list[int]]], steps: list[tuple[int, list[int]]]) -> Ground:
    ends, premises = array("I"), array("I")
    for _, below in (*free, *steps):
        premises.extend(below)
        ends.append(len(premises))
    return Ground(
        NODES, array("I", [head for head, _ in (*free, *steps)]), ends, premises, len(free)
    )


def naive_heights(ground: Ground) -> list[int]:
    heights = [NONE] * NODES
    changed = True
    while changed:
        changed = False
        for i, head in enumerate(ground.heads):
            below = [heights[node] for node in ground.of(i)]
            if NONE not in below:
                height = max(below, default=0) + (i >= ground.free)
                if height < heights[head]:
                    heights[head], changed = height, True
    return heights


def naive_best(ground: Ground, ranks: array) -> list[int]:
    best = [0] * NODES
    changed = True
    while changed:
        changed = False
        for i, head in enumerate(ground.heads):
            value = min([ranks[i], *(best[node] for node in ground.of(i))])
            if value > best[head]:
                best[head], changed = value, True
    return best


@examples(1000)
@given(instances, instances)
def test_shortest_proofs(free, steps):
    ground = made(
        [(head, [node for node in below if node < head]) for head, below in free[:4]], steps
    )
    found = ground_solver.shortest(Engine(), ground)
    assert found == reference.shortest(ground)
    assert list(found.heights) == naive_heights(ground)
    for node, (height, instance) in enumerate(zip(found.heights, found.chosen, strict=True)):
        assert (height == NONE) is (instance == NONE)
        if height != NONE:
            assert ground.heads[instance] == node
            cost = 0 if instance < ground.free else 1
            assert all(found.heights[below] + cost <= height for below in ground.of(instance))
    for node, count in enumerate(found.counts):
        assert count == sum(
            head == node and node not in ground.of(i) for i, head in enumerate(ground.heads)
        )


@examples(1000)
@given(instances, st.data())
def test_best_values(steps, data):
    ground = made([], steps)
    ranks = array("I", [data.draw(st.integers(0, len(steps))) for _ in steps])
    found = ground_solver.widest(Engine(), ground, ranks)
    assert found == reference.widest(ground, ranks)
    assert list(found) == naive_best(ground, ranks)


@examples(200)
@given(instances, st.data())
def test_what_rests_on_a_mark(steps, data):
    ground = made([], steps)
    marked = bytearray(data.draw(st.booleans()) for _ in steps)
    touched = set()
    for _ in range(NODES + 1):
        touched |= {
            head
            for i, head in enumerate(ground.heads)
            if marked[i] or touched.intersection(ground.of(i))
        }
    assert {
        node for node, mark in enumerate(reference.touched(ground, marked, lambda: None)) if mark
    } == touched


def test_no_room_leaves_nothing_behind():
    engine = Engine()
    ground = made([(0, [])], [(1, [0]), (2, [0, 1]), (2, [2])])
    before = engine.bytes
    for solve in (
        lambda: ground_solver.shortest(engine, ground),
        lambda: ground_solver.widest(engine, ground, array("I", [1, 2, 3, 4])),
    ):
        expected, failures = solve(), 0
        for nth in range(1, 20):
            engine.fail_after(nth)
            try:
                assert solve() == expected
                break
            except BudgetExceeded:
                failures += 1
            finally:
                engine.fail_after(0)
        assert failures >= 4
        assert engine.bytes == before


def raw(
    engine: Engine,
    heads: list[int],
    ends: list[int],
    premises: list[int],
    free: int = 0,
    **wrong: int,
) -> int:
    views = [ffi.new("uint32_t[]", [*values, 0]) for values in (heads, ends, premises)]
    sizes = {"nodes": 3, "count": len(heads), "free": free, "premise_count": len(premises)} | wrong
    ground = ffi.new("kb_ground *", [*sizes.values(), *views])
    out = [ffi.new("uint32_t[]", 8) for _ in range(3)]
    return int(lib.kb_ground_shortest(engine._handle, ground, *out))


def test_arrays_that_are_no_ground_program_are_refused():
    engine = Engine()
    assert raw(engine, [0, 1], [0, 1], [0]) == lib.KB_OK
    for hostile in (
        ([3], [0], [], 0),
        ([0], [1], [3], 0),
        ([0, 1], [1, 0], [0], 0),
        ([0], [2], [0], 0),
        ([0], [0], [], 2),
    ):
        assert raw(engine, *hostile) == lib.KB_MISUSE
    assert raw(engine, [0], [0], [], premise_count=1) == lib.KB_MISUSE
    null = ffi.NULL
    assert lib.kb_ground_shortest(null, null, null, null, null) == lib.KB_MISUSE
    assert lib.kb_ground_widest(engine._handle, null, null, null) == lib.KB_MISUSE


def test_a_rank_without_a_place_is_refused():
    with pytest.raises(Exception, match="bad handle, arity or argument"):
        ground_solver.widest(Engine(), made([], [(0, [])]), array("I", [2]))


def picked_by_model(ground: Ground, heights: array, chosen: array, firsts: list[int]) -> set[int]:
    """The instances of the proofs that end with some instances: all that a search may pick."""
    picked: set[int] = set()
    todo = list(firsts)
    while todo:
        number = todo.pop()
        if number not in picked:
            picked.add(number)
            todo.extend(
                chosen[node]
                for node in ground.of(number)
                if heights[node] and chosen[node] >= ground.free
            )
    return picked


def test_a_search_loses_nothing_at_its_limit():
    ground = made([], [(1, []), (0, [1, 2]), (2, [])])
    search = ground_solver.Search(ground, ground_solver.shortest(Engine(), ground), 0)
    assert [list(search.pick(1, 1)) for _ in range(4)] == [[1], [0], [2], []]


@examples(300)
@given(instances, instances, st.integers(1, 4), st.data())
def test_a_search_picks_each_instance_of_a_proof_once(free, steps, limit, data):
    ground = made([(head, []) for head, _ in free], steps)
    engine = Engine()
    proofs = ground_solver.shortest(engine, ground)
    ends = [i for i in proofs.chosen if i != NONE and i >= ground.free]
    if not ends:
        return
    firsts = data.draw(st.lists(st.sampled_from(ends), min_size=1, max_size=3))
    search = ground_solver.Search(ground, proofs, 0)
    picked: list[int] = []
    for first in firsts:
        batch = list(search.pick(first, limit))
        assert batch == sorted(batch)
        assert len(batch) <= limit
        picked += batch
        assert first in picked
    while batch := list(search.pick(firsts[0], limit)):
        picked += batch
    assert len(set(picked)) == len(picked)
    assert set(picked) == picked_by_model(ground, proofs.heights, proofs.chosen, firsts)


def test_a_search_passes_through_parts():
    """Instance 0 is the part of instance 2 with the premise 0, which instance 1 concludes."""
    ground = Ground(3, array("I", [1, 0, 2]), array("I", [1, 1, 2]), array("I", [0, 1]), 1)
    proofs = ground_solver.shortest(Engine(), ground)
    assert list(ground_solver.Search(ground, proofs, 1).pick(2, 10)) == [1, 2]


def test_a_search_picks_expected_instances_once():
    ground = made([], [(0, []), (1, [0]), (2, []), (3, [2])])
    search = ground_solver.Search(ground, ground_solver.shortest(Engine(), ground), 0)
    search.expect([1, 3, 3])
    assert list(search.pick(1, 3)) == [0, 1, 3]
    assert list(search.pick(1, 3)) == [2]


def test_a_search_from_no_instance_is_refused():
    ground = made([], [(0, []), (1, [0])])
    search = ground_solver.Search(ground, ground_solver.shortest(Engine(), ground), 0)
    with pytest.raises(EngineFault):
        search.pick(2, 10)
