"""The simple case mappings of Unicode as Python knows them: `rows()` prints the tables of
csrc/text/casing.c.
"""

from __future__ import annotations

from collections.abc import Callable

from kbplanner.ir.values.texts import simple_lower, simple_upper


def runs(mapping: Callable[[str], str]) -> list[tuple[int, int, int, int]]:
    """(first, count, stride, what to add) for all characters that change and are not ASCII."""
    points = [point for point in range(128, 0x110000) if not 0xD800 <= point < 0xE000]
    pairs = [
        (point, ord(mapping(chr(point))) - point)
        for point in points
        if mapping(chr(point)) != chr(point)
    ]
    found = []
    at = 0
    while at < len(pairs):
        first, added = pairs[at]
        counts = {}
        for stride in (1, 2):
            end = at + 1
            while end < len(pairs) and pairs[end] == (first + (end - at) * stride, added):
                end += 1
            counts[stride] = end - at
        stride = 2 if counts[2] > counts[1] else 1
        found.append((first, counts[stride], stride, added))
        at += counts[stride]
    return found


def rows(mapping: Callable[[str], str]) -> str:
    """The initialiser of a table."""
    lines = [""]
    for first, count, stride, added in runs(mapping):
        item = f"{{0x{first:X},{count},{stride},{added}}},"
        if len(lines[-1]) + len(item) > 120:
            lines.append("")
        lines[-1] += item
    return "\n".join("    " + line for line in lines)


if __name__ == "__main__":
    print(rows(simple_lower), rows(simple_upper), sep="\n\n")
