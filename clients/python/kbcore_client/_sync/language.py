"""Natural language of a knowledge base: facts from texts, and answers in words."""

from __future__ import annotations

from kbcore_client._sync.handle import Handle
from kbcore_client.requests import Request
from kbtypes.language import Extracted
from kbtypes.values import Instant, instant

_NAMES = {"assert": "store", "sessionId": "session", "conflictStrategy": "conflict"}


class Language(Handle):
    """Natural language of a knowledge base; needs a language model."""

    def extract(  # noqa: PLR0913  three of them are the origin of the text
        self,
        text: str,
        *,
        store: bool = False,
        rules: bool = False,
        scope: str | None = None,
        context: str | None = None,
        speaker: str | None = None,
        at: Instant | None = None,
        session: str | None = None,
        timeout_ms: int | None = None,
        conflict: str | None = None,
    ) -> Extracted:
        """Extract facts from a text with the language model, and rules if `rules` is true.

        With `store` the facts and rules are stored in `scope`, and the text is stored as an episode
        that `speaker` said at `at` in `session`; the facts are valid from `at`. `conflict` is their
        conflict strategy, by default that of the server. `context` is a hint for the model. Raises
        InvalidInput, ModelNotConfigured, ModelFailed.
        """
        body = {
            "text": text,
            "assert": store,
            "rules": rules,
            "scope": scope,
            "context": context,
            "speaker": speaker,
            "at": instant(at),
            "sessionId": session,
            **({} if conflict is None else {"conflictStrategy": conflict}),
        }
        request = Request("/extract", body, writes=store, names=_NAMES, timeout_ms=timeout_ms)
        return Extracted.of((self._send(request)).json())
