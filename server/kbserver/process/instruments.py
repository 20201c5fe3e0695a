"""HTTP metrics: requests by route template, duration, and errors by code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from kbcore.metrics import catalogue as m
from kbcore.node.metric_sinks import Labels, Tell

if TYPE_CHECKING:
    from kbcore.node.metric_sinks import Metrics

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
UNMATCHED = "unmatched"
"""The route of a request whose path leads nowhere: paths themselves are no labels, there is no end to them."""


class HttpMeters:
    """Counts the requests of one application; `under_way` are being answered now."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._told: dict[tuple[str, str, int], tuple[Tell, Tell]] = {}
        self.under_way = 0
        metrics.on_collect(self._collected)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        counter = self._told.get((method, route, status))
        if counter is None:
            counter = self._bound(method, route, status)
        counter[0](1)
        counter[1](seconds)

    def error(self, code: str) -> None:
        """An error is answered."""
        self._metrics.observe(m.ERRORS, 1, (code,))

    def _bound(self, method: str, route: str, status: int) -> tuple[Tell, Tell]:
        shown = method if method in METHODS else "other"
        bind = self._metrics.bind
        bound = bind(m.HTTP_REQUESTS, shown, route, str(status)), bind(m.HTTP_SECONDS, shown, route)
        if method == shown:
            self._told[method, route, status] = bound
        return bound

    def _collected(self) -> Iterator[tuple[m.MetricSpec, Labels, float]]:
        yield m.HTTP_UNDER_WAY, (), self.under_way


def reading(
    spec: m.MetricSpec, count: Callable[[], int]
) -> Callable[[], Iterator[tuple[m.MetricSpec, Labels, float]]]:
    """A collector of one gauge without labels."""

    def collected() -> Iterator[tuple[m.MetricSpec, Labels, float]]:
        yield spec, (), count()

    return collected
