"""Protocols for plugins to implement, each with one contract.

`API_VERSION` is one number for all of them; it increases when a protocol changes in a way that
plugins notice. A plugin with `KB_API_VERSION = 1` is refused at the start when that number is
another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kbcore.plug.coordination import Change as Change
from kbcore.plug.coordination import ChangeKind as ChangeKind
from kbcore.plug.coordination import Coordinator as Coordinator
from kbcore.plug.coordination import Held as Held
from kbcore.plug.coordination import Lease as Lease
from kbcore.plug.coordination import RenewsMany as RenewsMany
from kbcore.plug.coordination import Watch as Watch
from kbcore.plug.sql import SqlBranch as SqlBranch
from kbcore.plug.sql import SqlDialect as SqlDialect
from kbcore.plug.sql import SqlRows as SqlRows
from kbcore.plug.sql import SqlSource as SqlSource
from kbcore.plug.sql import SqlTable as SqlTable
from kbcore.plug.sql import SqlUnion as SqlUnion
from kbcore.plug.webhooks import DeliveryOutcome as DeliveryOutcome
from kbcore.plug.webhooks import DeliveryResult as DeliveryResult
from kbcore.plug.webhooks import WebhookMessage as WebhookMessage
from kbcore.plug.webhooks import WebhookSender as WebhookSender
from kbcore.state.merging.sides import ConflictingFact as ConflictingFact
from kbcore.state.merging.sides import Keep as Keep

if TYPE_CHECKING:
    from kbcore.clock import Clock
    from kbcore.config.settings import Config
    from kbcore.metrics.catalogue import MetricSpec
    from kbplanner.compile.bulkplan import BulkPlan, ClauseVersion

Standing = ConflictingFact
"""The name of `ConflictingFact` before version 0.3, which plugins may import."""

API_VERSION = 1


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One durable record.

    Its sequence number, `type` and `version` of the payload, and the payload bytes.
    """

    seq: int
    type: int
    version: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class LogStatus:
    """Status of a log: highest sequence number written and synced, and the bytes of a torn tail
    that the start dropped.

    `snapshots_damaged` is the number of snapshots that the start found damaged and removed, or that
    another program removed since; `snapshot_lost` is True until a later one takes their place.
    """

    head: int
    durable: int
    log_id: str
    epoch: int
    snapshot: int
    tail_bytes_dropped: int
    writable: bool
    snapshots_damaged: int = 0
    snapshot_lost: bool = False


@dataclass(frozen=True, slots=True)
class SalienceWeights:
    """The parameters of the default salience formula.

    The weight of each part, 0 to 1, and the half-life of recency.

    salience = recency * 2^(-age / half-life) + frequency * min(1, ln(1 + accesses) / ln 100) +
    priority * the priority of the fact, at most 1, times its confidence if known; the age is that
    of the last access.
    """

    recency: float
    frequency: float
    priority: float
    half_life_ms: float


@dataclass(frozen=True, slots=True)
class FactUse:
    """Use of a stored fact: times in epoch milliseconds, `confidence` None if unknown.

    `last_access` is the creation time if there was no access since; `accesses` starts at 1.
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
    """Scores the importance of a stored fact, 0 to 1.

    Contract: `score` is a pure function of its arguments and never raises. If `weights` is not
    None, the score equals the default formula with these weights, and the engine computes it
    itself, a million facts in a few milliseconds. If it is None, `score` is called for every fact
    in question, which takes hundreds of times as long.
    """

    @property
    def weights(self) -> SalienceWeights | None:
        """The parameters of the default formula, None for another formula; the same every time."""

    def score(self, fact: FactUse, now_ms: int) -> float:
        """Return the salience of a fact at a time in epoch milliseconds."""


class LogStore(Protocol):
    """A durable log with snapshots; one writer at a time.

    Contract: after `sync` returns, everything appended survives a crash; `read` yields it in order,
    once. Sequence numbers start at 1 and increase by one per record. Errors: `LogCorrupted` on
    damage (at open or read), `StorageFull` on a full disk (nothing of the failed append is stored;
    the store works on afterwards), `StorageFailed` after a failed sync: the process must stop, and
    no write may be acknowledged.
    """

    def append(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Write (type, version, payload) records, all or none, without syncing.

        Return the last sequence number.
        """

    def sync(self) -> None:
        """Make everything appended durable, as FSYNC_POLICY says.

        May run in another thread than append.
        """

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the records with a sequence number over `after`, in order.

        Raises LogTruncated if some are gone.
        """

    def save_snapshot(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Store a snapshot of the state at `seq`, verified before it counts.

        Chunk boundaries are kept.
        """

    def begin_with(self, seq: int, chunks: Iterable[bytes]) -> None:
        """Begin an empty log with a snapshot made elsewhere, all or none.

        The next record is seq + 1.

        Raises Conflict if the log is not empty.
        """

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest valid snapshot with its sequence number, None without a snapshot."""

    def drop_before(self, seq: int) -> None:
        """Delete log segments that hold only records up to `seq` and are covered by every stored
        snapshot.
        """

    def status(self) -> LogStatus:
        """Return the status of the log."""

    def close(self, *, clean: bool = True) -> None:
        """Release the log; `clean` marks that nothing is missing."""


@runtime_checkable
class KeepsReserve(Protocol):
    """Optional ability of a `LogStore`.

    Reserved disk space for writes that remove data when the disk is full.

    While the disk is full, `append` raises StorageFull and `status().writable` is False.
    """

    def append_for_room(self, records: Sequence[tuple[int, int, bytes]]) -> int:
        """Append records that remove data (retractions, deletions), from the reserve if
        necessary.
        """

    def look_for_room(self) -> bool:
        """Check for free space and accept writes again if there is enough.

        Called each second while the disk is full.
        """


@runtime_checkable
class WorksBeside(Protocol):
    """Optional ability of a `LogStore`: background work, such as syncs in intervals."""

    def work_through(self, offload: Callable[[Callable[[], None]], None]) -> None:
        """Use `offload` for blocking calls: it waits for them where that holds up no other work."""


@runtime_checkable
class Erases(Protocol):
    """Optional ability of a `LogStore`: no byte of old records and snapshots stays in its storage.

    Copies that the store does not know, such as backups, are not affected.
    """

    def begin_apart(self) -> None:
        """Store records that are appended from now on apart from earlier ones, where that matters
        for `erase_before`.
        """

    def erase_before(self, seq: int) -> None:
        """Delete the snapshots before `seq` and the records up to `seq`, with their bytes.

        The newest snapshot must be at `seq` or later. Of records after `begin_apart` none is
        deleted before they are covered by that snapshot. After a crash the log opens, and the call
        can be repeated.
        """

    def erased(self) -> int:
        """Return the highest number such that no record up to it and no snapshot before it has
        bytes in the storage.
        """


@runtime_checkable
class KeepsSnapshots(Protocol):
    """Optional ability of a `LogStore`: it also reads older snapshots than the newest."""

    def load_snapshot_before(self, seq: int) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot whose number is less than `seq`, None without one."""


@runtime_checkable
class KeepsHistory(Protocol):
    """Optional ability of a `LogStore`: it keeps older snapshots than it needs itself.

    `erase_before` deletes these too.
    """

    def snapshot_numbers(self) -> Sequence[int]:
        """Return the numbers of the stored snapshots, ascending."""

    def keep_also(self, numbers: Sequence[int]) -> None:
        """Keep the stored snapshots with these numbers when later ones are saved, and the records
        after the oldest of them, until the next call.

        The store forgets the numbers when it is closed; a snapshot is deleted only while another
        one is saved.
        """


@dataclass(frozen=True, slots=True)
class LogSeed:
    """The beginning of a log that continues another.

    Its id, its term, and the number before its first record.
    """

    log_id: str
    epoch: int
    seq: int


class StorageTools(Protocol):
    """Operations on the folder of a log that no process has open.

    Raises StorageBusy if a process has it open.
    """

    def check(self, folder: str) -> dict[str, Any]:
        """Read a whole log and change nothing; return a report for JSON.

        `sound`: the log is undamaged; `opens`: a start accepts it.
        """

    def plant(self, folder: str, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Create a log in an empty folder that begins with a snapshot.

        Raise AlreadyExists if the folder is not empty.
        """

    def salvage(
        self,
        folder: str,
        to: str,
        *,
        skip_damaged: bool,
        owners: Callable[[bytes], Iterable[tuple[str, str]]],
        logged_at: Callable[[bytes], int | None],
    ) -> dict[str, Any]:
        """Copy the undamaged part of a log into an empty folder, in a new term.

        Return a report of what is kept and lost, by record and by time.

        Copies the longest undamaged prefix, with `skip_damaged` also undamaged records after it.
        `owners` returns the databases and tenants named in bytes of the log, whole records or
        pieces. `logged_at` returns the time of a whole record or of a chunk of a snapshot, in epoch
        milliseconds, or None. Times of a log never go back.
        """


class ShardPlaces(Protocol):
    """The places in which a storage backend keeps several logs of one node, its shards.

    The backend's factory opens a shard with the settings that `place` returns. A backend without
    this has one log, with the settings of the node.
    """

    def recorded(self, config: Config) -> Sequence[str] | None:
        """Return the log ids of the shards of a storage, "" for a shard that was not opened yet.

        The result is empty for a storage with one log, and None if there is no storage yet. Raises
        LogCorrupted if the record is damaged or missing.
        """

    def record(self, config: Config, log_ids: Sequence[str]) -> None:
        """Store the log ids of the shards; durable on return."""

    def place(self, config: Config, shard: int, *, new: bool) -> Config:
        """Return the settings with which the log of a shard is opened.

        With `new` the place of the shard is created, otherwise LogCorrupted is raised if it does
        not exist.
        """


class LogReader(Protocol):
    """A log that is read while another process writes it, by a node that will take it over.

    It has no lock and holds up no other process. Methods raise NotReady if the storage does not
    answer.
    """

    def load_snapshot(self) -> tuple[int, Iterator[bytes]] | None:
        """Return the newest snapshot with its sequence number, None without a snapshot.

        The chunks raise LogTruncated if the writer has replaced it.
        """

    def read(self, after: int) -> Iterator[LogRecord]:
        """Return the records with a sequence number over `after`, up to the last one at the call.

        Raises LogTruncated if some are gone.
        """

    def open(self) -> LogStore:
        """Open the log as its only writer from now on; raises what its factory raises.

        What this reader has verified is not verified again.
        """

    def close(self) -> None:
        """Release the reader."""


@runtime_checkable
class ReadsAlong(Protocol):
    """Required ability of the `ShardPlaces` of a cluster."""

    def reader(self, config: Config, shard: int) -> LogReader:
        """Return a reader of the log of a shard, with the settings of the node."""


@runtime_checkable
class TakesOver(Protocol):
    """Required ability of a `LogStore` whose node may follow another one, or be promoted."""

    def replace_with(self, seed: LogSeed, chunks: Iterable[bytes]) -> None:
        """Replace this log by another one, all or none.

        That log's id and term, and a snapshot of it (none at 0).

        The old log is deleted; the next record is seed.seq + 1. A crash leaves the old or the new
        log.
        """

    def raise_epoch(self, epoch: int) -> None:
        """Enter a later term; durable on return.

        Raises InvalidInput for a term that is not later.
        """


@runtime_checkable
class RemembersLeader(Protocol):
    """Optional ability of a `LogStore`.

    It stores the leader of its node, so that only that leader's records are written.
    """

    def leader(self) -> str:
        """Return the address of the leader, "" for none."""

    def remember(self, leader: str) -> None:
        """Store the leader of the node, "" for none; durable on return.

        `replace_with` does not change it.
        """


@dataclass(frozen=True, slots=True)
class MergeConflict:
    """The conflicting facts of one predicate and arguments in two scopes.

    At most one of each sign, at least one.
    """

    predicate: str
    args: tuple[str, ...]
    source: tuple[ConflictingFact, ...]
    target: tuple[ConflictingFact, ...]


@dataclass(frozen=True, slots=True)
class Resolution:
    """The outcome of a conflict; `facts`, at most one of each sign, are for `Keep.FACTS`."""

    keep: Keep
    facts: tuple[ConflictingFact, ...] = ()


class MergeStrategy(Protocol):
    """Decides the conflicts of a merge of scopes, one at a time.

    Contract: `resolve` is pure: the same conflict has the same resolution, and nothing else is read
    or changed. The decision is logged, so a restart does not ask again. If it raises, or returns
    anything else, nothing is merged.
    """

    @property
    def always(self) -> Keep | None:
        """The decision for all conflicts, which are not passed to `resolve` then.

        None if it depends, never FACTS.
        """

    def resolve(self, conflict: MergeConflict) -> Resolution:
        """Return the outcome of a conflict."""


class MetricsSink(Protocol):
    """Receives counts and measurements. `kbcore.metrics` has the table of families.

    Contract: no method blocks, and the functions that `bind` returns take well under a microsecond,
    from any thread. An exception is logged once and counted, and its value is lost to this sink
    only.
    """

    @property
    def pushes(self) -> bool:
        """True if the sink sends by itself, so that collected values are passed to it at least
        every half minute.
        """

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Return the function to call with each value of a family with these labels, one for each
        name in `spec.labels`.

        A value is an amount to add for a counter, the current value for a gauge, an observation for
        a histogram.
        """

    def expose(self) -> bytes | None:
        """Return everything so far in the Prometheus text format, for `GET /metrics`.

        None for a sink without it.
        """

    def close(self) -> None:
        """Send pending values; no value follows."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The cost of a goal.

    Seconds, rows derived by rules, and the class of the error it ended with, if any.
    """

    seconds: float
    rows_made: int
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation with a language model; `role` is "user" or "assistant"."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class CompletionRequest:
    """A request to a language model.

    `schema` is the JSON schema of the answer, None for free text; `timeout` is the limit for the
    whole call in seconds.
    """

    system: str
    messages: tuple[Message, ...]
    schema: Mapping[str, Any] | None
    max_tokens: int
    timeout: float


@dataclass(frozen=True, slots=True)
class Completion:
    """The answer of a language model; token counts are None if the provider reports none.

    `truncated` is True if the answer ended at a length limit.
    """

    text: str
    input_tokens: int | None = None
    output_tokens: int | None = None
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Usage:
    """One call of a language model.

    Its purpose, number of tokens, duration in seconds, and outcome.

    `operation` is extract, plan or answer; `outcome` is ok, timeout, rate_limited, refused or
    error.
    """

    provider: str
    model: str
    operation: str
    input_tokens: int
    output_tokens: int
    seconds: float
    outcome: str


class Embedder(Protocol):
    """Maps texts to vectors whose cosines measure similarity of meaning.

    Contract: the same text has the same vector in every process, because vectors are saved. If an
    embedder has an attribute `revision`, saved vectors of another revision are discarded: it is a
    text, such as a digest of the model. `embed` returns one vector per text, in their order, each
    of `dimension` finite numbers. It may be called by several threads at a time and may raise
    anything: only words are compared then, and the exception is logged, so it must not contain a
    key. It is never called under a lock, but a request waits for it, so it has its own time limit.
    """

    @property
    def name(self) -> str:
        """The name of the embedder in logs, as in EMBEDDER."""

    @property
    def dimension(self) -> int:
        """Length of a vector, at least 1; the same every time."""

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vectors of texts, which may be empty, long, or equal."""


class LLMProvider(Protocol):
    """A language model behind any interface.

    Contract: text in, text and token counts out. `complete` takes at most `request.timeout`
    seconds, holds no state between calls, may be called by several threads at a time, and raises
    `ProviderFailed` only. The error never contains a key.
    """

    @property
    def name(self) -> str:
        """The name of the provider, as in LLM_PROVIDER."""

    @property
    def model(self) -> str:
        """The name of the model."""

    def complete(self, request: CompletionRequest) -> Completion:
        """Answer a request; raise ProviderFailed."""

    def close(self) -> None:
        """Close connections; no request follows."""


class RunningNode(Protocol):
    """The running node, as hooks of its start and stop receive it.

    `kbcore.Runtime` implements it.
    """

    config: Config

    @property
    def clock(self) -> Clock:
        """Clock of the node."""

    def knowledge_base(self, database: str = ..., tenant: str = ...) -> Any:
        """Return a handle on a tenant (a `TenantKB`), as HTTP routes use it.

        Raise UnknownDatabase.
        """


class Tokenizer(Protocol):
    """A way to count the tokens of a text as one language model does.

    Contract: `count` is a pure function of the text, returns 0 or more, may be called by several
    threads at a time, and is fast: it is called for every entry that is about to enter a window
    with `maxTokens`, while a read lock is held. An exception fails the request.
    """

    @property
    def name(self) -> str:
        """The name of the tokenizer in error messages, as in TOKENIZER."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, which may be empty or long."""


@dataclass(frozen=True, slots=True)
class BulkOptions:
    """Options of a bulk run.

    `folder` is a folder for temporary files: an empty one, or that of a stopped run, which
    `restore` then continues. `memory_limit` is a size such as 300MB, None for the default of the
    engine. `settings` are those of the database by name.
    """

    folder: str
    memory_limit: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BulkFacts:
    """Facts of one predicate for a bulk run: Parquet files, and rows that the rules file states."""

    relation: str
    title: str
    arity: int
    files: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


class BulkEngine(Protocol):
    """One bulk run on a database that works beyond memory.

    Contract: `bind` or `restore` is called once and first, `close` last. The rows of a derived
    relation remember the round that added them, from 0; clause versions read them by view.
    Constants are the same exactly when their texts are. `cancel` may be called by another thread;
    the call at work then raises Cancelled.

    What `bind`, `make` and `extend` have completed survives the death of this process: an engine
    opened on the same folder continues with `restore`.
    """

    def bind(self, plan: BulkPlan, facts: Sequence[BulkFacts]) -> int:
        """Read the facts, encode the constants, return the number of distinct facts.

        Raises InvalidInput naming the file for columns that do not fit.
        """

    def restore(self, plan: BulkPlan, rounds: Mapping[str, int | None]) -> None:
        """Continue a stopped run of the same plan over the same facts, in place of `bind`.

        `rounds` has the relations to keep, each with its last round (None: all rounds); everything
        else is removed. Raises InvalidInput if a relation does not exist.
        """

    def make(self, relation: str, arity: int, rows: Sequence[tuple[str, ...]] = ()) -> None:
        """Create a derived relation with these rows of constants of the plan."""

    def extend(self, relation: str, versions: Sequence[ClauseVersion], round_: int) -> int:
        """Add the rows that the versions derive and the relation lacks, as rows of this round.

        New rows are those of the round before. Returns the number of rows added.
        """

    def answers(self, plan: BulkPlan, path: str) -> int:
        """Write all arguments of the goal for each answer to a Parquet file, or to a folder of
        them, at this path; return their number.
        """

    def drop(self, relation: str) -> None:
        """Remove a relation that no later clause reads."""

    def cancel(self) -> None:
        """Stop the call at work."""

    def close(self) -> None:
        """Free everything; may be called more than once."""


class BulkDatabase(Protocol):
    """A kind of database for bulk runs."""

    def open(self, options: BulkOptions) -> BulkEngine:
        """Start a run; raise ConfigError naming what to install or which option is invalid."""

    def statements(self, version: ClauseVersion, plan: BulkPlan) -> Sequence[str]:
        """Return the statements of a clause version as text, without running anything."""


@dataclass(frozen=True, slots=True)
class PredicateCall:
    """One call of a predicate with a batch of inputs.

    `mode` is the mode of the call, `columns` has for each of its "in" arguments, in order, the
    texts of all inputs: input i is the i-th text of every column. There are `count` inputs, each
    different; a mode without "in" has one, and no columns. `database`, `tenant` and `scope` (None:
    the base partition) say for whom the call is made. At most `max_rows` rows are accepted (0: no
    limit), and the result is awaited for `seconds`.
    """

    database: str
    tenant: str
    scope: str | None
    mode: tuple[str, ...]
    columns: tuple[tuple[str, ...], ...]
    count: int
    max_rows: int
    seconds: float

    def inputs(self) -> Iterator[tuple[str, ...]]:
        """Yield the inputs, each with a text for every "in" argument."""
        return zip(*self.columns, strict=True) if self.columns else iter([()] * self.count)


PredicateValue = str | int | float | bool
"""A value in a row of a predicate; numbers and booleans become the texts that JSON facts have."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """A relation that a plugin provides to rules and goals, without storing its rows.

    `modes` are the ways to call it: for each argument "in" if the caller has to give it, else
    "out". Rules are evaluated so that every call has its inputs; a goal or a rule for which that
    cannot be done is refused.

    Contract of `rows`: it returns rows with a value for every argument, for all inputs of the call
    together, in any order; a row that fits no input is ignored. What it leaves out is false. The
    rows depend on the inputs, and not on the mode. If it is `pure`, the same inputs have the same
    rows as long as a process lives, for every database, tenant and scope, and rows may be cached;
    otherwise they are valid for one request, and each request asks again.

    It is called in a thread of its own, never with a lock held, by several threads at a time, and
    may be asked for inputs that do not matter in the end. It may take `call.seconds`; after that
    the request fails and the result is thrown away. InvalidInput and NotReady are passed to the
    client with their messages; any other exception is logged, and the client gets PLUGIN_FAILED
    without its text.
    """

    name: str
    arity: int
    modes: tuple[tuple[str, ...], ...]
    rows: Callable[[PredicateCall], Iterable[Sequence[PredicateValue]]]
    pure: bool = False


class TableFormat(Protocol):
    """A format of files with a table of facts; its name is the ending of the files.

    Each column holds an argument. A table of facts without arguments has one column of booleans.
    """

    def write(
        self, path: str, columns: Sequence[str], batches: Iterable[Sequence[Sequence[str]]]
    ) -> int:
        """Write rows of texts to a new file and return their number.

        Raises ConfigError naming what to install.
        """

    def read(self, path: str) -> Iterator[Sequence[tuple[str, ...]]]:
        """Yield the rows of a file in batches; integers become texts.

        Raises InvalidInput naming the file for columns of other types, and for NULL; ConfigError
        naming what to install.
        """
