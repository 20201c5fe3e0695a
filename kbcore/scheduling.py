"""Hooks through which a node runs blocking calls and yields to other work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Offload = Callable[[Callable[[], Any]], Any]


def _in_place(call: Callable[[], Any]) -> Any:
    return call()


def _no_yield() -> None:
    """Do nothing: there is no other work to yield to."""


class Scheduling:
    """Hooks of the program that hosts a node; by default the node blocks its threads.

    `offload` runs a blocking call without holding up other work, `offload_disk` one that uses the
    disk (default: `offload`), `offload_wait` one that waits for another service (default: `offload`).
    `yield_now` lets other work run between slices of a request,
    `yield_in_background` between slices of background work (default: `yield_now`).
    """

    def __init__(
        self,
        *,
        offload: Offload = _in_place,
        offload_disk: Offload | None = None,
        offload_wait: Offload | None = None,
        yield_now: Callable[[], None] = _no_yield,
        yield_in_background: Callable[[], None] | None = None,
    ) -> None:
        self.offload = offload
        self.offload_disk = offload_disk or offload
        self.offload_wait = offload_wait or offload
        self.yield_now = yield_now
        self.yield_in_background = yield_in_background or yield_now
