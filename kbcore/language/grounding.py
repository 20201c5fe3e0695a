"""Whether a sentence of a model says no more than the facts it names, as far as words show.

Names, numbers and denials have to be those of the facts. That a sentence passes does not prove it: its facts are beside it
in the answer. That one is refused costs its wording only: the facts can be told without the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kbcore.search.tokens import words
from kbcore.state.facts import Row

_TOKEN = re.compile(r"\d+(?:[.,:/-]\d+)*|[^\W_]+(?:['\u2019-][^\W_]+)*")
_DENIALS = frozenset(("not", "no", "never", "none", "neither", "nor", "cannot", "nobody", "nothing", "without"))


def unbacked(sentence: str, cited: Sequence[Row], known_names: Iterable[str]) -> str | None:
    """What of a sentence the cited facts do not say: a name or a number, or "not"; None where all is well.

    `known_names` are names the sentence may hold only if they are in the cited facts.
    """
    said = " ".join([str(part) for row in cited for part in (row["predicate"], *row["args"])])
    allowed = set(words(said)) | {str(len(cited))}
    foreign = {word for name in known_names for word in words(name)} - allowed
    tokens = _TOKEN.findall(sentence)
    for token in tokens:
        if _denial(token) or token.lower() == "yes":
            continue
        plain = set(words(token))
        strange = token[0].isupper() or token[0].isdigit()
        if (strange and not plain <= allowed) or plain & foreign:
            return str(token)
    denies = any(_denial(token) for token in tokens)
    if cited and denies and not any(row["negated"] or any(map(_denial, _TOKEN.findall(said))) for row in cited):
        return "not"
    if cited and not denies and all(row["negated"] for row in cited):
        return "not"
    return None


def _denial(token: str) -> bool:
    plain = token.lower().replace("\u2019", "'")
    return plain in _DENIALS or plain.endswith("n't")
