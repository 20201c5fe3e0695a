"""Conformance tests for authors of plugins, who subclass them; our own plugins run them too.

    from kbcore.plug.conformance import LogStoreConformance

    class TestMyStore(LogStoreConformance):
        def make_store(self, config):
            return MyStore(config)

Each class names the one method that a subclass implements: `make_store`, `make_strategy`,
`make_provider`, `make_sink`, `make_scorer`, `make_embedder`, `make_tokenizer`, `make_coordinator`,
`make_database`, `make_predicate`. A subclass without it is refused when it is defined. This module
and those it takes the classes from import pytest; nothing else of the core imports them.
"""

from kbcore.plug.conformance.base import Conformance
from kbcore.plug.conformance.bulk_engine import BulkEngineConformance
from kbcore.plug.conformance.coordinator import CoordinatorConformance
from kbcore.plug.conformance.embedder import EmbedderConformance
from kbcore.plug.conformance.llm import LLMProviderConformance
from kbcore.plug.conformance.log_store import LogStoreConformance
from kbcore.plug.conformance.log_store_faults import LogStoreFaultConformance
from kbcore.plug.conformance.metrics_sink import MetricsSinkConformance
from kbcore.plug.conformance.predicate import PredicateConformance
from kbcore.plug.conformance.strategies import (
    CONFLICTS,
    MergeStrategyConformance,
    SalienceScorerConformance,
)
from kbcore.plug.conformance.tokenizer import TokenizerConformance
from kbcore.plug.conformance.webhook_sender import WebhookSenderConformance

__all__ = [
    "CONFLICTS",
    "BulkEngineConformance",
    "Conformance",
    "CoordinatorConformance",
    "EmbedderConformance",
    "LLMProviderConformance",
    "LogStoreConformance",
    "LogStoreFaultConformance",
    "MergeStrategyConformance",
    "MetricsSinkConformance",
    "PredicateConformance",
    "SalienceScorerConformance",
    "TokenizerConformance",
    "WebhookSenderConformance",
]
