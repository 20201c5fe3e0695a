"""Natural language of a knowledge base: facts from texts, and answers in words."""

from __future__ import annotations

from kbcore.language.extract import Extracted
from kbcore.language.synthesize import Synthesis
from kbcore.python_api.arguments import request_limits
from kbcore.python_api.handle import Handle


class Language(Handle):
    """Natural language of a knowledge base; needs a language model."""

    def extract(
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

        With `store` the facts and rules are stored. `conflict` is their conflict strategy,
        as for `tell`, INGEST_CONFLICTS by default. `context` is a hint for the model. Raises
        ModelNotConfigured, ModelFailed.
        """
        return self.kb.extract(
            text,
            store=store,
            rules=rules,
            scope=scope,
            context=context,
            request_limits=request_limits(timeout_ms),
            conflict=conflict,
        )

    def synthesize(
        self,
        question: str,
        *,
        scope: str | None = None,
        citations: bool = False,
        timeout_ms: int | None = None,
    ) -> Synthesis:
        """Answer a question in words; the language model plans the queries and words the answer.

        With `citations` the answer has the numbers of its `sources.listed`.

        Raises ModelNotConfigured, ModelFailed.
        """
        limits = request_limits(timeout_ms)
        return self.kb.synthesize(question, scope=scope, citations=citations, request_limits=limits)
