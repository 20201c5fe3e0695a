"""Find plugins by entry point, block those switched off, and call hooks with types."""

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
from kbcore.plug.installed import GROUP, Source, check_version, installed
from kbcore.plug.ports import (
    Embedder,
    LLMProvider,
    LogStore,
    MergeStrategy,
    MetricsSink,
    SalienceScorer,
    StorageTools,
)
from kbcore.plug.tokenizer import Tokenizer

LATER = "kb_http_"
"""Hooks that start so are specified by a server, if there is one."""

CHOSEN_BY = {
    "kb_storage_backends": "STORAGE_BACKEND",
    "kb_storage_tools": "STORAGE_BACKEND",
    "kb_salience_scorers": "SALIENCE_SCORER",
    "kb_metrics_sinks": "METRICS_SINKS",
    "kb_llm_providers": "LLM_PROVIDER",
    "kb_embedders": "EMBEDDER",
    "kb_tokenizers": "TOKENIZER",
}
"""Collecting hooks of which a setting picks; of the others a request does, or all are used."""

log = logging.getLogger("kbcore.plugins")


class Plugins:
    """The plugins of one runtime: built-ins and guests through the same entry points, plus those passed in.

    Raises ConfigError naming the plugin where one cannot be loaded, speaks of a hook there is not, or is made for another
    version of the protocols.
    """

    def __init__(self, config: Config, extra: Iterable[ModuleType | object] = ()) -> None:
        self._config = config
        self._manager = pluggy.PluginManager(GROUP)
        self._manager.add_hookspecs(hookspecs)
        self._specified: list[ModuleType] = [hookspecs]
        self.sources: dict[str, Source] = {}
        self.on_failure: Callable[[str], None] | None = None
        for source in installed(config.plugins_disabled):
            self._register(source.load(), source)
        for plugin in extra:
            self._register(plugin, None)
        self._check()

    def specify(self, specs: ModuleType) -> None:
        """Add the hooks of a module, once; raises ConfigError as the class does."""
        if specs in self._specified:
            return
        try:
            self._manager.add_hookspecs(specs)
        except pluggy.PluginValidationError as error:
            raise ConfigError(str(error)) from error
        self._specified.append(specs)
        self._check()

    def names(self) -> list[str]:
        """Names of the plugins that are loaded, sorted."""
        return sorted(name for name, plugin in self._manager.list_name_plugin() if plugin is not None)

    def hooks(self) -> dict[str, list[str]]:
        """For each plugin the hooks it implements, sorted."""
        found: dict[str, list[str]] = {name: [] for name in self.names()}
        for hook in sorted(vars(self._manager.hook)):
            for implementation in getattr(self._manager.hook, hook).get_hookimpls():
                found[implementation.plugin_name].append(hook)
        return found

    def offers(self, plugin: str, hook: str) -> list[str]:
        """The names a plugin offers through a collecting hook of the core, sorted; none of another hook."""
        if hook not in COLLECTING:
            return []
        found: list[str] = []
        for implementation in self._implementations(hook):
            if implementation.plugin_name == plugin:
                found.extend(self._call(implementation, hook, {"config": self._config}))
        return sorted(found)

    # -- what the core asks ---------------------------------------------------------------------------------------------

    def open_storage(self) -> LogStore:
        """Open the log that STORAGE_BACKEND names; raises ConfigError naming the choices."""
        return self.check_storage()(self._config)

    def check_storage(self) -> Callable[[Config], LogStore]:
        """Return what opens the log that STORAGE_BACKEND names; raises ConfigError naming the choices."""
        wanted, url = self._config.storage_backend, self._config.storage_url
        factory: Callable[[Config], LogStore] = self._pick("kb_storage_backends", wanted)
        if url and backend_of(url) != wanted:
            raise ConfigError(f"STORAGE_URL={redacted(url)!r} is for {backend_of(url)!r}, but STORAGE_BACKEND is {wanted!r}")
        return factory

    def storage_tools(self) -> StorageTools:
        """The tools for folders of the backend that STORAGE_BACKEND names; raises ConfigError where there are none."""
        found: StorageTools = self._pick("kb_storage_tools", self._config.storage_backend)
        return found

    def merge_strategies(self) -> dict[str, MergeStrategy]:
        """The strategies for merges of scopes, by name."""
        return self._collect("kb_merge_strategies")

    def conflict_strategies(self) -> dict[str, MergeStrategy]:
        """What may happen to a fact whose opposite is stored, by name."""
        return self._collect("kb_conflict_strategies")

    def salience_scorer(self) -> SalienceScorer:
        """The scorer that SALIENCE_SCORER names; raises ConfigError naming the choices."""
        found: SalienceScorer = self._pick("kb_salience_scorers", self._config.salience_scorer)
        return found

    def metrics_sinks(self, specs: Sequence[MetricSpec] = FAMILIES) -> list[MetricsSink]:
        """The sinks that METRICS_SINKS lists, opened; raises ConfigError naming the choices."""
        made: list[MetricsSink] = []
        for name in dict.fromkeys(self._config.metrics_sinks):
            factory: Callable[[Sequence[MetricSpec]], MetricsSink] = self._pick("kb_metrics_sinks", name)
            made.append(factory(specs))
        return made

    def llm_provider(self) -> LLMProvider | None:
        """The language model that LLM_PROVIDER names, None for `none`; raises ConfigError naming the choices."""
        wanted = self._config.llm_provider
        if wanted.lower() in ("", "none"):
            return None
        factory: Callable[[Config], LLMProvider] = self._pick("kb_llm_providers", wanted)
        return factory(self._config)

    def embedder(self) -> Embedder | None:
        """The embedder that EMBEDDER names, None for `none`; raises ConfigError naming the choices."""
        wanted = self._config.embedder
        if wanted.lower() in ("", "none"):
            return None
        factory: Callable[[Config], Embedder] = self._pick("kb_embedders", wanted)
        made = factory(self._config)
        if made.dimension < 1:
            raise ConfigError(f"EMBEDDER={wanted!r}: its vectors have no dimension")
        return made

    def tokenizer(self) -> Tokenizer | None:
        """Return the tokenizer that TOKENIZER names, None for `none`; raises ConfigError naming the choices."""
        name = self._config.tokenizer
        if name.lower() in ("", "none"):
            return None
        factory: Callable[[Config], Tokenizer] = self._pick("kb_tokenizers", name)
        return factory(self._config)

    def extraction_prompt(self, text: str, context: str | None) -> str | None:
        """The instructions a plugin wants for extracting from a text, None where none has any; raises PluginFailed."""
        found = self.decide("kb_extraction_prompt", text=text, context=context)
        if found is not None and not isinstance(found, str):
            raise PluginFailed("a plugin gave something else than a text in kb_extraction_prompt")
        return found

    def rule_texts(self, database: str, tenant: str) -> list[tuple[str, str]]:
        """The rules a new tenant starts with: plugin and text. Raises PluginFailed naming the plugin."""
        found: list[tuple[str, str]] = []
        for implementation in self._implementations("kb_rule_texts"):
            given = {"database": database, "tenant": tenant}
            try:
                texts = self._call(implementation, "kb_rule_texts", given) or ()
                if isinstance(texts, str):
                    raise TypeError("kb_rule_texts gives a list of texts, not one text")
                texts = list(texts)
                if not all(isinstance(text, str) for text in texts):
                    raise TypeError("kb_rule_texts gives texts and nothing else")
                found.extend((implementation.plugin_name, text) for text in texts)
            except Exception as error:
                raise PluginFailed(f"plugin {implementation.plugin_name} failed in kb_rule_texts: {error}") from error
        return found

    # -- calling hooks --------------------------------------------------------------------------------------------------

    def listens(self, hook: str) -> bool:
        """Whether any plugin implements a hook."""
        return bool(getattr(self._manager.hook, hook).get_hookimpls())

    def tell(self, hook: str, **given: Any) -> None:
        """Call a telling hook: a plugin that raises is logged and counted, and stops nobody."""
        for implementation in self._implementations(hook):
            try:
                self._call(implementation, hook, given)
            except Exception:  # a listener's failure is not that of whoever did the work
                log.warning("plugin %s failed in %s", implementation.plugin_name, hook, exc_info=True)
                if self.on_failure is not None:
                    self.on_failure(hook)

    def decide(self, hook: str, **given: Any) -> Any:
        """The first answer to a deciding hook that is not None; None where there is none.

        An error of ours a plugin raises on purpose goes through; raises PluginFailed naming the plugin for any other.
        """
        for implementation in self._implementations(hook):
            try:
                found = self._call(implementation, hook, given)
            except KBError:
                raise
            except Exception as error:
                raise PluginFailed(f"plugin {implementation.plugin_name} failed in {hook}: {error!r}") from error
            if found is not None:
                return found
        return None

    def gather(self, hook: str, **given: Any) -> list[tuple[str, Any]]:
        """What each plugin gives to a hook, with its name; what it raises goes through."""
        return [(each.plugin_name, self._call(each, hook, given)) for each in self._implementations(hook)]

    # -- inside ---------------------------------------------------------------------------------------------------------

    def _register(self, plugin: ModuleType | object, source: Source | None) -> None:
        name = None if source is None else source.name
        shown = str(getattr(plugin, "__name__", type(plugin).__name__)) if source is None else source.said
        check_version(shown, plugin)
        try:
            registered = self._manager.register(plugin, name)
        except ValueError as error:
            raise ConfigError(f"plugin {shown}: {error}") from error
        except pluggy.PluginValidationError as error:
            raise ConfigError(str(error)) from error
        if source is not None and registered is not None:
            self.sources[registered] = source

    def _check(self) -> None:
        for hook, caller in vars(self._manager.hook).items():
            for implementation in caller.get_hookimpls():
                who = implementation.plugin_name
                if not caller.has_spec() and not implementation.optionalhook and not hook.startswith(LATER):
                    raise ConfigError(f"plugin {who}: there is no hook {hook}; docs/reference/hooks.md lists them")
                if implementation.hookwrapper or implementation.wrapper:
                    raise ConfigError(f"plugin {who}: {hook} is a wrapper, which hooks here do not have")

    def _implementations(self, hook: str) -> Iterator[Any]:
        """The last plugin that was loaded comes first, as pluggy has it."""
        return iter(getattr(self._manager.hook, hook).get_hookimpls()[::-1])

    def _call(self, implementation: Any, hook: str, given: Mapping[str, Any]) -> Any:
        wanted = {name: given[name] for name in implementation.argnames if name in given}
        if not self._config.plugins_trace:
            return implementation.function(**wanted)
        who = implementation.plugin_name
        try:
            found = implementation.function(**wanted)
        except BaseException as error:
            log.info("%s: plugin %s raised %s", hook, who, type(error).__name__)
            raise
        log.info("%s: plugin %s gave %s", hook, who, sorted(found) if isinstance(found, Mapping) else type(found).__name__)
        return found

    def _pick(self, hook: str, wanted: str) -> Any:
        offers = self._collect(hook)
        if wanted not in offers:
            there = ", ".join(sorted(offers)) or "none"
            raise ConfigError(f"{CHOSEN_BY[hook]}={wanted!r}: no plugin offers it; there are: {there}")
        return offers[wanted]

    def _collect(self, hook: str) -> dict[str, Any]:
        offers: dict[str, Any] = {}
        owners: dict[str, str] = {}
        for implementation in getattr(self._manager.hook, hook).get_hookimpls():
            who = implementation.plugin_name
            for name, offer in self._call(implementation, hook, {"config": self._config}).items():
                if name in offers:
                    raise ConfigError(f"plugins {owners[name]} and {who} both offer {name!r} ({hook})")
                offers[name] = offer
                owners[name] = who
        return offers


COLLECTING = (
    "kb_storage_backends",
    "kb_merge_strategies",
    "kb_conflict_strategies",
    "kb_metrics_sinks",
    "kb_llm_providers",
    "kb_salience_scorers",
    "kb_embedders",
    "kb_tokenizers",
)
"""Hooks that give names; two plugins may not give the same."""
