"""A recording of the console, of two minutes, on a realistic memory.

    python tests/console/recording.py [FILE]

Starts a server and Debian's chromium, does what a reader would do, and writes an animated PNG that
plays once, with a caption below each picture. Needs Pillow. Without FILE it writes the recording of
the documentation, docs/images/console.png.
"""

from __future__ import annotations

import io
import shutil
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.console import Console
from support.remembered import remember
from support.servers import Server

if TYPE_CHECKING:
    from playwright.sync_api import Page

FILE = Path(__file__).parents[2] / "docs" / "images" / "console.png"
WIDTH, HEIGHT, CAPTION = 1000, 620, 40
COLORS = 48
KEY_MS = 150
"""Milliseconds of a picture while someone types."""
MAX_BYTES = 1_500_000


class Recorder:
    """Takes pictures of a console, each with its caption and its milliseconds."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.pictures: list[tuple[bytes, str, int]] = []
        self.caption = ""

    @property
    def page(self) -> Page:
        return self.console.page

    def open(self, caption: str, seconds: float, screen: str, **parameters: str) -> None:
        """Open a screen and show it for a time."""
        self.caption = caption
        self.console.open(screen, **parameters)
        self.show(seconds)

    def show(self, seconds: float, caption: str | None = None) -> None:
        """Show the page as it is, when nothing loads any more."""
        self.console.settle()
        self.caption = self.caption if caption is None else caption
        self.take(round(seconds * 1000))

    def take(self, milliseconds: int) -> None:
        self.pictures.append((self.page.screenshot(), self.caption, milliseconds))

    def type(self, text: str, step: int = 4) -> None:
        """Type a text into the editor of the playground, a picture for some characters."""
        self.page.get_by_role("textbox", name="Goal").click()
        self.page.keyboard.press("Control+A")
        for start in range(0, len(text), step):
            self.page.keyboard.insert_text(text[start : start + step])
            self.take(KEY_MS)
        self.page.keyboard.press("Escape")


def play(recorder: Recorder) -> None:
    """Do what is recorded."""
    page = recorder.page
    recorder.open("What was said, and what is believed from it", 6, "memory")
    passage = page.get_by_role("button", name="tomato soup").first
    passage.scroll_into_view_if_needed()
    passage.click()
    recorder.show(7, "A passage leads to its fact: who said it, and since when it holds")
    recorder.open(
        "How long each value held, with the words that say so",
        7,
        "memory",
        part="timeline",
        about="lives_in(mia, ?where)",
    )
    recorder.open("What disagrees, with the sources of both", 7, "memory", part="contradictions")
    recorder.open(
        "Why each entry is in the prompt",
        8,
        "window",
        query="Where does Mia live?",
        maxFacts="6",
        why="lives_in(mia, Berlin)",
    )
    recorder.open("Run a goal", 2, "playground")
    recorder.type("can_serve(?who, ?dish)")
    page.keyboard.press("Control+Enter")
    recorder.show(6, "Its answers, and the proof of each")
    page.get_by_role("button", name="Graph").click()
    page.get_by_role("group", name="Drawing of the proof").wait_for()
    recorder.show(8, "The proof as a drawing")
    recorder.type("can_serve(lea, ?dish)", step=7)
    page.keyboard.press("Control+Enter")
    page.get_by_role("status").get_by_text("0 answers").wait_for()
    page.get_by_role("tab", name="Why not").click()
    recorder.show(7, "Why there is no answer")
    page.get_by_role("tab", name="How to").click()
    recorder.show(6, "Which facts would change that")
    recorder.type("can_serve(?who, ?dish)\nlives_in(mia, ?where)\nsister(mia, ?who)", step=11)
    page.keyboard.press("Control+Enter")
    page.get_by_role("tab", name="Proof").click()
    page.get_by_role("group", name="Drawing of the proof").wait_for()
    recorder.show(8, "Several goals, answered from one state")
    recorder.type("Where does the sister of mia live?", step=6)
    page.keyboard.press("Control+Enter")
    page.get_by_role("region", name="Suggested goals").wait_for()
    recorder.show(8, "A question in words")
    recorder.open("Facts with their sources and times", 5, "facts", predicate="lives_in/2")
    page.get_by_role("button", name="Paste from a spreadsheet").click()
    rows = page.get_by_role("textbox", name="Rows, with tabs between the columns")
    rows.fill("person\tplace\tsince\nmax\tBremen\t2026-05-01\nida\tLübeck\t2026-10-01\n")
    recorder.show(7, "Rows of a spreadsheet, before they are stored")
    recorder.open(
        "Which predicates depend on which",
        6,
        "rulesets",
        part="dependencies",
        predicate="can_serve/2",
    )
    recorder.open("The facts around a constant", 7, "graph", constant="mia", hops="2")
    recorder.caption = "Traffic, latency, errors and alerts"
    recorder.console.open("operations")  # its stream of events never ends
    rate = page.get_by_role("listitem").filter(has_text="Requests per second")
    rate.get_by_text("highest").wait_for()
    recorder.take(7000)


def animation(pictures: list[tuple[bytes, str, int]]) -> bytes:
    """Return pictures with their captions as an animated PNG, all with one palette."""
    image: Any = import_module("PIL.Image")
    draw: Any = import_module("PIL.ImageDraw")
    font = import_module("PIL.ImageFont").load_default(17)
    frames = []
    for data, caption, _ in pictures:
        frame = image.new("RGB", (WIDTH, HEIGHT + CAPTION), "#1d2233")
        frame.paste(image.open(io.BytesIO(data)).convert("RGB"), (0, 0))
        draw.Draw(frame).text((16, HEIGHT + 9), caption, font=font, fill="#ffffff")
        frames.append(frame)
    # The palette is that of every fourth picture, at half its size.
    strip = image.new("RGB", (WIDTH // 2, (HEIGHT + CAPTION) // 2 * len(frames[::4])))
    for index, frame in enumerate(frames[::4]):
        small = frame.resize((WIDTH // 2, (HEIGHT + CAPTION) // 2), image.NEAREST)
        strip.paste(small, (0, index * small.height))
    palette = strip.quantize(COLORS)
    first, *others = [frame.quantize(palette=palette, dither=0) for frame in frames]
    target = io.BytesIO()
    first.save(
        target,
        "PNG",
        save_all=True,
        append_images=others,
        duration=[milliseconds for _, _, milliseconds in pictures],
        loop=1,
        optimize=True,
    )
    return target.getvalue()


def main(file: Path) -> None:
    """Write the recording; raise ValueError if it is too large for a page."""
    with (
        tempfile.TemporaryDirectory() as data,
        Server(Path(data)) as server,
        import_module("playwright.sync_api").sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        context = browser.new_context(
            viewport={"width": WIDTH, "height": HEIGHT},
            color_scheme="light",
            reduced_motion="reduce",
        )
        console = Console(context.new_page(), server, "mia")
        remember(lambda tenant, path, body: console.post(path, body, **{"X-Tenant-ID": tenant}))
        recorder = Recorder(console)
        play(recorder)
        browser.close()
    written = animation(recorder.pictures)
    if len(written) > MAX_BYTES:
        raise ValueError(f"the recording has {len(written)} bytes, more than {MAX_BYTES}")
    file.write_bytes(written)
    seconds = sum(milliseconds for _, _, milliseconds in recorder.pictures) / 1000
    print(f"{file.name}: {len(recorder.pictures)} pictures, {seconds:.0f} s, {len(written)} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
