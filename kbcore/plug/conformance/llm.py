"""Tests an author of a language-model provider subclasses; they are our own providers' tests too.

    from kbcore.plug.conformance_llm import LLMProviderConformance

    class TestMine(LLMProviderConformance):
        def make_provider(self):
            return Mine(...)

The model behind it has to be reachable. Like `conformance`, this module imports pytest, and nothing of the core imports it.
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
    "You answer with JSON.", (Message("user", 'Say {"facts": []} and nothing else.'),), _SCHEMA, 500, 60.0
)


class LLMProviderConformance(Conformance, abstract=True):
    """What every `LLMProvider` does. Subclass it, name it `Test...`, and implement `make_provider`."""

    factory = "make_provider"

    @abstractmethod
    def make_provider(self) -> LLMProvider:
        """The provider under test, with a model that answers."""

    @pytest.fixture
    def provider(self) -> Iterator[LLMProvider]:
        """The provider under test, closed in the end."""
        found = self.make_provider()
        yield found
        found.close()

    def test_it_has_names(self, provider: LLMProvider) -> None:
        """Both texts, and the same every time."""
        assert provider.name
        assert provider.model
        assert (provider.name, provider.model) == (provider.name, provider.model)

    def test_it_answers_with_json_where_a_schema_asks_for_it(self, provider: LLMProvider) -> None:
        """Or refuses the schema, and answers without."""
        try:
            found = provider.complete(REQUEST)
        except ProviderFailed as error:
            assert error.kind == "refused", error.message  # noqa: PT017
            found = provider.complete(replace(REQUEST, schema=None))
        start = found.text.find("{")
        assert start >= 0, found.text
        assert isinstance(json.JSONDecoder().raw_decode(found.text, start)[0], dict)

    def test_an_answer_is_text_and_counts(self, provider: LLMProvider) -> None:
        """Token counts are numbers from 0, or None."""
        found = provider.complete(replace(REQUEST, schema=None))
        assert isinstance(found, Completion)
        assert isinstance(found.text, str)
        assert all(count is None or count >= 0 for count in (found.input_tokens, found.output_tokens))

    def test_turns_of_both_sides_are_taken(self, provider: LLMProvider) -> None:
        """What a repair asks: the question, a bad answer, what is wrong with it."""
        turns = (*REQUEST.messages, Message("assistant", "Sure!"), Message("user", "That is no JSON. Again."))
        assert isinstance(provider.complete(replace(REQUEST, schema=None, messages=turns)), Completion)

    def test_no_time_is_a_timeout(self, provider: LLMProvider) -> None:
        """A request that has no time left fails as one that took too long."""
        with pytest.raises(ProviderFailed) as caught:
            provider.complete(replace(REQUEST, timeout=1e-9))
        assert caught.value.kind == "timeout"

    def test_several_may_ask_at_a_time(self, provider: LLMProvider) -> None:
        """Calls from threads of their own are all answered."""
        found: list[Completion] = []
        asking = [threading.Thread(target=lambda: found.append(provider.complete(REQUEST))) for _ in range(3)]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert len(found) == len(asking)
