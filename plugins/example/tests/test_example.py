"""The plugin keeps the contracts, and does what it says inside a knowledge base."""

from __future__ import annotations

import logging

import kb_example

import kbcore
from kbcore.metrics import FAMILIES
from kbcore.plug.conformance import (
    MergeStrategyConformance,
    MetricsSinkConformance,
    SalienceScorerConformance,
    TokenizerConformance,
)


class TestLatestTold(MergeStrategyConformance):
    def make_strategy(self):
        return kb_example.LatestTold()


class TestNewest(SalienceScorerConformance):
    def make_scorer(self, config):
        return kb_example.Newest()


class TestWords(TokenizerConformance):
    def make_tokenizer(self):
        return kb_example.Words()


class TestSlowLog(MetricsSinkConformance):
    def make_sink(self):
        return kb_example.SlowLog(FAMILIES)


def test_windows_are_counted_in_words():
    config = kbcore.Config(
        storage_backend="memory", tokenizer="words", metrics_sinks=("prometheus",)
    )
    with kbcore.open_kb(config=config) as kb:
        kb.tell("likes(ann, tea). likes(bob, coffee).")
        kb.prioritize("likes(bob, coffee)", priority=1.0)
        window = kb.context(max_tokens=7)
    assert (window.text, window.tokens) == ("likes(bob, coffee).", 7)


def test_it_is_found_and_used(caplog):
    caplog.set_level(logging.INFO, "kb_example")
    config = kbcore.Config(
        storage_backend="memory", salience_scorer="newest", metrics_sinks=("slow-log", "prometheus")
    )
    with kbcore.open_kb(config=config) as kb:
        kb.tell("likes", ["ann", "tea"], confidence=0.5)
        kb.tell("likes", ["ann", "tea"], scope="guess", confidence=0.1)
        kb.merge("guess", strategy="LATEST_TOLD")
        assert kb.salient()[0]["salience"] > 0.99
        kb.retract("likes", ["ann", "tea"])
    assert "default/default lost likes(ann, tea)" in [
        record.getMessage() for record in caplog.records
    ]
