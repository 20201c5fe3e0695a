"""Metric families, and the registry that hands values to metrics sinks."""

from kbcore.metrics.catalogue import *  # noqa: F403  (plugins and tests import single families)
from kbcore.metrics.catalogue import DOCUMENTED, FAMILIES, Kind, MetricSpec

__all__ = ["DOCUMENTED", "FAMILIES", "Kind", "MetricSpec"]
