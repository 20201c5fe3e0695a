"""The names of `kbtypes.administration`: programs may import them from here too."""

from kbtypes.administration import (
    ApiKey,
    DatabaseInfo,
)

__all__ = [
    "ApiKey",
    "DatabaseInfo",
]
