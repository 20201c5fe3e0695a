"""Limit on the total memory of the bodies of all active requests; requests over it get 503.

A body counts with the bytes received and the part being read, so that slow clients with a large
Content-Length do not block others. It counts until its request is answered, because the parsed
values live that long.
"""

from __future__ import annotations

import threading
from collections.abc import MutableMapping
from typing import Any

from kbcore.errors import NotReady

_HELD = "kbcore.body_bytes"
"""Key in the WSGI environment of the bytes counted for a request."""


class TooManyBodies(NotReady):
    """The bodies of active requests leave no memory for this one."""


class Bodies:
    """Counter of body bytes, limited to `most`; a single request may exceed the limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._mutex = threading.Lock()
        self.bytes = 0

    def check(self, environ: MutableMapping[str, Any], size: int) -> None:
        """Raise TooManyBodies if a body of `size` bytes would go over the limit now."""
        with self._mutex:
            held = environ.get(_HELD, 0)
            if size > held:
                self._check(size, held)

    def hold(self, environ: MutableMapping[str, Any], size: int) -> None:
        """Count the body of a request for `size` bytes in all, or raise TooManyBodies and leave the
        count as it was.

        A body that is read again, from memory, is not counted again.
        """
        with self._mutex:
            held = environ.get(_HELD, 0)
            if size > held:
                self._check(size, held)
                self.bytes += size - held
                environ[_HELD] = size

    def release(self, environ: MutableMapping[str, Any]) -> None:
        """Stop counting a request; repeated calls have no effect."""
        if _HELD in environ:
            with self._mutex:
                self.bytes -= environ.pop(_HELD, 0)

    def _check(self, size: int, held: int) -> None:
        others = self.bytes - held
        if others and others + size > self._most:
            raise TooManyBodies(
                f"the bodies of all active requests may have {self._most} bytes together; retry later",
                {"limit": "MAX_BODIES_BYTES", "value": self._most},
            )
