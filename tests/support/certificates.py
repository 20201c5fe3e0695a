"""Certificates of a CA of its own, made for a test."""

from __future__ import annotations

import ipaddress
import os
import ssl
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kbcore.config import Config
from kbserver.http.tls import ServerTLS

DAY = timedelta(days=1)


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    cert: Path
    key: Path

    def settings(self) -> dict[str, str]:
        return {"TLS_CERT": str(self.cert), "TLS_KEY": str(self.key)}


class Authority:
    """A CA whose certificate is in the file `ca`; everything is in one folder."""

    CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH

    def __init__(self, folder: Path, name: str = "ca") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"test {name}")])
        start = datetime.now(timezone.utc)
        certificate = (
            self._builder(self._name, self._key, start - DAY, start + 30 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.ca = folder / f"{name}.pem"
        self.ca.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, start: datetime, end: datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(end)
        )

    def pair(
        self,
        name: str = "server",
        *,
        host: str = "127.0.0.1",
        days: float = 20,
        passphrase: bytes | None = None,
        usages: tuple[x509.ObjectIdentifier, ...] = (
            ExtendedKeyUsageOID.SERVER_AUTH,
            ExtendedKeyUsageOID.CLIENT_AUTH,
        ),
    ) -> Pair:
        """Write a certificate for an address, valid from two days before now or before its end."""
        key = ec.generate_private_key(ec.SECP256R1())
        end = datetime.now(timezone.utc) + days * DAY
        start = min(end, datetime.now(timezone.utc)) - 2 * DAY
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = (
            self._builder(subject, key, start, end)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]),
                critical=False,
            )
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.cert.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if passphrase is not None:
            encryption = serialization.BestAvailableEncryption(passphrase)
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption
            )
        )
        os.chmod(pair.key, 0o600)
        return pair

    def client(self, pair: Pair | None = None) -> ssl.SSLContext:
        """Return the context of a client that trusts this CA, with a certificate if given."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if pair is not None:
            context.load_cert_chain(pair.cert, pair.key)
        return context


def secured(authority: Authority, **settings: str) -> dict[str, Any]:
    """Return the options of a server in this process with a certificate of a CA."""
    config = Config.from_env({**authority.pair().settings(), **settings})
    return {"tls": ServerTLS(config), "trust": authority.client()}


def served_with(authority: Authority, **settings: str) -> dict[str, Any]:
    """Return the options of a `Server` with a certificate of a CA."""
    return {**authority.pair().settings(), "trust": authority.client(), **settings}
