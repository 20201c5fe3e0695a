"""Tests for authors of a language-model provider to subclass; the built-in providers run them too.

    from kbcore.plug.conformance.llm import LLMProviderConformance

    class TestMine(LLMProviderConformance):
        def make_provider(self):
            return Mine(...)

The model behind it has to be reachable. Like `conformance`, this module imports pytest, and nothing
of the core imports it.
"""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

import json
import threading
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kbcore.errors import ProviderFailed
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.ports import Completion, CompletionRequest, LLMProvider, Message

_SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}}},
    "required": ["facts"],
    "additionalProperties": False,
}

REQUEST = CompletionRequest(
    "You answer with JSON.",
    (Message("user", 'Say {"facts": []} and nothing else.'),),
    _SCHEMA,
    500,
    60.0,
)


class LLMProviderConformance(Conformance, abstract=True):
    """Tests of the contract of `LLMProvider`.

    Subclass it, name it `Test...`, and implement `make_provider`.
    """

    factory = "make_provider"

    @abstractmethod
    def make_provider(self) -> LLMProvider:
        """Return the provider under test, with a model that answers."""

    @pytest.fixture
    def provider(self) -> Iterator[LLMProvider]:
        """Yield the provider under test, and close it at the end."""
        provider_ = self.make_provider()
        yield provider_
        provider_.close()

    def test_it_has_names(self, provider: LLMProvider) -> None:
        """Check that both names are texts, and the same every time."""
        assert provider.name
        assert provider.model
        assert (provider.name, provider.model) == (provider.name, provider.model)

    def test_it_answers_with_json_where_a_schema_asks_for_it(self, provider: LLMProvider) -> None:
        """Check that the provider answers with JSON, or refuses the schema and answers without
        it.
        """
        try:
            answer = provider.complete(REQUEST)
        except ProviderFailed as error:
            assert error.kind == "refused", error.message  # noqa: PT017
            answer = provider.complete(replace(REQUEST, schema=None))
        start = answer.text.find("{")
        assert start >= 0, answer.text
        assert isinstance(json.JSONDecoder().raw_decode(answer.text, start)[0], dict)

    def test_an_answer_is_text_and_counts(self, provider: LLMProvider) -> None:
        """Check that token counts are numbers from 0, or None."""
        answer = provider.complete(replace(REQUEST, schema=None))
        assert isinstance(answer, Completion)
        assert isinstance(answer.text, str)
        assert all(
            count is None or count >= 0 for count in (answer.input_tokens, answer.output_tokens)
        )

    def test_turns_of_both_sides_are_taken(self, provider: LLMProvider) -> None:
        """Check the messages of a repair: a question, a bad answer, its errors."""
        turns = (
            *REQUEST.messages,
            Message("assistant", "Sure!"),
            Message("user", "That is no JSON. Again."),
        )
        assert isinstance(
            provider.complete(replace(REQUEST, schema=None, messages=turns)), Completion
        )

    def test_no_time_is_a_timeout(self, provider: LLMProvider) -> None:
        """Check that a request with no time left fails like one that took too long."""
        with pytest.raises(ProviderFailed) as caught:
            provider.complete(replace(REQUEST, timeout=1e-9))
        assert caught.value.kind == "timeout"

    def test_several_may_ask_at_a_time(self, provider: LLMProvider) -> None:
        """Check that calls from separate threads are all answered."""
        answers: list[Completion] = []
        threads = [
            threading.Thread(target=lambda: answers.append(provider.complete(REQUEST)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == len(threads)
