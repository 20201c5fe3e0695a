"""The TextMate grammar colours the examples as the Pygments lexer does."""

import re
from pathlib import Path

import pytest

from kbplanner.authoring.highlighting import TextKind, kinds_of
from kbplanner.authoring.textmate import grammar

ROOT = Path(__file__).parents[2]
FILES = [
    path for path in sorted(ROOT.glob("docs/examples/**/*.kb")) if path.stat().st_size < 100_000
]


def scopes(text):
    """Return the scope of each character, as an editor finds it: line by line, the leftmost match
    of the first pattern.
    """
    found = []
    stack = [{"patterns": grammar()["patterns"]}]
    for line in text.splitlines(keepends=True):
        at, marks = 0, [""] * len(line)
        while at < len(line):
            rules = stack[-1].get("patterns", [])
            best = None
            if "end" in stack[-1]:
                match = re.compile(stack[-1]["end"], re.M).search(line, at)
                if match:
                    best = (match.start(), match, None)
            for rule in rules:
                match = re.compile(rule.get("match") or rule["begin"], re.M).search(line, at)
                if match and (best is None or match.start() < best[0]):
                    best = (match.start(), match, rule)
            inside = stack[-1].get("name", "")
            if best is None:
                marks[at:] = [inside] * (len(line) - at)
                break
            start, match, rule = best
            marks[at:start] = [inside] * (start - at)
            if rule is None:
                captures, name = stack.pop().get("endCaptures", {}), inside
            elif "begin" in rule:
                stack.append(rule)
                captures, name = rule.get("beginCaptures", {}), rule.get("name", "")
            else:
                captures, name = rule.get("captures", {}), rule.get("name", "")
            marks[start : match.end()] = [name] * (match.end() - start)
            for number, capture in captures.items():
                begin, end = match.span(int(number))
                marks[begin:end] = [capture["name"]] * (end - begin)
            at = max(match.end(), at + (match.end() == at))
        found += marks
    return found


def expected(text):
    kinds = [TextKind.SPACE] * len(text)
    for start, end, kind in kinds_of(text):
        kinds[start:end] = [kind] * (end - start)
    return [f"{kind.value}.kb" if kind.value else "" for kind in kinds]


def check(text):
    for at, (char, found, wanted) in enumerate(
        zip(text, scopes(text), expected(text), strict=True)
    ):
        if not char.isspace():
            assert found == wanted, (text[max(0, at - 20) : at + 20], char, at)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_examples(path):
    check(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "text",
    [
        '@"my rule": q(?x, "a b") :- p(?x), not r(?x, _), ?x >= 3.5e2, ?y = ?x mod 2 + 1.\n',
        "p(a) [confidence=0.5, scope=draft].\n~p(b). p(b)[ttl=5].\n",
        'test "a" with "b", "c" { ?- p(?x) = [b, "c d"]. ?- q(a) because @r. }\n',
        '@phrase works_at/2 "{0} works at {1}".\n',
        "@module access.\n@strict.\n@strict: p(?x) :- q(?x).\n",
        '@input stored(path: text, owner, size: number) "a file" [strict=true].\n',
        'fixture "orders" from "orders.csv" as order.\nfixture "a" from \'b.jsonl\'.\n',
        'test "a" at "2026-03-01" with "orders" { ?- order(?x). }\n',
        "/* over\n   lines */ p(a). % end\n# and\n// more\n",
        "n(-3). not_a_keyword(not). p :- raining.\n",
        "q(count(*), sum(?x)) :- r(?x), length(?t) > 3.\n",
        "p(été, a-b, x:y, 1.5). p('it''s').\n",
    ],
)
def test_texts(text):
    check(text)
