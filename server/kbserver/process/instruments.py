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
"""Route label of requests that match no route: a label for each path would have no bound."""


class HttpMeters:
    """Counters of the requests of one application; `in_progress` are being answered."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.bound: dict[tuple[str, str, int], tuple[Tell, Tell]] = {}
        """The results of `bind` for methods of HTTP."""
        self.in_progress = 0
        metrics.on_collect(gauge(m.HTTP_UNDER_WAY, lambda: self.in_progress))

    def error(self, code: str) -> None:
        """Count an error answer."""
        self._metrics.observe(m.ERRORS, 1, (code,))

    def bind(self, method: str, route: str, status: int) -> tuple[Tell, Tell]:
        """Return the functions that count an answered request, and take its duration in seconds."""
        label = method if method in METHODS else "other"
        bind = self._metrics.bind
        bound = bind(m.HTTP_REQUESTS, label, route, str(status)), bind(m.HTTP_SECONDS, label, route)
        if method == label:
            self.bound[method, route, status] = bound
        return bound


def gauge(
    spec: m.MetricSpec, read: Callable[[], int]
) -> Callable[[], Iterator[tuple[m.MetricSpec, Labels, float]]]:
    """Return a collector of one gauge without labels, whose value `read` returns."""

    def collect() -> Iterator[tuple[m.MetricSpec, Labels, float]]:
        yield spec, (), read()

    return collect
