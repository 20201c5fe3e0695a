"""The names of `kbtypes.language`: programs may import them from here too."""

from kbtypes.language import (
    Extracted,
    Synthesis,
)

__all__ = [
    "Extracted",
    "Synthesis",
]
