"""Functions that say how similar two texts are, as a number from 0 to 1 with four decimal places.

They agree with csrc/text/similar.c in the engine. Texts of more than MAX_SIMILAR characters have no
value. Upper and lower case are different characters.
"""

from __future__ import annotations

from kbplanner.ir.values.numbers import number_text

MAX_SIMILAR = 256
"""Maximum number of characters of a text."""

_SCALE = 10_000
_MAX_PREFIX = 4


def jaro_winkler(first: str, second: str) -> str | None:
    """Return the similarity of Jaro, raised for a common prefix of up to four characters where it
    is above 0.7.

    Winkler, "String Comparator Metrics and Enhanced Decision Rules in the Fellegi-Sunter Model of
    Record Linkage" (1990). Two empty texts have 1.
    """
    if max(len(first), len(second)) > MAX_SIMILAR:
        return None
    if not first or not second:
        return _share(first == second, 1)
    of_first, of_second = _matched(first, second)
    matches = len(of_first)
    if not matches:
        return _share(0, 1)
    moved = sum(a != b for a, b in zip(of_first, of_second, strict=True))
    in_first, in_second = len(first), len(second)
    part = matches * matches * (in_first + in_second)
    part += (matches - moved // 2) * in_first * in_second
    whole = 3 * matches * in_first * in_second
    if part * 10 > whole * 7:
        prefix = 0
        while (
            first[prefix : prefix + 1] == second[prefix : prefix + 1] != "" and prefix < _MAX_PREFIX
        ):
            prefix += 1
        part, whole = 10 * part + prefix * (whole - part), 10 * whole
    return _share(part, whole)


def trigram(first: str, second: str) -> str | None:
    """Return the share of common trigrams among all distinct ones of two texts.

    Each word, which spaces end, is taken with two spaces before it and one after it, so the order
    of words does not count. Two texts without words have 1.
    """
    if max(len(first), len(second)) > MAX_SIMILAR:
        return None
    of_first, of_second = _trigrams(first), _trigrams(second)
    if not of_first or not of_second:
        return _share(of_first == of_second, 1)
    return _share(len(of_first & of_second), len(of_first | of_second))


def _matched(first: str, second: str) -> tuple[list[str], list[str]]:
    """Return the characters that both texts have near the same place, in the order of each text."""
    window = max(max(len(first), len(second)) // 2 - 1, 0)
    used = [False] * len(second)
    of_first = []
    for i, char in enumerate(first):
        for j in range(max(0, i - window), min(i + window + 1, len(second))):
            if not used[j] and second[j] == char:
                used[j] = True
                of_first.append(char)
                break
    return of_first, [char for char, is_used in zip(second, used, strict=True) if is_used]


def _trigrams(text: str) -> set[str]:
    padded = (f"  {word} " for word in text.split(" ") if word)
    return {word[at : at + 3] for word in padded for at in range(len(word) - 2)}


def _share(part: int, whole: int) -> str:
    """Return part / whole in canonical text, rounded half up."""
    scaled = (part * 2 * _SCALE + whole) // (2 * whole)
    return number_text(scaled // _SCALE if scaled % _SCALE == 0 else scaled / _SCALE)
