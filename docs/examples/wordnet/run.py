"""WordNet's nouns: every kind a noun is of, and the lowest common ancestors of two, by a rule with
negation.

Reads /usr/share/wordnet/data.noun (Debian: apt-get install wordnet-base) and fetches nothing.

    python docs/examples/wordnet/run.py [DATA.NOUN]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import kbcore

HERE = Path(__file__).resolve().parent
DATA = Path("/usr/share/wordnet/data.noun")


def synsets(path: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Name, words and hypernym offsets of each synset; a name is its first word and its offset."""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("  "):
            continue
        fields = line.split(" ")
        count = int(fields[3], 16)
        words = [fields[4 + 2 * i] for i in range(count)]
        at = 4 + 2 * count
        pointers = [fields[at + 1 + 4 * i : at + 5 + 4 * i] for i in range(int(fields[at]))]
        yield fields[0], words, [target for sign, target, _, _ in pointers if sign in ("@", "@i")]


def above(parents: dict[str, list[str]], start: str) -> set[str]:
    """All ancestors, by plain search."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        for parent in parents.get(todo.pop(), ()):
            if parent not in seen:
                seen.add(parent)
                todo.append(parent)
    return seen


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA
    if not path.exists():
        sys.exit(f"{path} does not exist: apt-get install wordnet-base")
    found = list(synsets(path))
    name = {offset: f"{words[0]}.{offset}" for offset, words, _ in found}
    parents = {name[offset]: [name[target] for target in targets] for offset, _, targets in found}
    first: dict[str, str] = {}
    for offset, words, _ in found:
        for word in words:
            first.setdefault(word, name[offset])
    wrong = 0
    with kbcore.open_kb() as kb:
        start = time.perf_counter()
        kb.tell_many(
            "hypernym", [(child, parent) for child, own in parents.items() for parent in own]
        )
        kb.tell_many(
            "sense", [(word, name[offset]) for offset, words, _ in found for word in words]
        )
        kb.load((HERE / "rules.kb").read_text(encoding="utf-8"))
        print(f"{len(found)} synsets loaded in {time.perf_counter() - start:.1f} s")
        for word in ("violin", "chess", "photosynthesis"):
            synset = first[word]
            start = time.perf_counter()
            answers = {row[1] for row in kb.ask("kind_of", [synset, "?g"])}
            ms = (time.perf_counter() - start) * 1000
            same = answers == above(parents, synset)
            wrong += not same
            print(
                f"{word}: {len(answers)} ancestors in {ms:.1f} ms  {'as searched' if same else 'WRONG'}"
            )
        for one, other in (("violin", "trumpet"), ("dog", "cat"), ("chess", "poker")):
            a, b = first[one], first[other]
            start = time.perf_counter()
            answers = {row[2] for row in kb.ask("lowest", [a, b, "?g"])}
            ms = (time.perf_counter() - start) * 1000
            both = above(parents, a) & above(parents, b)
            same = answers == {g for g in both if not any(g in above(parents, low) for low in both)}
            wrong += not same
            print(
                f"{one} and {other}: {', '.join(sorted(answers))} in {ms:.1f} ms  {'as searched' if same else 'WRONG'}"
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
