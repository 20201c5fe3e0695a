"""All hooks of the core, nothing else; a server adds those that know HTTP.

Collecting hooks are plural nouns and return name to offer: two plugins giving one name refuse the start. Telling hooks are
past tense and return nothing: an exception in one is logged and counted, never passed on. A plugin takes only the arguments
it wants.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from kbcore.config.settings import Config
    from kbcore.metrics.catalogue import MetricSpec
    from kbcore.plug.ports import (
        Embedder,
        Evaluation,
        LLMProvider,
        LogStore,
        MergeStrategy,
        MetricsSink,
        RunningNode,
        SalienceScorer,
        StorageTools,
        Usage,
    )
    from kbcore.plug.tokenizer import Tokenizer
    from kbcore.state.changes import Delta
    from kbplanner.ir.terms import BodyItem

hookspec = pluggy.HookspecMarker("kbcore")
hookimpl = pluggy.HookimplMarker("kbcore")

# -- collecting -------------------------------------------------------------------------------------------------------


@hookspec
def kb_storage_backends(config: Config) -> Mapping[str, Callable[[Config], LogStore]]:  # type: ignore[empty-body]
    """Name durable logs; the factory opens the node's one log."""


@hookspec
def kb_storage_tools(config: Config) -> Mapping[str, StorageTools]:  # type: ignore[empty-body]
    """Name what checks, mends and makes the folders of a storage backend, by the backend's name."""


@hookspec
def kb_merge_strategies() -> Mapping[str, MergeStrategy]:  # type: ignore[empty-body]
    """Name strategies for merges of scopes; each decides one conflict at a time."""


@hookspec
def kb_conflict_strategies() -> Mapping[str, MergeStrategy]:  # type: ignore[empty-body]
    """Name what may happen to a fact whose opposite is stored (`conflictStrategy`).

    The conflict has the new fact as its source, the stored one as its target. SOURCE lets the new one win and retracts the
    other, TARGET does not store it, BOTH keeps both, REFUSE refuses the write; FACTS has no meaning here. What is logged is
    the outcome.
    """


@hookspec
def kb_metrics_sinks(config: Config) -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:  # type: ignore[empty-body]
    """Name sinks; every one that METRICS_SINKS lists gets every value. The factory is given the table of families."""


@hookspec
def kb_salience_scorers(config: Config) -> Mapping[str, SalienceScorer]:  # type: ignore[empty-body]
    """Name ways to say how much a fact matters; SALIENCE_SCORER picks one."""


@hookspec
def kb_embedders(config: Config) -> Mapping[str, Callable[[Config], Embedder]]:  # type: ignore[empty-body]
    """Name ways to make vectors of texts; EMBEDDER picks one for queries of context windows, `none` is a valid choice."""


@hookspec
def kb_tokenizers(config: Config) -> Mapping[str, Callable[[Config], Tokenizer]]:  # type: ignore[empty-body]
    """Name ways to count tokens; TOKENIZER picks one for `maxTokens` of context windows, `none` counts characters / 4."""


@hookspec
def kb_rule_texts(database: str, tenant: str) -> Iterable[str]:  # type: ignore[empty-body]
    """Rules for a tenant that is about to be created, as texts in the rule language.

    They are logged like others just before its first write, which is refused if one of them cannot be taken. A tenant that
    was emptied is not a new one.
    """


# -- telling ----------------------------------------------------------------------------------------------------------


@hookspec
def kb_runtime_started(runtime: RunningNode) -> None:
    """Recovery is done and nothing has been served yet."""


@hookspec
def kb_runtime_stopping(runtime: RunningNode) -> None:
    """No request is running; the log is still open, and writes are taken."""


@hookspec
def kb_goal_answered(database: str, tenant: str, goal: Sequence[BodyItem], stats: Evaluation) -> None:
    """A goal was evaluated, with an answer or an error; `goal` has one literal or several.

    Called where the answer waits for it: be quick.
    """


@hookspec
def kb_llm_providers(config: Config) -> Mapping[str, Callable[[Config], LLMProvider]]:  # type: ignore[empty-body]
    """Name language-model providers; LLM_PROVIDER picks one, `none` is a valid choice."""


@hookspec(firstresult=True)
def kb_extraction_prompt(text: str, context: str | None) -> str | None:
    """Replace the instructions a model gets for extracting from a text; None leaves it to the next."""


@hookspec
def kb_llm_called(provider: str, model: str, usage: Usage) -> None:
    """A call of a language model ended, well or badly. What this raises is logged and goes no further."""


@hookspec
def kb_changes_committed(database: str, tenant: str, delta: Delta) -> None:
    """A change set is durable and applied. Called in log order for each tenant, outside its lock, by the writer: be quick.

    `tenant` is empty for what concerns a whole database. An exception is logged and reaches nobody.
    """
