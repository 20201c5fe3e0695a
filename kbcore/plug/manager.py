"""Discovery of plugins by entry point, and typed calls of their hooks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any

import pluggy

from kbcore.config.settings import Config
from kbcore.config.storage_urls import backend_of, redacted
from kbcore.errors import ConfigError, KBError, PluginFailed
from kbcore.metrics.catalogue import FAMILIES, MetricSpec
from kbcore.plug import hookspecs
from kbcore.plug.installed import GROUP, PluginSource, check_version, installed
from kbcore.plug.ports import (
    BulkDatabase,
    Coordinator,
    Embedder,
    LLMProvider,
    LogStore,
    MergeStrategy,
    MetricsSink,
    Predicate,
    SalienceScorer,
    ShardPlaces,
    SqlDialect,
    StorageTools,
    TableFormat,
    Tokenizer,
)
from kbcore.plug.sealed_store import Encryption
from kbcore.plug.webhooks import WebhookSender
from kbplanner.ir.limits import DEFAULT_LIMITS

SERVER_HOOK_PREFIX = "kb_http_"
"""Prefix of hooks that a server specifies, if there is one."""

CHOSEN_BY = {
    "kb_storage_backends": "STORAGE_BACKEND",
    "kb_storage_shards": "STORAGE_BACKEND",
    "kb_storage_tools": "STORAGE_BACKEND",
    "kb_salience_scorers": "SALIENCE_SCORER",
    "kb_metrics_sinks": "METRICS_SINKS",
    "kb_llm_providers": "LLM_PROVIDER",
    "kb_embedders": "EMBEDDER",
    "kb_tokenizers": "TOKENIZER",
    "kb_webhook_senders": "WEBHOOK_SENDER",
}
"""Collecting hooks whose offers a setting picks; offers of other hooks are picked per request or
all used."""

log = logging.getLogger("kbcore.plugins")


class Plugins:
    """The plugins of one runtime.

    Built-in and third-party plugins from entry points, and those passed in.

    Raises ConfigError naming the plugin if it cannot be loaded, implements an unknown hook, or is
    made for another version of the protocols.
    """

    def __init__(self, config: Config, extra: Iterable[ModuleType | object] = ()) -> None:
        self._config = config
        self.encryption = Encryption(config)
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        self._specified: list[ModuleType] = [hookspecs]
        self.sources: dict[str, PluginSource] = {}
        self.on_failure: Callable[[str], None] | None = None
        for source in installed(config.plugins_disabled):
            self._register(source.load(), source)
        for plugin in extra:
            self._register(plugin, None)
        self._check()

    def specify(self, specs: ModuleType) -> None:
        """Add the hooks of a module, once; raise ConfigError as the class does."""
        if specs in self._specified:
            return
        try:
            self._manager.add_hookspecs(specs)
        except pluggy.PluginValidationError as error:
            raise ConfigError(str(error)) from error
        self._specified.append(specs)
        self._check()

    def names(self) -> list[str]:
        """Return the names of the loaded plugins, sorted."""
        return sorted(
            name for name, plugin in self._manager.list_name_plugin() if plugin is not None
        )

    def hooks(self) -> dict[str, list[str]]:
        """Return the hooks that each plugin implements, sorted."""
        hooks: dict[str, list[str]] = {name: [] for name in self.names()}
        for hook in sorted(vars(self._manager.hook)):
            for implementation in getattr(self._manager.hook, hook).get_hookimpls():
                hooks[implementation.plugin_name].append(hook)
        return hooks

    def offers(self, plugin: str, hook: str) -> list[str]:
        """Return the names a plugin offers through a collecting hook of the core, sorted.

        The list is empty for other hooks.
        """
        if hook not in COLLECTING:
            return []
        names: list[str] = []
        for implementation in self._implementations(hook):
            if implementation.plugin_name == plugin:
                names.extend(self._call(implementation, hook, {"config": self._config}))
        return sorted(names)

    # -- used by the core --------------------------------------------------------------------------

    def open_storage(self) -> LogStore:
        """Open the log that STORAGE_BACKEND names.

        Raise ConfigError naming the choices, and for a storage with several shards.
        """
        places = self.shard_places()
        if places is not None and (log_ids := places.recorded(self._config)):
            raise ConfigError(f"the storage has {len(log_ids)} shards, and this needs one log")
        return self.check_storage()(self._config)

    def check_storage(self) -> Callable[[Config], LogStore]:
        """Return the factory of the log that STORAGE_BACKEND names, encrypted if a key is set.

        Raise ConfigError naming the choices.
        """
        factory = self.plain_storage()
        return lambda config: self.encryption.opened(factory(config))

    def plain_storage(self) -> Callable[[Config], LogStore]:
        """Return the factory of the log that STORAGE_BACKEND names, without encryption.

        Raise ConfigError naming the choices.
        """
        backend, url = self._config.storage_backend, self._config.storage_url
        factory: Callable[[Config], LogStore] = self._pick("kb_storage_backends", backend)
        if url and backend_of(url) != backend:
            raise ConfigError(
                f"STORAGE_URL={redacted(url)!r} is for {backend_of(url)!r}, but STORAGE_BACKEND is {backend!r}"
            )
        return factory

    def open_coordinator(self, url: str) -> Coordinator:
        """Open the coordinator of a URL by its scheme; raise ConfigError naming the choices."""
        scheme, colon, _ = url.partition(":")
        factories: dict[str, Callable[[str], Coordinator]] = self._collect("kb_coordinators")
        if not colon or scheme.lower() not in factories:
            schemes = ", ".join(sorted(factories)) or "none"
            raise ConfigError(
                f"no plugin offers the coordinator {redacted(url)!r}; a URL begins with one of: {schemes}"
            )
        return factories[scheme.lower()](url)

    def storage_tools(self) -> StorageTools:
        """Return the folder tools of the backend that STORAGE_BACKEND names.

        Raise ConfigError if it has none.
        """
        tools: StorageTools = self._pick("kb_storage_tools", self._config.storage_backend)
        return tools

    def shard_places(self) -> ShardPlaces | None:
        """Return the places of shards of the backend that STORAGE_BACKEND names, None without."""
        places: dict[str, ShardPlaces] = self._collect("kb_storage_shards")
        return places.get(self._config.storage_backend)

    def merge_strategies(self) -> dict[str, MergeStrategy]:
        """Return the strategies for merges of scopes, by name."""
        return self._collect("kb_merge_strategies")

    def conflict_strategies(self) -> dict[str, MergeStrategy]:
        """Return the strategies for new facts whose opposite is stored, by name."""
        return self._collect("kb_conflict_strategies")

    def bulk_databases(self) -> dict[str, BulkDatabase]:
        """Return the databases for bulk runs, by name."""
        return self._collect("kb_bulk_engines")

    def sql_dialects(self) -> dict[str, SqlDialect]:
        """Return the dialects of SQL for conditions of goals, by name."""
        return self._collect("kb_sql_dialects")

    def table_formats(self) -> dict[str, TableFormat]:
        """Return the formats of files with tables of facts, by the ending of the files."""
        return self._collect("kb_table_formats")

    def predicates(self) -> dict[str, Predicate]:
        """Return the predicates whose rows plugins provide, by `name/arity`.

        Raises ConfigError naming a predicate that contradicts itself.
        """
        predicates: dict[str, Predicate] = self._collect("kb_predicates")
        for signature, predicate in predicates.items():
            if problem := _predicate_problem(signature, predicate):
                raise ConfigError(f"the predicate {signature!r} of a plugin {problem}")
        return predicates

    def salience_scorer(self) -> SalienceScorer:
        """Return the scorer that SALIENCE_SCORER names; raise ConfigError naming the choices."""
        scorer: SalienceScorer = self._pick("kb_salience_scorers", self._config.salience_scorer)
        return scorer

    def metrics_sinks(self, specs: Sequence[MetricSpec] = FAMILIES) -> list[MetricsSink]:
        """Open and return the sinks that METRICS_SINKS lists.

        Raise ConfigError naming the choices.
        """
        sinks: list[MetricsSink] = []
        for name in dict.fromkeys(self._config.metrics_sinks):
            factory: Callable[[Sequence[MetricSpec]], MetricsSink] = self._pick(
                "kb_metrics_sinks", name
            )
            sinks.append(factory(specs))
        return sinks

    def llm_provider(self) -> LLMProvider | None:
        """Return the language model that LLM_PROVIDER names, None for `none`.

        Raise ConfigError naming the choices.
        """
        name = self._config.llm_provider
        if name.lower() in ("", "none"):
            return None
        factory: Callable[[Config], LLMProvider] = self._pick("kb_llm_providers", name)
        return factory(self._config)

    def embedder(self) -> Embedder | None:
        """Return the embedder that EMBEDDER names, None for `none`.

        Raise ConfigError naming the choices.
        """
        name = self._config.embedder
        if name.lower() in ("", "none"):
            return None
        factory: Callable[[Config], Embedder] = self._pick("kb_embedders", name)
        embedder = factory(self._config)
        if embedder.dimension < 1:
            raise ConfigError(f"EMBEDDER={name!r}: the plugin gives no dimension for its vectors")
        return embedder

    def tokenizer(self) -> Tokenizer | None:
        """Return the tokenizer that TOKENIZER names, None for `none`.

        Raises ConfigError naming the choices.
        """
        name = self._config.tokenizer
        if name.lower() in ("", "none"):
            return None
        factory: Callable[[Config], Tokenizer] = self._pick("kb_tokenizers", name)
        return factory(self._config)

    def webhook_sender(self) -> WebhookSender | None:
        """Return the sender that WEBHOOK_SENDER names, None if WEBHOOK_URLS allows no address.

        Raises ConfigError naming the choices.
        """
        if not self._config.webhook_urls:
            return None
        factory: Callable[[Config], WebhookSender] = self._pick(
            "kb_webhook_senders", self._config.webhook_sender
        )
        return factory(self._config)

    def extraction_prompt(self, text: str, context: str | None) -> str | None:
        """Return a plugin's instructions for extraction from a text, None for the default.

        Raise PluginFailed.
        """
        prompt = self.decide("kb_extraction_prompt", text=text, context=context)
        if prompt is not None and not isinstance(prompt, str):
            raise PluginFailed(
                "a plugin returned something other than a text from kb_extraction_prompt"
            )
        return prompt

    def rule_texts(self, database: str, tenant: str) -> list[tuple[str, str]]:
        """Return the initial rules of a new tenant as pairs of plugin and text.

        Raise PluginFailed naming the plugin.
        """
        pairs: list[tuple[str, str]] = []
        for implementation in self._implementations("kb_rule_texts"):
            arguments = {"database": database, "tenant": tenant}
            try:
                texts = self._call(implementation, "kb_rule_texts", arguments) or ()
                if isinstance(texts, str):
                    raise TypeError("kb_rule_texts must return a list of texts, not one text")
                texts = list(texts)
                if not all(isinstance(text, str) for text in texts):
                    raise TypeError("kb_rule_texts must return only texts")
                pairs.extend((implementation.plugin_name, text) for text in texts)
            except Exception as error:
                raise PluginFailed(
                    f"plugin {implementation.plugin_name} failed in kb_rule_texts: {error}"
                ) from error
        return pairs

    # -- calling hooks -----------------------------------------------------------------------------

    def listens(self, hook: str) -> bool:
        """Return True if any plugin implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def tell(self, hook: str, **arguments: Any) -> None:
        """Call a notification hook; an exception of a plugin is logged and counted."""
        for implementation in self._implementations(hook):
            try:
                self._call(implementation, hook, arguments)
            except Exception:  # a failing listener must not fail the operation
                log.warning(
                    "plugin %s failed in %s", implementation.plugin_name, hook, exc_info=True
                )
                if self.on_failure is not None:
                    self.on_failure(hook)

    def decide(self, hook: str, **arguments: Any) -> Any:
        """Return the first result of a deciding hook that is not None, else None.

        A KBError raised by a plugin goes through; raises PluginFailed naming the plugin for any
        other exception.
        """
        for implementation in self._implementations(hook):
            try:
                answer = self._call(implementation, hook, arguments)
            except KBError:
                raise
            except Exception as error:
                raise PluginFailed(
                    f"plugin {implementation.plugin_name} failed in {hook}: {error!r}"
                ) from error
            if answer is not None:
                return answer
        return None

    def gather(self, hook: str, **arguments: Any) -> list[tuple[str, Any]]:
        """Return the result of each plugin for a hook, with the plugin's name.

        Exceptions go through.
        """
        return [
            (each.plugin_name, self._call(each, hook, arguments))
            for each in self._implementations(hook)
        ]

    # -- inside ------------------------------------------------------------------------------------

    def _register(self, plugin: ModuleType | object, source: PluginSource | None) -> None:
        name = None if source is None else source.name
        label = (
            str(getattr(plugin, "__name__", type(plugin).__name__))
            if source is None
            else source.label
        )
        check_version(label, plugin)
        try:
            registered = self._manager.register(plugin, name)
        except ValueError as error:
            raise ConfigError(f"plugin {label}: {error}") from error
        except pluggy.PluginValidationError as error:
            raise ConfigError(str(error)) from error
        if source is not None and registered is not None:
            self.sources[registered] = source

    def _check(self) -> None:
        for hook, caller in vars(self._manager.hook).items():
            for implementation in caller.get_hookimpls():
                plugin = implementation.plugin_name
                if (
                    not caller.has_spec()
                    and not implementation.optionalhook
                    and not hook.startswith(SERVER_HOOK_PREFIX)
                ):
                    raise ConfigError(
                        f"plugin {plugin}: hook {hook} does not exist; docs/reference/plugin-protocols.md lists them"
                    )
                if implementation.hookwrapper or implementation.wrapper:
                    raise ConfigError(
                        f"plugin {plugin}: {hook} is a hook wrapper, which is not supported"
                    )

    def _implementations(self, hook: str) -> Iterator[Any]:
        """Return the implementations of a hook, the plugin loaded last first, as pluggy does."""
        return iter(getattr(self._manager.hook, hook).get_hookimpls()[::-1])

    def _call(self, implementation: Any, hook: str, arguments: Mapping[str, Any]) -> Any:
        accepted = {name: arguments[name] for name in implementation.argnames if name in arguments}
        if not self._config.plugins_trace:
            return implementation.function(**accepted)
        plugin = implementation.plugin_name
        try:
            result = implementation.function(**accepted)
        except BaseException as error:
            log.info("%s: plugin %s raised %s", hook, plugin, type(error).__name__)
            raise
        log.info(
            "%s: plugin %s returned %s",
            hook,
            plugin,
            sorted(result) if isinstance(result, Mapping) else type(result).__name__,
        )
        return result

    def _pick(self, hook: str, name: str) -> Any:
        offers = self._collect(hook)
        if name not in offers:
            choices = ", ".join(sorted(offers)) or "none"
            raise ConfigError(
                f"{CHOSEN_BY[hook]}={name!r}: no plugin offers it; choose from: {choices}"
            )
        return offers[name]

    def _collect(self, hook: str) -> dict[str, Any]:
        offers: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            plugin = implementation.plugin_name
            for name, offer in self._call(implementation, hook, {"config": self._config}).items():
                if name in offers:
                    raise ConfigError(
                        f"plugins {owners[name]} and {plugin} both offer {name!r} ({hook})"
                    )
                offers[name] = offer
                owners[name] = plugin
        return offers


COLLECTING = (
    "kb_storage_backends",
    "kb_storage_shards",
    "kb_coordinators",
    "kb_merge_strategies",
    "kb_conflict_strategies",
    "kb_metrics_sinks",
    "kb_llm_providers",
    "kb_salience_scorers",
    "kb_embedders",
    "kb_tokenizers",
    "kb_webhook_senders",
    "kb_bulk_engines",
    "kb_sql_dialects",
    "kb_table_formats",
    "kb_predicates",
)
"""Hooks that return names; two plugins may not offer the same name."""


def _predicate_problem(signature: str, predicate: Predicate) -> str | None:
    """Return what is wrong with the description of a predicate; None if nothing is."""
    own = f"{predicate.name}/{predicate.arity}"
    if signature != own:
        return f"is described as {own!r}"
    if problem := DEFAULT_LIMITS.name_problem(predicate.name):
        return f"has a name that {problem}"
    if problem := DEFAULT_LIMITS.args_problem(predicate.arity):
        return problem
    if not predicate.modes:
        return "has no modes"
    for mode in predicate.modes:
        if len(mode) != predicate.arity or not set(mode) <= {"in", "out"}:
            return f"has the mode {mode!r}, which must have 'in' or 'out' for each argument"
    if not callable(predicate.rows):
        return "has no function 'rows'"
    return None
