"""Calls of a language model: retries, delays, circuit breaker, slots, answers. No test waits in
real time.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.scripted import Answer, Scripted

import kbcore
from kbcore.clock import ManualClock
from kbcore.config import Config
from kbcore.errors import ModelFailed, PluginFailed, ProviderFailed, RateLimited
from kbcore.llm.breaker import Breaker
from kbcore.llm.model import LanguageModel, model_check
from kbcore.llm.structured import BadAnswer, array, ask_json, fraction, object_of
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Completion, CompletionRequest, Message, Usage

ASKED = CompletionRequest("s", (Message("user", "p"),), None, 100, 60.0)
BUSY = ProviderFailed("scripted answered 429", "rate_limited", retry=True)
DOWN = ProviderFailed("scripted answered 503", retry=True)
REFUSED = ProviderFailed("scripted answered 400", "refused")


class Bench:
    """A model on a clock that moves only when a caller waits."""

    def __init__(self, *answers: Answer, **settings: Any) -> None:
        self.clock = ManualClock()
        self.provider = Scripted(*answers)
        self.usages: list[Usage] = []
        self.waits: list[float] = []
        config = Config(**settings)
        self.model = LanguageModel(
            self.provider,
            config,
            self.clock,
            self.usages.append,
            wait=self.wait,
            chance=lambda: 0.5,
        )

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.clock.advance(round(seconds * 1000))

    def complete(self, seconds: float = 60.0) -> Completion:
        return self.model.complete(ASKED, "extract", self.clock.monotonic() + seconds)

    def ask(self, read: Any = dict, seconds: float = 60.0) -> Any:
        until = self.clock.monotonic() + seconds
        return ask_json(
            self.model, "s", "p", {"type": "object"}, read, operation="extract", deadline=until
        )

    def late(self, seconds: float) -> Any:
        """An answer that takes its time."""

        def answer(request: CompletionRequest) -> Any:
            self.clock.advance(round(seconds * 1000))
            return ProviderFailed("too late", "timeout", retry=True)

        return answer


def failed(bench: Bench, **more: Any) -> dict[str, Any]:
    with pytest.raises(ModelFailed) as caught:
        bench.complete(**more)
    found = caught.value.details or {}
    assert (found["provider"], found["model"]) == ("scripted", "script-1")
    return found


def test_temporary_failures_are_retried_with_increasing_delays() -> None:
    bench = Bench(DOWN, BUSY, "yes")
    assert bench.complete().text == "yes"
    assert bench.waits == [0.375, 0.75]
    assert [usage.outcome for usage in bench.usages] == ["error", "rate_limited", "ok"]
    last = bench.usages[-1]
    assert (last.provider, last.model, last.operation, last.input_tokens, last.output_tokens) == (
        "scripted",
        "script-1",
        "extract",
        10,
        5,
    )


def test_retry_after_is_honoured_within_the_deadline() -> None:
    bench = Bench(ProviderFailed("busy", "rate_limited", retry=True, retry_after=7.0), "yes")
    assert bench.complete().text == "yes"
    assert bench.waits == [7.0]


def test_no_retry_waits_beyond_the_deadline() -> None:
    bench = Bench(ProviderFailed("busy", "rate_limited", retry=True, retry_after=90.0), "yes")
    assert failed(bench) == {
        "provider": "scripted",
        "model": "script-1",
        "reason": "rate_limited",
        "attempts": 1,
        "retryAfterSeconds": 90.0,
    }
    assert bench.waits == []


def test_retries_are_limited() -> None:
    bench = Bench(DOWN, DOWN, DOWN, "yes", llm_retries=2)
    assert (failed(bench)["attempts"], len(bench.provider.asked)) == (3, 3)


def test_permanent_failures_are_not_retried() -> None:
    bench = Bench(REFUSED, "yes")
    assert failed(bench)["reason"] == "refused"
    assert len(bench.provider.asked) == 1


def test_the_deadline_covers_all_retries() -> None:
    bench = Bench()
    bench.provider.then([bench.late(4), bench.late(4), bench.late(4), "yes"])
    assert failed(bench, seconds=10)["reason"] == "timeout"
    assert [round(request.timeout, 3) for request in bench.provider.asked] == [10.0, 5.625, 0.875]


def test_no_call_is_made_after_the_deadline() -> None:
    bench = Bench("yes")
    assert failed(bench, seconds=0)["reason"] == "timeout"
    assert (bench.provider.asked, bench.usages, bench.model.breaker.closed) == ([], [], True)


def test_a_plugin_that_raises_another_exception_is_named() -> None:
    bench = Bench(KeyError("sk-secret"))
    with pytest.raises(PluginFailed, match="scripted raised KeyError") as caught:
        bench.complete()
    assert "sk-secret" not in caught.value.message
    bench = Bench(lambda request: 3)
    with pytest.raises(PluginFailed, match="did not return a Completion"):
        bench.complete()


def test_the_breaker_opens_and_one_call_closes_it() -> None:
    bench = Bench(*[DOWN] * 4, "yes", llm_retries=0, llm_breaker_failures=3, llm_breaker_ms=30_000)
    for _ in range(3):
        assert failed(bench)["reason"] == "error"
    assert failed(bench) | {"retryAfterSeconds": 30.0} == failed(bench)
    assert model_check(bench.model) == {
        "status": "warn",
        "message": "scripted failed repeatedly; next attempt in 30 s",
    }
    bench.clock.advance(30_000)
    assert failed(bench)["reason"] == "error"  # the one that finds out finds it still down
    assert failed(bench)["reason"] == "breaker_open"
    bench.clock.advance(30_000)
    assert bench.complete().text == "yes"
    assert model_check(bench.model)["status"] == "pass"
    assert len(bench.provider.asked) == 5


def test_a_request_at_fault_does_not_open_the_breaker() -> None:
    bench = Bench(*[REFUSED] * 9, "yes", llm_breaker_failures=1)
    for _ in range(9):
        assert failed(bench)["reason"] == "refused"
    assert bench.complete().text == "yes"


@given(st.lists(st.sampled_from(["ok", "fail", "pass", "wait"]), max_size=60))
def test_the_half_open_breaker_lets_one_call_through(steps: list[str]) -> None:
    clock = ManualClock()
    breaker = Breaker(2, 10.0, clock)
    for step in steps:
        if step == "wait":
            clock.advance(10_000)
        elif breaker.admit() is None:
            {"ok": breaker.succeeded, "fail": breaker.failed, "pass": breaker.passed}[step]()
            assert step != "ok" or breaker.closed
        else:
            assert breaker.open_for > 0
    clock.advance(10_000)
    assert breaker.admit() is None
    if not breaker.closed:
        assert breaker.admit() is not None, "while one finds out, the others wait"


def test_slots_are_limited_and_released() -> None:
    bench = Bench(llm_max_concurrency=1)
    inside, leave = threading.Event(), threading.Event()

    def long(request: CompletionRequest) -> str:
        inside.set()
        assert leave.wait(10)
        return "long"

    bench.provider.then([long, "short"])
    found: list[str] = []
    first = threading.Thread(target=lambda: found.append(bench.complete().text))
    first.start()
    assert inside.wait(10)
    with pytest.raises(RateLimited) as caught:
        bench.complete(seconds=0.01)
    assert (caught.value.details or {})["limit"] == "LLM_MAX_CONCURRENCY"
    leave.set()
    first.join()
    assert [*found, bench.complete().text] == ["long", "short"]


# -- answers as data -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1}',
        'Here:\n```json\n{"a": 1}\n```\nDone {really}.',
        '<think>{"a": 2}</think>{"a": 1}',
        '  {"a": 1} {"a": 3}',
    ],
)
def test_an_object_is_found(text: str) -> None:
    assert object_of(Completion(text)) == {"a": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "[1]",
        '{"a": NaN}',
        '{"a": ' + "[" * 100_000,
        '{"a": 1',
        "{'a': 1}",
        "{" + "x" * (1 << 20) + "}",
    ],
)
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(BadAnswer):
        object_of(Completion(text))


@given(st.text(max_size=200))
def test_any_text_is_read_or_refused(text: str) -> None:
    found: Any = {}
    with suppress(BadAnswer):
        found = object_of(Completion(text))
    assert isinstance(found, dict)


def test_a_truncated_answer_is_requested_shorter() -> None:
    with pytest.raises(BadAnswer, match="fewer"):
        object_of(Completion('{"facts": [', truncated=True))


@pytest.mark.parametrize(
    ("value", "number"), [(0, 0.0), (1, 1.0), (0.5, 0.5), (1.1, None), (True, None), ("1", None)]
)
def test_fractions(value: Any, number: float | None) -> None:
    assert fraction(value) == number


def test_arrays() -> None:
    assert (array({}, "a"), array({"a": None}, "a"), array({"a": [1]}, "a")) == ([], [], [1])
    with pytest.raises(BadAnswer):
        array({"a": {}}, "a")


def test_a_bad_answer_is_repaired_once() -> None:
    bench = Bench("no", '{"a": 1}')
    assert bench.ask() == {"a": 1}
    turns = bench.provider.asked[1].messages
    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    assert turns[1].text == "no"
    assert "no JSON object" in turns[2].text


def test_a_second_bad_answer_is_a_failure() -> None:
    bench = Bench("no", "still no", '{"a": 1}')
    with pytest.raises(ModelFailed) as caught:
        bench.ask()
    assert (caught.value.details or {})["reason"] == "bad_answer"
    assert len(bench.provider.asked) == 2


def test_schemas_are_left_out_for_a_provider_that_refuses_them() -> None:
    bench = Bench(REFUSED, '{"a": 1}', '{"a": 2}')
    assert (bench.ask(), bench.ask()) == ({"a": 1}, {"a": 2})
    assert [request.schema is None for request in bench.provider.asked] == [False, True, True]
    assert all("JSON schema" in request.messages[0].text for request in bench.provider.asked)


def test_a_request_refused_with_and_without_a_schema_is_a_failure_that_says_nothing_of_schemas() -> (
    None
):
    bench = Bench(REFUSED, REFUSED, '{"a": 1}')
    with pytest.raises(ModelFailed):
        bench.ask()
    assert bench.ask() == {"a": 1}
    assert bench.provider.asked[2].schema is not None


def test_the_time_for_a_prompt_is_a_setting() -> None:
    bench = Bench('{"a": 1}', llm_timeout_ms=2000)
    bench.ask(seconds=100)
    assert bench.provider.asked[0].timeout == 2.0


# -- hooks -----------------------------------------------------------------------------------------


class Listener:
    """A plugin that listens, and one argument is all it wants."""

    def __init__(self) -> None:
        self.heard: list[Usage] = []

    @hookimpl
    def kb_llm_called(self, usage: Usage) -> None:
        self.heard.append(usage)


class Noisy:
    @hookimpl
    def kb_llm_called(self, provider: str, model: str, usage: Usage) -> None:
        raise ValueError("no")


class Offers:
    """Offers a model under a name, and instructions of its own."""

    def __init__(self, provider: Scripted) -> None:
        self.provider = provider

    @hookimpl
    def kb_llm_providers(self, config: Config) -> dict[str, Any]:
        return {"scripted": lambda config: self.provider}

    @hookimpl
    def kb_extraction_prompt(self, text: str, context: str | None) -> str | None:
        return f"Mind the {context}." if context else None


def test_listeners_get_calls_and_a_failing_listener_has_no_effect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listener, provider = Listener(), Scripted()
    config = Config(llm_provider="scripted")
    with kbcore.open_kb(config=config, plugins=[Noisy(), listener, Offers(provider)]) as kb:
        assert len(kb.extract("Ann works at Acme.").facts) == 1
    assert [(usage.operation, usage.outcome) for usage in listener.heard] == [("extract", "ok")]
    assert "kb_llm_called" in caplog.text
    assert provider.closed


def test_a_plugin_replaces_the_instructions() -> None:
    provider = Scripted()
    with kbcore.open_kb(plugins=[Offers(provider)], llm=provider) as kb:
        kb.extract("Ann works at Acme.", context="gap")
        kb.extract("Ann works at Acme.")
    assert provider.asked[0].system == "Mind the gap."
    assert provider.asked[1].system.startswith("You turn text into facts")


def test_a_plugin_with_nonsense_for_instructions_is_refused() -> None:
    class Nonsense:
        @hookimpl
        def kb_extraction_prompt(self, text: str) -> Any:
            return 3

    with kbcore.open_kb(plugins=[Nonsense()], llm=Scripted()) as kb, pytest.raises(PluginFailed):
        kb.extract("Ann works at Acme.")
