"""The process that serves: gevent takes over the blocking calls of the standard library before anything else happens."""

from __future__ import annotations

from gevent import monkey

from kbcore.config.settings import Config


def serve(config: Config) -> int:
    """Patch this process and serve until it is told to stop; the exit status."""
    monkey.patch_all()
    from kbserver.serve import run  # only now: it must see the patched library

    return run(config)


if __name__ == "__main__":
    from kbserver.cli import main

    main(["serve"])
