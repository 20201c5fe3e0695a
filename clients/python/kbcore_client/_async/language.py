"""Natural language of a knowledge base: facts from texts, and answers in words."""

from __future__ import annotations

from kbcore_client._async.handle import AsyncHandle
from kbcore_client.language import Extracted, Synthesis
from kbcore_client.requests import Request

_NAMES = {"assert": "store", "conflictStrategy": "conflict"}


class AsyncLanguage(AsyncHandle):
    """Natural language of a knowledge base; needs a language model."""

    async def extract(
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
        timeout_ms: int | None = None,
        conflict: str | None = None,
    ) -> Extracted:
        """Extract facts from a text with the language model, and rules if `rules` is true.

        With `store` the facts and rules are stored in `scope`. `context` is a hint for the model.
        `conflict` is the conflict strategy of the facts, by default that of the server. Raises
        InvalidInput, ModelNotConfigured, ModelFailed.
        """
        body = {"text": text, "assert": store, "rules": rules, "scope": scope, "context": context}
        if conflict is not None:
            body["conflictStrategy"] = conflict
        request = Request("/extract", body, writes=store, names=_NAMES, timeout_ms=timeout_ms)
        return Extracted.of((await self._send(request)).json())

    async def synthesize(
        self,
        question: str,
        *,
        scope: str | None = None,
        citations: bool = False,
        timeout_ms: int | None = None,
    ) -> Synthesis:
        """Answer a question in words; the language model plans the queries and words the answer.

        With `citations` the answer has the numbers of its `sources`. Raises InvalidInput,
        ModelNotConfigured, ModelFailed.
        """
        body = {"question": question, "scope": scope, "citations": citations or None}
        request = Request("/synthesize", body, timeout_ms=timeout_ms)
        return Synthesis.of((await self._send(request)).json())
