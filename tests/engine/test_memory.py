"""Out of memory: after each failed allocation the engine is unchanged and works; no byte leaks."""

from __future__ import annotations

from array import array

import pytest

from engine import assembler as asm
from kbplanner.engine.backend import Attribute, RunLimits, RunState
from kbplanner.engine.engine import Engine
from kbplanner.errors import BudgetExceeded


def flat(rows):
    return array("I", [value for row in rows for value in row])


class Scenario:
    """Everything an engine does, call by call; each call can be tried again after it failed."""

    def __init__(self, engine):
        self.engine = engine
        self.names = [f"name number {i}" for i in range(90)] + [str(i) for i in range(90)]
        self.edges = [(i + 1, (i * 7) % 60 + 1) for i in range(60)] + [
            (i % 9 + 1, i + 1) for i in range(100)
        ]
        self.result = {}

    def steps(self):
        yield from (
            self.intern,
            self.make,
            self.fill,
            self.look,
            self.mark,
            self.hide,
            self.copy,
            self.shrink,
        )
        yield from (self.start, self.seed, self.work, self.grow, self.work, self.sort, self.finish)

    def intern(self):
        self.symbols = self.engine.intern_many(self.names)
        assert list(self.symbols) == list(range(1, 181))
        assert self.engine.intern("one more") == 181

    def make(self):
        self.relation = self.engine.relation(2)
        self.numbers = self.engine.relation(2)

    def fill(self):
        self.relation.insert(flat(self.edges), len(self.edges))
        self.relation.insert(flat([(180, i + 1) for i in range(30)]), 30)
        self.odd = self.engine.intern_many(["1.50", "2.0", "3e0", "word", "-0", "0.10"])
        self.numbers.insert(
            flat(
                [(91 + i % 7, 91 + i) for i in range(80)]
                + [(91 + i, odd) for i in (2, 3) for odd in self.odd]
            ),
            92,
        )

    def look(self):
        self.result["look"] = [
            list(self.relation.match(p)[1]) for p in ([1, 0], [0, 9], [3, 8], [0, 0])
        ]
        self.relation.index([0, 1])

    def mark(self):
        self.relation.set_attribute(Attribute.TTL, array("I", [1, 5]), [10, 50])
        self.relation.fill_attribute(Attribute.CONFIDENCE, 2, 7, 0.5)

    def hide(self):
        self.relation.hide(flat(self.edges[:3]), 3, True)
        self.relation.delete(flat(self.edges[3:5]), 2)

    def copy(self):
        self.twin = self.relation.copy()
        self.twin.insert(flat([(5, 170), (6, 171)]), 2)

    def shrink(self):
        self.relation.delete(flat(self.edges[5:140]), 135)
        self.relation.insert(flat(self.edges[:100]), 100)

    def start(self):
        self.run = self.engine.open_run(self.engine.load(asm.reach()), [self.twin])
        self.closing = self.engine.open_run(self.engine.load(asm.closure()), [self.twin])
        self.computing = self.engine.open_run(self.engine.load(asm.computing()), [self.numbers])
        self.runs = (self.run, self.closing, self.computing)

    def seed(self):
        self.run.seed(array("I", [1, 7]), 2)

    def work(self):
        while self.run.step(50) == RunState.PAUSED:
            pass
        while self.closing.step(50) == RunState.PAUSED:
            pass
        self.result["reached"] = sorted(self.run.relation(2).match([0])[0])
        self.result["closure"] = self.closing.relation(1).counts().rows
        while self.computing.step(50) == RunState.PAUSED:
            pass
        made = (
            self.computing.relation(slot).match([0] * arity)[0]
            for slot, arity in ((1, 3), (2, 4), (3, 2))
        )
        self.result["computed"] = [self.engine.texts(rows) for rows in made]
        self.result["warnings"] = self.computing.stats().warnings

    def grow(self):
        self.twin.insert(flat([(9, 150), (150, 151), (151, 152)]), 3)

    def sort(self):
        self.result["sorted"] = self.engine.sort(flat(self.edges), 2)

    def finish(self):
        for run in self.runs:
            run.close()
        self.relation.drop()
        self.numbers.drop()
        self.twin.drop()


def outcome(engine):
    scenario = Scenario(engine)
    for step in scenario.steps():
        step()
    return scenario.result


@pytest.fixture(scope="module")
def expected():
    engine = Engine()
    result = outcome(engine)
    engine.close()
    return result


def try_all(scenario):
    """Run the scenario; a call that fails for lack of memory is repeated; a run that failed is
    opened again.
    """
    failures = 0
    for step in scenario.steps():
        while True:
            try:
                step()
                break
            except BudgetExceeded as error:
                if error.details["limit"] != "memoryBytes":
                    raise
                failures += 1
                scenario.engine.fail_after(0)
                if step == scenario.work:
                    for run in scenario.runs:
                        run.close()
                    scenario.start()
                    scenario.seed()
    return failures


def test_each_allocation_fails_once(expected):
    """The n-th allocation of the whole scenario fails, for every n there is."""
    quiet = 0  # a failure may go unnoticed: a match that cannot have its index does without
    n = 0
    while quiet < 40:
        n += 1
        engine = Engine()
        engine.fail_after(n)
        scenario = Scenario(engine)
        quiet = 0 if try_all(scenario) else quiet + 1
        assert scenario.result == expected, n
        engine.close()
    assert n > 150


def test_a_failed_call_changes_nothing():
    """Every call that allocates, with each of its allocations failing, one after the other."""
    engine = Engine()
    relation = engine.relation(2)
    engine.intern_many([f"s{i}" for i in range(2000)])
    relation.insert(flat([(i, i + 1) for i in range(1, 60)]), 59)
    relation.index([0])
    relation.index([1])
    relation.index([0, 1])
    relation.set_attribute(Attribute.TTL, array("I", [3]), [4])
    relation.hide(flat([(5, 6)]), 1, True)
    growing = flat([(i % 50 + 1, i + 1) for i in range(900)] + [(1, 2)])
    calls = [
        lambda: relation.insert(growing, 901),
        lambda: engine.intern_many([f"t{i}" for i in range(3000)]),
        lambda: engine.intern("x" * 5000),
        lambda: engine.sort(growing, 2),
        lambda: relation.copy().drop(),
        lambda: relation.index([0]),
        lambda: engine.relation(3).drop(),
    ]

    def seen():
        looks = [
            relation.match(pattern, hidden=True) for pattern in ([0, 0], [5, 0], [0, 9], [1, 2])
        ]
        return (
            looks,
            relation.counts(),
            engine.symbols,
            relation.locate(growing, 901),
            engine.find("t2999"),
        )

    for call in calls:
        before = seen()
        n = 1
        while True:
            engine.fail_after(n)
            try:
                call()
                engine.fail_after(0)
                break
            except BudgetExceeded:
                engine.fail_after(0)
            assert seen() == before
            n += 1
        assert n > 1 or call is calls[5]
    engine.close()


def test_budgets_of_every_size(expected):
    """Engines with ever more room: each either does all it was asked for or says that it has no
    room.
    """
    done = 0
    for room in range(1000, 110_000, 997):
        engine = Engine(max_bytes=room)
        try:
            assert outcome(engine) == expected
            done += 1
        except BudgetExceeded as error:
            if error.details != {"limit": "memoryBytes", "value": room, "rule": None}:
                raise
        assert engine.bytes <= room
        engine.close()
    assert done > 0


def test_an_engine_without_room():
    with pytest.raises(BudgetExceeded):
        Engine(max_bytes=10)
    with pytest.raises(BudgetExceeded):
        Engine(fail_after=1)


def test_bytes_return_to_where_they_were(expected):
    engine = Engine()
    scenario = Scenario(engine)
    scenario.intern()
    engine.relation(1).drop()
    for step in list(scenario.steps())[1:]:
        step()
    base = engine.bytes  # what was computed stays known
    for _ in range(3):
        for step in list(scenario.steps())[1:]:
            step()
        assert engine.bytes == base
    assert scenario.result == expected
    engine.close()


def test_symbols_of_a_run_that_fails_are_taken_back_unless_somebody_knows_them():
    engine = Engine()
    numbers = engine.relation(2)
    texts = engine.intern_many([str(i) for i in range(400)])
    numbers.insert(flat([(texts[i % 20], texts[i]) for i in range(400)]), 400)
    plan = engine.load(asm.computing())
    before = engine.symbols, engine.bytes
    for limits in (RunLimits(rows=50), RunLimits(steps=300), RunLimits(bytes=20_000)):
        run = engine.open_run(plan, [numbers], (), limits)
        while run.step(10) == RunState.PAUSED and engine.symbols == before[0]:
            pass
        assert engine.symbols > before[0]
        with pytest.raises(BudgetExceeded):
            run.step(1 << 30)
        assert engine.symbols == before[0]
        run.close()
    run = engine.open_run(plan, [numbers], (), RunLimits(rows=50))
    run.step(20)
    made = engine.symbols - before[0]
    assert made > 0
    known = engine.intern("00")  # what the run has made by now is known to others from here on
    assert known <= engine.symbols
    with pytest.raises(BudgetExceeded):
        run.step(1000)
    assert engine.symbols >= before[0] + made
    assert engine.text(known) == "00"
    run.close()
    engine.close()


def test_computed_values_count_against_the_budget_of_the_run():
    engine = Engine()
    numbers = engine.relation(2)
    long = engine.intern("x" * 30_000)
    pairs = [(long, symbol) for symbol in engine.intern_many([str(i) for i in range(100)])]
    numbers.insert(flat(pairs), 100)
    words = asm.plan(
        [(2, asm.BASE), (1, asm.DERIVED)],
        asm.component(
            asm.rule(
                7,
                asm.scan(0, asm.DELTA, asm.load(0), asm.load(1)),
                asm.call(10, 2, 0, 1),
                asm.emit(1, 2),
            )
        ),
        answer=1,
    )
    run = engine.open_run(engine.load(words), [numbers], (), RunLimits(bytes=1_000_000))
    with pytest.raises(BudgetExceeded) as caught:
        run.step(1 << 30)
    assert caught.value.details == {"limit": "memoryBytes", "value": 1_000_000, "rule": "7"}
    run.close()
    assert engine.symbols == 101
    engine.close()
