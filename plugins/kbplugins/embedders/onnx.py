"""Embedder `onnx`: a sentence model in ONNX form on this machine, without network.

EMBEDDER_ONNX_MODEL is the file of the model, EMBEDDER_ONNX_TOKENIZER its `tokenizer.json`. The
vector of a text is the mean of the model's token vectors, as sentence-transformers makes it
(Reimers and Gurevych, "Sentence-BERT", 2019). Needs the extra `onnx`.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from kbcore.config import Config
from kbcore.errors import ConfigError
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import Embedder

NAME = "onnx"

MAX_TOKENS = 256
"""Tokens of a text that count; further ones are ignored."""

MODEL, TOKENIZER = "EMBEDDER_ONNX_MODEL", "EMBEDDER_ONNX_TOKENIZER"


class OnnxEmbedder:
    """A sentence model; raises ConfigError if its files or the libraries are missing or
    unusable.
    """

    name = NAME

    def __init__(self, model: Path, tokenizer: Path) -> None:
        try:
            import numpy
            import onnxruntime
            import tokenizers
        except ImportError as error:
            raise ConfigError(
                f"EMBEDDER={NAME} needs the package {error.name}: pip install 'kbcore[onnx]'"
            ) from None
        for setting, path in ((MODEL, model), (TOKENIZER, tokenizer)):
            if not path.is_file():
                raise ConfigError(
                    f"{setting}={path}: this file does not exist; EMBEDDER={NAME} needs it"
                )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.intra_op_num_threads = 1
        try:
            self._session = onnxruntime.InferenceSession(
                str(model), options, providers=["CPUExecutionProvider"]
            )
            self._tokenizer = tokenizers.Tokenizer.from_file(str(tokenizer))
        except Exception as error:  # noqa: BLE001 - both libraries raise their own exceptions
            raise ConfigError(f"{MODEL} or {TOKENIZER} is no usable file: {error}") from None
        digest = hashlib.blake2b(model.read_bytes(), digest_size=16)
        digest.update(tokenizer.read_bytes())
        self.revision = digest.hexdigest()
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()
        self._numpy: Any = numpy
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        self._encoding = threading.Lock()

    @cached_property
    def dimension(self) -> int:
        """Length of a vector."""
        return len(self.embed([""])[0])

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return the vectors of texts."""
        if not texts:
            return []
        numpy = self._numpy
        with self._encoding:  # the tokenizer is not documented as thread-safe
            encoded = self._tokenizer.encode_batch(list(texts))
        ids = numpy.array([each.ids for each in encoded], dtype=numpy.int64)
        mask = numpy.array([each.attention_mask for each in encoded], dtype=numpy.int64)
        if not ids.shape[1]:  # no text has a token; the model needs one
            ids, mask = (
                numpy.zeros((len(ids), 1), numpy.int64),
                numpy.ones((len(ids), 1), numpy.int64),
            )
        all_inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
        named = {name: value for name, value in all_inputs.items() if name in self._inputs}
        output = self._session.run(None, named)[0]
        if output.ndim == 3:
            weights = mask[..., None]
            output = (output * weights).sum(axis=1) / weights.sum(axis=1).clip(min=1)
        vectors: list[list[float]] = output.astype(float).tolist()
        return vectors


@hookimpl
def kb_embedders(config: Config) -> Mapping[str, Any]:
    """Offer the embedder under its name."""

    def make(settings: Config) -> Embedder:
        return OnnxEmbedder(
            Path(settings.embedder_onnx_model), Path(settings.embedder_onnx_tokenizer)
        )

    return {NAME: make}
