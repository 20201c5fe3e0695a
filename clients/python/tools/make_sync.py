"""Make the synchronous client from the asynchronous one; with `--check` only report differences.

    python clients/python/tools/make_sync.py [--check]

Each module of `_async` becomes a module of `_sync` with the same lines: `async` and `await` are
left out, and names are replaced.
"""

from __future__ import annotations

import io
import sys
import tokenize
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "kbcore_client"
NAMES = {
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__anext__": "__next__",
    "_async": "_sync",
    "aclose": "close",
    "AsyncGenerator": "Generator",
    "aiter_bytes": "iter_bytes",
    "aread": "read",
    "async_calls": "calls",
    "async_client": "client",
    "asynccontextmanager": "contextmanager",
    "connect_async": "connect",
    "pause_async": "pause",
}
TEXTS = {
    "The asynchronous client; `_sync` is made from it by": "The synchronous client, made from `_async` by"
}


def synchronous(source: str) -> str:
    """Return the synchronous form of a module."""
    lines = source.splitlines(keepends=True)
    edits: list[tuple[int, int, int, str]] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        (row, start), (_, end) = token.start, token.end
        if token.type != tokenize.NAME:
            continue
        if token.string in ("async", "await"):
            edits.append((row - 1, start, end + 1, ""))
        elif token.string in NAMES:
            edits.append((row - 1, start, end, NAMES[token.string]))
        elif token.string.startswith(("Async", "_Async")):
            edits.append((row - 1, start, end, token.string.replace("Async", "", 1)))
    for row, start, end, text in reversed(edits):
        lines[row] = lines[row][:start] + text + lines[row][end:]
    result = "".join(lines)
    for before, after in TEXTS.items():
        result = result.replace(before, after)
    return result


def main() -> int:
    """Write the modules, or report those that differ."""
    check = "--check" in sys.argv[1:]
    modules = {
        path.name: synchronous(path.read_text("utf-8"))
        for path in (PACKAGE / "_async").glob("*.py")
    }
    target = PACKAGE / "_sync"
    known = {path.name: path.read_text("utf-8") for path in target.glob("*.py")}
    outdated = sorted(
        name for name in modules.keys() | known.keys() if modules.get(name) != known.get(name)
    )
    for name in outdated:
        if check:
            print(f"_sync/{name} is not what tools/make_sync.py makes of _async/{name}")
        elif name in modules:
            (target / name).write_text(modules[name], "utf-8")
        else:
            (target / name).unlink()
    return int(check and bool(outdated))


if __name__ == "__main__":
    raise SystemExit(main())
