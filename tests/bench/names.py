"""Names of the same person: a labelled set of 1,000 pairs, made with a fixed seed, and the error
rates of rules that merge them.

    python tests/bench/names.py [--pairs FILE]

Half of the pairs are two spellings of one name: a letter changed, left out, doubled or exchanged
with its neighbour, the words in the other order, an initial, another case, an accent dropped. The
other half are different people with names that have something in common: the same surname, the same
first name, a similar first name, or nothing. Made names are cleaner than those of real data, so the
rates say how the rules compare, and not what to expect of other data.
"""

from __future__ import annotations

import argparse
import csv
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import kbcore

FIRST = (  # noqa: SIM905
    "Anna Hanna Maria Marie Jonas Jonah Peter Petra Lukas Lucas Sofia Sophie Martin Martina Elena "
    "Helena Karl Carla Paul Paula Daniel Daniela Julia Julian Thomas Tomas José André Zoë Chloé "
    "Robert Roberta Michael Michaela Erik Erika Laura Lara Simon Simone Nina Nora Oskar Otto"
).split()
LAST = (  # noqa: SIM905
    "Müller Miller Meyer Maier Schmidt Smith Fischer Fisher Weber Webster Wagner Becker Bäcker Hoffmann "
    "Hofmann Schulz Schultz Koch Bauer Richter Klein Kline Wolf Wolff Schröder Neumann Newman Schwarz "
    "Braun Brown Krüger Hartmann Hartman Lange Long Werner Warner Krause Lehmann Lehman Köhler Herrmann"
).split()
PLAIN = str.maketrans("üäößéëíáñ", "uaoseeian")
PAIRS = 1000
SEED = 23


@dataclass(frozen=True, slots=True)
class Pair:
    """Two names, and whether they are one person."""

    first: str
    second: str
    same: bool


@dataclass(frozen=True, slots=True)
class Rates:
    """The outcome of a rule: pairs that it merges rightly and wrongly, and those it misses."""

    right: int
    wrong: int
    missed: int

    @property
    def precision(self) -> float:
        """Share of the merged pairs that are one person."""
        merged = self.right + self.wrong
        return self.right / merged if merged else 1.0

    @property
    def recall(self) -> float:
        """Share of the pairs of one person that are merged."""
        return self.right / (self.right + self.missed)


def pairs(count: int = PAIRS, seed: int = SEED) -> list[Pair]:
    """Make labelled pairs, half of each kind."""
    draw = random.Random(seed)
    return [_same(draw) if number % 2 else _different(draw) for number in range(count)]


def _name(draw: random.Random) -> tuple[str, str]:
    return draw.choice(FIRST), draw.choice(LAST)


def _same(draw: random.Random) -> Pair:
    first, last = _name(draw)
    name = f"{first} {last}"
    changes: tuple[Callable[[], str], ...] = (
        lambda: _typo(draw, name),
        lambda: _typo(draw, name),
        lambda: f"{last} {first}",
        lambda: f"{first[0]} {last}",
        lambda: name.upper(),
        lambda: name.lower().translate(PLAIN),
        lambda: _typo(draw, name.lower()),
    )
    while (other := draw.choice(changes)()) == name:
        pass
    return Pair(name, other, True)


def _different(draw: random.Random) -> Pair:
    first, last = _name(draw)
    kind = draw.randrange(4)
    while True:
        other_first, other_last = _name(draw)
        if kind == 0:
            other_last = last
        elif kind == 1:
            other_first = first
        elif kind == 2:
            other_first = FIRST[FIRST.index(first) ^ 1]
            other_last = last
        if (other_first, other_last) != (first, last):
            return Pair(f"{first} {last}", f"{other_first} {other_last}", False)


def _typo(draw: random.Random, name: str) -> str:
    at = draw.randrange(1, len(name) - 1)
    kind = draw.randrange(4)
    if kind == 0:
        return name[:at] + draw.choice("aeionrst") + name[at + 1 :]
    if kind == 1:
        return name[:at] + name[at + 1 :]
    if kind == 2:
        return name[:at] + name[at] + name[at:]
    return name[:at] + name[at + 1] + name[at] + name[at + 2 :]


RULES = {
    "equal in lower case": "lower(?a) = lower(?b)",
    "jaro_winkler ≥ 0.95": "jaro_winkler(lower(?a), lower(?b)) >= 0.95",
    "jaro_winkler ≥ 0.9": "jaro_winkler(lower(?a), lower(?b)) >= 0.9",
    "trigram ≥ 0.6": "trigram(lower(?a), lower(?b)) >= 0.6",
    "trigram ≥ 0.5": "trigram(lower(?a), lower(?b)) >= 0.5",
    "both: jaro_winkler ≥ 0.95, or trigram ≥ 0.6": "",
}
"""The condition of each rule; the last one has the rules of two others."""


def rates(labelled: list[Pair]) -> Iterator[tuple[str, Rates]]:
    """Evaluate each rule on the pairs."""
    for name, condition in RULES.items():
        chosen = (
            [condition] if condition else [RULES["jaro_winkler ≥ 0.95"], RULES["trigram ≥ 0.6"]]
        )
        with kbcore.open_kb() as kb:
            for test in chosen:
                kb.teach(f"merged(?n) :- pair(?n, ?a, ?b), {test}.")
            kb.tell_many("pair", [[n, p.first, p.second] for n, p in enumerate(labelled)])
            merged = {int(number) for (number,) in kb.ask("merged(?n)")}
        outcomes = [(pair.same, number in merged) for number, pair in enumerate(labelled)]
        yield (
            name,
            Rates(
                outcomes.count((True, True)),
                outcomes.count((False, True)),
                outcomes.count((True, False)),
            ),
        )


def main() -> None:
    """Print the error rates as a table of Markdown, or write the pairs to a file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=Path, help="write the labelled pairs to this CSV file")
    options = parser.parse_args()
    labelled = pairs()
    if options.pairs is not None:
        with options.pairs.open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(("first", "second", "same"))
            writer.writerows((p.first, p.second, p.same) for p in labelled)
        return
    out = sys.stdout
    out.write("| rule | precision | recall | wrong merges | missed |\n|---|---|---|---|---|\n")
    for name, outcome in rates(labelled):
        out.write(
            f"| {name} | {outcome.precision:.3f} | {outcome.recall:.3f} | {outcome.wrong} "
            f"| {outcome.missed} |\n"
        )


if __name__ == "__main__":
    main()
