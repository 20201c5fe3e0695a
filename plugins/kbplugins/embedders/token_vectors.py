"""Token vectors of a Model2Vec model: a folder with `model.safetensors` and `tokenizer.json`.

The tensor `embeddings` has a vector for each token, already weighted. Two more are optional:
`mapping` gives the row of each token, and `weights` its weight. Needs the extra `static`.

    model.safetensors: 8 size of the header | header, JSON: type, shape, offsets by name | numbers
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
import threading
from array import array
from pathlib import Path
from typing import Any, NamedTuple

from kbcore.errors import ConfigError
from kbplanner.engine.vectors import MAX_DIMENSION

TENSORS, TOKENIZER = "model.safetensors", "tokenizer.json"

NAMES = "embeddings", "embedding.weight"
"""Names of the tensor of vectors, as Model2Vec and as sentence-transformers save it."""

FORMATS = {"F64": "d", "F32": "f", "F16": "e", "I64": "q", "I32": "i", "I8": "b"}
"""Types of numbers in a file of tensors, and their codes for `struct`."""

MAX_HEADER_BYTES = 1 << 20

MAX_TOKEN_CHARS = 16
"""Characters of a text for each token that counts; further ones are not given to the tokenizer."""


class _Tensors:
    """A file of tensors in the safetensors format. Raises ConfigError if it is malformed."""

    def __init__(self, data: bytes, source: str) -> None:
        self._source = source
        size = int.from_bytes(data[:8], "little")
        try:
            header = json.loads(data[8 : 8 + min(size, MAX_HEADER_BYTES)])
        except ValueError:
            header = None
        if not isinstance(header, dict):
            raise self.wrong("it has no header of the safetensors format")
        self._header: dict[str, Any] = header
        self._numbers = memoryview(data)[8 + size :]

    def wrong(self, problem: str) -> ConfigError:
        """Return an error about the file."""
        return ConfigError(f"{self._source}: {TENSORS} is not usable: {problem}")

    def __contains__(self, name: str) -> bool:
        return name in self._header

    def tensor(self, name: str, dimensions: int) -> Tensor:
        """Return a tensor by its name and its number of dimensions."""
        try:
            described = self._header[name]
            code, shape = FORMATS[described["dtype"]], [int(size) for size in described["shape"]]
            start, end = (int(offset) for offset in described["data_offsets"])
        except (KeyError, TypeError, ValueError):
            raise self.wrong(
                f"it has no tensor {name} with numbers of {', '.join(FORMATS)}"
            ) from None
        size = math.prod(shape) * struct.calcsize(f"<{code}")
        fits = 0 <= start <= end <= len(self._numbers) and end - start == size
        if len(shape) != dimensions or min(shape) < 1 or not fits:
            raise self.wrong(f"the shape of {name} does not fit its numbers")
        return Tensor(shape, code, self._numbers[start:end])


class Tensor(NamedTuple):
    """A tensor: its shape, the `struct` code of its numbers, and their bytes."""

    shape: list[int]
    code: str
    data: memoryview

    def numbers(self, start: int, count: int) -> tuple[Any, ...]:
        """Return numbers from one on."""
        size = struct.calcsize(f"<{self.code}")
        return struct.unpack_from(f"<{count}{self.code}", self.data, start * size)


class TokenVectors:
    """The vectors of a folder.

    `source` names the folder in messages. Raises ConfigError if a file or the library is missing,
    if a file is malformed, or if the vectors need more than `max_bytes` of memory.
    """

    common: list[float] | None = None

    def __init__(self, folder: Path, max_bytes: int, source: str) -> None:
        try:
            import tokenizers
        except ImportError:
            raise ConfigError(
                f"{source} is a folder, which needs the package tokenizers:"
                " pip install 'kbcore[static]'"
            ) from None
        data, tokenizer = (_content(folder / name, source) for name in (TENSORS, TOKENIZER))
        self.revision = hashlib.blake2b(data + tokenizer, digest_size=16).hexdigest()
        tensors = _Tensors(data, source)
        tensor = tensors.tensor(next((name for name in NAMES if name in tensors), NAMES[0]), 2)
        count, self.dimension = tensor.shape
        needed = 4 * count * self.dimension
        if self.dimension > MAX_DIMENSION:
            raise tensors.wrong(f"its vectors have more than {MAX_DIMENSION} numbers")
        if needed > max_bytes:
            raise ConfigError(f"{source} needs {(needed >> 20) + 1} MiB: raise EMBEDDER_STATIC_MB")
        self.vectors = array("f")
        for row in range(count):
            self.vectors.extend(tensor.numbers(row * self.dimension, self.dimension))
        if not all(map(math.isfinite, self.vectors)):
            raise tensors.wrong("it has a number that is not finite")
        try:
            self._tokenizer = tokenizers.Tokenizer.from_str(tokenizer.decode())
        except Exception:  # noqa: BLE001 - the library raises its own exceptions
            raise ConfigError(f"{source}: {TOKENIZER} is not a usable file") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._encoding = threading.Lock()
        self._unknown = self._unknown_token()
        size = self._tokenizer.get_vocab_size()
        self._rows = _column(tensors, "mapping") or tuple(range(size))
        self._weights = _column(tensors, "weights") or (1.0,) * size
        if min(len(self._rows), len(self._weights)) < size:
            raise tensors.wrong(f"it has fewer vectors or weights than {TOKENIZER} has tokens")
        if not all(0 <= row < count for row in self._rows):
            raise tensors.wrong(f"it has no vector for some tokens of {TOKENIZER}")
        if not all(map(math.isfinite, self._weights)):
            raise tensors.wrong("it has a weight that is not finite")

    def weighted_rows(self, text: str, limit: int) -> list[tuple[int, float]]:
        """Return the rows and weights of the first `limit` tokens of a text that have a vector."""
        with self._encoding:  # the tokenizer is not documented as thread-safe
            encoded = self._tokenizer.encode(
                text[: limit * MAX_TOKEN_CHARS], add_special_tokens=False
            )
        tokens = [token for token in encoded.ids if token != self._unknown]
        return [(self._rows[token], self._weights[token]) for token in tokens[:limit]]

    def _unknown_token(self) -> int | None:
        """Return the number of the token for unknown words, which says nothing about a text."""
        model = json.loads(self._tokenizer.to_str())["model"]
        token: int | None = model.get("unk_id")
        if model.get("unk_token") is not None:
            token = self._tokenizer.token_to_id(model["unk_token"])
        return token


def _column(tensors: _Tensors, name: str) -> tuple[Any, ...] | None:
    if name not in tensors:
        return None
    tensor = tensors.tensor(name, 1)
    return tensor.numbers(0, tensor.shape[0])


def _content(path: Path, source: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{source}: {path.name} cannot be read: {error.strerror}") from None
