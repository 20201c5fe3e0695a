"""A knowledge base: what programs that embed one, and authors of plugins, import."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kbcore.columns.answer_table import AnswerTable
    from kbcore.config.settings import Config
    from kbcore.config.storage_urls import path_of
    from kbcore.embed import EmbeddedKB, open_kb
    from kbcore.errors import (
        BudgetExceeded,
        ConfigError,
        Conflict,
        InvalidInput,
        KBError,
        LogCorrupted,
        LogTruncated,
        ModelFailed,
        ModelNotConfigured,
        NotFound,
        NotReady,
        NotUnique,
        ProviderFailed,
        RuleSyntaxError,
        SnapshotFailed,
        StorageBusy,
        StorageFailed,
        StorageFull,
        TooLarge,
    )
    from kbcore.node.knowledge_base import KnowledgeBase
    from kbcore.node.opening import open_runtime
    from kbcore.node.runtime import Runtime
    from kbcore.offline.migrate import check_storage, copy_storage
    from kbcore.plug.coordinators import open_coordinator
    from kbcore.plug.hookspecs import hookimpl
    from kbcore.plug.ports import (
        Change,
        ChangeKind,
        Completion,
        ConflictingFact,
        Coordinator,
        Held,
        Keep,
        Lease,
        LLMProvider,
        LogRecord,
        LogStatus,
        LogStore,
        Predicate,
        PredicateCall,
        Resolution,
    )
    from kbcore.plug.ports import (
        Standing as Standing,
    )
    from kbcore.proofs.candidates import WhyNot, WhyNotCandidate
    from kbcore.python_api.answers import AnswerSet
    from kbcore.python_api.writes import LoadOutcome
    from kbcore.state.facts import Fact
    from kbplanner.ir.terms import Atom, Rule, Variable
    from kbtypes.how_to import HowTo, HowToProposal
    from kbtypes.results import PredicateInfo, StoreOutcome
    from kbtypes.windows import Bucket, ContextDiff, Window, WindowOptions

__version__ = "0.2.1"

_HOMES = {
    "AnswerSet": "kbcore.python_api.answers",
    "AnswerTable": "kbcore.columns.answer_table",
    "Atom": "kbplanner.ir.terms",
    "Bucket": "kbtypes.windows",
    "BudgetExceeded": "kbcore.errors",
    "Change": "kbcore.plug.ports",
    "ChangeKind": "kbcore.plug.ports",
    "Completion": "kbcore.plug.ports",
    "Config": "kbcore.config.settings",
    "ConfigError": "kbcore.errors",
    "Conflict": "kbcore.errors",
    "ConflictingFact": "kbcore.plug.ports",
    "ContextDiff": "kbtypes.windows",
    "Coordinator": "kbcore.plug.ports",
    "EmbeddedKB": "kbcore.embed",
    "Fact": "kbcore.state.facts",
    "Held": "kbcore.plug.ports",
    "InvalidInput": "kbcore.errors",
    "HowTo": "kbtypes.how_to",
    "HowToProposal": "kbtypes.how_to",
    "KBError": "kbcore.errors",
    "Keep": "kbcore.plug.ports",
    "KnowledgeBase": "kbcore.node.knowledge_base",
    "LLMProvider": "kbcore.plug.ports",
    "Lease": "kbcore.plug.ports",
    "LoadOutcome": "kbcore.python_api.writes",
    "LogCorrupted": "kbcore.errors",
    "LogRecord": "kbcore.plug.ports",
    "LogStatus": "kbcore.plug.ports",
    "LogStore": "kbcore.plug.ports",
    "LogTruncated": "kbcore.errors",
    "ModelFailed": "kbcore.errors",
    "ModelNotConfigured": "kbcore.errors",
    "NotFound": "kbcore.errors",
    "NotReady": "kbcore.errors",
    "NotUnique": "kbcore.errors",
    "Predicate": "kbcore.plug.ports",
    "PredicateCall": "kbcore.plug.ports",
    "PredicateInfo": "kbtypes.results",
    "Proof": "kbcore.python_api.reads",
    "ProviderFailed": "kbcore.errors",
    "Resolution": "kbcore.plug.ports",
    "Rule": "kbplanner.ir.terms",
    "RuleSyntaxError": "kbcore.errors",
    "Runtime": "kbcore.node.runtime",
    "SnapshotFailed": "kbcore.errors",
    "Standing": "kbcore.plug.ports",
    "StorageBusy": "kbcore.errors",
    "StorageFailed": "kbcore.errors",
    "StorageFull": "kbcore.errors",
    "StoreOutcome": "kbtypes.results",
    "TooLarge": "kbcore.errors",
    "Variable": "kbplanner.ir.terms",
    "WhyNot": "kbcore.proofs.candidates",
    "WhyNotCandidate": "kbcore.proofs.candidates",
    "Window": "kbtypes.windows",
    "WindowOptions": "kbtypes.windows",
    "check_storage": "kbcore.offline.migrate",
    "copy_storage": "kbcore.offline.migrate",
    "hookimpl": "kbcore.plug.hookspecs",
    "open_coordinator": "kbcore.plug.coordinators",
    "open_kb": "kbcore.embed",
    "open_runtime": "kbcore.node.opening",
    "path_of": "kbcore.config.storage_urls",
}

_TESTS = frozenset(
    {
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
    }
)
"""Tests for authors of plugins; they import pytest, so that `__all__` does not have them."""

__all__ = [
    "AnswerSet",
    "AnswerTable",
    "Atom",
    "Bucket",
    "BudgetExceeded",
    "Change",
    "ChangeKind",
    "Completion",
    "Config",
    "ConfigError",
    "Conflict",
    "ConflictingFact",
    "ContextDiff",
    "Coordinator",
    "EmbeddedKB",
    "Fact",
    "Held",
    "HowTo",
    "HowToProposal",
    "InvalidInput",
    "KBError",
    "Keep",
    "KnowledgeBase",
    "LLMProvider",
    "Lease",
    "LoadOutcome",
    "LogCorrupted",
    "LogRecord",
    "LogStatus",
    "LogStore",
    "LogTruncated",
    "ModelFailed",
    "ModelNotConfigured",
    "NotFound",
    "NotReady",
    "NotUnique",
    "Predicate",
    "PredicateCall",
    "PredicateInfo",
    "Proof",
    "ProviderFailed",
    "Resolution",
    "Rule",
    "RuleSyntaxError",
    "Runtime",
    "SnapshotFailed",
    "StorageBusy",
    "StorageFailed",
    "StorageFull",
    "StoreOutcome",
    "TooLarge",
    "Variable",
    "WhyNot",
    "WhyNotCandidate",
    "Window",
    "WindowOptions",
    "__version__",
    "check_storage",
    "copy_storage",
    "hookimpl",
    "open_coordinator",
    "open_kb",
    "open_runtime",
    "path_of",
]


def load_ipython_extension(shell: Any) -> None:
    """Add the magics of the Python client to a notebook: `%load_ext kbcore`, like `%load_ext
    kbcore_client`.

    Raises ModuleNotFoundError if kbcore-client is not installed.
    """
    # By name: the core knows no client, and this is the only place where a notebook asks it for
    # one.
    import_module("kbcore_client").load_ipython_extension(shell)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: a plugin that needs an error class does not load
    the engine.
    """
    home = "kbcore.plug.conformance" if name in _TESTS else _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kbcore' has no attribute {name!r}")
    return getattr(import_module(home), name)
