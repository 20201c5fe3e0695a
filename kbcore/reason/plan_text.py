"""Text form of the evaluation plan of a goal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def plan_text(data: Mapping[str, Any]) -> str:
    """Return the result of `plan_data` as text: one line per stratum, rule and step, figures in
    brackets.

    After a run, rule versions that had nothing to do are shown by their first line only.
    """
    return "\n".join(_lines(data))


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    yield f"goal {data['goal']}" + (f"  in scope {data['scope']}" if data["scope"] else "")
    if "lookUp" in data:
        if data["answers"] is not None:
            yield f"{data['answers']} answer{'s' * (data['answers'] != 1)} in {data['ms']:.3f} ms"
        look_up = data["lookUp"]
        rows = look_up["relationRows"]
        yield f"look up {look_up['relation']}: {rows} row{'s' * (rows != 1)}; no rule derives it"
        return
    if data["ms"] is not None:
        yield (
            f"{data['answers']} answer{'s' * (data['answers'] != 1)} in {data['ms']:.3f} ms; rows made {data['rowsMade']},"
            f" rows read {data['rowsRead']}, look-ups {data['lookUps']}, rounds {data['rounds']}"
        )
    elif not data["constantsKnown"]:
        yield "not run: no fact and no conclusion has the constants of this goal"
    counts = data["table"]["counts"]
    yield (
        f"goal table: {data['table']['state']}; look-ups by this tenant:"
        f" {counts['current']} current, {counts['continued']} continued,"
        f" {counts['stale']} stale, {counts['missed']} missing"
    )
    yield f"answer {data['answer']}, seeded by {data['seed'] or 'nothing'}"
    for call in data["external"]:
        figures = (
            "" if call["inputs"] is None else f"  [inputs {call['inputs']}, rows {call['rows']}]"
        )
        mode = ", ".join(call["mode"])
        yield f"call {call['predicate']} ({mode}) for {call['relation']}{figures}"
    for number, stratum in enumerate(data["strata"], 1):
        yield from _stratum(number, stratum)


def _stratum(number: int, stratum: Mapping[str, Any]) -> Iterator[str]:
    figures = ""
    if stratum["rounds"] is not None:
        figures = (
            f"  [{stratum['ms']:.3f} ms, rounds {stratum['rounds']}, rows made {stratum['rows']}]"
        )
    kind = " (recursive)" if stratum["recursive"] else ""
    yield f"stratum {number}{kind}: {', '.join(stratum['relations'])}{figures}"
    for rule in stratum["rules"]:
        name = f"rule {rule['id']}: {rule['text']}" if rule["id"] else rule["text"]
        if rule["rows"] is None:
            yield f"  {name}"
        elif rule["rows"] or rule["rowsRead"] or rule["lookUps"]:
            figures = f"read {rule['rowsRead']}, look-ups {rule['lookUps']}"
            yield f"  {name}  [rows made {rule['rows']}, {figures}]"
        else:
            yield f"  {name}  [had nothing to do]"
            continue
        yield from (f"    {step['text']}{_figures(step)}" for step in rule["steps"])


def _figures(step: Mapping[str, Any]) -> str:
    """Return the figures of a step, in brackets."""
    reads = [read for read in (step, step.get("with")) if read and "mask" in read]
    masks = [read["mask"] for read in reads if read["mask"]]
    parts = [f"mask {', '.join(masks)}"] if masks else []
    if step["operator"] == "emit":
        parts += [] if step["rows"] is None else [f"made {step['rows']}"]
    else:
        if step.get("estimatedPerLookUp") is not None:
            per_lookup, in_total = (
                _number(step["estimatedPerLookUp"]),
                _number(step["estimatedRows"]),
            )
            assumed = ", assumed" if step["assumed"] else ""
            parts.append(f"about {per_lookup} per look-up, {in_total} in total{assumed}")
        parts += [] if step["rows"] is None else [f"found {step['rows']}"]
    sizes = [_size(read) for read in reads if read["relationRows"] is not None]
    parts += [f"size {', '.join(sizes)}"] if sizes else []
    return f"  [{'; '.join(parts)}]" if parts else ""


def _size(read: Mapping[str, Any]) -> str:
    rows, planned = read["relationRows"], read["relationRowsWhenPlanned"]
    return f"{rows} ({planned} when planned)" if planned not in (None, rows) else str(rows)


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:.0f}" if value < 1e9 else f"{value:.0e}"
