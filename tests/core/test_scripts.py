"""Words of every script: in rules, as `quoted` writes them, and in the search."""

from __future__ import annotations

import unicodedata

import pytest
from support import word_tables

import kbcore
from kbcore.search.tokens import words
from kbplanner.ir.values.texts import quoted
from kbplanner.syntax.parser import parse_program
from kbplanner.syntax.printer import print_constant

WORDS = [
    "größe",
    unicodedata.normalize("NFD", "größe"),
    "हिन्दी",
    "தமிழ்",
    "বাংলা",
    "שָׁלוֹם",
    "ไทย",
    "မြန်မာ",
    "ខ្មែរ",
    "東京",
    "नई-दिल्ली",
    "\U00011103\U00011127",  # Chakma
]


@pytest.mark.parametrize("word", WORDS)
def test_a_word_of_any_script_needs_no_quotes(word):
    fact = parse_program(f"{word}({word}, x).")[0].atom
    assert (fact.predicate, fact.args) == (word, (word, "x"))
    assert print_constant(word) == quoted(word) == word
    with kbcore.open_kb() as kb:
        kb.teach(f"{word}({word}). q(?t) :- {word}(?x), ?t = quoted(?x).")
        assert list(kb.ask("q", ["?t"])) == [(word,)]
        kb.teach(f"@key k(?x, _). k({word}, 1). k({word}, 2).")
        assert ("key", f"k({word}, 1)", f"k({word}, 2)") in set(
            kb.ask("contradiction", ["?k", "?a", "?b"])
        )


@pytest.mark.parametrize("text", ["\u093f", "a\u2028b", "a b", "9a", "a-", "-a", "a:-b", "not", ""])
def test_what_is_no_word_is_quoted(text):
    assert quoted(text).startswith('"')
    with kbcore.open_kb() as kb:
        kb.tell("p", [text])
        kb.teach("q(?t) :- p(?x), ?t = quoted(?x).")
        assert list(kb.ask("q", ["?t"])) == [(quoted(text),)]


@pytest.mark.skipif(unicodedata.unidata_version != "14.0.0", reason="the tables are of Unicode 14")
def test_the_engine_and_the_planner_know_the_same_characters():
    points = [point for point in range(128, 0x30000) if not 0xD800 <= point < 0xE000]
    texts = [text for point in points for text in (chr(point), f"a{chr(point)}")]
    texts = [text for text in texts if quoted(text) == text or word_tables.is_inner(text[-1])]
    with kbcore.open_kb() as kb:
        kb.tell_many("p", [(text,) for text in texts])
        kb.teach("q(?x, ?t) :- p(?x), ?t = quoted(?x).")
        written = dict(kb.ask("q", ["?x", "?t"]))
    for text in texts:
        plain = all(map(word_tables.is_inner, text)) and word_tables.is_first(text[0])
        assert (quoted(text) == text) == plain
        assert written[text] == quoted(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("हिन्दी भाषा", ["हिन्दी", "भाषा"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("বাংলা ভাষা", ["বাংলা", "ভাষা"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย"]),
        ("東京都", ["東京", "京都"]),
        ("größe GRÖSSE", ["gross", "gross"]),
    ],
)
def test_words_of_the_search(text, found):
    assert words(text) == [unicodedata.normalize("NFC", word) for word in found]


def test_forms_of_one_word():
    assert words("שָׁלוֹם") == words("שלום")
    assert words("ISPARTA") == words("ısparta") == words("Isparta")
    assert words("İzmir") == words("izmir")
    assert words("می\u200cخواهم") == words("میخواهم")
    assert words("फ़िल्म") == words("फिल्म")
    assert words(unicodedata.normalize("NFD", "größe")) == words("größe")
    for text in ("ภาษา", "ລາວ", "မြန်မာ", "ខ្មែរ"):
        longer = words(text + text)
        assert len(words(text)) > 1
        assert set(words(text)) <= set(longer)
