"""Record a session of the shell as an asciicast: real commands and what they print, with the pauses
of a reader. With `--check` only say if the recording is out of date.

python docs/recording.py [--check]
"""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent
FILE = ROOT / "images" / "session.cast"

COLUMNS, LINES = 100, 30
KEY_SECONDS = 0.05
"""Seconds between two characters that are typed."""
LINE_SECONDS = 1.2
"""Seconds to read a line that was printed; a command has at most MAX_READING_SECONDS."""
MAX_READING_SECONDS = 7.0

RULES = """\
may(?who, write, ?doc) :-
    member(?who, ?team),
    owns(?team, ?doc),
    not banned(?who).
"""

TESTS = """\
test "a ban wins" {
    member(ann, finance). owns(finance, budget). banned(ann).
    ?- may(ann, write, ?doc) = [].
}
"""

SESSION = (
    "# Store facts.",
    "kbcore tell 'member(ann, finance)' 'member(bob, sales)' 'owns(finance, budget)'",
    "# A rule: members may write what their team owns, unless they are banned.",
    "cat access.kb",
    "kbcore check access.kb && kbcore test access_test.kb",
    'kbcore teach "$(cat access.kb)"',
    "kbcore ask 'may(?who, write, ?doc)'",
    "# Why?",
    "kbcore explain 'may(ann, write, budget)'",
    "# The text for a prompt.",
    "kbcore context --goal 'may(ann, write, ?doc)'",
    "# A new fact ends the conclusion.",
    "kbcore tell 'banned(ann)'",
    "kbcore ask 'may(?who, write, ?doc)'",
    "kbcore whynot 'may(ann, write, budget)'",
    "# What would let bob write it?",
    "kbcore how-to 'may(bob, write, budget)' --limit 1",
    "# Undo the last change.",
    "kbcore memory undo 3",
    "kbcore ask 'may(?who, write, ?doc)'",
)
"""The lines that are typed: comments and commands."""


def run(command: str, folder: Path, environment: dict[str, str]) -> str:
    """Return what a command prints on a terminal, with its colours."""
    reader, terminal = pty.openpty()
    process = subprocess.Popen(
        ["bash", "-c", f'kbcore() {{ "{sys.executable}" -m kbserver.cli "$@"; }}\n{command}'],
        cwd=folder,
        env=environment,
        stdin=terminal,
        stdout=terminal,
        stderr=terminal,
    )
    os.close(terminal)
    printed = b""
    while True:
        try:
            data = os.read(reader, 65536)
        except OSError:  # the last writer of the terminal has ended
            break
        if not data:
            break
        printed += data
    os.close(reader)
    if process.wait() not in (0, 1):  # 1: a goal without answers
        raise RuntimeError(f"{command}: exit status {process.returncode}\n{printed.decode()}")
    return printed.decode("utf-8")


def outputs(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of the session with what it prints, from a server of its own."""
    (folder / "access.kb").write_text(RULES, "utf-8")
    (folder / "access_test.kb").write_text(TESTS, "utf-8")
    own = {name: value for name, value in os.environ.items() if not name.startswith("KBCORE_")}
    with subprocess.Popen(
        [sys.executable, "-m", "kbserver.cli", "serve", "--port", "0", "--storage-dir", "kb"],
        cwd=folder,
        env={**own, "LOG_LEVEL": "ERROR", "MIN_FREE_MB": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # its log: one line for an administrative action
        text=True,
    ) as server:
        try:
            environment = {
                **own,
                "KBCORE_URL": address_of(server),
                "COLUMNS": str(COLUMNS),
                "LINES": str(LINES),
                "TERM": "xterm-256color",
            }
            for line in SESSION:
                yield line, "" if line.startswith("#") else run(line, folder, environment)
        finally:
            server.terminate()


def address_of(server: subprocess.Popen[str]) -> str:
    """Return the address that a server announces; raise RuntimeError if it ends without one."""
    assert server.stdout is not None
    for announced in server.stdout:
        if address := re.search(r"https?://[\d.]+:\d+", announced):
            return address[0]
    raise RuntimeError("the server did not start")


def recording() -> str:
    """Return the recording: a header and events, each a line of JSON (asciicast version 2)."""
    time = 0.5
    events: list[tuple[float, str, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for line, printed in outputs(Path(folder)):
            events.append((time, "o", "\x1b[1;32m$\x1b[0m "))
            for character in line:
                time += KEY_SECONDS
                events.append((time, "o", character))
            time += 0.4
            events.append((time, "o", "\r\n" + printed))
            time += min(MAX_READING_SECONDS, 0.6 + LINE_SECONDS * printed.count("\n"))
    header = {
        "version": 2,
        "width": COLUMNS,
        "height": LINES,
        "duration": round(time, 3),
        "title": "kbcore: facts, a rule, why, why not, undo",
        "env": {"SHELL": "/bin/bash", "TERM": "xterm-256color"},
    }
    lines = [header, *([round(at, 3), kind, data] for at, kind, data in events)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def without_times(text: str) -> str:
    """Return a recording without what differs from run to run: the times that commands print."""
    return re.sub(r"\b\d+\.\d\d s\b", "0.00 s", text)


def main() -> int:
    """Write the recording, or with --check return 1 if it is out of date."""
    text = recording()
    stale = not FILE.exists() or without_times(FILE.read_text("utf-8")) != without_times(text)
    if stale and "--check" not in sys.argv:
        FILE.write_text(text, "utf-8")
    print(f"{FILE.name}: {'out of date' if stale and '--check' in sys.argv else 'current'}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
