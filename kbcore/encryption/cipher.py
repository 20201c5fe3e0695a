"""AES-256-GCM from the package `cryptography`, which is imported when a key is configured."""

from __future__ import annotations

from kbcore.errors import ConfigError

NONCE_BYTES = 12
KEY_BYTES = 32
TAG_BYTES = 16


class NotAuthentic(ValueError):
    """Bytes that were not sealed with this key and these additional data."""


class Cipher:
    """AES-256-GCM with one key; raises ConfigError if `cryptography` is not installed."""

    def __init__(self, key: bytes) -> None:
        try:
            from cryptography.exceptions import InvalidTag
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        except ImportError as error:
            raise ConfigError(
                "encryption needs the package cryptography: pip install 'kbcore[encryption]'"
            ) from error
        self._invalid = InvalidTag
        self._aead = AESGCM(key)

    def seal(self, nonce: bytes, data: bytes, bound_to: bytes) -> bytes:
        """Return the ciphertext and its tag; a nonce must never be used twice with a key."""
        return self._aead.encrypt(nonce, data, bound_to)

    def open(self, nonce: bytes, sealed: bytes | memoryview, bound_to: bytes) -> bytes:
        """Return the data; raise NotAuthentic."""
        try:
            return self._aead.decrypt(nonce, bytes(sealed), bound_to)
        except self._invalid:
            raise NotAuthentic from None
