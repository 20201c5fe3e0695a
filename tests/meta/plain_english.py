"""Check of names and prose against the rules in CONTRIBUTING.md; `make lint` runs it.

    python tests/meta/plain_english.py [PATH ...]

Prints `file:line: wording: advice` for each finding and exits with 1 if there is any. The check
finds only a part of what the rules ask for: a text that passes can still be hard to read.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("kbcore", "planner", "plugins", "server", "docs/generate.py", "setup.py")
PRODUCT += ("clients/python/kbcore_client", "clients/python/tools", "clients/python/README.md")
PRODUCT += ("clients/python/DESIGN.md",)
CHECKED = (*PRODUCT, "csrc", "docs", "deploy", "tests", "README.md", "ARCHITECTURE.md")
CHECKED += ("CONTRIBUTING.md", "SECURITY.md", "Makefile", "tox.ini", "pyproject.toml")
IGNORED = {"__pycache__", "assets", "corpus", "golden", "node_modules", "static"}
"""Folders of files that nobody writes by hand, or that contain other texts on purpose."""

SUFFIXES = {".py", ".c", ".h", ".md", ".lark", ".toml", ".ini", ".yml", ".sh", ""}

WORDINGS = {
    r"by and by": "write: incrementally, or in small steps",
    r"meanwhile|anew|hence|whence|thereof|therein|nought|naught": "use a present-day word",
    r"whoever|whomever|nobody|somebody": "name the subject: the client, the caller, any process",
    r"so many|such as are|what it comes to|what there is": "write the noun: the number, the result",
    r"one's own|of its own accord": "name the owner",
    r"that one|the former|the latter": "repeat the noun",
    r"(?:is|are) not there|there is none|nothing of (?:it|that)|some that": (
        "write: does not exist, is not installed, no ..., none of it, any"
    ),
    r"beside (?:it|them)": "write: in addition to, next to",
    r"mends?|mended": "write: fix, repair",
    r"tak(?:es?|en|ing) back": "write: retract, undo",
    r"guests?": "write: third-party plugin",
    r"footprints?": "write: write set, size",
    r"allegiances?|pledge[ds]?": "write: leader mark",
    r"foresee\w*": "write: prefetch",
    r"(?:short|long|lean) way": "write: fast path, Flask route",
    r"(?:rests?|stands) on|falls with": "write: depends on, is derived from",
    r"(?:is|was|are|were) told|told of": "write: asserted, stored",
    r"gets its values nowhere": "write: unsafe variable",
    r"by the clock": "write: by time, expired",
}
"""Regular expressions for wordings that no text uses, with what to write instead."""

LOCAL_NAMES = frozenset(
    ("found", "one", "made", "kept", "given", "told", "said", "wanted", "shown", "place", "some")
)
"""Names that do not say what the value is; no function of the product has such a variable."""

NAME_PARTS = frozenset(
    ("guest", "guests", "footprint", "footprints", "allegiance", "pledge", "foresee", "mend")
)
"""Private terms that no function, class, variable or file is named with."""

CONSTANTS = frozenset(("SOME", "FEW", "MOST", "LEAST", "NEVER", "TOGETHER"))
"""Constants that carry neither a unit nor a sense."""

DOCSTRING = re.compile(r"(?:What|Whether|How|Who|Whose|Whom|Where|When)\b")
WORDING = re.compile(rf"\b(?:{'|'.join(f'(?P<w{i}>{w})' for i, w in enumerate(WORDINGS))})\b")
"""Any of the wordings in a text of small letters, each in a group of its own."""
ADVICE = tuple(WORDINGS.values())

ALLOWED: dict[tuple[str, str], str] = {
    (
        "kbcore/language/grounding.py",
        "nobody",
    ): "an English word of denial that the module looks for",
    **{
        (f"tests/{name}.py", "nobody"): "a name in the data of the tests"
        for name in (
            "bench/talk",
            "support/postgres",
            "plugins/test_llm_http",
            "core/test_admin",
            "core/test_api_keys",
            "core/test_hooks",
            "core/memory/test_salience",
            "core/context/test_relevance",
            "core/context/test_removal_reasons",
            "plugins/test_storage_postgres",
        )
    },
    **{
        ("tests/meta/test_plain_english.py", wording): "an example of what the check finds"
        for wording in ("whoever", "rests on", "hence")
    },
}
"""Deliberate wordings: file and wording, with the reason."""


class Finding(NamedTuple):
    """A wording to change, and where it stands."""

    path: str
    line: int
    wording: str
    advice: str


def main() -> int:
    """Check the files named on the command line, or the whole tree."""
    paths = [Path(path).resolve() for path in sys.argv[1:]] or [ROOT / top for top in CHECKED]
    findings = [finding for path in files(paths) for finding in check(path)]
    for path, line, wording, advice in findings:
        print(f"{path}:{line}: {wording}: {advice}")
    return bool(findings)


def files(tops: Iterable[Path]) -> Iterator[Path]:
    """Yield the text files under the given paths, each once."""
    seen = set()
    for top in tops:
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            folders = path.relative_to(ROOT).parts[:-1]
            ignored = IGNORED & set(folders)
            hidden = any(folder.startswith(".") for folder in folders)  # caches of test tools
            is_text = path.is_file() and path.suffix in SUFFIXES
            if is_text and not ignored and not hidden and path not in seen:
                seen.add(path)
                yield path


def check(path: Path) -> list[Finding]:
    """Return the findings of one file that are not allowed."""
    name = path.relative_to(ROOT).as_posix()
    if path == Path(__file__):
        return []
    text = path.read_text(encoding="utf-8")
    in_product = name.startswith(PRODUCT)
    hits = [*wordings(text), *(names(text, in_product) if path.suffix == ".py" else ())]
    hits += ((1, path.name, "rename the file") for _ in NAME_PARTS & set(path.stem.split("_")))
    return [
        Finding(name, line, wording, advice)
        for line, wording, advice in sorted(hits)
        if (name, wording) not in ALLOWED
    ]


def wordings(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line number, wording, advice) for each discouraged wording."""
    for number, line in enumerate(text.lower().splitlines(), 1):
        for match in WORDING.finditer(line):
            yield number, match[0], ADVICE[int(str(match.lastgroup)[1:])]


def names(text: str, in_product: bool) -> Iterator[tuple[int, str, str]]:
    """Yield findings in the names and docstrings of Python code."""
    for node in ast.walk(ast.parse(text)):
        name = ""
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        line = getattr(node, "lineno", 1)
        if NAME_PARTS & set(name.lower().split("_")):
            yield line, name, "private term; use the term of the glossary"
        if in_product and name in LOCAL_NAMES and not isinstance(node, ast.FunctionDef):
            yield line, name, "name the value: rows, tenant, plan, deadline"
        if in_product and name in CONSTANTS:
            yield line, name, "say unit and sense: MAX_PAGE_SIZE, RETRY_DELAY_MS"
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        if in_product and isinstance(node, documented):
            docstring = DOCSTRING.match(ast.get_docstring(node) or "")
            if docstring:
                yield line, docstring[0], "start with a verb (function) or a noun (class, module)"


if __name__ == "__main__":
    sys.exit(main())
