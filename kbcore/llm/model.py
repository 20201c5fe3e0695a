"""Calls of a language model: so many at a time, tried again where that may help, all of it before a deadline."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import replace

from kbcore.clock import Clock
from kbcore.config.settings import Config
from kbcore.errors import ModelFailed, PluginFailed, ProviderFailed, RateLimited
from kbcore.llm.breaker import Breaker
from kbcore.plug.ports import Completion, CompletionRequest, LLMProvider, Usage

FIRST_WAIT = 0.5
LONGEST_WAIT = 20.0
"""Seconds between two tries: they double from the first to the longest, and chance takes up to half of them off."""

_CHANCE = random.SystemRandom()

_log = logging.getLogger("kbcore.llm")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


class Model:
    """The model of a runtime. Times are seconds on the clock's monotonic hand.

    `wait` lets so many seconds pass, `chance` gives numbers from 0 to 1; both are given so that tests need no patience.
    """

    def __init__(
        self,
        provider: LLMProvider,
        config: Config,
        clock: Clock,
        told: Callable[[Usage], None],
        *,
        wait: Callable[[float], None] = _wait,
        chance: Callable[[], float] = _CHANCE.random,
    ) -> None:
        self.provider = provider
        self.clock = clock
        self.breaker = Breaker(config.llm_breaker_failures, config.llm_breaker_ms / 1000, clock)
        self.prompt_seconds = config.llm_timeout_ms / 1000
        self.max_tokens = config.llm_max_tokens
        self._tries = config.llm_retries + 1
        self._told = told
        self._wait = wait
        self._chance = chance
        self._most = config.llm_max_concurrency
        self._free = threading.BoundedSemaphore(self._most)
        self.takes_schemas = True
        """Whether the provider has not yet refused a schema that it then did without."""

    @property
    def name(self) -> str:
        """The name of the provider."""
        return self.provider.name

    @property
    def model(self) -> str:
        """What the provider calls it."""
        return self.provider.model

    def complete(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        """Ask, again where a failure may pass, until `deadline`; what Retry-After says is waited for.

        Raises ModelFailed, and RateLimited where no place came free.
        """
        if not self._free.acquire(timeout=max(0.0, deadline - self.clock.monotonic())):
            limit = {"limit": "LLM_MAX_CONCURRENCY", "value": self._most}
            raise RateLimited("too many requests wait for the language model", 1, limit)
        try:
            return self._tried(request, operation, deadline)
        finally:
            self._free.release()

    def failure(self, message: str, reason: str, **more: object) -> ModelFailed:
        """The error that says so, naming the model."""
        return ModelFailed(message, {"provider": self.name, "model": self.model, "reason": reason, **more})

    def _tried(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        for attempt in range(1, self._tries + 1):
            if self.clock.monotonic() >= deadline:
                raise self.failure("the time for the language model was over", "timeout", attempts=attempt - 1)
            closed = self.breaker.admit()
            if closed is not None:
                raise self.failure(
                    "the language model failed again and again and is left alone for a while",
                    "breaker_open",
                    retryAfterSeconds=round(closed, 3),
                )
            try:
                return self._once(request, operation, deadline)
            except ProviderFailed as error:
                left = deadline - self.clock.monotonic()
                pause = self._pause(attempt, error)
                if error.retry and attempt < self._tries and pause < left:
                    self._wait(pause)
                    continue
                told = {} if error.retry_after is None else {"retryAfterSeconds": error.retry_after}
                raise self.failure(error.message, error.kind, attempts=attempt, **told) from error
        raise AssertionError("the last try returns or raises")

    def _once(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        begun = self.clock.monotonic()
        outcome, found = "error", Completion("")
        try:
            found = self._answer(replace(request, timeout=deadline - begun))
            outcome = "ok"
        except ProviderFailed as error:
            outcome = error.kind
            _log.warning("language model failed: %s", error.message, extra={"fields": {"provider": self.name}})
            if error.kind == "refused":  # the request was at fault, which says nothing of the next
                self.breaker.passed()
            else:
                self.breaker.failed()
            raise
        except PluginFailed:
            self.breaker.failed()
            raise
        except BaseException:
            self.breaker.passed()
            raise
        else:
            self.breaker.succeeded()
            return found
        finally:
            spent = self.clock.monotonic() - begun
            tokens = found.input_tokens or 0, found.output_tokens or 0
            self._told(Usage(self.name, self.model, operation, *tokens, spent, outcome))

    def _answer(self, request: CompletionRequest) -> Completion:
        try:
            found = self.provider.complete(request)
        except ProviderFailed:
            raise
        except Exception as error:
            raise PluginFailed(f"provider {self.name} raised {type(error).__name__}") from error
        if not isinstance(found, Completion):
            raise PluginFailed(f"provider {self.name} gave no Completion")
        return found

    def _pause(self, attempt: int, error: ProviderFailed) -> float:
        usual = min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** (attempt - 1)) * (1 - self._chance() / 2)
        return max(usual, error.retry_after or 0.0)


def model_check(model: Model | None) -> dict[str, str]:
    """What readiness says of a model: nobody asks it for that, the last calls tell."""
    if model is None:
        return {"status": "pass", "message": "no language model is configured"}
    if model.breaker.closed:
        return {"status": "pass", "message": f"{model.name}, {model.model}"}
    left = model.breaker.open_for
    return {"status": "warn", "message": f"{model.name} failed again and again; tried again in {left:.0f} s"}
