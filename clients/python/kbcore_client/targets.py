"""The knowledge base that a program connects to: a server, a folder, or memory."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from kbcore_client.errors import InvalidInput, NotInstalled

if TYPE_CHECKING:
    from kbcore import Config

MEMORY = "memory:"
MAX_BODY_BYTES = 1 << 40
"""Limit of bodies in this process, which has them in memory already."""

EMBEDDED_URL = "http://embedded"

_HOST = re.compile(r"localhost|(?:[\w.-]+|\[[\da-fA-F:]+\]):\d+/?")
"""The address of a server without http://, which is no folder."""


@dataclass(frozen=True, slots=True)
class Target:
    """A knowledge base to connect to; `app` is its WSGI application if it is in this process."""

    url: str
    app: Callable[..., Any] | None = None
    close: Callable[[], None] | None = None


def target_of(target: str | os.PathLike[str], config: Config | None = None) -> Target:
    """Return the knowledge base that a text or path names, opened if it is in this process.

    Raises InvalidInput, NotInstalled, and ConfigError, StorageBusy and LogCorrupted of `kbcore`.
    """
    text = os.fspath(target)
    if not text:
        raise InvalidInput.at("target", "must be memory:, a folder, or the address of a server")
    if text.startswith(("http://", "https://")):
        if config is not None:
            raise InvalidInput.at("config", "is for a knowledge base in this process only")
        return Target(server_url("target", text))
    if isinstance(target, str) and _HOST.fullmatch(text):
        raise InvalidInput.at("target", f"is the address of a server: write http://{text}")
    return _embedded(text, config)


def server_url(field: str, text: str) -> str:
    """Return the address of a server without a final slash; raise InvalidInput."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidInput.at(field, "must be an address such as http://127.0.0.1:9300")
    if parts.username is not None or parts.password is not None:
        raise InvalidInput.at(field, "must have no user or password; pass the key as api_key")
    return text.rstrip("/")


def _embedded(text: str, chosen: Config | None) -> Target:
    try:
        settings = import_module("kbcore.config.settings")
        node = import_module("kbcore")
        server = import_module("kbserver.app")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("kbcore", "kbserver"):
            raise
        raise NotInstalled(
            f"{text!r} needs the package kbcore, which is not installed: "
            "pip install 'kbcore-client[embedded]'"
        ) from None
    config = replace(
        chosen or settings.Config(),
        max_body_bytes=MAX_BODY_BYTES,
        max_bodies_bytes=MAX_BODY_BYTES,
        public_url=EMBEDDED_URL,
    )
    is_url = "://" in text or text.startswith("sqlite:")
    if text != MEMORY:
        config = config.with_storage(text, None) if is_url else config.with_storage(None, text)
    else:
        config = config.with_storage(None, None)
    runtime = node.open_runtime(config)
    app = server.create_app(runtime)

    def close() -> None:
        app.extensions["kbcore.events"].close()
        runtime.close()

    return Target(EMBEDDED_URL, app, close)
