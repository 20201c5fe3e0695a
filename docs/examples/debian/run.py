"""The Debian archive's dependency graph: load it, ask it, and check the answers by plain
breadth-first search.

Reads the package lists apt has on this machine (run `apt-get update` once if there are none) and
fetches nothing.

    python docs/examples/debian/run.py [--keep FOLDER]
"""

from __future__ import annotations

import argparse
import csv
import re
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path

import kbcore

HERE = Path(__file__).resolve().parent
NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*")


def package_lists() -> list[Path]:
    """The Packages files of apt, as apt itself names them."""
    asked = ["apt-get", "indextargets", "--format", "$(FILENAME)", "Created-By: Packages"]
    try:
        names = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no package lists: {error}; run 'apt-get update' on a Debian or Ubuntu machine")
    return [Path(name) for name in dict.fromkeys(names)]


def stanzas(path: Path) -> Iterator[dict[str, str]]:
    """The entries of one list; apt-helper reads it whatever its compression."""
    command = ["/usr/lib/apt/apt-helper", "cat-file", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, encoding="utf-8") as process:
        entry: dict[str, str] = {}
        for line in process.stdout or ():
            if line == "\n":
                yield entry
                entry = {}
            elif not line[0].isspace():
                key, _, value = line.partition(":")
                entry[key] = value.strip()
        if entry:
            yield entry


def facts(entries: Iterable[dict[str, str]]) -> Iterator[tuple[str, ...]]:
    """Rows of CSV, predicate first."""
    for entry in entries:
        name = entry["Package"]
        yield "package", name
        wanted = ", ".join(filter(None, (entry.get("Pre-Depends"), entry.get("Depends"))))
        for number, group in enumerate(filter(None, wanted.split(","))):
            found = [
                match.group() for one in group.split("|") if (match := NAME.match(one.strip()))
            ]
            if len(found) == 1:
                yield "depends", name, found[0]
            for other in found if len(found) > 1 else ():
                yield "accepts", name, f"{name}#{number}", other


def reachable(edges: dict[str, set[str]], start: str) -> set[str]:
    """Everything reachable by one or more edges."""
    seen: set[str] = set()
    todo = deque([start])
    while todo:
        for target in edges.get(todo.popleft(), ()):
            if target not in seen:
                seen.add(target)
                todo.append(target)
    return seen


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--keep", type=Path, help="keep the knowledge base in this folder")
    folder = parser.parse_args().keep
    with tempfile.TemporaryDirectory() as scratch:
        return run(Path(scratch), folder or Path(scratch) / "kb")


def run(scratch: Path, folder: Path) -> int:
    rows = list(dict.fromkeys(row for path in package_lists() for row in facts(stanzas(path))))
    table = scratch / "debian.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    edges: dict[str, set[str]] = {}
    back: dict[str, set[str]] = {}
    packages = {row[1] for row in rows if row[0] == "package"}
    for row in rows:
        if row[0] == "depends":
            edges.setdefault(row[1], set()).add(row[2])
            back.setdefault(row[2], set()).add(row[1])
    print(
        f"{len(packages)} packages, {sum(map(len, edges.values()))} dependencies, {len(rows)} facts"
    )

    command = [
        sys.executable,
        "-m",
        "kbserver.cli",
        "load",
        "--header",
        "no",
        "--storage-dir",
        str(folder),
        str(table),
        str(HERE / "rules.kb"),
    ]
    subprocess.run(command, check=True)

    def without(x: str) -> set[str]:
        return packages - reachable(back, x) - {x}

    names = [
        n
        for n in ("libreoffice", "python3", "gnome", "apt", "postgresql-15", "firefox-esr")
        if n in edges
    ][:4]
    goals: list[tuple[str, set[str]]] = [(f'needs("{n}", ?q)', reachable(edges, n)) for n in names]
    goals += [(f'breaks("{n}", ?p)', reachable(back, n)) for n in ("libssl3", "python3", "libc6")]
    goals += [(f'without(?p, "{n}")', without(n)) for n in ("libc6", "python3")]
    goals += [("leaf(?p)", packages - set(back))]
    wrong = 0
    with kbcore.open_kb(path=folder) as kb:
        for goal, expected in goals:
            start = time.perf_counter()
            found = kb.ask(goal)
            ms = (time.perf_counter() - start) * 1000
            variable = 0 if goal.startswith(("without", "leaf")) else 1
            same = {row[variable] for row in found} == expected
            wrong += not same
            print(
                f"{goal:28} {len(found):6} answers {ms:8.1f} ms  {'as searched' if same else 'WRONG'}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
