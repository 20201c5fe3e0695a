"""The key of receipts: Ed25519 from the package `cryptography`, imported if a key is configured."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any

from kbcore.config.settings import Config
from kbcore.encryption.master_key import key_in
from kbcore.errors import ConfigError
from kbcore.receipts.canonical_json import canonical_json

SETTING = "RECEIPT_KEY_FILE"


class ReceiptKey:
    """A private key, which signs; the public one is in `jwk`.

    The key has no other attribute with its secret than the key of the library.
    """

    def __init__(self, secret: bytes) -> None:
        try:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError as error:
            raise ConfigError(
                "receipts need the package cryptography: pip install 'kbcore[encryption]'"
            ) from error
        self._private = Ed25519PrivateKey.from_private_bytes(secret)
        public = {
            "kty": "OKP",
            "crv": "Ed25519",
            "x": base64url(self._private.public_key().public_bytes_raw()),
        }
        self.id = base64url(sha256(canonical_json(public)).digest())
        """The thumbprint of the public key (RFC 7638)."""
        self.jwk = {**public, "kid": self.id, "use": "sig", "alg": "EdDSA"}
        """The public key as a JSON Web Key (RFC 8037)."""

    def sign(self, data: bytes) -> str:
        """Return the signature of data in base64url."""
        return base64url(self._private.sign(data))

    def jws(self, payload: dict[str, Any], header: dict[str, Any]) -> dict[str, str]:
        """Return a signature of JSON (RFC 7515, without the payload): `protected`, `signature`."""
        protected = base64url(canonical_json({**header, "alg": "EdDSA", "kid": self.id}))
        signed = f"{protected}.{base64url(canonical_json(payload))}"
        return {"protected": protected, "signature": self.sign(signed.encode())}


def configured_key(config: Config) -> ReceiptKey | None:
    """Return the key that RECEIPT_KEY_FILE names, None without one.

    Raises ConfigError, without the content of the file.
    """
    if not config.receipt_key_file:
        return None
    return ReceiptKey(key_in(config.receipt_key_file, SETTING))


def base64url(data: bytes) -> str:
    """Return data in base64url without padding."""
    return urlsafe_b64encode(data).decode().rstrip("=")
