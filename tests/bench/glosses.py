"""A second labelled collection, gathered by lexicographers: the nouns of WordNet 3.0, with their
words and definitions.

Two kinds of questions, drawn with a fixed seed. *Words of a definition*: three of the content words
of a definition of six or more, in their order; the noun it defines answers. A search for a known
item: what is lost is lost by ranking alone. *Usage examples*: a sentence in which the noun is used,
quoted beside the definition and not stored; the noun meant there answers, not another one of the
same spelling. Few words are shared but the noun's own, so no search by words does well.

Debian has it as wordnet-base; KB_WORDNET names another folder with data.noun.
"""

from __future__ import annotations

import os
import random
import re
from pathlib import Path

from kbcore.search.tokens import words

DATA = Path(os.environ.get("KB_WORDNET", "/usr/share/wordnet")) / "data.noun"
ASKED = 100
"""Questions of each kind."""

LEAST, GIVEN = 6, 3
"""Content words of a definition that is asked about, and how many of them are given."""

Fact = tuple[str, ...]
Asked = list[tuple[str, int]]


def glosses(most: int | None = None) -> tuple[list[Fact], Asked, Asked] | None:
    """Facts `noun(words, definition)`, both kinds of questions with the place of the answer; None:
    not installed.
    """
    if not DATA.exists():
        return None
    facts: list[Fact] = []
    definitions: Asked = []
    examples: Asked = []
    for line in DATA.read_text(encoding="utf-8").splitlines()[:most]:
        if line.startswith("  "):
            continue
        head, _, gloss = line.partition(" | ")
        fields = head.split(" ")
        names = " ".join(fields[4 + 2 * at].replace("_", " ") for at in range(int(fields[3], 16)))
        definition = gloss.partition('"')[0].strip(" ;:")
        place = len(facts)
        facts.append(("noun", names, definition))
        definitions.append((definition, place))
        examples += [
            (example, place)
            for example in re.findall(r'"([^"]+)"', gloss)
            if len(words(example)) > 2
        ]
    draw = random.Random(11)
    long = [
        (content, place) for text, place in definitions if len(content := _content(text)) >= LEAST
    ]
    known = [
        (" ".join(content[at] for at in sorted(draw.sample(range(len(content)), GIVEN))), place)
        for content, place in draw.sample(long, min(ASKED, len(long)))
    ]
    return facts, known, draw.sample(examples, min(ASKED, len(examples)))


def _content(text: str) -> list[str]:
    """The words of a text that are no stop words, as they are written."""
    return [run for run in re.findall(r"[A-Za-z]+", text) if words(run)]
