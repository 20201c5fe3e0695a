"""Webhooks over HTTP, signed as the Standard Webhooks specification (standardwebhooks.com) says."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbcore.config import Config
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.webhooks import WebhookSender
from kbplugins.webhooks.sender import Sender


@hookimpl
def kb_webhook_senders(config: Config) -> Mapping[str, Callable[[Config], WebhookSender]]:
    """Offer the sender `http`."""
    return {"http": Sender}
