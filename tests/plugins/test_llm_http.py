"""The model adapters against a real HTTP server: requests, answers and failures."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from support.stand_in import StandIn

from kbcore.config import Config
from kbcore.errors import ConfigError, ProviderFailed
from kbcore.plug.conformance.llm import LLMProviderConformance
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import CompletionRequest, LLMProvider, Message
from kbplugins.llm_http import kb_llm_providers
from kbplugins.llm_http.transport import _seconds

PROVIDERS = ["openai", "anthropic", "google", "ollama"]
KEY = "sk-very-secret-0123456789"
SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array"}},
    "additionalProperties": False,
}
ASKED = CompletionRequest(
    "Be exact.",
    (
        Message("user", "<text>\nAnn works at Acme.\n</text>"),
        Message("assistant", "what?"),
        Message("user", "again"),
    ),
    SCHEMA,
    100,
    10.0,
)


OPEN: list[LLMProvider] = []


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with StandIn() as found:
        yield found
    while OPEN:
        OPEN.pop().close()


def provider(standin: StandIn, name: str, **more: Any) -> LLMProvider:
    settings = {"llm_api_key": KEY, **standin.settings(name), **more}
    found = Plugins(Config(**settings)).llm_provider()
    assert found is not None
    OPEN.append(found)
    return found


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_request_and_its_answer(standin: StandIn, name: str) -> None:
    made = provider(standin, name)
    assert (made.name, made.model) == (name, "stand-in")
    found = made.complete(ASKED)
    assert '"works_at"' in found.text
    assert found.input_tokens == len("again") // 4
    assert found.output_tokens
    assert not found.truncated


def test_what_openai_is_sent(standin: StandIn) -> None:
    provider(standin, "openai").complete(ASKED)
    (seen,) = standin.seen
    assert (seen.path, seen.headers["authorization"]) == ("/v1/chat/completions", f"Bearer {KEY}")
    assert seen.body == {
        "model": "stand-in",
        "messages": [
            {"role": "system", "content": "Be exact."},
            {"role": "user", "content": "<text>\nAnn works at Acme.\n</text>"},
            {"role": "assistant", "content": "what?"},
            {"role": "user", "content": "again"},
        ],
        "max_tokens": 100,
        "temperature": 0,
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA},
        },
    }


def test_openai_gets_only_parameters_it_accepts() -> None:
    made = kb_llm_providers(Config())["openai"](Config(llm_model="m", llm_api_key=KEY))
    body = made.body(replace(ASKED, schema=None))  # type: ignore[attr-defined]
    made.close()
    assert body.keys() == {"model", "messages", "max_completion_tokens"}


def test_what_anthropic_is_sent(standin: StandIn) -> None:
    provider(standin, "anthropic").complete(ASKED)
    (seen,) = standin.seen
    assert (seen.path, seen.headers["x-api-key"], seen.headers["anthropic-version"]) == (
        "/v1/messages",
        KEY,
        "2023-06-01",
    )
    assert "authorization" not in seen.headers
    assert (seen.body["system"], seen.body["max_tokens"]) == ("Be exact.", 100)
    assert [turn["role"] for turn in seen.body["messages"]] == ["user", "assistant", "user"]
    assert seen.body["tool_choice"] == {"type": "tool", "name": "answer"}
    assert seen.body["tools"][0]["input_schema"] == SCHEMA


def test_what_google_is_sent(standin: StandIn) -> None:
    provider(standin, "google").complete(ASKED)
    (seen,) = standin.seen
    assert seen.path == "/v1beta/models/stand-in:generateContent"
    assert seen.headers["x-goog-api-key"] == KEY
    assert [turn["role"] for turn in seen.body["contents"]] == ["user", "model", "user"]
    assert seen.body["generationConfig"] == {
        "maxOutputTokens": 100,
        "temperature": 0,
        "responseMimeType": "application/json",
        "responseSchema": {"type": "object", "properties": {"facts": {"type": "array"}}},
    }


def test_what_ollama_is_sent(standin: StandIn) -> None:
    provider(standin, "ollama", llm_api_key="").complete(ASKED)
    (seen,) = standin.seen
    assert seen.path == "/api/chat"
    assert "authorization" not in seen.headers
    assert (seen.body["stream"], seen.body["format"]) == (False, SCHEMA)
    assert seen.body["options"] == {"temperature": 0, "num_predict": 100}


@pytest.mark.parametrize("name", PROVIDERS)
def test_free_text_has_no_schema(standin: StandIn, name: str) -> None:
    provider(standin, name).complete(replace(ASKED, schema=None))
    body = standin.seen[0].body
    assert not {"response_format", "tools", "tool_choice", "format"} & body.keys()
    assert "responseSchema" not in body.get("generationConfig", {})


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_truncated_answer_is_marked(standin: StandIn, name: str) -> None:
    standin.misbehave("truncated")
    assert provider(standin, name).complete(ASKED).truncated


@pytest.mark.parametrize("name", PROVIDERS)
@pytest.mark.parametrize(
    ("kind", "outcome", "retry"),
    [
        ("429 after 7", "rate_limited", True),
        ("500", "error", True),
        ("503", "error", True),
        ("529", "error", True),
        ("400", "refused", False),
        ("404", "refused", False),
        ("401", "error", False),
        ("403", "error", False),
        ("redirect", "error", False),
        ("cut", "error", True),
        ("not_json", "error", True),
        ("oversize", "error", False),
    ],
)
def test_failures(
    standin: StandIn,
    name: str,
    kind: str,
    outcome: str,
    retry: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    standin.misbehave(kind)
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderFailed) as caught:
        provider(standin, name).complete(ASKED)
    assert (caught.value.kind, caught.value.retry) == (outcome, retry)
    assert caught.value.retry_after == (7.0 if kind.startswith("429") else None)
    assert len(standin.seen) == 1, "a redirect is not followed"
    said = [
        caught.value.message,
        str(caught.value.__cause__),
        *(record.getMessage() for record in caplog.records),
    ]
    assert not any(KEY in text for text in said)


@pytest.mark.parametrize("kind", ["slow", "drip"])
def test_a_slow_answer_ends_at_the_time_limit(standin: StandIn, kind: str) -> None:
    standin.misbehave(kind)
    with pytest.raises(ProviderFailed) as caught:
        provider(standin, "openai").complete(replace(ASKED, timeout=0.15))
    assert (caught.value.kind, caught.value.retry) == ("timeout", True)


def test_no_server_on_the_port(standin: StandIn) -> None:
    with pytest.raises(ProviderFailed) as caught:
        provider(standin, "openai", llm_base_url="http://127.0.0.1:1/v1").complete(ASKED)
    assert caught.value.retry


@pytest.mark.parametrize(
    "answer", [{}, {"choices": []}, {"choices": [{"message": None}]}, {"choices": [{"message": 3}]}]
)
def test_an_answer_of_another_shape(standin: StandIn, answer: Any) -> None:
    made: Any = provider(standin, "openai")
    made._post = lambda *args: answer
    with pytest.raises(ProviderFailed):
        made.complete(ASKED)


def test_unexpected_values_in_a_valid_shape(standin: StandIn) -> None:
    made: Any = provider(standin, "openai")
    made._post = lambda *args: {"choices": [{"message": {"content": 3}}]}
    with pytest.raises(ProviderFailed):
        made.complete(ASKED)
    made._post = lambda *args: {
        "choices": [{"message": {"content": None}}],
        "usage": {"prompt_tokens": "many"},
    }
    found = made.complete(ASKED)
    assert (found.text, found.input_tokens, found.output_tokens) == ("", None, None)


def test_a_blocked_prompt_has_no_text(standin: StandIn) -> None:
    made: Any = provider(standin, "google")
    made._post = lambda *args: {"promptFeedback": {"blockReason": "SAFETY"}}
    assert made.complete(ASKED).text == ""


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"llm_provider": "openai", "llm_api_key": KEY}, "LLM_MODEL"),
        ({"llm_provider": "openai", "llm_model": "m"}, "LLM_API_KEY"),
        ({"llm_provider": "nobody", "llm_model": "m"}, "anthropic, google, ollama, openai"),
    ],
)
def test_what_is_missing_ends_the_start(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Plugins(Config(**settings)).llm_provider()
    assert KEY not in caught.value.message


def test_none_is_a_valid_choice() -> None:
    assert Plugins(Config()).llm_provider() is None


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("LLM_BASE_URL", "file:///etc/passwd"),
        ("LLM_BASE_URL", "http://user:pw@host/v1"),
        ("LLM_BASE_URL", "http:///v1"),
        ("LLM_BASE_URL", "http://host:99999/v1"),
        ("LLM_BASE_URL", "http://host/v1?key=1"),
        ("LLM_API_KEY", "secret\nX-Evil: 1"),
        ("LLM_API_KEY", "sécret"),
        ("LLM_MAX_CONCURRENCY", "0"),
        ("EXTRACTION_MAX_FACTS", "none"),
    ],
)
def test_settings_that_cannot_be_used(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        Config().updated({name: text})
    if name == "LLM_API_KEY":
        assert text not in caught.value.message
        assert repr(text) not in caught.value.message


def test_a_key_is_not_in_what_settings_print() -> None:
    assert KEY not in repr(Config(llm_api_key=KEY))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        (" 12 ", 12.0),
        ("soon", None),
        ("-1", None),
        ("Wed, 01 Jul 2020 00:00:00 GMT", 0.0),
    ],
)
def test_retry_after(text: str | None, seconds: float | None) -> None:
    assert _seconds(text) == seconds


class ProviderConformance(LLMProviderConformance):
    """The classes below run the tests of every provider."""

    wire: ClassVar[str]

    @pytest.fixture(autouse=True)
    def _standin(self, standin: StandIn) -> None:
        self.standin = standin

    def make_provider(self) -> LLMProvider:
        found = Plugins(Config(llm_api_key=KEY, **self.standin.settings(self.wire))).llm_provider()
        assert found is not None
        return found


class TestOpenAI(ProviderConformance):
    wire = "openai"


class TestAnthropic(ProviderConformance):
    wire = "anthropic"


class TestGoogle(ProviderConformance):
    wire = "google"


class TestOllama(ProviderConformance):
    wire = "ollama"
