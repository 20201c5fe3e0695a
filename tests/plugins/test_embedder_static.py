"""The embedder `static`: files of word vectors, folders of token vectors, and what is wrong with
them.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
import os
import struct
from dataclasses import replace

import pytest

from kbcore import open_kb
from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug.conformance import EmbedderConformance
from kbcore.plug.manager import Plugins
from kbplugins.embedders.static import MAX_WORDS, StaticEmbedder
from kbplugins.embedders.word_vectors import MIN_COMMON_WORDS, WORD_BYTES, WordVectors

WORDS = """\
the 1 1 1
ann 0 0 1
drinks 0 1 0.5
tea 1 0 0.25
coffee 1 0.1 0
Paris 0.5 -1 0
works 0 -1 0
acme 0.5 -1 2
"""

needs_tokenizers = pytest.mark.skipif(
    importlib.util.find_spec("tokenizers") is None
    and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason="needs tokenizers",
)


def cosine(a, b):
    lengths = math.sqrt(sum(x * x for x in a) * sum(x * x for x in b))
    return sum(x * y for x, y in zip(a, b, strict=True)) / lengths


@pytest.fixture
def file(tmp_path):
    """Return a function that writes a file of word vectors."""

    def write(content, name="vectors.txt"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


class TestWordVectors(EmbedderConformance):
    @pytest.fixture(autouse=True)
    def _file(self, file):
        self.path = file(WORDS)

    def make_embedder(self):
        return StaticEmbedder(self.path, 1)


def test_the_vector_of_a_text_is_the_weighted_mean_of_those_of_its_words(file):
    embedder = StaticEmbedder(file(WORDS), 1)
    the, tea = (vector for vector in embedder.embed(["the", "tea"]))
    (both,) = embedder.embed(["the tea"])
    assert both == pytest.approx([(a + b) / 2 for a, b in zip(the, tea, strict=True)])
    # "the" is more frequent, so that it counts less
    assert 0 < the[0] < tea[0] < 1
    assert cosine(the, [1, 1, 1]) == pytest.approx(1)


def test_the_weight_of_a_word_follows_from_its_rank(file):
    path = file("".join(f"w{n} 1 0\n" for n in range(900)))
    embedder = StaticEmbedder(path, 1)
    weights = [vector[0] for vector in embedder.embed([f"w{n}" for n in (0, 99, 899)])]
    total = sum(1 / rank for rank in range(1, 901))
    expected = [1e-3 / (1e-3 + 1 / (rank * total)) for rank in (1, 100, 900)]
    assert weights == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("TEA, Coffee!", "tea coffee"),
        ("drinks_tea", "drinks tea"),
        ("drinksTea", "drinks tea"),
        ("ann's tea-coffee", "ann tea coffee"),
        ("Paris", "Paris"),
        ("unheard tea of", "tea"),
    ],
)
def test_words_of_a_text(file, text, same):
    first, second = StaticEmbedder(file(WORDS), 1).embed([text, same])
    assert any(first)
    assert first == second


def test_a_capital_is_kept_if_the_file_has_it(file):
    words = WordVectors(file("paris 1 0\nParis 0 1\n"), 1 << 20, "")
    rows = [words.weighted_rows(text, 5)[0][0] for text in ("paris", "Paris", "PARIS")]
    assert rows == [0, 1, 0]


def test_a_text_of_unknown_words_has_no_direction(file):
    assert StaticEmbedder(file(WORDS), 1).embed(["", "xyzzy"]) == [[0.0] * 3] * 2


def test_only_the_first_words_of_a_long_text_count(file):
    embedder = StaticEmbedder(file(WORDS), 1)
    long, longer = embedder.embed(["tea " * MAX_WORDS, "tea " * MAX_WORDS + "coffee " * 999])
    assert long == longer


def test_what_all_texts_share_is_removed(file):
    lines = [f"w{n} 5 {math.sin(n):.4f} {math.cos(n):.4f}\n" for n in range(MIN_COMMON_WORDS)]
    embedder = StaticEmbedder(file("".join(lines)), 1)
    vectors = embedder.embed([f"w{n} w{n + 1}" for n in range(0, 60, 2)])
    others = [cosine(vectors[0], vector) for vector in vectors[1:]]
    assert min(others) < -0.9
    assert max(others) > 0.9
    few = StaticEmbedder(file("".join(lines[:-1]), "few.txt"), 1).embed(["w0 w1", "w2 w3"])
    assert cosine(*few) > 0.9


def test_a_header_line_is_no_word(file):
    with_header = file("8 3\n" + WORDS, "vectors.vec")
    first, second = StaticEmbedder(with_header, 1), StaticEmbedder(file(WORDS), 1)
    assert first.dimension == second.dimension == 3
    assert first.embed(["ann 8 3"]) == second.embed(["ann"])


def test_words_with_spaces_and_repeated_words(file):
    words = WordVectors(file("8 2\n. . . 1 0\ntea 0 1\ntea 5 5\n"), 1 << 20, "")
    assert [row for row, _ in words.weighted_rows("tea", 5)] == [1]
    assert list(words.vectors) == [1, 0, 0, 1, 5, 5]


def test_the_revision_follows_the_content(file):
    first = StaticEmbedder(file(WORDS), 1).revision
    assert StaticEmbedder(file(WORDS, "copy.txt"), 1).revision == first
    assert StaticEmbedder(file(WORDS.replace("0.25", "0.26"), "other.txt"), 1).revision != first


def test_words_beyond_the_memory_are_not_known(file, caplog):
    count = (1 << 20) // (4 * 4 + WORD_BYTES)
    path = file("".join(f"w{n} {n % 7} {n % 3} 1 0\n" for n in range(count + 5)))
    with caplog.at_level(logging.WARNING, "kbcore.embedder"):
        embedder = StaticEmbedder(path, 1)
    assert f"only the first {count} words" in caplog.text
    assert "EMBEDDER_STATIC_MB" in caplog.text
    known, unknown = embedder.embed([f"w{count - 1}", f"w{count}"])
    assert any(known)
    assert not any(unknown)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "no word vectors"),
        ("8 3\n", "no word vectors"),
        ("tea\n", "line 1 must have a word and 1 to"),
        ("0 9999\ntea 1\n", "line 1 must have a word and 1 to"),
        ("tea 1 2\ncoffee 1\n", "line 2 must have a word and 2 numbers"),
        ("tea 1 2\n\n", "line 2 must have a word and 2 numbers"),
        ("tea 1 2\ncoffee 1 x\n", "line 2 has text in place of a number"),
        ("tea 1 2\ncoffee 1 nan\n", "line 2 has a number that is too large or not finite"),
        ("tea 1 2\ncoffee 1 1e60\n", "line 2 has a number that is too large or not finite"),
        (b"tea 1 2\n\xff 1 2\n", "line 2 is not UTF-8 text"),
        (b"tea 1 2\n" + b"x" * (1 << 21), "line 2 is longer than"),
    ],
)
def test_malformed_files_are_named_with_their_line(file, content, problem):
    with pytest.raises(ConfigError, match=f"EMBEDDER_STATIC_MODEL=.*{problem}"):
        StaticEmbedder(file(content), 1)


def config(**settings):
    return replace(Config(storage_backend="memory"), embedder="static", **settings)


@pytest.mark.parametrize("path", ["", "/nowhere/vectors.txt"])
def test_a_missing_file_is_named_by_its_setting(path):
    with pytest.raises(ConfigError, match="EMBEDDER_STATIC_MODEL"):
        Plugins(config(embedder_static_model=path)).embedder()


def test_windows_find_facts_by_similar_words(file):
    with open_kb(config=config(embedder_static_model=str(file(WORDS)))) as kb:
        kb.tell("drinks(ann, tea). works(ann, acme).")
        (entry,) = kb.context(query="coffee", max_facts=1, fill="none").entries
        assert entry.args == ("ann", "tea")


# -- folders ---------------------------------------------------------------------------------------

TOKENS = ["[PAD]", "[UNK]", "ann", "drinks", "tea"]
VECTORS = [[9, 9], [9, 9], [0, 1], [1, 1], [1, 0.5]]


def tensors(**named):
    """The bytes of a file of tensors: format, shape and numbers of each."""
    header, body = {"__metadata__": {"made": "here"}}, b""
    for name, (kind, code, shape, numbers) in named.items():
        data = struct.pack(f"<{len(numbers)}{code}", *numbers)
        header[name] = {
            "dtype": kind,
            "shape": shape,
            "data_offsets": [len(body), len(body) + len(data)],
        }
        body += data
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + body


def flat(rows):
    return [number for row in rows for number in row]


EMBEDDINGS = ("F32", "f", [5, 2], flat(VECTORS))


@pytest.fixture
def folder(tmp_path):
    """Return a function that writes the folder of a model."""
    tokenizers = pytest.importorskip("tokenizers")

    def write(content):
        model = tokenizers.models.WordLevel(
            {token: number for number, token in enumerate(TOKENS)}, unk_token="[UNK]"
        )
        tokenizer = tokenizers.Tokenizer(model)
        tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
        tokenizer.save(str(tmp_path / "tokenizer.json"))
        (tmp_path / "model.safetensors").write_bytes(content)
        return tmp_path

    return write


@needs_tokenizers
class TestTokenVectors(EmbedderConformance):
    @pytest.fixture(autouse=True)
    def _folder(self, folder):
        self.path = folder(tensors(embeddings=EMBEDDINGS))

    def make_embedder(self):
        return StaticEmbedder(self.path, 1)


@needs_tokenizers
@pytest.mark.parametrize(
    "named",
    [
        {"embeddings": EMBEDDINGS},
        {"embedding.weight": EMBEDDINGS},
        {"embeddings": ("F16", "e", [5, 2], flat(VECTORS))},
        {"embeddings": ("F64", "d", [5, 2], flat(VECTORS))},
        {
            "embeddings": ("F32", "f", [3, 2], [0, 1, 1, 1, 1, 0.5]),
            "mapping": ("I64", "q", [5], [0, 0, 0, 1, 2]),
        },
        {
            "embeddings": ("I8", "b", [5, 2], [9, 9, 9, 9, 0, 2, 4, 4, 2, 1]),
            "weights": ("F32", "f", [5], [1, 1, 0.5, 0.25, 0.5]),
        },
    ],
)
def test_the_vector_of_a_text_is_the_mean_of_those_of_its_tokens(folder, named):
    embedder = StaticEmbedder(folder(tensors(**named)), 1)
    assert embedder.dimension == 2
    assert embedder.embed(["ann drinks coffee", "tea", "coffee", ""]) == [
        [0.5, 1.0],
        [1.0, 0.5],
        [0.0, 0.0],
        [0.0, 0.0],
    ]


@needs_tokenizers
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "no header"),
        (b"\xff" * 20, "no header"),
        (tensors(embeddings=EMBEDDINGS)[:-1], "the shape of embeddings"),
        (tensors(embeddings=("F32", "f", [4, 2], flat(VECTORS))), "the shape of embeddings"),
        (tensors(embeddings=("F32", "f", [10], flat(VECTORS))), "the shape of embeddings"),
        (tensors(embeddings=("BF16", "e", [5, 2], flat(VECTORS))), "no tensor embeddings"),
        (tensors(other=EMBEDDINGS), "no tensor embeddings"),
        (tensors(embeddings=("F32", "f", [5, 2], [math.nan] * 10)), "not finite"),
        (tensors(embeddings=("F32", "f", [2, 2], [1] * 4)), "no vector for some tokens"),
        (
            tensors(embeddings=EMBEDDINGS, mapping=("I64", "q", [5], [0, 1, 2, 3, 5])),
            "no vector for some tokens",
        ),
        (
            tensors(embeddings=EMBEDDINGS, mapping=("I64", "q", [2], [0, 1])),
            "fewer vectors or weights",
        ),
        (
            tensors(embeddings=EMBEDDINGS, weights=("F32", "f", [5], [math.inf] * 5)),
            "weight that is not finite",
        ),
        (tensors(embeddings=("I8", "b", [5, 1 << 18], bytes(5 << 18))), "more than 8192 numbers"),
        (tensors(embeddings=("I8", "b", [1 << 9, 1 << 10], bytes(1 << 19))), "needs 3 MiB"),
    ],
)
def test_malformed_folders(folder, content, problem):
    with pytest.raises(ConfigError, match=f"EMBEDDER_STATIC_MODEL=.*{problem}"):
        StaticEmbedder(folder(content), 1)


@needs_tokenizers
@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_files_of_a_folder_that_are_missing_or_no_json(folder, name):
    path = folder(tensors(embeddings=EMBEDDINGS))
    (path / name).write_text("{")
    with pytest.raises(ConfigError, match=f"EMBEDDER_STATIC_MODEL=.*{name}"):
        StaticEmbedder(path, 1)
    (path / name).unlink()
    with pytest.raises(ConfigError, match=f"EMBEDDER_STATIC_MODEL=.*{name} cannot be read"):
        StaticEmbedder(path, 1)


@needs_tokenizers
def test_the_revision_of_a_folder_follows_both_files(folder):
    path = folder(tensors(embeddings=EMBEDDINGS))
    first = StaticEmbedder(path, 1).revision
    tokenizer = path / "tokenizer.json"
    tokenizer.write_text(tokenizer.read_text() + " ")
    second = StaticEmbedder(path, 1).revision
    (path / "model.safetensors").write_bytes(
        tensors(embeddings=("F16", "e", [5, 2], flat(VECTORS)))
    )
    assert len({first, second, StaticEmbedder(path, 1).revision}) == 3
