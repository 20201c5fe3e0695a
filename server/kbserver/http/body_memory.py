"""How much memory the bodies of all requests under way take together: there is a limit, and over it a request waits outside.

A body counts for what has come in of it and the part that is being read, so that clients who promise much and send it slowly
keep nobody else out, and until its request is answered, since what was read from it lives as long.
"""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from typing import Any

from kbcore.errors import NotReady

_HELD = "kbcore.body_bytes"
"""Where a request's WSGI environment says how many bytes it is counted for."""


class TooManyBodies(NotReady):
    """The bodies of the requests under way leave no room for this one."""


class Bodies:
    """Counts the bytes of bodies, `most` of them at a time; one request alone may hold more."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = threading.Lock()
        self.bytes = 0

    def look(self, environ: MutableMapping[str, Any], size: int) -> None:
        """Raise TooManyBodies if a body of `size` bytes would go over the limit now."""
        with self._mutex:
            self._further(environ, size)

    def hold(self, environ: MutableMapping[str, Any], size: int) -> None:
        """Count the body of a request for `size` bytes in all, or raise TooManyBodies and leave the count as it was.

        A body that is read again, from memory, is not counted again.
        """
        with self._mutex:
            self.bytes += self._further(environ, size)
            environ[_HELD] = max(size, environ.get(_HELD, 0))

    def release(self, environ: MutableMapping[str, Any]) -> None:
        """Count a request no longer; once or several times."""
        if _HELD in environ:
            with self._mutex:
                self.bytes -= environ.pop(_HELD, 0)

    def _further(self, environ: MutableMapping[str, Any], size: int) -> int:
        held: int = environ.get(_HELD, 0)
        others = self.bytes - held
        if size <= held:
            return 0
        if others and others + size > self._most:
            raise TooManyBodies(
                f"the bodies of requests under way have {self._most} bytes at most together; send this again in a moment",
                {"limit": "MAX_BODIES_BYTES", "value": self._most},
            )
        return size - held
