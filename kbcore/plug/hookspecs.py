"""All hooks of the core; a server adds hooks that know HTTP.

Collecting hooks are plural nouns and return a mapping of name to offer: a name offered by two
plugins prevents the start. Notification hooks are in the past tense and return nothing: an
exception in one is logged and counted, never passed on. A plugin accepts only the arguments it
needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from kbcore.config.settings import Config
    from kbcore.metrics.catalogue import MetricSpec
    from kbcore.plug.ports import (
        BulkDatabase,
        Coordinator,
        Embedder,
        Evaluation,
        LLMProvider,
        LogStore,
        MergeStrategy,
        MetricsSink,
        Predicate,
        RunningNode,
        SalienceScorer,
        ShardPlaces,
        SqlDialect,
        StorageTools,
        TableFormat,
        Tokenizer,
        Usage,
    )
    from kbcore.plug.webhooks import WebhookSender
    from kbcore.state.changes import Delta
    from kbplanner.ir.terms import BodyItem

hookspec = pluggy.HookspecMarker("kbcore")
hookimpl = pluggy.HookimplMarker("kbcore")

# -- Storage and coordination: named parts, of which a setting or a URL picks one --


@hookspec
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:  # type: ignore[empty-body]
    """Name durable logs; the factory opens the node's one log."""


@hookspec
def kb_storage_shards(config: Config) -> Mapping[str, ShardPlaces]:  # type: ignore[empty-body]
    """Name the places of shards (STORAGE_SHARDS) of a storage backend, by the backend's name.

    A backend without them keeps the data in one log.
    """


@hookspec
def kb_storage_tools(config: Config) -> Mapping[str, StorageTools]:  # type: ignore[empty-body]
    """Name the tools that check, repair and create the folders of a storage backend, by the
    backend's name.
    """


@hookspec
def kb_coordinators() -> Mapping[str, Callable[[str], Coordinator]]:  # type: ignore[empty-body]
    """Name coordinators by the scheme of their URLs; the factory opens one by its URL.

    `kbcore.open_coordinator` picks one. A factory raises ConfigError for an unusable URL, without
    the secrets in it.
    """


# -- Facts: what decides conflicts and importance, and rows and rules that a plugin provides --


@hookspec
def kb_merge_strategies() -> Mapping[str, MergeStrategy]:  # type: ignore[empty-body]
    """Name strategies for merges of scopes; a strategy decides one conflict at a time."""


@hookspec
def kb_conflict_strategies() -> Mapping[str, MergeStrategy]:  # type: ignore[empty-body]
    """Name strategies for a new fact whose opposite is stored, or another value of a declared key.

    The conflict has the new fact as its source and the stored one as its target. SOURCE stores the
    new fact and ends the other where the new one begins to hold, TARGET does not store the new
    fact, BOTH keeps both, REFUSE refuses the write; FACTS has no meaning here. The log records the
    outcome.
    """


@hookspec
def kb_salience_scorers(config: Config) -> Mapping[str, SalienceScorer]:  # type: ignore[empty-body]
    """Name scorers of the importance of a fact; SALIENCE_SCORER picks one."""


@hookspec
def kb_predicates(config: Config) -> Mapping[str, Predicate]:  # type: ignore[empty-body]
    """Name predicates for rules and goals whose rows the plugin provides, as `name/arity`.

    All of them can be used in every tenant. Facts and rules cannot be stored for them.
    """


@hookspec
def kb_rule_texts(database: str, tenant: str) -> Iterable[str]:  # type: ignore[empty-body]
    """Return rules for a tenant that is about to be created, as texts in the rule language.

    They are logged like other rules just before the first write, which is refused if a rule cannot
    be stored. A tenant that was emptied is not a new tenant.
    """


# -- Text and models: named parts, of which a setting picks one; instructions for extraction --


@hookspec
def kb_embedders(config: Config) -> Mapping[str, Callable[[Config], Embedder]]:  # type: ignore[empty-body]
    """Name embedders of texts.

    EMBEDDER picks one for queries of context windows, `none` is a valid choice.
    """


@hookspec
def kb_tokenizers(config: Config) -> Mapping[str, Callable[[Config], Tokenizer]]:  # type: ignore[empty-body]
    """Name token counters.

    TOKENIZER picks one for `maxTokens` of context windows, `none` counts characters / 4.
    """


@hookspec
def kb_llm_providers(config: Config) -> Mapping[str, Callable[[Config], LLMProvider]]:  # type: ignore[empty-body]
    """Name language-model providers; LLM_PROVIDER picks one, `none` is a valid choice."""


@hookspec(firstresult=True)
def kb_extraction_prompt(text: str, context: str | None) -> str | None:
    """Replace the model's instructions for extraction from a text.

    They should say what `kind`, `since`, `until` and `replaces` in the answer mean, as
    `kbcore.language.prompts.KINDS` does. None leaves the decision to the next plugin.
    """


# -- Ways in and out: files, databases, receivers --


@hookspec
def kb_table_formats() -> Mapping[str, TableFormat]:  # type: ignore[empty-body]
    """Name formats of files with tables of facts, by the ending of the files.

    `kbcore export --format` picks one, `kbcore import` reads all of them.
    """


@hookspec
def kb_bulk_engines() -> Mapping[str, BulkDatabase]:  # type: ignore[empty-body]
    """Name databases for bulk runs; `kbcore bulk run --engine` picks one."""


@hookspec
def kb_sql_dialects() -> Mapping[str, SqlDialect]:  # type: ignore[empty-body]
    """Name dialects of SQL for conditions of goals; `kbcore sql --dialect` picks one."""


@hookspec
def kb_webhook_senders(config: Config) -> Mapping[str, Callable[[Config], WebhookSender]]:  # type: ignore[empty-body]
    """Name senders of webhooks; WEBHOOK_SENDER picks one if WEBHOOK_URLS allows any address."""


@hookspec
def kb_metrics_sinks(config: Config) -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:  # type: ignore[empty-body]
    """Name sinks; every sink that METRICS_SINKS lists gets every value.

    The factory receives the table of families.
    """


# -- Notification: called after the fact; an exception is logged and counted --


@hookspec
def kb_runtime_started(runtime: RunningNode) -> None:
    """Run after recovery and before the first request."""


@hookspec
def kb_runtime_stopping(runtime: RunningNode) -> None:
    """Run when no request is active; the log is still open, and writes are accepted."""


@hookspec
def kb_changes_committed(database: str, tenant: str, delta: Delta) -> None:
    """Run after a change set is durable and applied.

    Called in log order for each tenant, outside its lock, by the writer: be quick. `tenant` is
    empty for a change of a whole database. An exception is logged and not passed on.
    """


@hookspec
def kb_goal_answered(
    database: str, tenant: str, goal: Sequence[BodyItem], stats: Evaluation
) -> None:
    """Run after a goal was evaluated, with an answer or an error; `goal` has one or more literals.

    The answer waits for this call: be quick.
    """


@hookspec
def kb_llm_called(provider: str, model: str, usage: Usage) -> None:
    """Run after a call of a language model, successful or not.

    An exception is logged and goes no further.
    """
