"""No metrics: `METRICS_SINKS=none`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from kbcore.metrics import MetricSpec
from kbcore.plug.hookspecs import hookimpl
from kbcore.plug.ports import MetricsSink


class Nothing:
    """Forgets every value."""

    pushes = False

    def __init__(self, specs: Sequence[MetricSpec] = ()) -> None:
        """Take the table as every sink does."""

    def bind(self, spec: MetricSpec, labels: tuple[str, ...]) -> Callable[[float], None]:
        """Give what does nothing."""
        return _nothing

    def expose(self) -> bytes | None:
        """There is nothing to expose."""
        return None

    def close(self) -> None:
        """There is nothing to send."""


def _nothing(value: float) -> None:
    """Forget it."""


@hookimpl
def kb_metrics_sinks() -> Mapping[str, Callable[[Sequence[MetricSpec]], MetricsSink]]:
    """Offer the sink under the name `none`."""
    return {"none": Nothing}
