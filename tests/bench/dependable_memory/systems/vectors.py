"""A plain vector store: cosine similarity of a local sentence model, without any index.

EMBEDDER_ONNX_MODEL and EMBEDDER_ONNX_TOKENIZER name the files of the model, which is not part of
this benchmark; nothing is downloaded.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from ..interface import NotAvailable, Passage, within
from ..model import Case, Input
from ..searching import Searching

MODEL, TOKENIZER = "EMBEDDER_ONNX_MODEL", "EMBEDDER_ONNX_TOKENIZER"


class Vectors(Searching):
    """Passages of a user by the similarity of their vectors to that of the question."""

    def __init__(self) -> None:
        files = [os.environ.get(name, "") for name in (MODEL, TOKENIZER)]
        if not all(file and Path(file).is_file() for file in files):
            raise NotAvailable(f"a local sentence model: {MODEL} and {TOKENIZER} name its files")
        try:
            import numpy
            import onnxruntime
            import tokenizers
        except ImportError as error:
            raise NotAvailable("pip install numpy onnxruntime tokenizers") from error
        self._numpy: Any = numpy
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(files[0], options)
        self._tokenizer = tokenizers.Tokenizer.from_file(files[1])
        self._inputs = {each.name for each in self._session.get_inputs()}
        settings = {"model": Path(files[0]).name}
        super().__init__("vectors", f"onnxruntime {metadata.version('onnxruntime')}", settings)

    def open(self, case: Case) -> None:
        """Begin with empty lists."""
        super().open(case)
        self._passages: defaultdict[str, list[Passage]] = defaultdict(list)
        self._vectors: defaultdict[str, list[Any]] = defaultdict(list)

    def _embed(self, text: str) -> Any:
        encoded = self._tokenizer.encode(text)
        ids = self._numpy.array([encoded.ids], dtype="int64")
        mask = self._numpy.array([encoded.attention_mask], dtype="int64")
        feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0}
        feeds = {name: value for name, value in feeds.items() if name in self._inputs}
        output = self._session.run(None, feeds)[0]
        weights = mask[0][:, None]
        mean = (output[0] * weights).sum(0) / weights.sum() if output.ndim == 3 else output[0]
        return mean / self._numpy.linalg.norm(mean)

    def store(self, entry: Input) -> None:
        """Embed the line of an input."""
        self._passages[entry.user].append(Passage(entry.line, entry.at))
        self._vectors[entry.user].append(self._embed(entry.line))

    def search(self, text: str, user: str, max_tokens: int) -> Sequence[Passage]:
        """Return the most similar passages."""
        if not self._vectors[user]:
            return []
        similarity = self._numpy.stack(self._vectors[user]) @ self._embed(text)
        order = self._numpy.argsort(-similarity, kind="stable")
        return within([self._passages[user][number] for number in order], max_tokens)
