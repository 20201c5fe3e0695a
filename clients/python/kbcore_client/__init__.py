"""Client of the kbcore knowledge base.

>>> from kbcore_client import connect
>>> with connect("http://127.0.0.1:9300", tenant="demo") as kb:
...     kb.tell("parent(ann, bob)")
...     kb.ask("parent(ann, ?who)").one()
('ann', 'bob')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kbcore_client.errors import (
    BudgetExceeded,
    Conflict,
    ConnectionFailed,
    Forbidden,
    InternalError,
    InvalidInput,
    KBError,
    LogTruncated,
    ModelFailed,
    ModelNotConfigured,
    NotAServer,
    NotFound,
    NotInstalled,
    NotReady,
    NotUnique,
    PredicateFailed,
    RateLimited,
    ReadOnlyFollower,
    RuleSyntaxError,
    StorageFull,
    TimedOut,
    TooLarge,
    Unauthorized,
)

if TYPE_CHECKING:
    from kbcore_client._async.knowledge_base import AsyncKnowledgeBase, connect_async
    from kbcore_client._sync.knowledge_base import KnowledgeBase, connect
    from kbcore_client.answers import AnswerSet
    from kbcore_client.settings import Retries, Settings, Timeouts
    from kbtypes.how_to import HowTo, HowToProposal
    from kbtypes.proofs import Proof, WhyNot, WhyNotCandidate
    from kbtypes.results import (
        AnswersChanged,
        Event,
        RetractOutcome,
        StoredRule,
        StoreOutcome,
        Subscription,
    )
    from kbtypes.windows import Bucket, ContextDiff, Window, WindowOptions

__version__ = "0.2.1"

_HOMES = {
    "AnswerSet": "kbcore_client.answers",
    "AnswersChanged": "kbtypes.results",
    "AsyncKnowledgeBase": "kbcore_client._async.knowledge_base",
    "Bucket": "kbtypes.windows",
    "ContextDiff": "kbtypes.windows",
    "Event": "kbtypes.results",
    "HowTo": "kbtypes.how_to",
    "HowToProposal": "kbtypes.how_to",
    "KnowledgeBase": "kbcore_client._sync.knowledge_base",
    "Proof": "kbtypes.proofs",
    "RetractOutcome": "kbtypes.results",
    "Retries": "kbcore_client.settings",
    "Settings": "kbcore_client.settings",
    "StoreOutcome": "kbtypes.results",
    "StoredRule": "kbtypes.results",
    "Subscription": "kbtypes.results",
    "Timeouts": "kbcore_client.settings",
    "WhyNot": "kbtypes.proofs",
    "WhyNotCandidate": "kbtypes.proofs",
    "Window": "kbtypes.windows",
    "WindowOptions": "kbtypes.windows",
    "connect": "kbcore_client._sync.knowledge_base",
    "connect_async": "kbcore_client._async.knowledge_base",
}

__all__ = [
    "AnswerSet",
    "AnswersChanged",
    "AsyncKnowledgeBase",
    "Bucket",
    "BudgetExceeded",
    "Conflict",
    "ConnectionFailed",
    "ContextDiff",
    "Event",
    "Forbidden",
    "HowTo",
    "HowToProposal",
    "InternalError",
    "InvalidInput",
    "KBError",
    "KnowledgeBase",
    "LogTruncated",
    "ModelFailed",
    "ModelNotConfigured",
    "NotAServer",
    "NotFound",
    "NotInstalled",
    "NotReady",
    "NotUnique",
    "PredicateFailed",
    "Proof",
    "RateLimited",
    "ReadOnlyFollower",
    "RetractOutcome",
    "Retries",
    "RuleSyntaxError",
    "Settings",
    "StorageFull",
    "StoreOutcome",
    "StoredRule",
    "Subscription",
    "TimedOut",
    "Timeouts",
    "TooLarge",
    "Unauthorized",
    "WhyNot",
    "WhyNotCandidate",
    "Window",
    "WindowOptions",
    "__version__",
    "connect",
    "connect_async",
]


def load_ipython_extension(shell: Any) -> None:
    """Add the magics `%kb` and `%%kb` to a notebook: `%load_ext kbcore_client`."""
    import_module("kbcore_client.notebook").register(shell)


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: the HTTP library is not loaded before."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'kbcore_client' has no attribute {name!r}")
    return getattr(import_module(home), name)
