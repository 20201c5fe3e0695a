"""Files of facts and rules that commands read without a knowledge base."""

from __future__ import annotations

import sys
from pathlib import Path

from kbserver.cli.shared.exits import Failed, describe_os_error

STDIN = "-"
"""The name of standard input as a file."""

STDIN_NAME = "<stdin>"
"""The name of standard input in messages."""

NOT_RUN = 2
"""Exit status if a file cannot be read."""


def read_text(file: str) -> str:
    """Return the text of a file or of standard input; raises Failed with status 2."""
    try:
        data = sys.stdin.buffer.read() if file == STDIN else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise Failed(describe_os_error(error), NOT_RUN) from error
    except UnicodeDecodeError as error:
        raise Failed(f"{file}: not UTF-8", NOT_RUN) from error
