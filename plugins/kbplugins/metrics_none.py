"""No metrics: `METRICS_SINKS=none`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbcore.metrics import MetricSpec
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import MetricsSink


class NullSink:
    """A sink that discards every value."""

    pushes = False

    def __init__(self, specs: Sequence[MetricSpec] = ()) -> None:
        """Accept the metric families like every sink."""

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Return a function that does nothing."""
        return _discard

    def expose(self) -> bytes | None:
        """Return None: there is nothing to expose."""
        return None

    def close(self) -> None:
        """Do nothing: there is nothing to send."""


def _discard(value: float) -> None:
    """Discard a value."""


@hookimpl
def kb_metrics_sinks() -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:
    """Offer the sink under the name `none`."""
    return {"none": NullSink}
