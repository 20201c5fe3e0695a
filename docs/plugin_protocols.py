"""The sections of the protocols that plugins implement, made from `kbcore.plug.ports`."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator

from kbcore.metrics import Kind, MetricSpec
from kbcore.plug import conformance, hookspecs, ports

SECTIONS: dict[str, tuple[str, ...]] = {
    "Storage": (
        "LogStore",
        "KeepsReserve",
        "WorksBeside",
        "TakesOver",
        "RemembersLeader",
        "Erases",
        "KeepsSnapshots",
        "KeepsHistory",
        "StorageTools",
        "ShardPlaces",
        "ReadsAlong",
        "LogReader",
        "LogRecord",
        "LogStatus",
        "LogSeed",
    ),
    "Scopes and opposite facts": (
        "MergeStrategy",
        "MergeConflict",
        "Resolution",
        "Keep",
        "ConflictingFact",
    ),
    "Salience": ("SalienceScorer", "SalienceWeights", "FactUse"),
    "Text": ("Embedder", "Tokenizer"),
    "Language models": ("LLMProvider", "CompletionRequest", "Message", "Completion", "Usage"),
    "Predicates": ("Predicate", "PredicateCall"),
    "Metrics": ("MetricsSink", "MetricSpec", "Kind"),
    "Tables and bulk runs": (
        "TableFormat",
        "BulkDatabase",
        "BulkEngine",
        "BulkOptions",
        "BulkFacts",
    ),
    "SQL": ("SqlDialect", "SqlUnion", "SqlBranch", "SqlSource", "SqlTable", "SqlRows"),
    "Webhooks": ("WebhookSender", "WebhookMessage", "DeliveryResult", "DeliveryOutcome"),
    "Coordinators": (
        "Coordinator",
        "RenewsMany",
        "Watch",
        "Lease",
        "Held",
        "Change",
        "ChangeKind",
    ),
    "Events of a node": ("RunningNode", "Evaluation"),
}
"""Every class of `kbcore.plug.ports` and the two of `kbcore.metrics` that sinks use, by subject."""

EXAMPLES = {
    "Storage": "[write a storage plugin](../how-to/write-a-storage-plugin.md)",
    "Scopes and opposite facts": "[write a merge strategy](../how-to/write-a-merge-strategy.md)",
    "Salience": "[write a salience scorer](../how-to/write-a-merge-strategy.md#write-a-salience-scorer)",
    "Text": "[write an embedder or a tokenizer](../how-to/write-a-merge-strategy.md#write-an-embedder-or-a-tokenizer)",
    "Language models": "[write a model provider](../how-to/write-a-merge-strategy.md#write-a-model-provider)",
    "Predicates": "[write a predicate plugin](../how-to/write-a-merge-strategy.md#write-a-predicate-plugin)",
    "Metrics": "[write a metrics sink](../how-to/write-a-merge-strategy.md#write-a-metrics-sink)",
    "Tables and bulk runs": "[write a table format](../how-to/write-a-merge-strategy.md#write-a-table-format)",
    "Coordinators": "[use or write a coordinator](../operations/replication.md#use-or-write-a-coordinator)",
    "SQL": "`plugins/kbplugins/bulk_sql/conditions.py`",
    "Webhooks": "[receive webhooks](../how-to/subscribe-to-changes.md#webhooks-receive-changes-at-an-address)",
    "Events of a node": "[your first plugin](../tutorial/first-plugin.md)",
}
"""A page with an example that runs, for each section."""


def sections() -> list[str]:
    """Return the lines of the sections.

    Raises ValueError if a class of the ports is in no section, or in two.
    """
    listed = [name for names in SECTIONS.values() for name in names]
    classes = {
        name
        for name, value in vars(ports).items()
        if inspect.isclass(value)
        and value.__name__ == name  # an earlier name of a class has no contract of its own
        and value.__module__.startswith("kbcore")
        and not name.startswith("_")
    } | {"Kind", "MetricSpec"}
    if sorted(listed) != sorted(classes):
        raise ValueError(f"not in one section each: {sorted(classes.symmetric_difference(listed))}")
    lines = []
    for title, names in SECTIONS.items():
        lines += ["", f"## {title}", "", f"Example: {EXAMPLES[title]}."]
        for name in names:
            lines += ["", f"### {name}", "", *_entry(name)]
    return lines


def _entry(name: str) -> Iterator[str]:
    """Yield the lines about one class."""
    kind = {"Kind": Kind, "MetricSpec": MetricSpec}.get(name) or getattr(ports, name)
    yield inspect.cleandoc(kind.__doc__ or "")
    facts = []
    if hooks := sorted(_hooks_of(name)):
        facts.append("Hook: " + ", ".join(f"[`{hook}`](#{hook})" for hook in hooks) + ".")
    if hasattr(conformance, f"{name}Conformance"):
        facts.append(f"Tests: `{name}Conformance`.")
    if facts:
        yield from ("", " ".join(facts))
    if issubclass(kind, enum.Enum):
        yield from ("", f"Values: {', '.join(f'`{value.name}`' for value in kind)}.")
    elif dataclasses.is_dataclass(kind):
        yield ""
        for field in dataclasses.fields(kind):
            default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
            if field.default_factory is not dataclasses.MISSING:
                default = f" = {field.default_factory()!r}"
            yield f"    {field.name}: {field.type}{default}"
    else:
        for key, annotation in vars(kind).get("__annotations__", {}).items():
            yield from ("", f"    {key}: {annotation}")
    for key, member in vars(kind).items():
        if key.startswith("_") and key not in ("__iter__", "__next__"):
            continue
        if isinstance(member, property) and member.fget is not None:
            result = inspect.signature(member.fget).return_annotation
            yield from ("", f"    {key}: {result}", "", *_about(member))
        elif inspect.isfunction(member):
            yield from ("", f"    {key}{_signature(member)}", "", *_about(member))


def _hooks_of(name: str) -> Iterator[str]:
    """Yield the hooks whose result, or argument, has a protocol."""
    for hook, function in inspect.getmembers(hookspecs, inspect.isfunction):
        if hook.startswith("kb_"):
            signature = inspect.signature(function)
            types = [
                signature.return_annotation,
                *(parameter.annotation for parameter in signature.parameters.values()),
            ]
            if any(re.search(rf"\b{name}\b", str(each)) for each in types):
                yield hook


def _about(member: object) -> list[str]:
    """Return the docstring of a member as one paragraph."""
    text = inspect.cleandoc(getattr(member, "__doc__", None) or "")
    return textwrap.wrap(
        " ".join(text.split()), 100, break_on_hyphens=False, break_long_words=False
    )


def _signature(function: Callable[..., object]) -> str:
    """Return the signature as in the source, without `self`."""
    text = str(inspect.signature(function)).replace("'", "")
    return re.sub(r"^\(self(?:, )?", "(", text)
