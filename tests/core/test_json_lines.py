"""Lines of JSON in files: read as the bodies of requests are."""

from __future__ import annotations

import pytest

import kbcore
from kbcore.errors import InvalidInput

LONG = "28857836529306024611912"


@pytest.fixture
def kb():
    with kbcore.open_kb() as kb:
        yield kb


def load(kb, tmp_path, text):
    path = tmp_path / "facts.jsonl"
    path.write_text(text, encoding="utf-8")
    return kb.load(path)


def test_whole_numbers_keep_their_digits(kb, tmp_path):
    text = (
        f'{{"predicate": "cert", "args": ["a", {LONG}]}}\n'
        f'{{"predicate": "cert", "args": ["b", {LONG[:-1]}3]}}\n'
        f'{{"head": {{"predicate": "q", "args": ["?x"]}},'
        f' "body": [{{"predicate": "cert", "args": ["?x", {LONG}]}}]}}\n'
    )
    load(kb, tmp_path, text)
    assert list(kb.query("cert", ["?x", "?n"])) == [("a", LONG), ("b", LONG[:-1] + "3")]
    assert list(kb.ask("q", ["?x"])) == [("a",)]


def test_metadata_beyond_64_bits_is_refused(kb, tmp_path):
    text = f'{{"predicate": "p", "args": ["a"], "metadata": {{"serial": {LONG}}}}}\n'
    with pytest.raises(
        InvalidInput, match="line 1: metadata: holds an integer of more than 64 bits"
    ):
        load(kb, tmp_path, text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"predicate": "p", "predicate": "q", "args": []}', '"predicate" is given twice'),
        ('{"predicate": "p", "args": [1e400]}', "is too large"),
        ('{"predicate": "p", "args": [NaN]}', "NaN is not a JSON number"),
        ('{"predicate": "p", "args": ["\\ud800"]}', "half a surrogate pair"),
        (
            '[{"predicate": "p", "args": []}]',
            "found an array: a .jsonl file has one object on each line",
        ),
        ("[", "found an array"),
        ('"p"', "expected a JSON object"),
        ('{"predicate": "p", "args": ' + "[" * 70 + "]" * 70 + "}", "nests deeper than 64"),
    ],
)
def test_what_bodies_refuse_is_refused(kb, tmp_path, line, message):
    with pytest.raises(InvalidInput, match=message) as caught:
        load(kb, tmp_path, '{"predicate": "first", "args": ["a"]}\n' + line + "\n")
    assert "line 2: " in caught.value.message


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.jsonl", '\ufeff{"predicate": "p", "args": ["a"]}\n'),
        ("a.kb", "\ufeffp(a).\n"),
        ("a.csv", "\ufeffp,a\n"),
    ],
)
def test_a_byte_order_mark_begins_a_file(kb, tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    kb.load(tmp_path / name)
    assert list(kb.query("p", ["?x"])) == [("a",)]
