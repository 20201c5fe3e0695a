"""Protocol of the senders of webhooks."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Protocol, runtime_checkable


class DeliveryOutcome(Enum):
    """DeliveryOutcome of a delivery: accepted, to be tried again, or not wanted any more (410
    Gone).
    """

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class DeliveryResult:
    """Result of a delivery. `retry_after` is the wait in seconds that the receiver asked for;
    `reason` says what failed, without secrets.
    """

    outcome: DeliveryOutcome
    retry_after: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """A message to deliver: its id, the same in each attempt, and its JSON."""

    id: str
    body: bytes


@runtime_checkable
class WebhookSender(Protocol):
    """Delivers messages to addresses of clients."""

    def check(self, url: str, secret: str) -> None:
        """Raise InvalidInput for an address that is not allowed, or an unusable secret ("": that of
        the settings).
        """

    def send(self, url: str, secret: str, message: WebhookMessage) -> DeliveryResult:
        """Deliver a message once, signed with the secret; failures are outcomes, not exceptions."""

    def close(self) -> None:
        """Close idle connections."""
