"""Predicates whose rows plugins provide: calls, answers, errors and limits."""

from __future__ import annotations

import itertools
import threading

import pytest

from kbcore import Config, hookimpl, open_kb
from kbcore.errors import (
    BudgetExceeded,
    ConfigError,
    Conflict,
    ExternalRecursion,
    InvalidInput,
    NotReady,
    PredicateFailed,
    UnboundArgument,
)
from kbcore.plug.ports import Predicate
from kbplanner.syntax.printer import print_item

MEMORY = Config(storage_backend="memory")
PRICES = {"apple": "3", "melon": "12", "nut": "1"}


class Prices:
    """`price(?item, ?cents)`, asked by item; `calls` has the inputs of each call."""

    def __init__(self, pure=False, rows=None):
        self.calls = []
        self.pure = pure
        self.rows = rows or self._rows

    def _rows(self, call):
        self.calls.append(sorted(call.inputs()))
        return [(item, int(PRICES[item])) for (item,) in call.inputs() if item in PRICES]

    @hookimpl
    def kb_predicates(self):
        modes = (("in", "out"),)
        return {"price/2": Predicate("price", 2, modes, self.rows, self.pure)}


@pytest.fixture
def prices():
    return Prices()


@pytest.fixture
def kb(prices):
    with open_kb(config=MEMORY, plugins=[prices]) as kb:
        yield kb


def test_a_rule_reads_the_rows_of_a_plugin(kb, prices):
    kb.execute("item(apple). item(melon). item(stone).")
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    assert list(kb.ask("cheap(?x)")) == [("apple",)]
    assert prices.calls == [[("apple",), ("melon",), ("stone",)]]


def test_a_dated_predicate_is_asked_again_by_each_request(kb, prices):
    kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10.")
    for _ in range(3):
        assert kb.ask("cheap(apple)")
    assert prices.calls == [[("apple",)]] * 3


def test_a_goal_names_the_predicate_itself(kb):
    assert list(kb.ask("price(melon, ?p)")) == [("melon", "12")]
    assert kb.ask("price(melon, 12)")
    assert not kb.ask("price(melon, 13)")
    assert not kb.ask("price(stone, ?p)")
    assert kb.ask("not price(melon, 13)")


def test_a_pure_predicate_is_asked_once_for_each_input():
    prices = Prices(pure=True)
    with open_kb(config=MEMORY, plugins=[prices]) as kb:
        kb.execute("item(apple).")
        kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
        for _ in range(3):
            assert list(kb.ask("cheap(?x)")) == [("apple",)]
        kb.execute("item(nut). item(stone).")
        for _ in range(2):
            assert list(kb.ask("cheap(?x)")) == [("apple",), ("nut",)]
    assert prices.calls == [[("apple",)], [("nut",), ("stone",)]]


ITEMS = "item(apple). item(melon). item(stone). flag(melon)."


def test_negation_aggregates_and_recursion_read_the_rows_of_a_plugin(kb):
    kb.execute(ITEMS + " next(apple, nut). next(12, 3). sold(12). sold(1).")
    kb.teach("""
        free(?x) :- item(?x), not price(?x, _).
        other(?x) :- item(?x), not price(?x, 3).
        total(sum(?p)) :- item(?x), price(?x, ?p).
        linked(?x, ?y) :- price(?x, ?y).
        linked(?x, ?z) :- next(?x, ?y), linked(?y, ?z).
        bad(?x) :- price(?x, ?p), ?p > 10, flag(?x).
        good(?x, ?p) :- item(?x), not bad(?x), price(?x, ?p).
    """)
    assert list(kb.ask("free(?x)")) == [("stone",)]
    assert list(kb.ask("other(?x)")) == [("melon",), ("stone",)]
    assert list(kb.ask("total(?s)")) == [("15",)]
    assert list(kb.ask("linked(apple, ?y)")) == [("apple", "1"), ("apple", "3")]
    assert list(kb.ask("good(?x, ?p)")) == [("apple", "3")]
    assert list(kb.ask("item(?x), price(?x, ?p), ?p > 10")) == [("melon", "12")]


def test_the_order_of_a_body_binds_what_a_predicate_needs_also_through_rules(kb):
    """Many items make `cheap` the smaller relation by estimate; it cannot come first all the
    same.
    """
    kb.execute(" ".join(f"item(i{n})." for n in range(20_000)) + " item(nut).")
    kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10. offer(?x) :- cheap(?x), item(?x).")
    assert list(kb.ask("offer(?x)")) == [("nut",)]


def unbound(call):
    with pytest.raises(UnboundArgument) as caught:
        call()
    assert caught.value.code == "VALIDATION_ERROR"
    return caught.value.details


def test_a_goal_that_binds_too_little_names_the_argument(kb, prices):
    kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10. top(?x) :- cheap(?x).")
    details = {
        "kind": "unbound-argument",
        "predicate": "price/2",
        "arguments": [1],
        "modes": [["in", "out"]],
    }
    text = "cheap(?x) :- price(?x, ?p), ?p < 10."
    expected = details | {"variables": ["?x"], "rule": text}
    assert unbound(lambda: kb.ask("cheap(?x)")) == expected
    assert unbound(lambda: kb.ask("top(?x)")) == expected
    assert unbound(lambda: kb.plan("top(?x)")) == expected
    assert unbound(lambda: kb.ask("price(?x, 3)")) == details | {"variables": [], "rule": None}
    assert kb.ask("top(nut)")
    assert prices.calls == [[("nut",)]]


@pytest.mark.parametrize(
    "text",
    [
        "some(?p) :- price(?x, ?p).",
        "a(?p) :- b(?x, ?p). b(?x, ?p) :- price(?x, ?p).",
        "r(?x, ?y) :- r(?x, ?z), price(?z, ?y). r(?x, ?y) :- price(?y, ?x).",
    ],
)
def test_a_rule_that_no_goal_can_bind_is_refused_when_it_is_stored(kb, text):
    kb.teach("b(?x, ?p) :- price(?x, ?p).") if text.startswith("a") else None
    before = kb.rules()
    assert unbound(lambda: kb.teach(text))["predicate"] == "price/2"
    assert kb.rules() == before


def test_recursion_through_negation_over_a_plugin_is_refused(kb):
    with pytest.raises(ExternalRecursion, match="price/2"):
        kb.teach("win(?x) :- price(?x, ?y), not win(?y).")
    assert kb.rules() == []
    kb.execute("move(apple, melon). move(melon, nut).")
    kb.teach("win(?x) :- move(?x, ?y), not win(?y). won(?x, ?p) :- win(?x), price(?x, ?p).")
    assert list(kb.ask("won(?x, ?p)")) == [("melon", "12")]


def test_facts_and_rules_of_a_plugins_predicate_cannot_be_stored(kb):
    for write in (
        lambda: kb.tell("price", ["apple", 3]),
        lambda: kb.tell_many("price", [("apple", 3)]),
        lambda: kb.teach("price(?x, 1) :- item(?x)."),
        lambda: kb.execute("price(apple, 3)."),
    ):
        with pytest.raises(InvalidInput, match="price/2 is an external predicate"):
            write()
    kb.tell("price", ["apple", 3, "euro"])
    assert kb.ask("price(apple, 3, ?c)")


def test_explicit_negatives_deny_rows_of_a_plugin(kb):
    kb.execute("item(apple). item(nut). ~price(nut, 1).")
    kb.teach("denied(?x) :- item(?x), ~price(?x, _). open(?x) :- item(?x), not price(?x, 1).")
    assert list(kb.ask("denied(?x)")) == [("nut",)]
    assert list(kb.ask("open(?x)")) == [("apple",), ("nut",)]


@pytest.mark.parametrize("text", ["price(apple, 7).", "price(?x, 7) :- item(?x)."])
def test_a_plugin_that_is_added_later_does_not_hide_what_is_stored(tmp_path, text):
    config = Config(min_free_mb=0)
    with open_kb(path=tmp_path, config=config) as kb:
        kb.execute("item(apple).")
        kb.execute(text)
        kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10.")
    with open_kb(path=tmp_path, config=config, plugins=[Prices()]) as kb:
        assert list(kb.ask("item(?x)")) == [("apple",)]
        for goal in ("cheap(apple)", "price(apple, ?p)"):
            with pytest.raises(Conflict, match="price/2 is an external predicate"):
                kb.ask(goal)
        if text.startswith("price(apple"):
            kb.retract("price", ["apple", 7])
        else:
            kb.retract_rule(kb.rules()[0].id)
        assert kb.ask("cheap(apple)")


def test_a_proof_shows_which_facts_come_from_a_plugin(kb):
    kb.execute("item(apple). item(melon).")
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    (proof,) = kb.prove("cheap(?x)")
    leaf = proof.proof["step"]["bodyProofs"][1]
    assert leaf["step"]["type"] == "external"
    assert leaf["step"]["fact"]["args"] == ["apple", "3"]
    assert leaf["step"]["fact"]["createdAt"] is None
    (graph,) = kb.prove("cheap(?x)", form="dag")
    kinds = {node["fact"]["predicate"]: node["kind"] for node in graph.proof["nodes"].values()}
    assert kinds == {"cheap": "derived", "item": "asserted", "price": "external", "<": "builtin"}
    assert "  price(apple, 3)  external" in kb.explain("cheap(?x)").splitlines()
    assert kb.explain("price(apple, ?p)") == "price(apple, 3)  external"


def test_a_plan_shows_the_calls(kb, prices):
    kb.execute(ITEMS)
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    (plan,) = kb.plans("cheap(?x)")
    call = {"predicate": "price/2", "mode": ["in", "out"], "relation": "demand price/2[bf]"}
    assert plan["external"] == [call | {"inputs": None, "rows": None}]
    assert prices.calls == []
    (plan,) = kb.plans("cheap(?x)", analyze=True)
    assert plan["external"] == [call | {"inputs": 3, "rows": 2}]
    assert plan["answers"] == 1
    line = "call price/2 (in, out) for demand price/2[bf]"
    assert line in kb.plan("cheap(?x)").splitlines()
    assert f"{line}  [inputs 3, rows 2]" in kb.plan("cheap(?x)", analyze=True).splitlines()
    assert kb.plans("item(?x)")[0]["external"] == []


def test_why_not_asks_a_plugin_for_what_the_premises_before_bind(kb):
    kb.execute(ITEMS)
    kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10, item(?x).")
    (candidate,) = kb.why_not("cheap(melon)").candidates
    assert print_item(candidate.missing) == "12 < 10"
    (candidate,) = kb.why_not("cheap(stone)").candidates
    assert print_item(candidate.missing) == "price(stone, ?p)"
    explained = kb.why_not("item(?x), price(?x, ?p), ?p > 100")
    assert [print_item(each.missing) for each in explained.candidates] == [
        "3 > 100",
        "12 > 100",
    ]


def test_confidence_and_absence_are_inherited_around_a_plugin(kb):
    kb.tell("item", ["apple"], confidence=0.5)
    kb.tell("item", ["nut"])
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    kb.teach("free(?x) :- item(?x), not price(?x, 3).")
    assert [row["confidence"] for row in kb.ask("cheap(?x)").rows()] == [0.5, None]
    (row,) = kb.ask("free(?x)").rows()
    assert row["metadata"] == {"nonMonotonic": True}


def test_a_window_has_conclusions_from_a_plugin_and_asks_each_time(kb, prices):
    kb.execute(ITEMS)
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    for asked in (1, 2):
        window = kb.context(goals=["cheap(?x)", "price(melon, ?p)"])
        shown = {(entry.predicate, *entry.args) for entry in window.entries}
        assert {("cheap", "apple"), ("item", "apple"), ("price", "melon", "12")} <= shown
        assert len(prices.calls) == asked


def test_a_retraction_does_not_count_conclusions_from_a_plugin(kb):
    kb.execute("item(apple). item(stone). known(?x) :- item(?x).")
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    kb.teach("free(?x) :- item(?x), not price(?x, _). both(?x) :- cheap(?x), known(?x).")
    outcome = kb.retract("item", ["apple"])
    assert [row["predicate"] for row in outcome.cascaded_atoms] == ["known"]
    assert list(kb.ask("cheap(?x)")) == []


def test_a_transaction_reads_the_rows_of_a_plugin(kb):
    kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
    answers = kb.execute("item(nut). ?- cheap(?x). item(apple). ?- cheap(?x).").answers
    assert [row["args"] for row in answers] == [["nut"], ["apple"], ["nut"]]


# -- calls -----------------------------------------------------------------------------------------


def test_a_call_is_made_in_a_thread_of_its_own_without_a_lock():
    """In the callback, a write needs the tenant's lock alone, and a goal needs the engine."""
    seen = []

    def rows(call):
        kb.tell("asked", list(call.columns[0]))
        seen.append((threading.current_thread(), list(kb.ask("asked(?x)"))))
        yield ("apple", 3)

    with open_kb(config=MEMORY, plugins=[Prices(rows=rows)]) as kb:
        kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10.")
        for read in (
            lambda: kb.ask("cheap(apple)"),
            lambda: kb.prove("cheap(apple)"),
            lambda: kb.why_not("cheap(nut)"),
            lambda: kb.plan("cheap(apple)", analyze=True),
            lambda: kb.context(goals=["cheap(apple)"]),
            lambda: kb.retract("cheap", ["apple"]),
        ):
            seen.clear()
            read()
            assert seen
            assert all(thread is not threading.current_thread() for thread, _ in seen)
            assert all(("apple",) in answers for _, answers in seen)


def test_a_write_during_a_call_is_seen_by_the_evaluation_after_it():
    def rows(call):
        kb.tell("item", ["nut"])
        return [(item, PRICES[item]) for (item,) in call.inputs() if item in PRICES]

    with open_kb(config=MEMORY, plugins=[Prices(rows=rows)]) as kb:
        kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
        kb.tell("item", ["apple"])
        assert list(kb.ask("cheap(?x)")) == [("apple",), ("nut",)]


def test_a_slow_call_ends_at_the_deadline_of_the_request():
    release = threading.Event()

    def rows(call):
        assert 0 < call.seconds <= 0.2
        release.wait(60)
        return [("apple", 3)]

    config = Config(storage_backend="memory", query_timeout_ms=200)
    with open_kb(config=config, plugins=[Prices(rows=rows)]) as kb:
        kb.teach("cheap(?x) :- price(?x, ?p), ?p < 10.")
        with pytest.raises(BudgetExceeded) as caught:
            kb.ask("cheap(apple)")
        assert caught.value.details["limit"] == "timeMs"
        release.set()
        assert kb.ask("not cheap(nut)")


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (lambda call: 1 / 0, "error"),
        (lambda call: iter_and_fail(), "error"),
        (lambda call: None, "it returned NoneType instead of rows"),
        (lambda call: ["ab"], "a row must be a sequence of 2 values"),
        (lambda call: [("apple",)], "a row must be a sequence of 2 values"),
        (lambda call: [("apple", None)], "value: must be a text, a number or a boolean, not null"),
        (lambda call: [("apple", "\0")], "a value of a row is no constant"),
        (lambda call: [("apple", float("nan"))], "value: must be a finite number"),
    ],
)
def test_a_failing_predicate_is_named_and_changes_nothing(rows, reason, caplog):
    with open_kb(config=MEMORY, plugins=[Prices(rows=rows)]) as kb:
        kb.tell("item", ["apple"])
        kb.teach("cheap(?x) :- item(?x), price(?x, ?p), ?p < 10.")
        with pytest.raises(PredicateFailed, match="price/2") as caught:
            kb.ask("cheap(?x)")
        assert caught.value.details["predicate"] == "price/2"
        assert caught.value.details["reason"].startswith(reason)
        assert "price/2 failed" in caplog.text
        assert list(kb.ask("item(?x)")) == [("apple",)]
        outcome = kb.retract("cheap", ["apple"])
        assert outcome.truncated


def iter_and_fail():
    yield "apple", 3
    raise ValueError("secret")


@pytest.mark.parametrize("error", [InvalidInput("unknown item"), NotReady("no connection")])
def test_errors_meant_for_the_client_are_passed_on(error):
    def rows(call):
        raise error

    with (
        open_kb(config=MEMORY, plugins=[Prices(rows=rows)]) as kb,
        pytest.raises(type(error), match=error.message),
    ):
        kb.ask("price(apple, ?p)")


def test_more_rows_than_the_budget_end_the_evaluation():
    def rows(call):
        assert call.max_rows == 100
        return (("apple", number) for number in itertools.count())

    config = Config(storage_backend="memory", query_max_rows=100)
    with (
        open_kb(config=config, plugins=[Prices(rows=rows)]) as kb,
        pytest.raises(BudgetExceeded, match="price/2 gave more rows"),
    ):
        kb.ask("price(apple, ?p)")


def test_rows_that_fit_no_input_are_ignored():
    def rows(call):
        return [("apple", 3), ("Apple", 4), ["apple", True], ("apple", 2.0)]

    with open_kb(config=MEMORY, plugins=[Prices(rows=rows)]) as kb:
        assert [price for _, price in kb.ask("price(apple, ?p)")] == ["2", "3", "true"]
        assert list(kb.ask("price('Apple', ?p)")) == [("Apple", "4")]


def test_many_inputs_are_divided_into_calls():
    sizes = []

    def rows(call):
        sizes.append(call.count)
        return [(item, len(item)) for (item,) in call.inputs()]

    with open_kb(config=MEMORY, plugins=[Prices(rows=rows)]) as kb:
        kb.tell_many("item", [(f"i{number}",) for number in range(2500)])
        assert len(kb.ask("item(?x), price(?x, ?p)")) == 2500
    assert sizes == [1000, 1000, 500]


def test_a_call_says_for_whom_it_is_made():
    calls = []

    def rows(call):
        calls.append((call.database, call.tenant, call.scope, call.mode, call.columns))
        return []

    with open_kb(config=MEMORY, plugins=[Prices(rows=rows)], tenant="acme") as kb:
        kb.tell("item", ["apple"], scope="draft")
        kb.ask("item(?x), price(?x, ?p)", scope="draft")
    assert calls == [("default", "acme", "draft", ("in", "out"), (("apple",),))]


@pytest.mark.parametrize(
    ("predicates", "problem"),
    [
        ({"cost/2": ("price", 2, (("in", "out"),))}, "is described as 'price/2'"),
        ({"price/2": ("price", 2, ())}, "has no modes"),
        ({"price/2": ("price", 2, (("in",),))}, "has the mode"),
        ({"price/2": ("price", 2, (("in", "bound"),))}, "has the mode"),
        ({"?x/1": ("?x", 1, (("in",),))}, "has a name that"),
    ],
)
def test_a_predicate_that_contradicts_itself_prevents_the_start(predicates, problem):
    class Plugin:
        @hookimpl
        def kb_predicates(self):
            return {key: Predicate(*own, list) for key, own in predicates.items()}

    with pytest.raises(ConfigError, match=problem):
        open_kb(config=MEMORY, plugins=[Plugin()])


def test_two_plugins_cannot_provide_the_same_predicate():
    with pytest.raises(ConfigError, match="both offer 'price/2'"):
        open_kb(config=MEMORY, plugins=[Prices(), Prices()])


def test_a_constraint_over_an_external_predicate_is_derived(kb):
    """Outside a transaction it refuses nothing, because rows cannot be fetched for facts not
    stored.
    """
    kb.teach("@total item(?x), price(?x, _).")
    kb.tell("item(stone)", conflict="REJECT")
    kb.tell("item(apple)", conflict="REJECT")
    violation = 'contradiction(total, "item(stone)", "price(stone, _)")'
    assert [each.text for each in kb.context_summary().violations] == [violation]
    assert f"{violation}." in kb.context(query="stone").text


def test_a_transaction_fetches_the_rows_that_a_constraint_needs(kb):
    kb.teach("@total item(?x), price(?x, _).")
    with kb.transaction() as tx:
        tx.tell("item(apple)", conflict="REJECT")
    with pytest.raises(Conflict, match="price\\(brick, _\\)"), kb.transaction() as tx:
        tx.tell("item(brick)", conflict="REJECT")
    assert list(kb.query("item(?x)")) == [("apple",)]
