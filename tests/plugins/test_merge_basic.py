"""The built-in merge strategies meet the contract of strategies."""

from __future__ import annotations

import pytest

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug.conformance import CONFLICTS, MergeStrategyConformance
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import Keep, MergeStrategy, Resolution
from kbplugins.merge_basic import Always, kb_merge_strategies

EXPECTED = {
    "SOURCE_WINS": Keep.SOURCE,
    "TARGET_WINS": Keep.TARGET,
    "KEEP_BOTH": Keep.BOTH,
    "REJECT": Keep.REFUSE,
}


class TestSourceWins(MergeStrategyConformance):
    def make_strategy(self) -> MergeStrategy:
        return kb_merge_strategies()["SOURCE_WINS"]


class TestReject(MergeStrategyConformance):
    def make_strategy(self) -> MergeStrategy:
        return kb_merge_strategies()["REJECT"]


class Surest:
    """A third-party strategy that depends on the conflict."""

    always = None

    def resolve(self, conflict):
        sure = lambda fact: 1.0 if fact.confidence is None else fact.confidence  # noqa: E731
        best = max((*conflict.target, *conflict.source), key=sure)
        return Resolution(Keep.FACTS, (best,))


class TestAThirdParty(MergeStrategyConformance):
    def make_strategy(self) -> MergeStrategy:
        return Surest()


def test_they_decide_as_they_are_called() -> None:
    found = kb_merge_strategies()
    assert {name: strategy.always for name, strategy in found.items()} == EXPECTED
    assert {
        name: strategy.resolve(CONFLICTS[0]).keep for name, strategy in found.items()
    } == EXPECTED


class ThirdParty:
    def __init__(self, *names: str) -> None:
        self.names = names

    @hookimpl
    def kb_merge_strategies(self):
        return {name: Always(Keep.TARGET) for name in self.names}


def test_plugins_add_names_and_cannot_replace_built_in_ones() -> None:
    assert set(Plugins(Config(), [ThirdParty("OURS")]).merge_strategies()) == {*EXPECTED, "OURS"}
    with pytest.raises(ConfigError, match="both offer 'REJECT'"):
        Plugins(Config(), [ThirdParty("REJECT")]).merge_strategies()
