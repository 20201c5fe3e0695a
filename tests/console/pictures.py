"""Pictures of the console's screens on a realistic memory.

    python tests/console/pictures.py [FOLDER]

Starts a server and Debian's chromium, and writes a PNG of each screen, wide and narrow, light and
dark. Without FOLDER it writes the pictures of the documentation into docs/images. Where Pillow is
installed, they have a palette, which makes them a third of the size.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.console import Console
from support.remembered import remember
from support.servers import Server

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SCREENS: dict[str, tuple[str, dict[str, str]]] = {
    "memory": ("memory", {}),
    "timeline": ("memory", {"part": "timeline", "about": "lives_in(mia, ?where)"}),
    "contradictions": ("memory", {"part": "contradictions"}),
    "window": (
        "window",
        {"query": "Where does Mia live?", "maxFacts": "6", "why": "lives_in(mia, Berlin)"},
    ),
    "playground": ("playground", {"goal": "can_serve(?who, ?dish)"}),
    "why-not": ("playground", {"goal": "can_serve(lea, ?dish)", "tab": "whynot"}),
    "facts": ("facts", {"predicate": "lives_in/2"}),
    "rules": ("rulesets", {}),
    "graph": ("graph", {"constant": "mia", "hops": "2"}),
    "scopes": ("scopes", {}),
    "operations": ("operations", {}),
    "start": ("start", {}),
}
SIZES = {"wide": (1280, 760), "narrow": (390, 844)}
DOCUMENTED = (
    *("memory", "timeline", "contradictions", "window", "playground", "why-not", "graph"),
)


EXAMPLES: dict[str, tuple[str, str, dict[str, str]]] = {
    "access": (
        "access",
        "playground",
        {"goal": "may(ann, write, budget)", "tab": "proof", "shape": "graph"},
    ),
    "scopes": ("net", "scopes", {"source": "tunnel"}),
}
"""Pictures of the page of examples: the tenant, the screen and its parameters."""

WHOLE = ("window",)
COLORS = 64


def shrink(path: Path) -> None:
    """Give a picture a palette, if Pillow is installed."""
    if find_spec("PIL") is None:
        return
    image = import_module("PIL.Image")
    with image.open(path) as picture:
        picture.convert("RGB").quantize(COLORS).save(path, optimize=True)


def pictures(folder: Path, every: bool) -> Iterator[Path]:
    """Write the pictures and return their paths."""
    with (
        tempfile.TemporaryDirectory() as data,
        Server(Path(data)) as server,
        import_module("playwright.sync_api").sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        consoles = {
            (size, scheme): Console(
                browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    reduced_motion="reduce",
                ).new_page(),
                server,
                "mia",
            )
            for size, (width, height) in SIZES.items()
            for scheme in ("light", "dark")
            if every or (size, scheme) == ("wide", "light")
        }
        first = next(iter(consoles.values()))
        remember(lambda tenant, path, body: first.post(path, body, **{"X-Tenant-ID": tenant}))
        for name, (screen, parameters) in SCREENS.items():
            if not every and name not in DOCUMENTED:
                continue
            for (size, scheme), console in consoles.items():
                page = console.open(screen, **parameters)
                path = folder / (f"{name}-{size}-{scheme}.png" if every else f"console-{name}.png")
                page.screenshot(path=path, full_page=every or name in WHOLE)
                if not every:
                    shrink(path)
                yield path
        if not every:
            yield from example_pictures(folder, first)
        browser.close()


def example_pictures(folder: Path, console: Console) -> Iterator[Path]:
    """Write the pictures of the page of examples, each with the knowledge base of its example."""
    examples = IMAGES.parent / "examples"
    for tenant, name in (("access", "access.kb"), ("net", "routes.kb")):
        console.tenant = tenant
        console.post("/execute", {"command": (examples / name).read_text("utf-8")})
    console.post("/scope/fork", {"source": None, "target": "tunnel"})
    console.post("/tell", {"text": "line(station, castle, 1)", "scope": "tunnel"})
    for name, (tenant, screen, parameters) in EXAMPLES.items():
        console.tenant = tenant
        page = console.open(screen, **parameters)
        if screen == "playground":
            page.get_by_role("group", name="Drawing of the proof").wait_for()
            console.settle()
        path = folder / f"example-{name}.png"
        page.screenshot(path=path)
        shrink(path)
        yield path


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else IMAGES
    chosen.mkdir(parents=True, exist_ok=True)
    for written in pictures(chosen, every=len(sys.argv) > 1):
        print(written.name)
