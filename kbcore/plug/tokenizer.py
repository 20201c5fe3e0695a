"""The protocol of tokenizers, which plugins offer through the hook `kb_tokenizers`."""

from __future__ import annotations

from typing import Protocol


class Tokenizer(Protocol):
    """A way to count the tokens of a text as one language model does.

    Contract: `count` is a pure function of the text, returns 0 or more, may be called by several
    threads at a time, and is fast: it is called for every entry that is about to enter a window
    with `maxTokens`, while a read lock is held. An exception fails the request.
    """

    @property
    def name(self) -> str:
        """The name of the tokenizer in error messages, as in TOKENIZER."""

    def count(self, text: str) -> int:
        """Return the number of tokens of a text, which may be empty or long."""
