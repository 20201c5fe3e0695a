"""Token counts of texts: characters / 4, or the count of the plugin named by TOKENIZER."""

from __future__ import annotations

from kbcore.errors import PluginFailed
from kbcore.plug.ports import Tokenizer

CHARS_PER_TOKEN = 4
"""Characters that are taken for one token when no tokenizer is set."""


def tokens(chars: int) -> int:
    """Return the estimate of tokens for a number of characters: a quarter, rounded up."""
    return -(-chars // CHARS_PER_TOKEN)


class TokenCounter:
    """Token counter that uses a tokenizer, or (None) estimates characters / 4.

    A text is measured in units that add up over its pieces. Without a tokenizer the unit is a
    character, so the sum is exact. With a tokenizer the unit is a token, and the sum over pieces
    only approximates the count of the text.
    """

    def __init__(self, tokenizer: Tokenizer | None = None) -> None:
        self._tokenizer = tokenizer

    @property
    def exact(self) -> bool:
        """True if the units of the pieces of a text add up to the units of the text."""
        return self._tokenizer is None

    def units(self, text: str) -> int:
        """Return the units of a text or of a piece of one. Raises PluginFailed."""
        return len(text) if self._tokenizer is None else self._counted(self._tokenizer, text)

    def limit(self, max_tokens: int) -> int:
        """Return how many units fit into a number of tokens."""
        return max_tokens * CHARS_PER_TOKEN if self._tokenizer is None else max_tokens

    def count(self, text: str) -> int:
        """Return the tokens of a text; an empty text has none. Raises PluginFailed."""
        if not text:
            return 0
        return (
            tokens(len(text)) if self._tokenizer is None else self._counted(self._tokenizer, text)
        )

    @staticmethod
    def _counted(tokenizer: Tokenizer, text: str) -> int:
        try:
            count = tokenizer.count(text)
        except Exception as error:  # plugin code may raise anything
            raise PluginFailed(f"tokenizer {tokenizer.name} failed: {error!r}") from error
        if type(count) is not int or count < 0:
            raise PluginFailed(
                f"tokenizer {tokenizer.name} returned {count!r} instead of a number of tokens"
            )
        return count
