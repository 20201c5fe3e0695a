"""Certificates and keys of TLS: reading, checking, and the contexts made from them.

Independent of gevent, so that `kbcore config check` and the supervisor check what a server would
use. No message has more of a file than its name.
"""

from __future__ import annotations

import os
import re
import ssl
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kbcore.config.settings import Config
from kbcore.errors import ConfigError

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Cipher suites for TLS 1.2, with forward secrecy and authenticated encryption.

TLS 1.3 has no others.
"""

WARN_DAYS = 14
"""Days before the end of a certificate from which on it is reported."""

ContextClass = Callable[[int], ssl.SSLContext]

_IGNORE_EOF = getattr(ssl, "OP_IGNORE_UNEXPECTED_EOF", 0)
"""Many clients close without the end of the TLS stream. That is no error: the ends of requests
follow from HTTP. Python has the option with OpenSSL 3.
"""

_DAY_SECONDS = 86_400
_ALPN = ["http/1.1"]
_OTHERS_CAN_READ = 0o077
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_TRUST_PROBLEMS = {9: "is not valid yet", 10: "has expired"}
"""Faults of certificates, by the error codes of OpenSSL (X509_V_ERR_)."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """A context for the connections of a server, and when its certificate ends (epoch seconds)."""

    context: ssl.SSLContext
    ends: float


class _Encrypted(Exception):
    """The private key needs a passphrase."""


def has_tls(config: Config) -> bool:
    """Return True if a server is to speak HTTPS."""
    return bool(config.tls_cert or config.tls_key or config.tls_client_ca)


def tls_problems(config: Config) -> Iterator[str]:
    """Yield why a server cannot start with these settings of TLS."""
    try:
        if has_tls(config):
            load(config)
        if config.cluster_ca_file:
            client_context(config, "CLUSTER_CA_FILE", config.cluster_ca_file)
    except ConfigError as error:
        yield error.message


def tls_warnings(config: Config) -> Iterator[str]:
    """Yield warnings about usable settings of TLS: a certificate that ends soon, a readable key."""
    if not (config.tls_cert and config.tls_key):
        return
    try:
        days = (load(config).ends - time.time()) / _DAY_SECONDS
        mode = os.stat(config.tls_key).st_mode
    except (ConfigError, OSError):  # an error, not a warning
        return
    if days < WARN_DAYS:
        yield f"TLS_CERT={config.tls_cert}: the certificate expires in {max(0, int(days))} days"
    if mode & _OTHERS_CAN_READ:
        yield f"TLS_KEY={config.tls_key}: other users can read the key; use chmod 600"


def load(config: Config, make: ContextClass = ssl.SSLContext) -> Certificate:
    """Return the context of a server with its certificate; `make` is the class of contexts.

    Raises ConfigError for files that cannot be read or do not belong together, and for a
    certificate that is not valid now.
    """
    if not (config.tls_cert and config.tls_key):
        name, missing = ("TLS_CERT", "TLS_KEY") if config.tls_cert else ("TLS_KEY", "TLS_CERT")
        if not (config.tls_cert or config.tls_key):
            name = "TLS_CLIENT_CA"
        raise ConfigError(f"{name} is set without {missing}: set both TLS_CERT and TLS_KEY")
    if config.advertise_url.startswith("http://"):
        raise ConfigError(
            f"ADVERTISE_URL={config.advertise_url}: with TLS_CERT the server speaks HTTPS only;"
            " use https://HOST:PORT"
        )
    context = make(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = (
        ssl.TLSVersion.TLSv1_2 if config.tls_min_version == "1.2" else ssl.TLSVersion.TLSv1_3
    )
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | _IGNORE_EOF
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(_ALPN)
    _load_chain(context, config)
    if config.tls_client_ca:
        _trust(context, "TLS_CLIENT_CA", config.tls_client_ca)
        context.verify_mode = ssl.CERT_OPTIONAL
    return Certificate(context, _tried(config, context))


def client_context(
    config: Config, setting: str, ca_file: str, make: ContextClass = ssl.SSLContext
) -> ssl.SSLContext:
    """Return the context with which this node connects to another one.

    It verifies the other's certificate and name, by the certificates of `ca_file`, which is the
    value of a setting; "" means those of the system. If this node has a certificate it presents
    it. Raises ConfigError for a file that cannot be used.
    """
    context = make(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(_ALPN)
    if ca_file:
        _trust(context, setting, ca_file)
    else:
        context.load_default_certs()
    if config.tls_cert and config.tls_key:
        _load_chain(context, config)
    return context


def _load_chain(context: ssl.SSLContext, config: Config) -> None:
    """Load the certificate and the key of this node. Raises ConfigError."""
    text = _content("TLS_CERT", config.tls_cert)
    _content("TLS_KEY", config.tls_key)
    if _CERTIFICATE.search(text) is None:
        raise ConfigError(f"TLS_CERT={config.tls_cert}: has no certificate in PEM form")
    try:
        context.load_cert_chain(config.tls_cert, config.tls_key, _no_passphrase)
    except _Encrypted:
        raise ConfigError(
            f"TLS_KEY={config.tls_key}: is encrypted; a key without passphrase is needed"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            problem = f"is not the key of the certificate in TLS_CERT={config.tls_cert}"
        elif error.reason is not None and "KEY_TOO_SMALL" in error.reason:
            raise ConfigError(
                f"TLS_CERT={config.tls_cert}: the key of the certificate is too small"
            ) from None
        else:
            problem = "has no usable private key in PEM form for TLS_CERT"
        raise ConfigError(f"TLS_KEY={config.tls_key}: {problem}") from None


def _no_passphrase() -> str:
    raise _Encrypted


def _trust(context: ssl.SSLContext, setting: str, path: str) -> None:
    """Trust the CA certificates of a file."""
    text = _content(setting, path)
    try:
        context.load_verify_locations(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(f"{setting}={path}: is no file of certificates in PEM form") from error


def _content(setting: str, path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        problem = (error.strerror or "error").lower()
        raise ConfigError(f"{setting}={path}: cannot be read: {problem}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{setting}={path}: is no file in PEM form") from None


def _tried(config: Config, server: ssl.SSLContext) -> float:
    """Connect to a context in memory; return the end of its certificate in epoch seconds.

    The client trusts the certificate itself, so that only its time, its purpose and its key are
    checked: whether a client trusts it depends on the client. Raises ConfigError.
    """
    own = _CERTIFICATE.search(_content("TLS_CERT", config.tls_cert))
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if own is not None:
        client.load_verify_locations(cadata=own[0])
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    try:
        for end in (*ends, *ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLCertVerificationError as error:
        problem = _TRUST_PROBLEMS.get(
            error.verify_code, f"is not usable for a server: {error.verify_message}"
        )
        raise ConfigError(f"TLS_CERT={config.tls_cert}: the certificate {problem}") from None
    except ssl.SSLError as error:
        raise ConfigError(
            f"TLS_CERT={config.tls_cert}: no connection is possible with the certificate"
            f" ({error.reason})"
        ) from None
    certificate = ends[0].getpeercert() or {}
    return float(ssl.cert_time_to_seconds(str(certificate["notAfter"])))
