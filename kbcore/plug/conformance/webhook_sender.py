"""Tests for authors of a sender of webhooks to subclass."""

# ruff: noqa: S101  (tests assert)

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import pytest

from kbcore.errors import InvalidInput
from kbcore.plug.conformance.base import Conformance
from kbcore.plug.webhooks import DeliveryOutcome, WebhookMessage, WebhookSender


class WebhookSenderConformance(Conformance, abstract=True):
    """Tests of the contract of `WebhookSender`.

    Subclass it, name it `Test...`, and implement `make_sender`. The sender allows the address
    `allowed`, where a receiver answers 204, and has a secret of the settings.
    """

    factory = "make_sender"
    allowed = "https://hooks.example.com/a"

    @abstractmethod
    def make_sender(self) -> WebhookSender:
        """Return the sender under test."""

    @pytest.fixture
    def sender(self) -> Iterator[WebhookSender]:
        """Return the sender under test, and close it."""
        sender = self.make_sender()
        yield sender
        sender.close()

    def test_it_allows_an_address_of_the_settings(self, sender: WebhookSender) -> None:
        """An allowed address with the secret of the settings is accepted."""
        sender.check(self.allowed, "")

    @pytest.mark.parametrize("url", ["", "x", "file:///etc/passwd", "https://other.invalid/"])
    def test_it_refuses_other_addresses(self, sender: WebhookSender, url: str) -> None:
        """Any other address is refused."""
        with pytest.raises(InvalidInput):
            sender.check(url, "")

    def test_it_delivers(self, sender: WebhookSender) -> None:
        """A message that the receiver accepts is delivered."""
        assert (
            sender.send(self.allowed, "", WebhookMessage("msg_1", b"{}")).outcome
            is DeliveryOutcome.DELIVERED
        )

    def test_a_failure_is_an_outcome(self, sender: WebhookSender) -> None:
        """An address that is not allowed any more is a failure, not an exception."""
        sent = sender.send("https://other.invalid/", "", WebhookMessage("msg_1", b"{}"))
        assert sent.outcome is DeliveryOutcome.FAILED
        assert sent.reason
