"""Tokenizer: splits names, folds case and accents, drops stop words, returns English stems.

Irregular forms count as their base form: `went` and `gone` are `go`.

Porter, "Snowball: a language for stemming algorithms" (2001). A word is a run of letters or of
digits; `worksAt`, `works_at`, `works-at` and "works at" are the same words. An identifier, letters
and digits joined by `_` or `:` such as `D1:3` or `msg_0042`, is one word. Vowel signs and viramas
are letters of their word; accents and points are dropped. Scripts written without spaces (Chinese,
Japanese, Thai, Lao, Burmese, Khmer) are cut into pairs of characters. Turkish dotless i counts as
i, and invisible characters are left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import Any

from kbcore.search.invisible import without_invisible
from kbcore.search.irregular import BASE_FORMS
from kbplanner.ir.values.words import MARK
from kbplanner.pacing import YieldNow, go_on, paced

# fmt: off
STOP_WORDS = frozenset({
    "a", "about", "an", "and", "any", "are", "as", "at", "be", "been", "being", "but", "by", "did", "do", "does", "doing",
    "for", "from", "had", "has", "have", "having", "how", "if", "in", "into", "is", "it", "its", "of", "on", "or", "so",
    "some", "than", "that", "the", "then", "there", "these", "this", "those", "to", "was", "were", "what", "when", "where",
    "which", "who", "whom", "whose", "why", "with", "would"
})
# fmt: on
"""Words that are not indexed.

Names and months (will, may), units and personal pronouns are indexed.
"""

FIRST_PERSON = frozenset(
    {"i", "me", "mine", "my", "myself", "our", "ours", "ourselves", "us", "we"}
)
"""Words by which the author of a text refers to themselves."""

RUNS_PER_YIELD = 1000
"""Runs looked at between two calls of `yield_now`: about a millisecond."""

MAX_RUNS = 1 << 17
"""Maximum number of runs whose stems are cached; stemming a word takes about 10 microseconds."""

CHARS_PER_YIELD = 5000
"""Characters looked at between two calls of `yield_now`: about a millisecond."""

STEMS_PER_YIELD = 20
"""Words stemmed between two calls of `yield_now`: about a millisecond."""

_IDENTIFIER = r"(?:[^\W\d_]+[_:]|[^\W\d_]+\d+[_:][^\W\d_]*[_:]?)\d+(?:[_:][^\W\d_]*[_:]?\d+)*(?![^\W_])(?!_[^\W_])"
"""Alternating letters and digits, joined by `_` or `:`: `D1:3`, `msg_0042`, `session_1_msg_7`.

Not `level_2_support`.
"""

_LETTERS = rf"[^\W\d_]+(?:{MARK}+[^\W\d_]*)*"
_RUNS = re.compile(rf"{_LETTERS}|\d+")
_WORD = re.compile(rf"(?<![^\W_])(?P<identifier>{_IDENTIFIER})|{_LETTERS}|\d+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]{2,}"
)
_LETTER_CLASSES = frozenset({0, 9, 84, 91, 103, 107, 118, 122, 129, 130, 132})
"""Combining classes of vowel signs, viramas and tone marks of Indic and South-East Asian scripts.
Accents, the points of Hebrew and Arabic, and nuktas have others.
"""

_stems: dict[str, tuple[str, ...]] = {}
"""Stems by run of letters or of digits."""


def words(text: str, yield_now: YieldNow = go_on) -> list[str]:
    """Return the stems of a text in order, without stop words; an identifier is one word.

    `yield_now` is called about once a millisecond.
    """
    text = _folded(text, yield_now)
    yield_now()
    if "_" not in text and ":" not in text:  # no identifiers
        return _stems_of(text, yield_now)
    stems: list[str] = []
    for match in paced(_WORD.finditer(text), yield_now, RUNS_PER_YIELD):
        run = match.group()
        if match["identifier"] and len(_camel_parts(run)) == 1 and not _UNSPACED.search(run):
            stems.append(run.casefold())
        else:
            stems += _stems_of(run, yield_now)
    return stems


def name_words(predicate: str) -> list[str]:
    """Return the words of a predicate, including the parts of identifiers: `revenue` of
    `revenue_2024`.
    """
    stems = words(predicate)
    return (
        list(dict.fromkeys([*stems, *_stems_of(_folded(predicate))]))
        if any(map(str.isdigit, predicate))
        else stems
    )


def in_first_person(text: str, yield_now: YieldNow) -> bool:
    """Return whether a text has a word of the first person, such as I or our; `yield_now` is called
    about once a millisecond.
    """
    runs = paced(_RUNS.finditer(text), yield_now, RUNS_PER_YIELD)
    return any(_is_first_person(run.group()) for run in runs)


def without_first_person(text: str, yield_now: YieldNow) -> str:
    """Return a text without its words of the first person; `yield_now` as for `in_first_person`."""
    return without_words(text, _is_first_person, yield_now)


def without_words(text: str, is_left_out: Callable[[str], bool], yield_now: YieldNow) -> str:
    """Return a text without the runs of letters or of digits that `is_left_out` accepts;
    `yield_now` as for `in_first_person`.
    """
    parts, at = [], 0
    for run in paced(_RUNS.finditer(text), yield_now, RUNS_PER_YIELD):
        if is_left_out(run.group()):
            parts.append(text[at : run.start()])
            at = run.end()
    return "".join((*parts, text[at:]))


def _is_first_person(run: str) -> bool:
    return run.casefold() in FIRST_PERSON


def _stems_of(text: str, yield_now: YieldNow = go_on) -> list[str]:
    """Return the stems of runs of letters or of digits."""
    known = _stems
    stems: list[str] = []
    for run in paced(_RUNS.findall(text), yield_now, RUNS_PER_YIELD):
        run_stems = known.get(run)
        stems += _add_stems(run, yield_now) if run_stems is None else run_stems
    return stems


def _add_stems(run: str, yield_now: YieldNow) -> tuple[str, ...]:
    """Return the stems of a run, and cache them."""
    words_of_run = paced(
        map(str.casefold, _camel_parts(run, yield_now)), yield_now, STEMS_PER_YIELD
    )
    stems = tuple(_stem(word) for word in words_of_run if word not in STOP_WORDS)
    if len(_stems) >= MAX_RUNS:
        _stems.clear()
    _stems[run] = stems
    if len(_stems) % STEMS_PER_YIELD == 0:
        yield_now()
    return stems


def _folded(text: str, yield_now: YieldNow = go_on) -> str:
    """Return a text in compatibility form (NFKD) without accents."""
    text = text.replace("'s ", " ").replace("\u2019s ", " ").removesuffix("'s")
    if text.isascii():
        return text
    plain = unicodedata.normalize("NFKD", without_invisible(text).replace("\u0131", "i"))
    chars = paced(plain, yield_now, CHARS_PER_YIELD)
    return unicodedata.normalize("NFC", "".join(each for each in chars if not _is_accent(each)))


def _is_accent(char: str) -> bool:
    """Return True for a mark that a search leaves out, and for a variation selector."""
    if char.isascii() or unicodedata.category(char) != "Mn":
        return False
    return unicodedata.combining(char) not in _LETTER_CLASSES or "\ufe00" <= char <= "\ufe0f"


def _camel_parts(run: str, yield_now: YieldNow = go_on) -> list[str]:
    """Cut a run where a capital follows a small letter (worksAt), and before the last of many
    capitals (HTTPServer).
    """
    if _UNSPACED.fullmatch(run):
        return [run[i : i + 2] for i in range(len(run) - 1)]
    if run.islower() or run.isupper() or run.isdigit() or run[1:].islower():
        return [run]
    parts, start = [], 0
    for i in paced(range(1, len(run)), yield_now, CHARS_PER_YIELD):
        starts_word = run[i].isupper() and (
            run[i - 1].islower() or (i + 1 < len(run) and run[i + 1].islower())
        )
        if starts_word:
            parts.append(run[start:i])
            start = i
    return [*parts, run[start:]]


def _stem(word: str) -> str:
    return str(_stemmer().stemWord(BASE_FORMS.get(word, word)))


@cache
def _stemmer() -> Any:
    """Return the stemmer, imported at its first use; it keeps no words, because `_stems` does."""
    from Stemmer import Stemmer

    return Stemmer("english", 0)
