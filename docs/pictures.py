"""Draw the pictures of the first page from what its code returns; with `--check` only list those
that are out of date.

python docs/pictures.py [--check]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent
PAGE = ROOT / "index.md"

WIDTH, HEIGHT = 400, 200
CHARACTER = 7.2
"""The width of a character of 12 pixels in a monospaced font."""

STYLE = """
.card{fill:#f6f7fb;stroke:#d5d9e6}.box{fill:#fff;stroke:#8f99b8}.goal{fill:#e4e9fc;stroke:#4051b5}
.no{fill:#fdecec;stroke:#b3261e}.line{stroke:#8f99b8;fill:none}.bar{fill:#4051b5}.past{fill:#a9b1cf}
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1d2233}
.note{fill:#535c78}.gone{fill:#b3261e}
@media(prefers-color-scheme:dark){
.card{fill:#1c202c;stroke:#3a4157}.box{fill:#262c3b;stroke:#66708f}.goal{fill:#2b3566;stroke:#94a5f5}
.no{fill:#4a2022;stroke:#f2a19b}.line{stroke:#66708f}.bar{fill:#94a5f5}.past{fill:#5d678a}
text{fill:#e9ecf5}.note{fill:#aab2ca}.gone{fill:#f5b3ae}}
"""


def picture(title: str, shapes: Iterable[str]) -> str:
    """Return an SVG document that has its own background, in light and dark."""
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE.strip()}</style>",
        rectangle(0.5, 0.5, WIDTH - 1, HEIGHT - 1, "card"),
        *shapes,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def rectangle(left: float, top: float, width: float, height: float, kind: str) -> str:
    """Return a rectangle with round corners; sizes are in pixels."""
    return f'<rect class="{kind}" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="6"/>'


def label(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Return a line of text whose baseline is at `y`."""
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def box(center: float, top: float, words: str, note: str, kind: str) -> list[str]:
    """Return a box with a fact, and below it what it depends on."""
    width = len(words) * CHARACTER + 16
    return [
        rectangle(center - width / 2, top, width, 28, kind),
        label(center, top + 18, words, anchor="middle"),
        label(center, top + 44, note, "gone" if kind == "no" else "note", "middle"),
    ]


def run_page() -> dict[str, Any]:
    """Return the names that the Python blocks of the first page define."""
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)  # the code of the page, as the tests of the pages run it
    return names


def day(time: int) -> str:
    """Return the date of a time in milliseconds, such as `1 Sep 2026`."""
    date = datetime.fromtimestamp(time / 1000, timezone.utc)
    return f"{date.day} {date:%b %Y}"


def memory_picture(names: dict[str, Any]) -> str:
    """Draw what was said, the validity of each value, and the text for the prompt."""
    memory, prompt = names["memory"], names["prompt"]
    message = memory.kb.episodes().episodes[0].text
    spans = {}
    for event in reversed(memory.kb.history("lives_in").events):
        spans[event.after["args"][1]] = (event.after["validFrom"], event.after["validUntil"])
    first = min(start for start, _ in spans.values())
    last = max(start for start, _ in spans.values())
    left, width = 90, 280
    scale = width * 0.62 / (last - first)
    shapes = [label(16, 30, f"mia: “{message}”", "note")]
    for row, (place, (start, end)) in enumerate(spans.items()):
        x, y = left + (start - first) * scale, 46 + row * 40
        stop = left + width if end is None else left + (end - first) * scale
        shapes += [
            label(16, y + 13, place),
            rectangle(x, y, stop - x, 18, "bar" if end is None else "past"),
            label(x, y + 31, f"since {day(start)}", "note"),
        ]
    shapes += [
        f'<path class="line" d="M16 138H{WIDTH - 16}"/>',
        label(16, 159, "in the prompt:", "note"),
        label(16, 181, prompt.text),
    ]
    return picture("How long each value held, and what the prompt says now", shapes)


def proof_picture(names: dict[str, Any]) -> str:
    """Draw the proof of an answer: what it depends on, below it."""
    goal, *premises = (line.strip() for line in names["proof"].splitlines())
    return tree(
        "A conclusion and what it depends on",
        (goal.partition("  by ")[0], "by the rule", "goal"),
        [(*premise.split("  ", 1), "box") for premise in premises],
    )


def why_not_picture(names: dict[str, Any]) -> str:
    """Draw why there is no answer: what a rule found, and what blocks it."""
    candidate = names["why_not"].candidates[0]
    premises = [(atom_text(each.atom), "stored", "box") for each in candidate.satisfied]
    blocked = (
        f"not {atom_text(candidate.missing.atom)}",
        f"{atom_text(candidate.blocked_by)} is stored",
        "no",
    )
    return tree(
        "Why there is no answer",
        (names["why_not"].goal, "no answer: the rule is blocked", "no"),
        [*premises, blocked],
    )


def atom_text(atom: Any) -> str:
    """Return an atom as a rule file has it."""
    return f"{atom.predicate}({', '.join(map(str, atom.args))})"


def tree(title: str, goal: tuple[str, str, str], premises: list[tuple[str, str, str]]) -> str:
    """Draw a goal above its premises: two beside each other, and the third below them."""
    centers = [(110, 86), (290, 86), (WIDTH / 2, 146)]
    shapes = []
    for (x, y), _ in zip(centers, premises, strict=True):
        shapes.append(f'<path class="line" d="M{WIDTH / 2:g} 64V73H{x:g}V{y:g}"/>')
    shapes += box(WIDTH / 2, 12, *goal)
    for (x, y), premise in zip(centers, premises, strict=True):
        shapes += box(x, y, *premise)
    return picture(title, shapes)


PICTURES = {
    "start-memory.svg": memory_picture,
    "start-proof.svg": proof_picture,
    "start-why-not.svg": why_not_picture,
}


def main() -> int:
    """Write the pictures, or with --check list those that are out of date and return 1."""
    names = run_page()
    stale = []
    for name, draw in PICTURES.items():
        path, text = ROOT / "images" / name, draw(names)
        if not path.exists() or path.read_text("utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, "utf-8")
    print(
        f"{len(PICTURES)} pictures, {len(stale)} {'out of date' if '--check' in sys.argv else 'written'}"
    )
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
