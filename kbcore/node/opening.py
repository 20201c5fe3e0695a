"""Opening of a node: plugins, logs, recovery, and what the settings add."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from kbcore.clock import Clock, LoggedClock, SystemClock
from kbcore.config.settings import Config, environment
from kbcore.context.text.tokens import TokenCounter
from kbcore.errors import StorageFailed
from kbcore.llm.model import LanguageModel
from kbcore.node.instruments import collector, model_called
from kbcore.node.metric_sinks import Metrics
from kbcore.node.other_processes import Peers
from kbcore.node.runtime import Runtime
from kbcore.node.shard import Storage, recover_storage
from kbcore.node.shard_layout import open_logs
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import LLMProvider
from kbcore.receipts.signing import configured_key
from kbcore.replication.role import check_settings
from kbcore.scheduling import Scheduling
from kbcore.search.embedder import Embedding
from kbcore.tracing.spans import join_program


def open_runtime(
    config: Config,
    *,
    plugins: Iterable[object] = (),
    clock: Clock | None = None,
    scheduling: Scheduling | None = None,
    on_failure: Callable[[StorageFailed], None] | None = None,
    llm: LLMProvider | None = None,
    peers: Peers | None = None,
) -> Runtime:
    """Load plugins, open the logs, recover the state, and return a node that is ready to serve.

    `on_failure` is called when a log failed. `llm` replaces LLM_PROVIDER. `peers` are the other
    processes of a node that shares its shards with them; in a cluster a node begins without shards.
    Raises ConfigError, StorageBusy, LogCorrupted.
    """
    check_settings(config)
    join_program(environment())
    receipt_key = configured_key(config)
    loaded = Plugins(config, plugins)
    loaded.salience_scorer()  # fail on an unknown name before the log is opened
    scheduling = scheduling or Scheduling()
    provider = llm or loaded.llm_provider()
    embedder, tokenizer = loaded.embedder(), loaded.tokenizer()
    metrics = Metrics(loaded.metrics_sinks())
    logged = LoggedClock(clock or SystemClock())
    begun = logged.monotonic()
    if peers is not None and (cluster := peers.cluster) is not None:
        storage = Storage(cluster.count, {}, logged, peers, failed=cluster.failed)
    else:
        directory = None if peers is None else peers.directory()
        shards, logs = open_logs(loaded, config, None if peers is None else peers.owns)
        begun = logged.monotonic()
        storage = replace(
            recover_storage(shards, logs, config, logged), peers=peers, directory=directory
        )
    model = None
    if provider is not None:
        model = LanguageModel(
            provider, config, logged, model_called(metrics, loaded, provider.name)
        )
    runtime = Runtime(config, loaded, metrics, storage, scheduling, on_failure, model)
    runtime.receipt_key = receipt_key
    runtime.token_counter = TokenCounter(tokenizer)
    if embedder is not None:
        embedding = Embedding(embedder, logged, scheduling.offload, runtime.meters.embedded)
        runtime.embed_facts(embedding)
    runtime.word_indexes.start()
    runtime.recovery_seconds = logged.monotonic() - begun
    metrics.on_collect(collector(runtime))
    loaded.tell("kb_runtime_started", runtime=runtime)
    return runtime
