"""The metrics of several processes as one text in the Prometheus format."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?( .*)")


def merged(expositions: Iterable[tuple[int, str]]) -> str:
    """Return the samples of several workers by family; the label `worker` has the number of
    each.
    """
    families: dict[str, tuple[list[str], list[str]]] = {}
    for worker, text in expositions:
        family = ""
        for line in text.splitlines():
            if line.startswith("#"):
                family = line.split(" ", 3)[2]
                heads, _ = families.setdefault(family, ([], []))
                kind = line.split(" ", 2)[1]
                if not any(head.split(" ", 2)[1] == kind for head in heads):
                    heads.append(line)
            elif match := _SAMPLE.fullmatch(line):
                name, labels, value = match.groups()
                _, samples = families.setdefault(family, ([], []))
                rest = f",{labels}" if labels else ""
                samples.append(f'{name}{{worker="{worker}"{rest}}}{value}')
    lines = [line for heads, samples in families.values() for line in (*heads, *samples)]
    return "\n".join(lines) + "\n"
