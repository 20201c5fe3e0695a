"""Protocol of the services that a tenant handle uses: this package does not depend on `node`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from kbcore.clock import Clock
    from kbcore.config.settings import Config
    from kbcore.context.text.tokens import TokenCounter
    from kbcore.durable.known_states import KnownStates
    from kbcore.durable.transactions import Transactions
    from kbcore.errors import BudgetExceeded
    from kbcore.llm.model import LanguageModel
    from kbcore.operations.decision_log import DecisionLog
    from kbcore.operations.transaction import TransactionKB
    from kbcore.plug.manager import Plugins
    from kbcore.plug.ports import LogStore, SalienceScorer
    from kbcore.plug.webhooks import WebhookSender
    from kbcore.reason.admission import Caller, Slots
    from kbcore.reason.ask import Reasoner
    from kbcore.reason.external.predicates import ExternalPredicates
    from kbcore.receipts.signing import ReceiptKey
    from kbcore.retraction.cascade import Cascades
    from kbcore.search.indexer import WordIndexes
    from kbcore.search.vectors.indexer import VectorIndexes
    from kbcore.state.catalog import Catalog
    from kbcore.state.changes import ChangeSet, Delta
    from kbcore.state.labels import Dimensions, Labels
    from kbcore.state.tenant import Tenant
    from kbplanner.engine.backend import RunLimits


@dataclass(frozen=True, slots=True)
class Erasure:
    """Progress of the removal of purged text from the log and the snapshots of a node.

    No record up to `erased` has bytes in the storage. While `pending` is not 0, the text of records
    up to it is to be removed. `waits_for` is None if nothing is pending, and otherwise `work` (it
    is done soon), `followers` (one still needs the records), `retry` (the last attempt failed with
    `problem`), or `storage` (which cannot erase).
    """

    erased: int
    pending: int = 0
    waits_for: str | None = None
    problem: str | None = None


class ReadCounters(Protocol):
    """Counters of reads and of the work done for them."""

    @property
    def reads(self) -> Mapping[str, Callable[[float], None]]:
        """For each kind of read, the function that takes its duration in seconds."""

    @property
    def fired(self) -> Callable[[float], None]:
        """Function that counts rows derived by rules."""

    @property
    def window_facts(self) -> Callable[[float], None]:
        """Function that observes the number of facts in a context window."""

    @property
    def consolidated(self) -> Callable[[float], None]:
        """Function that counts facts summarised by a consolidation."""

    def exceeded(self, error: BudgetExceeded) -> None:
        """Count a read that exceeded a limit."""


class Services(Protocol):
    """The part of a running node that tenant handles use.

    `kbcore.node.runtime.Runtime` implements the protocol.
    """

    @property
    def config(self) -> Config:
        """Settings of the node."""

    @property
    def clock(self) -> Clock:
        """Clock of the node."""

    @property
    def plugins(self) -> Plugins:
        """Loaded plugins."""

    @property
    def predicates(self) -> ExternalPredicates | None:
        """Predicates whose rows plugins provide, or None if there are none."""

    @property
    def transactions(self) -> Transactions:
        """Open and finished transactions."""

    @property
    def limits(self) -> RunLimits:
        """Limits of one run, from the settings."""

    @property
    def reports_goals(self) -> bool:
        """True when a plugin listens to answered goals."""

    @property
    def decisions(self) -> DecisionLog | None:
        """The log of decisions, or None if none is set."""

    @property
    def receipt_key(self) -> ReceiptKey | None:
        """The key that signs receipts, or None if none is configured."""

    @property
    def slots(self) -> Slots:
        """Admission of long goals."""

    @property
    def model(self) -> LanguageModel | None:
        """Language model, or None if none is configured."""

    @property
    def vectors(self) -> VectorIndexes | None:
        """Vectors of facts and their embedder, or None if no embedder is configured."""

    @property
    def word_indexes(self) -> WordIndexes:
        """Word indexes of the tenants."""

    @property
    def offload(self) -> Callable[[Callable[[], Any]], Any]:
        """Run a function away from the event loop and return its result."""

    @property
    def yield_now(self) -> Callable[[], None]:
        """Let other requests run."""

    @property
    def token_counter(self) -> TokenCounter:
        """Counter of tokens for context windows."""

    @property
    def scorer(self) -> SalienceScorer:
        """Salience scorer."""

    @property
    def meters(self) -> ReadCounters:
        """Counters of reads."""

    def may_see(self, owner: str, view: Labels, dimensions: Dimensions) -> bool:
        """Return False if the owner of a subscription is a key that may not see a view any more."""

    def read_tenant(self, database: str, name: str, now: int | None = None) -> Tenant:
        """Return a tenant advanced to `now`, None: the current time; an unknown tenant is empty."""

    def find_tenant(self, database: str, name: str) -> Tenant | None:
        """Return a tenant advanced to the current time, or None if the tenant does not exist."""

    def need_tenant(self, database: str, name: str) -> Tenant:
        """Return a tenant advanced to the current time; one that does not exist is created in
        memory, without facts.
        """

    def reasoner(self, tenant: Tenant) -> Reasoner:
        """Return the reasoner of a tenant, with its goal tables."""

    def cascades(self, tenant: Tenant) -> Cascades:
        """Return the finder of conclusions that no longer hold after a tenant's retractions."""

    def commit(self, changes: ChangeSet) -> Delta:
        """Make a change set durable and apply it."""

    def begin(self, database: str, tenant: str, view: Labels = ()) -> str:
        """Open a transaction within a view, and return its id."""

    def in_transaction(
        self,
        database: str,
        tenant: str,
        id: str,
        *,
        writes: bool = True,
        caller: Caller | None = None,
    ) -> TransactionKB:
        """Return a handle on a tenant as an open transaction sees it."""

    def erase(self, database: str, tenant: str) -> bool:
        """Remove purged text of a tenant from its storage now; return True if that is done."""

    def erase_later(self) -> None:
        """Remove purged text in the background."""

    def erasure(self, database: str, tenant: str) -> Erasure:
        """Return how far the log of a tenant is erased."""

    def log(self, database: str, tenant: str) -> LogStore:
        """Return the log of a tenant, to be read."""

    def log_head(self, database: str, tenant: str) -> int:
        """Return the number of the last record in the log of a tenant that reads can see."""

    @property
    def known_states(self) -> KnownStates:
        """Earlier states of tenants, rebuilt from the log."""

    def scratch(self) -> Catalog:
        """Return an empty catalog, in which an earlier state can be rebuilt."""

    @property
    def webhooks(self) -> WebhookSender | None:
        """The sender of webhooks, None if the settings allow none."""

    def wake_deliveries(self) -> None:
        """Look for changes of standing goals to deliver."""

    def refuse_on_follower(self) -> None:
        """Raise ReadOnlyFollower on a follower."""
