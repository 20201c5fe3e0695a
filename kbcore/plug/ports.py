"""What plugins implement: small protocols with one contract each.

`API_VERSION` is one number for all of them; it rises when a protocol changes in a way plugins notice. A plugin that says
`KB_API_VERSION = 1` is refused, at the start and clearly, where that number is another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kbcore.state.standing import Keep as Keep
from kbcore.state.standing import Standing as Standing

if TYPE_CHECKING:
    from kbcore.clock import Clock
    from kbcore.config.settings import Config
    from kbcore.metrics.catalogue import MetricSpec

API_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One durable record: its place in the log, `type` and `version` of the payload, and the payload bytes."""

    seq: int
    type: int
    version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Where a log stands: highest sequence number written and synced, and what a start dropped from a torn tail."""

    head: int
    durable: int
    log_id: str
    epoch: int
    snapshot: int
    tail_bytes_dropped: int
    writable: bool


@dataclass(frozen=True, slots=True)
class SalienceWeights:
    """The parameters of the usual formula of salience: what each part weighs, 0 to 1, and the half-life of recency.

    salience = recency * 2^(-age / half-life) + frequency * min(1, ln(1 + accesses) / ln 100) + priority * the priority of
    the fact, at most 1, times its confidence where it is known; the age is that of the last access.
    """

    recency: float
    frequency: float
    priority: float
    half_life_ms: float


@dataclass(frozen=True, slots=True)
class FactUse:
    """What is known of a stored fact's use: times in epoch milliseconds, `confidence` None where it is unknown.

    `last_access` is the creation where there was none since; `accesses` starts at 1.
    """

    predicate: str
    positive: bool
    scope: str | None
    created_at: int
    last_access: int
    accesses: int
    priority: float
    confidence: float | None


class SalienceScorer(Protocol):
    """How much a stored fact matters, 0 to 1.

    Contract: `score` is a pure function of its arguments and never raises. Where `weights` is not None the score is what the
    usual formula gives with them, and the engine works it out itself, a million facts in a few milliseconds. Where it is
    None `score` is called for every fact looked at, which takes hundreds of times as long.
    """

    @property
    def weights(self) -> SalienceWeights | None:
        """The parameters of the usual formula, None for a formula of one's own; the same every time."""

    def score(self, fact: FactUse, now_ms: int) -> float:
        """The salience of a fact at a time in epoch milliseconds."""


class LogStore(Protocol):
    """A durable log with snapshots; one writer at a time.

    Contract: after `sync` returns, everything appended survives a crash; `read` yields it in order, once.
    Sequence numbers start at 1 and rise by one a record. Errors: `LogCorrupted` on damage (at open or read),
    `StorageFull` when there is no room (nothing of the failed append stays; the store works on afterwards),
    `StorageFailed` when a sync failed: the process must stop, nothing may be acknowledged.
    """

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Write (type, version, payload) records, all or none, without syncing; returns the last sequence number."""

    def sync(self) -> None:
        """Make everything appended durable, as FSYNC_POLICY says. May run in another thread than append."""

    def read(self, after: int) -> Iterator[LogRecord]:
        """Every record with a sequence number over `after`, in order. Raises LogTruncated if some are gone."""

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`, verified before it counts; chunk borders are kept."""

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot made elsewhere, all or none: the next record is seq + 1.

        Raises Conflict where the log is not empty.
        """

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """The newest sound snapshot and its sequence number, None when there is none."""

    def drop_before(self, seq: int) -> None:
        """Delete log segments that hold only records up to `seq` and are covered by every kept snapshot."""

    def status(self) -> LogStatus:
        """Where the log stands."""

    def close(self, *, clean: bool = True) -> None:
        """Release the log; `clean` marks that nothing is missing."""


@runtime_checkable
class KeepsReserve(Protocol):
    """What a `LogStore` may do besides: keep room for the writes that make room when its disk is full.

    While it is full `append` raises StorageFull and `status().writable` is False.
    """

    def append_for_room(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Append records that make room (retractions, deletions), out of the reserve if need be."""

    def look_for_room(self) -> bool:
        """Look whether writes can be taken again, and take them then; called each second while they are not."""


@runtime_checkable
class WorksBeside(Protocol):
    """What a `LogStore` may do besides: work of its own accord, such as syncs in intervals."""

    def work_through(self, offload: Callable[[Callable[[], None]], None]) -> None:
        """Make the calls that block through `offload`, which waits for them where that holds up nobody."""


@dataclass(frozen=True, slots=True)
class LogSeed:
    """What a log that does not begin with nothing begins with: its id, its term, and the number before its first record."""

    log_id: str
    epoch: int
    seq: int


class StorageTools(Protocol):
    """What can be done to the folder of a log that no process has open. Raises StorageBusy where one has."""

    def check(self, folder: str) -> dict[str, Any]:
        """Read all of a log and change nothing: a report for JSON. `sound`: all is well; `opens`: a start takes it."""

    def plant(self, folder: str, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Make a log in an empty folder that begins with a snapshot; raises AlreadyExists where the folder is not empty."""

    def salvage(
        self, folder: str, to: str, *, skip_damaged: bool, owners: Callable[[bytes], Iterable[tuple[str, str]]]
    ) -> dict[str, Any]:
        """Copy what is sound of a damaged log into an empty folder, in a new term: a report of what is kept and lost.

        The longest sound prefix, with `skip_damaged` also what is sound after it. `owners` gives the databases and tenants
        that bytes of the log speak of, whole records or pieces.
        """


@runtime_checkable
class TakesOver(Protocol):
    """What a `LogStore` does besides where its node may follow another one, or be promoted."""

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Put another log in the place of this one, all or none: that log's id and term, and a snapshot of it (none at 0).

        Everything that was here is gone then; the next record is seed.seq + 1. A crash leaves the one or the other.
        """

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term; durable on return. Raises InvalidInput for one that is not later."""


@runtime_checkable
class RemembersLeader(Protocol):
    """What a `LogStore` may do besides: remember whom its node follows, so that nobody else writes there meanwhile."""

    def leader(self) -> str:
        """The address of the leader, "" for nobody."""

    def remember(self, leader: str) -> None:
        """Note whom the node follows from now on, "" for nobody; durable on return. `replace_with` changes nothing of it."""


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """The facts of one predicate and arguments in two scopes that do not agree: one of each sign at most, never none."""

    predicate: str
    args: tuple[str, ...]
    source: tuple[Standing, ...]
    target: tuple[Standing, ...]


@dataclass(frozen=True, slots=True)
class Resolution:
    """What becomes of a conflict; `facts`, at most one of each sign, are for `Keep.FACTS`."""

    keep: Keep
    facts: tuple[Standing, ...] = ()


class MergeStrategy(Protocol):
    """Decides the conflicts of a merge of scopes, one at a time.

    Contract: `resolve` is pure: the same conflict has the same resolution, and nothing else is read or changed. What it
    decides is logged, so it is not asked again at a restart. If it raises, or returns something else, nothing is merged.
    """

    @property
    def always(self) -> Keep | None:
        """What it decides whatever the conflict, which then is not shown to it; None where that depends, never FACTS."""

    def resolve(self, conflict: MergeConflict) -> Resolution:
        """What becomes of a conflict."""


class MetricsSink(Protocol):
    """Takes what is counted and measured. `kbcore.metrics` has the table of families.

    Contract: nothing here waits for anything, and the functions `bind` gives take well under a microsecond, from any thread.
    One that raises is logged once and counted, and its value is lost to this sink only.
    """

    @property
    def pushes(self) -> bool:
        """Whether it sends by itself, so that what only collectors know is brought to it every half minute at least."""

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """What to call with each value of a family with these labels, one for each name in `spec.labels`.

        A value is an amount to add for a counter, where a gauge stands now, an observation for a histogram.
        """

    def expose(self) -> bytes | None:
        """Everything so far in the Prometheus text format, for `GET /metrics`; None where that is not what it is for."""

    def close(self) -> None:
        """Send what is held; nothing comes after this."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What it took to answer a goal: seconds, rows that rules made, and the class of the error it ended with, if any."""

    seconds: float
    rows_made: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a conversation with a language model; `role` is "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """What a language model is asked.

    `schema`, a JSON schema, is what the answer shall be an instance of, None for free text; `timeout` is in seconds, for
    the whole of it.
    """

    system: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None
    max_tokens: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Completion:
    """What a language model answered; token counts are None where the provider tells none.

    `truncated` says that the answer ended where its length met a limit.
    """

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """One call of a language model: what for, how many tokens, how long in seconds, and how it ended.

    `operation` is extract, plan or answer; `outcome` is ok, timeout, rate_limited, refused or error.
    """

    provider: str
    model: str
    operation: str
    input_tokens: int
    output_tokens: int
    seconds: float
    outcome: str


class Embedder(Protocol):
    """Texts as vectors whose cosines say how near they are in meaning.

    Contract: the same text has the same vector as long as a process lives. `embed` gives one vector a text, in their order,
    each of `dimension` finite numbers; it may be called by several threads at a time and may raise anything: words alone
    decide then, and what it raised is logged, so no key may be in it. It is never called under a lock, but a request waits
    for it, so it keeps a time limit of its own.
    """

    @property
    def name(self) -> str:
        """Its name in logs, as in EMBEDDER."""

    @property
    def dimension(self) -> int:
        """Numbers in a vector, at least 1; the same every time."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """The vectors of some texts, which may be empty, long, or the same."""


class LLMProvider(Protocol):
    """A language model behind some interface.

    Contract: text in, text and token counts out. `complete` takes at most `request.timeout` seconds, holds no state between
    calls, may be called by several threads at a time, and raises `ProviderFailed` only. What it raises never holds a key.
    """

    @property
    def name(self) -> str:
        """The name of the provider, as in LLM_PROVIDER."""

    @property
    def model(self) -> str:
        """The name of the model."""

    def complete(self, request: CompletionRequest) -> Completion:
        """Answer a request; raises ProviderFailed."""

    def close(self) -> None:
        """Let go of connections; nothing is asked afterwards."""


class RunningNode(Protocol):
    """The running node, as hooks of its start and stop receive it; `kbcore.Runtime` implements it."""

    config: Config

    @property
    def clock(self) -> Clock:
        """Clock of the node."""

    def knowledge_base(self, database: str = ..., tenant: str = ...) -> Any:
        """Return the handle on a tenant (a `KnowledgeBase`), as HTTP routes use it; raises UnknownDatabase."""
