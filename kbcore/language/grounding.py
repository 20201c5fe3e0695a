"""Check of a model's sentence against the facts it cites, by comparing words.

Names, numbers and negations must occur in the facts. Passing the check does not prove a sentence:
the answer lists its facts for that. If a sentence is rejected, only its wording is lost: the facts
can be stated without the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kbcore.search.tokens import words
from kbcore.state.facts import Row

_TOKEN = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W_]+(?:['\u2019-][^\W_]+)*")
_DENIALS = frozenset(
    ("not", "no", "never", "none", "neither", "nor", "cannot", "nobody", "nothing", "without")
)


def unbacked(sentence: str, cited: Sequence[Row], known_names: Iterable[str]) -> str | None:
    """Return the first name or number of a sentence that no cited fact has, or "not"; None if there
    is none.

    `known_names` are names the sentence may contain only if they are in the cited facts.
    """
    cited_text = " ".join([str(part) for row in cited for part in (row["predicate"], *row["args"])])
    allowed = set(words(cited_text)) | {str(len(cited))}
    foreign = {word for name in known_names for word in words(name)} - allowed
    tokens = _TOKEN.findall(sentence)
    for token in tokens:
        if _denial(token) or token.lower() == "yes":
            continue
        token_words = set(words(token))
        is_specific = token[0].isupper() or token[0].isdigit()
        if (is_specific and not token_words <= allowed) or token_words & foreign:
            return str(token)
    denies = any(_denial(token) for token in tokens)
    if (
        cited
        and denies
        and not any(
            row["negated"] or any(map(_denial, _TOKEN.findall(cited_text))) for row in cited
        )
    ):
        return "not"
    if cited and not denies and all(row["negated"] for row in cited):
        return "not"
    return None


def _denial(token: str) -> bool:
    plain = token.lower().replace("\u2019", "'")
    return plain in _DENIALS or plain.endswith("n't")
