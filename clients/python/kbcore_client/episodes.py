"""The names of `kbtypes.episodes`: programs may import them from here too."""

from kbtypes.episodes import (
    CorrectOutcome,
    Episode,
    EpisodeFacts,
    EpisodePage,
    Evidences,
    FactEvent,
    FactHistory,
    PurgeOutcome,
    PurgeState,
    UndoOutcome,
    spans_of,
)
from kbtypes.records import Json

__all__ = [
    "CorrectOutcome",
    "Episode",
    "EpisodeFacts",
    "EpisodePage",
    "Evidences",
    "FactEvent",
    "FactHistory",
    "Json",
    "PurgeOutcome",
    "PurgeState",
    "UndoOutcome",
    "spans_of",
]
