"""Start of the serving process: gevent replaces the blocking calls of the standard library before anything else runs."""

from __future__ import annotations

from gevent import monkey

from kbcore.config.settings import Config


def serve(config: Config) -> int:
    """Patch this process, serve until SIGTERM or SIGINT, and return the exit status."""
    monkey.patch_all()
    from kbserver.serve import run  # imported here because it must see the patched library

    return run(config)
