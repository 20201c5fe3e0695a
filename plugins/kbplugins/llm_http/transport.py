"""HTTP transport of the adapters: time and size limits, no redirects, failures without secrets.

httpx's blocking client uses sockets of the standard library, so that under gevent a waiting call
does not block other requests.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar
from urllib.parse import urlsplit

import httpx

from kbcore.config import Config
from kbcore.errors import ConfigError, ProviderFailed
from kbcore.plug.ports import Completion, CompletionRequest
from kbcore.tracing.spans import trace_headers

MAX_ANSWER_BYTES = 4 << 20
"""Maximum bytes of an answer; a longer one is a failure."""

CONNECT_SECONDS = 10.0

_TEMPORARY = frozenset((408, 409, 425, 429, 500, 502, 503, 504, 529))
"""Statuses after which a retry may succeed."""

_REFUSED = frozenset((400, 404, 413, 415, 422, 501))
"""Statuses that reject the request itself."""

_EXCERPT_BYTES = 300

log = logging.getLogger("kbplugins.llm_http")


class HTTPProvider(ABC):
    """A language model behind an HTTP interface; its address comes from the settings only."""

    name: ClassVar[str]
    base_url: ClassVar[str]
    needs_key: ClassVar[bool] = True

    def __init__(self, config: Config, transport: httpx.BaseTransport | None = None) -> None:
        self._key = config.llm_api_key
        self._model = config.llm_model
        base = config.llm_base_url or self.base_url
        if not self._model:
            raise ConfigError(f"LLM_PROVIDER={self.name}: LLM_MODEL has to name a model")
        if self.needs_key and not self._key and not config.llm_base_url:
            raise ConfigError(f"LLM_PROVIDER={self.name}: {base} needs a key in LLM_API_KEY")
        self._base = base
        self._http = httpx.Client(
            headers={
                "User-Agent": "kbcore",
                "Accept": "application/json",
                "Accept-Encoding": "identity",
            },
            follow_redirects=False,
            # A proxy in the environment is not for servers on this machine.
            trust_env=not _is_loopback(base),
            transport=transport,
            limits=httpx.Limits(max_keepalive_connections=config.llm_max_concurrency),
        )

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._model

    def complete(self, request: CompletionRequest) -> Completion:
        """Answer a request; raises ProviderFailed."""
        answer = self._post(self.path(), self.headers(), self.body(request), request.timeout)
        try:
            completion = self.read(answer)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise ProviderFailed(
                f"{self.name} gave an answer of another shape", retry=True
            ) from error
        if type(completion.text) is not str:
            raise ProviderFailed(f"{self.name} gave an answer of another shape", retry=True)
        input_tokens, output_tokens = (
            count if type(count) is int else None
            for count in (completion.input_tokens, completion.output_tokens)
        )
        return Completion(completion.text, input_tokens, output_tokens, completion.truncated)

    def close(self) -> None:
        """Close idle connections."""
        self._http.close()

    @abstractmethod
    def path(self) -> str:
        """Return the path of a request below the base address."""

    @abstractmethod
    def headers(self) -> Mapping[str, str]:
        """Return the headers that carry the key."""

    @abstractmethod
    def body(self, request: CompletionRequest) -> dict[str, Any]:
        """Return a request in the format of the interface."""

    @abstractmethod
    def read(self, answer: dict[str, Any]) -> Completion:
        """Parse an answer; any error about its shape means an unexpected format."""

    def _post(
        self, path: str, headers: Mapping[str, str], body: dict[str, Any], timeout: float
    ) -> dict[str, Any]:
        deadline = time.monotonic() + timeout
        limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
        try:
            with self._http.stream(
                "POST",
                self._base + path,
                json=body,
                headers={**trace_headers(), **headers},
                timeout=limits,
            ) as answer:
                content = self._content(answer, deadline)
        except httpx.TimeoutException as error:
            raise ProviderFailed(
                f"{self.name} did not answer in time", "timeout", retry=True
            ) from error
        except httpx.HTTPError as error:  # its text may quote a header
            log.warning(
                "%s at %s could not be reached: %s", self.name, self._base, type(error).__name__
            )
            raise ProviderFailed(
                f"{self.name} could not be reached ({type(error).__name__})", retry=True
            ) from None
        if answer.status_code != 200:
            raise self._failed(answer, content)
        try:
            answer_object = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise ProviderFailed(
                f"{self.name} gave an answer that is not JSON", retry=True
            ) from error
        if not isinstance(answer_object, dict):
            raise ProviderFailed(f"{self.name} gave an answer of another shape", retry=True)
        return answer_object

    def _content(self, answer: httpx.Response, deadline: float) -> bytes:
        content = bytearray()
        for part in answer.iter_raw():
            content += part
            if len(content) > MAX_ANSWER_BYTES:
                raise ProviderFailed(
                    f"{self.name} gave an answer of more than {MAX_ANSWER_BYTES} bytes"
                )
            if time.monotonic() > deadline:
                raise ProviderFailed(f"{self.name} did not answer in time", "timeout", retry=True)
        return bytes(content)

    def _failed(self, answer: httpx.Response, content: bytes) -> ProviderFailed:
        status = answer.status_code
        excerpt = content[:_EXCERPT_BYTES].decode("utf-8", "replace")
        if self._key:
            excerpt = excerpt.replace(self._key, "[key]")
        log.warning("%s answered %d: %s", self.name, status, excerpt)
        if 300 <= status < 400:
            return ProviderFailed(f"{self.name} redirects, which is not followed")
        kind = "rate_limited" if status == 429 else "refused" if status in _REFUSED else "error"
        after = _seconds(answer.headers.get("Retry-After"))
        return ProviderFailed(
            f"{self.name} answered {status}", kind, retry=status in _TEMPORARY, retry_after=after
        )


def _is_loopback(base: str) -> bool:
    host = urlsplit(base).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _seconds(text: str | None) -> float | None:
    """Parse a Retry-After header, seconds or a date; None if it is unusable."""
    if text is None:
        return None
    if text.strip().isascii() and text.strip().isdigit():
        return float(text.strip()[:9])
    try:
        at = parsedate_to_datetime(text)
    except ValueError:
        return None
    if at.tzinfo is None:
        at = at.replace(tzinfo=timezone.utc)
    return max(0.0, (at - datetime.now(timezone.utc)).total_seconds())
