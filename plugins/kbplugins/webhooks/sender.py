"""The sender of webhooks: signature, allowed addresses, no redirects, and bounded answers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping

import httpx

from kbcore.config import Config
from kbcore.config.storage_urls import redacted
from kbcore.errors import ConfigError, InvalidInput
from kbcore.plug.webhooks import DeliveryOutcome, DeliveryResult, WebhookMessage
from kbcore.tracing.spans import trace_headers
from kbplugins.webhooks.addresses import ReceiverAddress, address_of, allowed, resolved
from kbplugins.webhooks.transport import DeadlineTransport

MIN_SECRET_BYTES, MAX_SECRET_BYTES = 24, 64
"""Size of a signing secret, as the Standard Webhooks specification recommends."""

GONE = 410


class Sender:
    """Sends messages with httpx to the addresses that WEBHOOK_URLS allows."""

    def __init__(self, config: Config, transport: httpx.BaseTransport | None = None) -> None:
        self._secret = config.webhook_secret
        self._private = config.webhook_private_addresses
        self._prefixes: list[ReceiverAddress] = []
        for url in config.webhook_urls:
            prefix = address_of(url)
            if prefix is None or prefix.target != prefix.path:
                raise ConfigError(
                    f"WEBHOOK_URLS: {redacted(url)!r} is not an http or https address"
                )
            self._prefixes.append(prefix)
        if self._secret and _key(self._secret) is None:
            raise ConfigError(f"WEBHOOK_SECRET {_SECRET_RULE}")
        self._http = httpx.Client(
            headers={"User-Agent": "kbcore", "Accept-Encoding": "identity"},
            follow_redirects=False,
            trust_env=False,
            timeout=config.webhook_timeout_ms / 1000,
            transport=transport or DeadlineTransport(config.webhook_timeout_ms / 1000),
            cookies=None,
        )

    def check(self, url: str, secret: str) -> None:
        """Raise InvalidInput for an address or a secret that cannot be used."""
        address = address_of(url)
        if address is None:
            raise InvalidInput.at("webhook.url", "is not an http or https address")
        if not allowed(address, self._prefixes):
            raise InvalidInput.at("webhook.url", "is not below an address that WEBHOOK_URLS allows")
        if not secret and not self._secret:
            raise InvalidInput.at("webhook.secret", "is required: WEBHOOK_SECRET is not set")
        if secret and _key(secret) is None:
            raise InvalidInput.at("webhook.secret", _SECRET_RULE)

    def send(self, url: str, secret: str, message: WebhookMessage) -> DeliveryResult:
        """Deliver a message once. An address that is not allowed any more is a failure."""
        address, key = address_of(url), _key(secret or self._secret)
        if address is None or key is None or not allowed(address, self._prefixes):
            return DeliveryResult(
                DeliveryOutcome.FAILED, reason="the address or its secret is not allowed any more"
            )
        try:
            host = resolved(address, self._private)
        except OSError:
            return DeliveryResult(DeliveryOutcome.FAILED, reason="the host name cannot be resolved")
        if host is None:
            return DeliveryResult(DeliveryOutcome.FAILED, reason="the host has a private address")
        name = f"[{host}]" if ":" in host else host
        headers = {
            **trace_headers(),
            **signed(key, message, int(time.time())),
            "Content-Type": "application/json",
            "Host": _host_header(address),
        }
        request = self._http.build_request(
            "POST",
            f"{address.scheme}://{name}:{address.port}{address.target}",
            content=message.body,
            headers=headers,
            extensions={"sni_hostname": address.host},  # the certificate is checked for this name
        )
        try:
            answer = self._http.send(request, stream=True)  # the body of the answer is not read
            answer.close()
        except (httpx.HTTPError, ValueError) as error:
            return DeliveryResult(DeliveryOutcome.FAILED, reason=type(error).__name__)
        status = answer.status_code
        if 200 <= status < 300:
            return DeliveryResult(DeliveryOutcome.DELIVERED)
        if status == GONE:
            return DeliveryResult(DeliveryOutcome.GONE)
        return DeliveryResult(
            DeliveryOutcome.FAILED, _seconds(answer.headers), f"the receiver answered {status}"
        )

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()


_SECRET_RULE = (
    f"must have {MIN_SECRET_BYTES} to {MAX_SECRET_BYTES} bytes in base64, with or without whsec_"
)


def signed(key: bytes, message: WebhookMessage, timestamp: int) -> Mapping[str, str]:
    """Return the headers of a message: HMAC-SHA256 of id, timestamp (epoch seconds) and body."""
    content = b"%b.%d.%b" % (message.id.encode(), timestamp, message.body)
    signature = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return {
        "webhook-id": message.id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{signature}",
    }


def _key(secret: str) -> bytes | None:
    """Return the bytes of a secret, None if it has another form."""
    try:
        key = base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except (binascii.Error, ValueError):
        return None
    return key if MIN_SECRET_BYTES <= len(key) <= MAX_SECRET_BYTES else None


def _host_header(address: ReceiverAddress) -> str:
    name = f"[{address.host}]" if ":" in address.host else address.host
    is_usual = address.port == {"http": 80, "https": 443}[address.scheme]
    return name if is_usual else f"{name}:{address.port}"


def _seconds(headers: httpx.Headers) -> float | None:
    text = headers.get("Retry-After", "").strip()
    return float(text[:9]) if text.isascii() and text.isdigit() else None
