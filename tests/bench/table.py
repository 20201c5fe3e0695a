"""The table: rows, the floor each has to meet, and how they are printed, for a terminal and as
Markdown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from measure import Sample

PEERS = ("sqlite", "duckdb", "swipl", "clingo")

HEAD = (
    "workload",
    "size",
    "answers",
    "ours",
    "named",
    *PEERS,
    "published",
    "ratio",
    "floor",
    "met",
)

BEGIN, END = "<!-- {}: written by tests/bench/run.py -->", "<!-- end of {} -->"
"""Between these lines a page has what is written there."""


@dataclass(frozen=True, slots=True)
class Floor:
    """We are to be at least `times` as fast as a peer, at p50 and at p99 where there is a p99."""

    peer: str
    times: float = 1

    def __str__(self) -> str:
        return f"≥ {self.peer}" if self.times == 1 else f"≥ {self.times:g} × {self.peer}"

    def ratios(self, ours: Sample, peer: Sample) -> list[float]:
        """How many times as fast we are; nothing where that was not measured."""
        if peer.seconds is None or not ours.seconds:
            return []
        found = [peer.seconds / ours.seconds]
        if ours.tail and peer.tail:
            found.append(peer.tail / ours.tail)
        return found

    def met(self, ours: Sample, peer: Sample | None) -> bool | None:
        """None: the peer is not here, or was stopped before one could tell."""
        if peer is None or not ours.seconds:
            return None
        if peer.seconds is None:
            slowest = max(ours.seconds, ours.tail or 0)
            return True if peer.beyond is not None and peer.beyond >= self.times * slowest else None
        return all(ratio >= self.times for ratio in self.ratios(ours, peer))


BATCH = (Floor("duckdb"), Floor("swipl", 8))
BOUND = (Floor("duckdb"), Floor("swipl", 20))
STREAM = (Floor("sqlite"),)


@dataclass(slots=True)
class Row:
    """One line of the table.

    `floors` are judged against the peers; a row that is not compared with a peer says itself what
    its `floor` is and whether it was `met`. `ratio` is worked out from the peers unless it is
    given. `wrong` fails the whole benchmark. `section` names the table it stands in. `published` is
    what others have published.
    """

    workload: str
    size: str
    answers: int | None
    ours: Sample | str
    peers: dict[str, Sample] = field(default_factory=dict)
    named: Sample | None = None
    floors: tuple[Floor, ...] = ()
    ratio: str = ""
    floor: str = ""
    met: bool | None = None
    wrong: str = ""
    section: str = "table"
    published: str = ""

    def compare(self) -> None:
        """Judge the floors, work out the ratio, and note a peer that has other answers than we
        have.
        """
        counts = {
            name: sample.answers
            for name, sample in self.peers.items()
            if sample.answers is not None
        }
        if self.named is not None and self.named.answers is not None:
            counts["ours, named"] = self.named.answers
        other = {name: count for name, count in counts.items() if count != self.answers}
        if other and not self.wrong:
            self.wrong = f"{self.workload} {self.size}: {self.answers} answers, but {other}"
        if not isinstance(self.ours, Sample):
            return
        if self.floors:
            self.floor = ", ".join(map(str, self.floors))
            verdicts = [floor.met(self.ours, self.peers.get(floor.peer)) for floor in self.floors]
            self.met = False if False in verdicts else None if None in verdicts else True
        if not self.ratio:
            self.ratio = ", ".join(self._ratios(self.ours))

    def _ratios(self, ours: Sample) -> list[str]:
        """One for each peer that a floor speaks of; otherwise one for the best peer."""
        timed = [(sample.seconds, name) for name, sample in self.peers.items() if sample.seconds]
        names = [floor.peer for floor in self.floors] or ([min(timed)[1]] if timed else [])
        found = []
        for name in names:
            sample = self.peers.get(name)
            ratios = Floor(name).ratios(ours, sample) if sample else []
            if ratios:
                found.append(f"{name} {' / '.join(f'{ratio:.3g}' for ratio in ratios)}")
            elif (
                sample
                and sample.beyond is not None
                and sample.beyond < float("inf")
                and ours.seconds
            ):
                found.append(f"{name} > {sample.beyond / ours.seconds:.3g}")
        return found

    def cells(self) -> list[str]:
        """As text, in the order of HEAD."""
        met = {True: "yes", False: "NO", None: "?" if self.floor else ""}[self.met]
        cells = [
            self.workload,
            self.size,
            "" if self.answers is None else f"{self.answers:,}",
            str(self.ours),
        ]
        cells.append("" if self.named is None else str(self.named))
        cells += [str(self.peers.get(name, "")) for name in PEERS]
        return [*cells, self.published, self.ratio, self.floor, met]


def filled(rows: Sequence[Row]) -> list[list[str]]:
    """Head and rows as text, without columns in which nothing stands."""
    lines = [row.cells() for row in rows]
    kept = [i for i in range(len(HEAD)) if any(line[i] for line in lines)]
    return [[line[i] for i in kept] for line in [list(HEAD), *lines]]


def table(rows: Sequence[Row]) -> str:
    """For a terminal: numbers to the right, as wide as it needs."""
    lines = filled(rows)
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = []
    for number, line in enumerate(lines):
        cells = [cell.rjust(width) for cell, width in zip(line, widths, strict=True)]
        cells[0] = line[0].ljust(widths[0])
        shown.append("  ".join(cells).rstrip())
        if number == 0:
            shown.append("  ".join("-" * width for width in widths))
    return "\n".join(shown)


def markdown(rows: Sequence[Row]) -> str:
    """The same as Markdown."""
    head, *lines = filled(rows)
    marks = [
        "---" if name in ("workload", "published", "ratio", "floor", "met") else "---:"
        for name in head
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, marks, *lines])


def write_markdown(path: Path, section: str, text: str) -> None:
    """Put a text between the marks of a section; at the end of a page that has none, or of a new
    one.
    """
    begin, end = BEGIN.format(section), END.format(section)
    page = path.read_text(encoding="utf-8") if path.exists() else ""
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        before, after = page, "\n"
    path.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")
