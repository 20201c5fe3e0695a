"""`kbcore` commands in the process of the tests: the same entry point, without the time an
interpreter takes to start.
"""

from __future__ import annotations

import gc

from click.testing import CliRunner, Result

from kbserver.cli import cli


def kbcore(*args: str, expect: int | None = 0) -> Result:
    """Run a command line to its end; `stdout`, `stderr` and `exit_code` of what is returned are as
    a shell sees them.

    `expect` is the exit code; None accepts any.
    """
    gc.freeze()  # what lives already needs no visit by the collection below, which took longer than the command
    done = CliRunner(catch_exceptions=False).invoke(cli, list(args), prog_name="kbcore")
    gc.collect()  # as at the end of a process: what was left open, such as a lock, would be met by the next command
    assert expect is None or done.exit_code == expect, (done.stdout, done.stderr)
    return done
