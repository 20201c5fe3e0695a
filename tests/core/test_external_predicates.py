"""Predicates whose rows plugins provide: calls, answers, errors and limits."""

from __future__ import annotations

import pytest

from kbcore import Config, hookimpl, open_kb
from kbcore.plug.ports import Predicate

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
