"""Limits of a request: those it lowers for itself, admission to a slot, and cancellation.

Loops that check the deadline and yield, beside the engine's slices: reading answers and stored
facts (`Relation.match`), `asOf` (`as_of.valid_rows`), rows (`sorted_rows`, `_shown`,
`_with_undefined`), JSON (`RowWriter.rows`, `rows_written`, `proofs_written`, `proof_text`), ground
programs (`GroundRun.read`, `ComponentReader.ground`, `touched`), proofs (`Proof.expand`),
inheritance (`annotate`, `inherited_values`), retractions (`cascade`, `compared`), aggregates of
stored facts. A test below checks them with a clock that runs out at a yield.
"""

from __future__ import annotations

import gc
import threading
from fractions import Fraction

import pytest
from support.runtimes import runtime

from kbcore import open_kb
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import BudgetExceeded, CallerLeft, NotReady, RateLimited
from kbcore.language.files import bulk_rows
from kbcore.proofs.shapes import ProofOptions
from kbcore.reason.admission import LONG_SECONDS, Admission, Slots
from kbcore.reason.aggregate import AggregateQuery
from kbcore.reason.budget import Budget, RequestLimits
from kbcore.reason.options import AnswerOptions
from kbplanner.compile import build
from kbplanner.engine import relation
from kbplanner.engine.backend import RunLimits
from kbplanner.syntax.parser import parse_goal, parse_rule

RULES = """
reach(?x, ?y) :- edge(?x, ?y).
reach(?x, ?z) :- reach(?x, ?y), edge(?y, ?z).
pairs(?a, ?b, ?c) :- edge(?a, _), edge(?b, _), edge(?c, _).
tick(0) :- edge(_, _).
tick(?n) :- tick(?m), ?n = ?m + 1.
total(sum(?c)) :- pairs(?a, ?b, ?c).
"""
BOMB = parse_goal("pairs(?a, ?b, ?c)").literal


@pytest.fixture
def node():
    with runtime(clock=ManualClock()) as found:
        kb = found.knowledge_base(tenant="t")
        kb.assert_rules([parse_rule(line) for line in RULES.strip().splitlines()])
        facts = [(str(n), str((n + 1) % 300)) for n in range(300)]
        kb.assert_rows([bulk_rows("edge", 2, [arg for row in facts for arg in row])])
        yield found


def limit_of(call):
    with pytest.raises(BudgetExceeded) as met:
        call()
    return met.value.details["limit"], met.value.details["value"], met.value.details["rule"]


@pytest.mark.parametrize(
    ("wanted", "limit", "value"),
    [
        (RequestLimits(rows=1000), "derivedRows", 1000),
        (RequestLimits(steps=5000), "steps", 5000),
        (RequestLimits(bytes=65_536), "memoryBytes", 65_536),
    ],
)
def test_a_request_lowers_a_limit_and_the_error_names_it_and_the_rule(node, wanted, limit, value):
    kb = node.knowledge_base(tenant="t")
    found = limit_of(lambda: kb.infer(BOMB, AnswerOptions(request_limits=wanted)))
    assert found[:2] == (limit, value)
    assert found[2] == "pairs(?a, ?b, ?c) :- edge(?a, _), edge(?b, _), edge(?c, _)."


def test_no_limit_is_raised_above_the_setting():
    with runtime(query_max_rows=500, query_max_answers=10, query_timeout_ms=77) as node:
        wanted = RequestLimits(10**9, 10**9, 10**12, 10**15, 10**9)
        with node.knowledge_base()._budget(wanted) as budget:
            assert budget.limits == RunLimits(500, node.limits.bytes, node.limits.steps)
            assert (budget.max_answers, budget.timeout_ms) == (10, 77)


def test_answers_and_nodes_of_proofs_are_counted(node):
    kb = node.knowledge_base(tenant="t")
    goal = parse_goal("reach(?x, ?y)").literal
    assert limit_of(
        lambda: kb.infer(goal, AnswerOptions(request_limits=RequestLimits(answers=100)))
    )[:2] == (
        "answers",
        100,
    )
    assert (
        len(kb.infer(goal, AnswerOptions(limit=100, request_limits=RequestLimits(answers=100))))
        == 100
    )
    with runtime(query_max_proof_nodes=50) as small:
        kb = small.knowledge_base()
        kb.assert_rules([parse_rule("p(?x) :- q(?x), r(?x).")])
        kb.assert_rows([bulk_rows(name, 1, [str(n) for n in range(40)]) for name in "qr"])
        goal = parse_goal("p(?x)").literal
        assert len(kb.prove(goal, AnswerOptions(limit=16))) == 16
        for form in ("tree", "dag"):
            assert limit_of(lambda form=form: kb.prove(goal, proof=ProofOptions(form=form)))[
                :2
            ] == ("proofNodes", 50)
        assert len(kb.prove(goal, proof=ProofOptions(nodes=1))) == 40


@pytest.mark.parametrize(
    "text",
    ["edge(?x, ?y), edge(?y, ?z)", "reach(?x, ?y), ?x < ?y", "edge(?x, ?y), not edge(?y, ?x)"],
)
def test_answers_of_several_literals_are_counted_too(node, text):
    kb, body = node.knowledge_base(tenant="t"), parse_goal(text).body
    variables = list(dict.fromkeys(v for item in body for v in item.variables()))
    every = kb.bindings(body, variables)
    most = len(every)
    assert most >= 300
    assert (
        kb.bindings(body, variables, AnswerOptions(request_limits=RequestLimits(answers=most)))
        == every
    )
    over = RequestLimits(answers=most - 1)
    assert limit_of(lambda: kb.bindings(body, variables, AnswerOptions(request_limits=over))) == (
        "answers",
        most - 1,
        None,
    )
    for limit in (0, 1, 100, most - 1, most + 5):
        assert kb.bindings(body, variables, AnswerOptions(limit=limit)) == every[:limit]
    assert (
        kb.bindings(
            body, variables, AnswerOptions(limit=7, request_limits=RequestLimits(answers=7))
        )
        == every[:7]
    )
    assert limit_of(
        lambda: kb.bindings(
            body, variables, AnswerOptions(limit=8, request_limits=RequestLimits(answers=7))
        )
    )[:2] == ("answers", 7)


def test_answers_of_several_literals_are_counted_over_all_scopes(node):
    kb, body = node.knowledge_base(tenant="t"), parse_goal("q(?x), r(?x)").body
    for scope in ("a", "b", None):
        kb.assert_rows([bulk_rows(name, 1, [str(n) for n in range(10)], scope) for name in "qr"])
    variables = list(body[0].variables())
    every = kb.bindings(body, variables, AnswerOptions(scope="*"))
    assert len(every) == 30
    for limit in (0, 5, 10, 15, 30):
        assert kb.bindings(body, variables, AnswerOptions(scope="*", limit=limit)) == every[:limit]
    found = limit_of(
        lambda: kb.bindings(
            body, variables, AnswerOptions(scope="*", request_limits=RequestLimits(answers=29))
        )
    )
    assert found[:2] == ("answers", 29)
    assert (
        len(
            kb.bindings(
                body, variables, AnswerOptions(scope="a", request_limits=RequestLimits(answers=10))
            )
        )
        == 10
    )


def test_a_program_over_the_answer_limit_gets_an_error():
    with open_kb(config=Config(query_max_answers=50)) as kb:
        kb.tell_many("edge", [(str(n), str(n + 1)) for n in range(52)])
        assert len(kb.ask("edge(?x, ?y), ?x < 50")) == 50
        assert limit_of(lambda: kb.ask("edge(?x, ?y), edge(?y, ?z)"))[:2] == ("answers", 50)
        assert limit_of(lambda: kb.execute("?- edge(?x, ?y), edge(?y, ?z)."))[:2] == ("answers", 50)


def test_the_deadline_of_each_goal_is_separate():
    with open_kb() as kb:
        kb.tell_many("edge", [(str(n), "x") for n in range(800)])
        kb.teach(RULES)
        with pytest.raises(BudgetExceeded) as met:
            kb.ask("tick(?n)", timeout_ms=50)
        assert met.value.details == {
            "limit": "timeMs",
            "value": 50,
            "rule": "tick(?n) :- tick(?m), ?n = ?m + 1.",
        }
        with pytest.raises(BudgetExceeded):
            kb.explain("tick(?n)", timeout_ms=1)
        assert len(kb.ask("edge(1, ?x)", timeout_ms=1)) == 1


def test_limits_of_aggregates_and_proofs_name_the_rule(node):
    kb = node.knowledge_base(tenant="t")
    wanted = RequestLimits(rows=20_000)
    total = parse_goal("total(?n)").literal
    met = ("derivedRows", 20_000, "pairs(?a, ?b, ?c) :- edge(?a, _), edge(?b, _), edge(?c, _).")
    assert limit_of(lambda: kb.infer(total, AnswerOptions(request_limits=wanted))) == met
    reach = parse_goal("reach(?x, ?y)").literal
    assert limit_of(lambda: kb.prove(reach, AnswerOptions(limit=64, request_limits=wanted)))[
        2
    ].startswith("reach(?x, ?")


def test_a_retraction_holds_when_counting_its_conclusions_is_stopped(node):
    kb = node.knowledge_base(tenant="t")
    outcome = kb.retract_fact("edge", ["1", "2"], request_limits=RequestLimits(rows=10))
    assert (outcome.retracted, outcome.truncated) == (1, True)
    assert kb.query_rows("edge", ["1", "2"]) == []


class Leaves:
    """A caller who leaves as soon as the goal is a long one."""

    def __init__(self, error):
        self.error = error
        self.watched = self.ended = 0

    def watch(self, stop):
        self.watched += 1
        stop(self.error)

        def end():
            self.ended += 1

        return end


@pytest.mark.parametrize("error", [CallerLeft(), NotReady("the server is stopping")])
def test_a_long_goal_ends_when_its_caller_leaves(node, error):
    caller = Leaves(error)
    kb = node.knowledge_base(tenant="t", caller=caller)
    assert len(kb.infer(parse_goal("edge(1, ?x)").literal)) == 1
    assert caller.watched == 0
    with pytest.raises(type(error)):
        kb.infer(BOMB)
    assert (caller.watched, caller.ended) == (1, 1)
    assert node.slots.working(("default", "t")) == 0
    with pytest.raises(type(error)):
        kb.prove(BOMB)


def test_a_goal_at_work_in_the_engine_is_cancelled_from_another_thread(node):
    """The caller leaves while the engine is inside a slice; no other code checks a clock."""
    begun, stops = threading.Event(), []

    class Client:
        def watch(self, stop):
            stops.append(stop)
            return lambda: None

    def offload(call):
        begun.set()
        return call()

    node.offload = offload
    kb = node.knowledge_base(tenant="t", caller=Client())
    raised = []

    def ask():
        try:
            kb.infer(BOMB)
        except CallerLeft as error:
            raised.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    assert begun.wait(30)
    stops[0](CallerLeft())
    asking.join(30)
    assert len(raised) == 1


def test_only_the_cpu_time_of_a_request_makes_it_long(monkeypatch):
    """Not the time for which it waits, and not the work of the others to which it yields."""
    cpu, clock, slots = [5.0], ManualClock(), Slots(1)
    monkeypatch.setattr("kbcore.reason.admission.thread_time", lambda: cpu[0])

    def others():
        cpu[0] += 10
        clock.advance(10_000)

    admission = Admission(slots, "t")
    begun = clock.monotonic()
    budget = Budget(RunLimits(), 600_000, begun, begun + 600, 10, clock, admission, None, others)
    for part in (budget, budget.part(2), budget):  # a part is of the same request
        cpu[0] += LONG_SECONDS / 4
        clock.advance(10_000)  # the time of a wait for the engine
        part.yield_now()
        assert slots.working("t") == 0
    cpu[0] += LONG_SECONDS / 2
    budget.yield_now()
    assert slots.working("t") == 1
    budget.release()
    assert slots.working("t") == 0


def test_slots_are_given_in_order():
    slots = Slots(1)
    first, second, third, other = (
        Admission(slots, "t"),
        Admission(slots, "t"),
        Admission(slots, "t"),
        Admission(slots, "u"),
    )
    first.request(0)
    other.request(0)  # another tenant has slots of its own
    assert not slots.enter(second)
    assert not slots.enter(third)
    assert slots.waiting("t") == 2
    first.release()
    assert (second.granted.is_set(), third.granted.is_set()) == (True, False)
    slots.leave(third)  # out of the line, without a slot
    assert slots.working("t") == 1
    slots.leave(second)
    other.release()
    assert (slots.working("t"), slots.waiting("t"), slots.working("u")) == (0, 0, 0)


def test_a_goal_without_a_slot_in_time_is_refused_and_leaves_the_queue():
    slots = Slots(2)
    busy = [Admission(slots, "t") for _ in range(2)]
    for admission in busy:
        admission.request(0)
    late = Admission(slots, "t")
    with pytest.raises(RateLimited) as caught:
        late.request(0)
    assert caught.value.details == {
        "retryAfterSeconds": 1.0,
        "limit": "TENANT_MAX_INFERENCES",
        "value": 2,
    }
    late.release()
    assert slots.waiting("t") == 0
    for admission in busy:
        admission.release()
    assert slots.working("t") == 0


def test_a_waiting_goal_can_be_cancelled():
    slots = Slots(1)
    busy, late = Admission(slots, "t"), Admission(slots, "t")
    busy.request(0)
    raised = []

    def wait():
        try:
            late.request(60)
        except CallerLeft as error:
            raised.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    late.cancel(CallerLeft())
    waiting.join(30)
    assert len(raised) == 1
    late.release()
    busy.release()
    assert (slots.working("t"), slots.waiting("t")) == (0, 0)


class RunsOut(ManualClock):
    """A clock on which the time of every request is over at its n-th reading."""

    def __init__(self, readings):
        super().__init__()
        self.left = readings
        self.read = 0

    def monotonic(self):
        self.read += 1
        return 0.0 if self.read <= self.left else 1e9


QUESTIONS = {
    "rows": lambda kb, goal: kb.infer(goal, AnswerOptions(min_confidence=0.1)),
    "moment": lambda kb, goal: kb.infer(goal, AnswerOptions(as_of=1_700_000_000_001)),
    "undefined": lambda kb, goal: kb.infer(goal, AnswerOptions(include_undefined=True)),
    "facts": lambda kb, goal: kb.query_rows("edge", parse_goal("edge(?x, ?y)").literal.atom.args),
    "json": lambda kb, goal: kb.infer_json(
        goal, lambda rows, yield_now: yield_now() or b"[]", AnswerOptions(min_confidence=0.1)
    ),
    "proofs": lambda kb, goal: kb.prove(goal, AnswerOptions(limit=70)),
    "explain": lambda kb, goal: kb.explain(
        parse_goal("reach(?x, ?y), edge(?x, ?z)").body, AnswerOptions(limit=70)
    ),
    "sum": lambda kb, goal: kb.aggregate(AggregateQuery("edge", "SUM", arg_index=0)),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_deadline_is_checked_at_every_pause(name, monkeypatch):
    """The time runs out at the first, the second, ... look at the clock: always the same error,
    never half an answer.
    """
    # A sum over the edges takes more than one call of the engine.
    monkeypatch.setattr(relation, "ROWS_PER_TOTAL_CALL", 100)
    with runtime(clock=(clock := RunsOut(1 << 60))) as node:
        kb = node.knowledge_base(tenant="t")
        kb.assert_rules([parse_rule(line) for line in RULES.strip().splitlines()[:2]])
        kb.assert_rules([parse_rule("reach(?x, ?y) :- near(?x, ?y) [confidence=0.5].")])
        edges = [(n, n % 40 + 1 if n > 40 else n + 1) for n in range(600)]
        kb.assert_rows([bulk_rows("edge", 2, [str(node) for edge in edges for node in edge])])
        goal = parse_goal("reach(?x, ?y)").literal
        question = QUESTIONS[name]
        whole = question(kb, goal)
        clock.read = 0
        assert question(kb, goal) == whole
        looks = clock.read  # the fewest it takes: what the goal has derived is kept
        assert looks > 4  # it does rest
        for readings in range(2, looks - 2, max(1, looks // 8)):
            clock.read, clock.left = 0, readings
            assert limit_of(lambda: question(kb, goal))[0] == "timeMs"
        clock.left = 1 << 60
        assert question(kb, goal) == whole
        assert node.slots.working(("default", "t")) == 0


def test_an_interrupted_proof_releases_its_memory(node):
    """Not when garbage collection finds it: that may come where a lock is held that giving back
    takes.
    """
    kb, goal = node.knowledge_base(tenant="t"), parse_goal("reach(0, ?x)").literal
    engine = node.find_tenant("default", "t").engine
    with pytest.raises(ValueError, match="enough") as left:
        kb.prove_json(goal, stop)
    with pytest.raises(BudgetExceeded) as spent:
        kb.prove(goal, AnswerOptions(request_limits=RequestLimits(steps=2000)))
    with pytest.raises(BudgetExceeded) as said:
        kb.explain(
            [parse_goal("reach(0, ?x)").body[0]],
            AnswerOptions(request_limits=RequestLimits(steps=2000)),
        )
    held = engine.bytes  # the errors have the frames, and all that is in these
    del left, spent, said
    gc.collect()
    engine.find("0")
    assert engine.bytes == held


def stop(proofs, yield_now):
    next(iter(proofs))
    raise ValueError("enough")


def test_sums_are_exact_over_many_slices():
    with open_kb() as kb:
        values = ["1e16", "1", "-1e16", "0.1"] * 700 + ["9007199254740993"]
        kb.tell_many("v", [(str(place), value) for place, value in enumerate(values)])
        exact = float(sum(Fraction(value) for value in values))
        assert kb.kb.aggregate(AggregateQuery("v", "SUM", arg_index=1)).result == exact
        assert kb.kb.aggregate(AggregateQuery("v", "MIN", arg_index=1)).result == -1e16
        assert kb.kb.aggregate(AggregateQuery("v", "AVG", arg_index=1)).result == exact / len(
            values
        )


@pytest.mark.parametrize(
    ("limit", "offset"), [(1, 0), (10, 5), (5000, 100), (150_000, 0), (159_999, 3)]
)
def test_the_first_of_many_answers_are_those_of_all(limit, offset):
    """More answers than are gathered at a time, of which some are wanted: the rest is let go on the
    way.
    """
    with runtime(clock=ManualClock()) as node:
        kb = node.knowledge_base()
        kb.assert_rules([parse_rule(line) for line in RULES.strip().splitlines()[:2]])
        edges = [str(node) for n in range(400) for node in (n * 7 % 400, (n + 1) * 7 % 400)]
        kb.assert_rows([bulk_rows("edge", 2, edges)])
        goal = parse_goal("reach(?x, ?y)").literal
        every = sorted(kb.tuples(goal.atom), key=lambda pair: (int(pair[0]), int(pair[1])))
        assert len(every) == 160_000
        found = kb.infer(goal, AnswerOptions(limit=limit, offset=offset))
        assert [tuple(row["args"]) for row in found] == every[offset : offset + limit]


def test_a_goal_whose_rules_have_too_many_constants_is_over_a_limit(monkeypatch) -> None:
    monkeypatch.setattr(build, "MAX_REGISTERS", 20)
    with open_kb() as kb:
        kb.teach("".join(f"h(?x) :- q(?x, a{number}).\n" for number in range(30)))
        kb.tell("q(b, a7).")
        with pytest.raises(BudgetExceeded) as raised:
            kb.ask("h(?x)")
        assert raised.value.details["limit"] == "planConstants"
        assert list(kb.ask("q(?x, a7)")) == [("b", "a7")]
        shown = kb.preview(teach="".join(f"g{n}(?x) :- q(?x, a{n}).\n" for n in range(30)))
        assert [(each.predicate, each.args) for each in shown.becomes_true] == [("g7", ("b",))]
