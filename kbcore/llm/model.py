"""Calls of a language model with a concurrency limit, retries and a deadline."""

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
from kbcore.llm.call_span import begin_call, describe_answer
from kbcore.plug.ports import Completion, CompletionRequest, LLMProvider, Usage
from kbcore.tracing import spans

MIN_RETRY_SECONDS = 0.5
MAX_RETRY_SECONDS = 20.0
"""Bounds of the wait between two attempts, which doubles each time and is randomly reduced by up to
half.
"""

_CHANCE = random.SystemRandom()

_log = logging.getLogger("kbcore.llm")


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


class LanguageModel:
    """The language model of a runtime. Times are seconds of the monotonic clock.

    `wait` sleeps for a number of seconds and `chance` returns a random number from 0 to 1; tests
    replace both.
    """

    def __init__(
        self,
        provider: LLMProvider,
        config: Config,
        clock: Clock,
        record_usage: Callable[[Usage], None],
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
        self._record_usage = record_usage
        self._wait = wait
        self._chance = chance
        self._max_calls = config.llm_max_concurrency
        self._free = threading.BoundedSemaphore(self._max_calls)
        self.takes_schemas = True
        """False after the provider rejected a request with a schema and accepted it without."""

    @property
    def name(self) -> str:
        """The name of the provider."""
        return self.provider.name

    @property
    def model(self) -> str:
        """The name of the model at the provider."""
        return self.provider.model

    def complete(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        """Call the model and retry transient failures until `deadline`, respecting Retry-After.

        Raises ModelFailed, and RateLimited if the concurrency limit was reached until the deadline.
        """
        if not self._free.acquire(timeout=max(0.0, deadline - self.clock.monotonic())):
            limit = {"limit": "LLM_MAX_CONCURRENCY", "value": self._max_calls}
            raise RateLimited("too many requests are waiting for the language model", 1, limit)
        try:
            return self._tried(request, operation, deadline)
        finally:
            self._free.release()

    def failure(self, message: str, reason: str, **more: object) -> ModelFailed:
        """Return a ModelFailed with the message, naming the provider and the model."""
        return ModelFailed(
            message, {"provider": self.name, "model": self.model, "reason": reason, **more}
        )

    def _tried(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        for attempt in range(1, self._tries + 1):
            if self.clock.monotonic() >= deadline:
                raise self.failure(
                    "the time limit for the language model was reached",
                    "timeout",
                    attempts=attempt - 1,
                )
            wait_seconds = self.breaker.admit()
            if wait_seconds is not None:
                raise self.failure(
                    "the language model failed repeatedly and is not called for a while",
                    "breaker_open",
                    retryAfterSeconds=round(wait_seconds, 3),
                )
            try:
                return self._once(request, operation, deadline)
            except ProviderFailed as error:
                left = deadline - self.clock.monotonic()
                pause = self._pause(attempt, error)
                if error.retry and attempt < self._tries and pause < left:
                    self._wait(pause)
                    continue
                details = (
                    {} if error.retry_after is None else {"retryAfterSeconds": error.retry_after}
                )
                raise self.failure(
                    error.message, error.kind, attempts=attempt, **details
                ) from error
        raise AssertionError("the last try returns or raises")

    def _once(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        if spans.tracer is None:
            return self._called(request, operation, deadline)
        with begin_call(spans.tracer, self.name, self.model, request) as span:
            completion = self._called(request, operation, deadline)
            if span.is_recorded:
                tracer = spans.tracer
                describe_answer(span, completion, tracer is not None and tracer.shows_content)
            return completion

    def _called(self, request: CompletionRequest, operation: str, deadline: float) -> Completion:
        start = self.clock.monotonic()
        outcome, completion = "error", Completion("")
        try:
            completion = self._answer(replace(request, timeout=deadline - start))
            outcome = "ok"
        except ProviderFailed as error:
            outcome = error.kind
            _log.warning(
                "language model failed: %s",
                error.message,
                extra={"fields": {"provider": self.name}},
            )
            if error.kind == "refused":  # the fault is in this request; the next may succeed
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
            return completion
        finally:
            spent = self.clock.monotonic() - start
            tokens = completion.input_tokens or 0, completion.output_tokens or 0
            self._record_usage(Usage(self.name, self.model, operation, *tokens, spent, outcome))

    def _answer(self, request: CompletionRequest) -> Completion:
        try:
            completion = self.provider.complete(request)
        except ProviderFailed:
            raise
        except Exception as error:
            raise PluginFailed(f"provider {self.name} raised {type(error).__name__}") from error
        if not isinstance(completion, Completion):
            raise PluginFailed(f"provider {self.name} did not return a Completion")
        return completion

    def _pause(self, attempt: int, error: ProviderFailed) -> float:
        usual = min(MAX_RETRY_SECONDS, MIN_RETRY_SECONDS * 2.0 ** (attempt - 1)) * (
            1 - self._chance() / 2
        )
        return max(usual, error.retry_after or 0.0)


def model_check(model: LanguageModel | None) -> dict[str, str]:
    """Return the readiness check of a model, from the outcome of its last calls; makes no call."""
    if model is None:
        return {"status": "pass", "message": "no language model is configured"}
    if model.breaker.closed:
        return {"status": "pass", "message": f"{model.name}, {model.model}"}
    left = model.breaker.open_for
    return {
        "status": "warn",
        "message": f"{model.name} failed repeatedly; next attempt in {left:.0f} s",
    }
