"""The names of `kbtypes.windows`: programs may import them from here too."""

from kbtypes.windows import (
    FIELDS,
    Bucket,
    BucketStats,
    ContextDiff,
    Contradiction,
    DiffOptions,
    Entry,
    Ingested,
    IngestedFact,
    IngestOptions,
    Provenance,
    Removed,
    Summary,
    Window,
    WindowOptions,
    window_fields,
)

__all__ = [
    "FIELDS",
    "Bucket",
    "BucketStats",
    "ContextDiff",
    "Contradiction",
    "DiffOptions",
    "Entry",
    "IngestOptions",
    "Ingested",
    "IngestedFact",
    "Provenance",
    "Removed",
    "Summary",
    "Window",
    "WindowOptions",
    "window_fields",
]
