"""Write the reference pages from the code; with `--check` only list the pages that are out of date;
with `--openapi` write the OpenAPI document to standard output.

python docs/generate.py [--check | --openapi]
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import logging
import pkgutil
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, is_typeddict

import click
import client_methods
import comparison
import plugin_protocols
from scenarios import single_node as scenario

import kbcore
import kbplanner
import kbserver
from kbcore.config import SETTINGS
from kbcore.config.settings import Setting
from kbcore.limit_names import BUDGET_LIMITS, FIXED_LIMITS
from kbcore.metrics import DOCUMENTED, FAMILIES
from kbcore.node.admin import Admin
from kbcore.node.api_keys import Keys
from kbcore.plug import hookspecs
from kbplanner.authoring import textmate
from kbplanner.check.codes import CODES
from kbplanner.errors import KBError
from kbserver import cli
from kbserver import hookspecs as http_hookspecs
from kbserver.cli.shared.exits import EXIT_STATUSES
from kbserver.cli.shared.groups import GENERAL
from kbserver.cli.shared.output import OutputOption
from kbserver.cli.shared.target import TargetOption
from kbserver.mcp.prompts import PROMPTS
from kbserver.mcp.protocol import OLD_NAMES, PUBLISHED
from kbserver.mcp.resources import listing as resources
from kbserver.mcp.tools import all_tools
from kbserver.openapi import document
from kbserver.operations import operations
from kbtypes.errors import STATUS

ROOT = Path(__file__).resolve().parent
PAGES = ROOT / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; change it there. -->"


def table(columns: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Return the lines of a table; `columns` has the headings, separated by commas."""
    headings = columns.split(", ")
    lines = [f"| {' | '.join(cells)} |" for cells in (headings, *rows)]
    return [lines[0], "|---" * len(headings) + "|", *lines[1:]]


def paragraph(text: str) -> list[str]:
    """Return the lines of a paragraph, wrapped at 100 columns."""
    return textwrap.wrap(text, 100, break_on_hyphens=False, break_long_words=False)


RELATED = {
    "configuration.md": "environment variables, config, options, defaults, limits",
    "plugin-protocols.md": "extension point, interface to implement, hook specification",
    "tools.md": "MCP tools, function calling, agent tools, prompts",
    "diagnostics.md": "syntax error, lint, warning of kbcore check, K001",
    "cli.md": "commands, flags, options, exit code, terminal",
    "metrics.md": "counter, gauge, histogram, label",
    "errors.md": "exception, error code, status code, limit exceeded",
    "python-api.md": "API reference, class, method, function, signature",
}
"""Words by which people search for a page, if they differ from its own."""


def with_related(page: Path, text: str) -> str:
    """Return the text of a page with a line of related searches after its first paragraph."""
    if page.name not in RELATED:
        return text
    heading, first, rest = text.split("\n\n", 2)
    return "\n\n".join((heading, first, f"*Related searches: {RELATED[page.name]}.*", rest))


SETTING_SECTIONS = {
    "HOST": "Address and storage",
    "REPLICATION_MODE": "Replication",
    "LOG_LEVEL": "Logs",
    "ENGINE_THREADS": "Engine and plugins",
    "QUERY_MAX_ROWS": "Limits of one request",
    "API_KEY": "Access and rate limits",
    "TENANT_MAX_FACTS": "Limits of a tenant",
    "SALIENCE_SCORER": "Salience, search and eviction",
    "LLM_PROVIDER": "Language model",
    "CONTEXT_OPTIMIZE_ENABLED": "Interfaces",
    "MAX_BODY_BYTES": "Bodies, writes and transactions",
    "MAX_CONNECTIONS": "Connections and event streams",
}
"""The first setting of each section of the settings page, with the title of the section."""


def configuration() -> str:
    secrets = ", ".join(f"`{setting.name}_FILE`" for setting in SETTINGS if setting.secret)
    lines = [
        "# Settings",
        "",
        *paragraph(
            "For operators: find a setting (configuration, environment variable, option) and its default. "
            "Settings are read from the environment at the start: the variable is the name of the "
            "setting with the prefix `KBCORE_`, such as `KBCORE_PORT`. The name alone, `PORT`, works "
            "too; if both are set, the one with the prefix counts, and `kbcore config check` says "
            "which one was used. Flags of `kbcore serve` take precedence. If a setting is not valid, "
            "the server exits with status 78 and a line that names the setting. A secret can also "
            f"be read from a file, whose path is the value of {secrets}, with or without the prefix. "
            "Numbers are integers, in the unit that the name ends with: `_MS` milliseconds, `_MB` MiB, `_S` "
            "seconds. Without permitted values, any text is accepted, or `true` and `false`. "
            "Where [traces](../operations/monitoring.md#traces) go, the variables of OpenTelemetry say."
        ),
    ]
    sections: dict[str, list[tuple[str, ...]]] = {}
    for setting in SETTINGS:
        if title := SETTING_SECTIONS.get(setting.name):
            rows = sections.setdefault(title, [])
        default = setting.parser.format(setting.default)
        value = f"`{default}`" if default else "none"
        rows.append(
            (
                f"`{setting.name}`",
                value,
                _permitted(setting.parser.permitted),
                _without_unit(setting),
            )
        )
    for title, rows in sections.items():
        lines += ["", f"## {title}", "", *table("setting, default, permitted, meaning", rows)]
    return "\n".join(lines)


UNITS = {"_MS": "milliseconds", "_MB": "MiB"}
"""Endings of the names of settings, and the unit that each stands for."""


def _without_unit(setting: Setting) -> str:
    """Return the meaning of a setting without the unit that its name has."""
    unit = UNITS.get(setting.name[-3:], "")
    return (
        setting.help.replace(f"; in {unit}", "")
        .replace(f", in {unit}", "")
        .replace(f" in {unit}", "")
        if unit
        else setting.help
    )


def _permitted(text: str) -> str:
    """Return the permitted values in few words: nothing for any text and for true and false."""
    text = re.sub(r"^an integer of at least (\d+)$", r"from \1", text)
    text = re.sub(r"^an integer from (\d+) to (\d+)$", r"\1 to \2", text)
    return "" if text in ("text", "true or false") else text.removeprefix("one of ")


def error_classes() -> list[type[KBError]]:
    """Return KBError and its public subclasses in our packages, by status, code and name."""
    ours = ("kbtypes.", "kbplanner.", "kbcore.", "kbserver.")  # not kbcore_client
    for package in (kbplanner, kbcore, kbserver):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__") and "conformance" not in module.name:
                importlib.import_module(module.name)
    classes = {KBError}
    pending = [KBError]
    while pending:
        for error in pending.pop().__subclasses__():
            is_ours = error.__module__.startswith(ours) and not error.__name__.startswith("_")
            if is_ours and error not in classes:
                classes.add(error)
                pending.append(error)
    return sorted(classes, key=lambda error: (STATUS[error.code], error.code, error.__name__))


def limits(meanings: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the rows of a table of limits."""
    return [(f"`{name}`", meaning) for name, meaning in meanings.items()]


def errors() -> str:
    rows = [
        (
            str(error.status or STATUS[error.code]),
            f"`{error.code}`",
            f"`{error.__name__}`"
            if getattr(kbcore, error.__name__, None) is error
            else f"`{error.__module__}.{error.__name__}`",
            inspect.cleandoc(error.__doc__ or "")
            .split("\n\n")[0]
            .replace("\n", " ")
            .replace("|", "\\|"),
        )
        for error in error_classes()
    ]
    return "\n".join(
        [
            "# Errors",
            "",
            *paragraph(
                "For programmers: find out what an error (exception, status, error code) means. It is "
                "`{code, message, details}` as JSON, with `X-Request-ID`; "
                "`details` is an object or null. "
                "A wrong method is 405 and a wrong media type 415, both with code `VALIDATION_ERROR`. "
                "A class without a module is one of `kbcore`."
            ),
            "",
            *table("status, code, class, meaning", rows),
            "",
            "## Limits",
            "",
            *paragraph(
                "An error about a limit has its name in `details.limit` and its size in "
                "`details.value`. Where a setting decides, `limit` is the name of the "
                "[setting](configuration.md), such as `MAX_BODY_BYTES`, `TENANT_MAX_FACTS` or "
                "`TX_MAX_BYTES`, also in 503 and in 400 for `MAX_JSON_DEPTH`. `BUDGET_EXCEEDED` names "
                "a budget and has `details.rule`, the rule at work or null:"
            ),
            "",
            *table("`details.limit`, counts", limits(BUDGET_LIMITS)),
            "",
            *paragraph(
                "`PAYLOAD_TOO_LARGE` and `RATE_LIMITED` name a setting or one of these; limits of "
                "requests in a time also have `details.requests` and `details.seconds`:"
            ),
            "",
            *table("`details.limit`, counts", limits(FIXED_LIMITS)),
        ]
    )


HOOK_KINDS = {
    "Collecting": "They return a mapping from names to implementations. If two plugins offer the same "
    "name, the server does not start.",
    "Deciding": "The first result that is not None is used. The plugin that was loaded last is called "
    "first.",
    "Notifying": "They return nothing. An exception is logged and counted "
    "(`svc_plugin_failures_total`); clients never see it.",
}


def plugins() -> str:
    """Return the page of hooks and of the protocols that plugins implement."""
    parts = [
        "# Plugins: hooks and protocols",
        "",
        *paragraph(
            "For authors of plugins: look up a hook, or the members of a class to implement. "
            "A plugin (extension, add-on) is a module with functions marked `kbcore.hookimpl`, named by an entry "
            "point in the group `kbcore`. Built-in plugins are loaded in the same way. A function "
            "can leave out arguments that it does not use. `KB_API_VERSION = 1` in a plugin is "
            "the version of the protocols it implements, `kbcore.plug.ports.API_VERSION`; the server does "
            "not start with a plugin of another version. `kbcore plugins` lists the installed plugins, "
            "`PLUGINS_DISABLED` leaves plugins out by name, and `PLUGINS_TRACE` logs every call of a hook."
        ),
        "",
        *paragraph(
            "The classes are in `kbcore.plug.ports`. None is a base class: any object with these "
            "members is an implementation. An optional ability is used if the object has its "
            "methods. The conformance tests are classes of `kbcore.plug.conformance` to subclass."
        ),
    ]
    hooks_by_kind: dict[str, list[tuple[str, Callable[..., object]]]] = {
        kind: [] for kind in HOOK_KINDS
    }
    for module in (hookspecs, http_hookspecs):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("kb_"):
                returns = str(inspect.signature(function).return_annotation)
                decides = getattr(function, "kbcore_spec", {}).get("firstresult")
                kind = "Deciding" if decides else "Notifying" if returns == "None" else "Collecting"
                hooks_by_kind[kind].append((name, function))
    for kind, text in HOOK_KINDS.items():
        parts += ["", f"## {kind} hooks", "", *paragraph(text)]
        for name, function in sorted(hooks_by_kind[kind]):
            parts += ["", f"### {name}", "", f"    {name}{_signature(function, shared={})}"]
            parts += ["", inspect.cleandoc(function.__doc__ or "")]
    return "\n".join([*parts, *plugin_protocols.sections()])


def metrics() -> str:
    parts = [
        "# Metrics",
        "",
        *paragraph(
            "For operators: find a metric family (counter, gauge, histogram) and its labels. "
            "`GET /metrics` returns the metrics in the Prometheus text format if `METRICS_SINKS` "
            "(by default `prometheus`) names a sink with that format, and 404 otherwise. "
            "Operations count in the same way over HTTP, from the command line on a folder, and "
            "in a Python program, where `runtime.metrics.expose()` returns the same text. "
            "Durations are in seconds and sizes in bytes. Gauges are computed when they are read. "
            "A dashboard and alert rules are in `docs/operations/`. Names in bold are part of the "
            "HTTP interface. Metrics of an unused feature, such as a language model, have no "
            "samples."
        ),
    ]
    areas = dict.fromkeys(spec.area for spec in FAMILIES)
    for area in areas:
        rows = [
            (
                f"**`{spec.name}`**" if spec.name in DOCUMENTED else f"`{spec.name}`",
                spec.kind.value,
                ", ".join(f"`{label}`" for label in spec.labels),
                spec.help,
            )
            for spec in FAMILIES
            if spec.area == area
        ]
        parts += ["", f"## {area}", "", *table("name, kind, labels, meaning", rows)]
    return "\n".join(parts)


def bytecode() -> str:
    rows = []
    for path in sorted((ROOT.parent / "csrc" / "run").glob("*.c")):
        comments = re.findall(
            r"/\* Opcode: ([^\n]*?)\s*\n(.*?)\*/", path.read_text(encoding="utf-8"), re.S
        )
        for instruction, effect in comments:
            words = " ".join(line.strip(" *") for line in effect.splitlines()).strip()
            rows.append((f"`{instruction.strip()}`", words))
    return "\n".join(
        [
            "# Bytecode",
            "",
            "For contributors: the instructions of a compiled plan. `csrc/BYTECODE.md` describes their words and a run.",
            "",
            *table("instruction, effect", rows),
        ]
    )


ARGUMENTS = {
    "args": "Sequence[Arg] | None",
    "scope": "str | None",
    "limit": "int | None",
    "offset": "int",
    "as_of": "Instant | None",
    "timeout_ms": "int | None",
    "min_confidence": "float | None",
    "dry_run": "bool",
    "expected_version": "int | None",
    "conflict": "str",
    "values": "Values",
    "plugins": "Iterable[object]",
    "config": "Config",
    "database": "str",
    "tenant": "str",
}
"""Types of arguments that many methods have, which signatures leave out."""


def python_api() -> str:
    shared = ", ".join(f"`{name}: {kind}`" for name, kind in ARGUMENTS.items())
    parts = ["# Python", ""]
    parts += paragraph(
        "For Python programs that run kbcore inside, and for authors of plugins: find a class, method "
        "or function of `import kbcore`, and of the handles `Admin` and `Keys`. "
        "Programs that talk to a server use [the Python client](../how-to/use-the-python-client.md)."
    )
    parts += ["", *paragraph(f"Signatures leave out types that are the same everywhere: {shared}.")]
    names = {name: getattr(kbcore, name) for name in kbcore.__all__} | {
        "Admin": Admin,
        "Keys": Keys,
    }
    public = {
        name: value
        for name, value in sorted(names.items())
        if inspect.isclass(value) or inspect.isfunction(value)
    }
    ports = {name for section in plugin_protocols.SECTIONS.values() for name in section}
    brief = {
        name
        for name, value in public.items()
        if inspect.isclass(value)
        and issubclass(value, KBError)
        and "\n\n" not in inspect.cleandoc(value.__doc__ or "")
    }
    parts += ["", *paragraph(f"Meaning in [errors](errors.md): {_codes(brief)}.")]
    parts += ["", *paragraph(f"In [plugins](plugin-protocols.md): {_codes(ports & set(public))}.")]
    for name, value in public.items():
        if name in ports | brief:
            continue
        if value.__name__ != name:
            parts += [
                "",
                f"## {name}",
                "",
                f"Earlier name of [{value.__name__}](#{value.__name__.lower()}).",
            ]
            continue
        parts += ["", f"## {name}", "", inspect.cleandoc(value.__doc__ or "")]
        if value is kbcore.KnowledgeBase:
            parts += [
                "",
                *paragraph(
                    "Methods raise InvalidInput for an argument that cannot be used, RuleSyntaxError for a "
                    "text with errors, BudgetExceeded for work over a limit, and the errors that they name."
                ),
            ]
        if inspect.isfunction(value):
            parts += ["", f"    {name}{_signature(value)}"]
        elif is_typeddict(value):
            typed = ", ".join(f"`{option}: {kind}`" for option, kind in _options(value))
            parts += ["", *paragraph(f"Options: {typed}.")]
        elif issubclass(value, Enum):
            parts += ["", f"Values: {', '.join(f'`{each.name}`' for each in value)}."]
        elif not issubclass(value, Exception):
            parts += [*_fields(value), *_members(name, value)]
    return "\n".join(parts)


COMMON_ERRORS = re.compile(
    r"\s+Raises (?:(?:InvalidInput|RuleSyntaxError|BudgetExceeded)(?:, and |, | and )?)+\.(?=\s|$)"
)
"""Sentences about errors that the page mentions once, at the class."""

INTERNAL = {
    "adopt",
    "align_again",
    "applied",
    "captured",
    "cascades",
    "close_shard",
    "commit",
    "directory",
    "embed_facts",
    "erase_later",
    "find_tenant",
    "may_see",
    "need_tenant",
    "open_shard",
    "own_health",
    "own_snapshot",
    "read_tenant",
    "reasoner",
    "refuse_on_follower",
    "scratch",
    "shard",
    "sizes",
    "start_replication",
    "tenants",
    "wake_deliveries",
    "webhooks_failing",
}
"""Members of Runtime that programs have no use for."""


def _codes(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _fields(kind: type) -> list[str]:
    """Return the public fields of a dataclass, but of the settings, which have a page."""
    if not dataclasses.is_dataclass(kind) or kind is kbcore.Config:
        return []
    fields = [each for each in dataclasses.fields(kind) if not each.name.startswith("_")]
    typed = ", ".join(f"`{each.name}: {each.type}`" for each in fields)
    return ["", *paragraph(f"Fields: {typed}.")] if fields else []


def _members(name: str, kind: type) -> list[str]:
    """Return the public methods and properties of a class and of its bases in our packages.

    Those of a knowledge base have a section each, others a line.
    """
    members: dict[str, object] = {}
    for base in reversed(kind.__mro__):
        if (
            base.__module__.startswith(("kbcore", "kbtypes"))
            and base.__module__ != "kbtypes.records"
        ):
            # Other inherited methods, such as those of Sequence, are in Python's documentation.
            members |= {key: value for key, value in vars(base).items() if not key.startswith("_")}
    parts = []
    inside = INTERNAL & set(members) if kind is kbcore.Runtime else set()
    if inside:
        listed = _codes(f"{name}.{key}" for key in inside)
        parts += ["", *paragraph(f"For the server itself, described in the code: {listed}.")]
    for key, value in sorted(members.items()):
        if key in inside:
            continue
        if isinstance(value, classmethod):
            value = getattr(kind, key)  # bound, so that its signature lacks the class
        if inspect.isfunction(value) or inspect.ismethod(value):
            call = f"{key}{_signature(value)}"
        elif isinstance(value, property):
            call = key
        else:
            continue
        text = inspect.cleandoc(value.__doc__ or "")
        if kind is kbcore.KnowledgeBase:
            text = COMMON_ERRORS.sub("", text).rstrip()
            parts += ["", f"### {name}.{key}", "", f"    {call}", "", text]
        else:
            first, *more = text.split("\n\n")
            flat = " ".join(" ".join([f"`{name}.{call}`:", first, *more]).split())
            parts += ["", *paragraph(flat)]
    return parts


def _options(kind: type) -> list[tuple[str, str]]:
    """Return the keys of a TypedDict and of its bases with their types."""
    hints = {
        name: annotation
        for base in reversed(kind.__mro__)
        for name, annotation in getattr(base, "__annotations__", {}).items()
    }
    return sorted((name, _type_name(each)) for name, each in hints.items())


def _type_name(annotation: object) -> str:
    return getattr(annotation, "__forward_arg__", None) or str(annotation)


def _signature(function: Callable[..., object], shared: Mapping[str, str] = ARGUMENTS) -> str:
    """Return the signature, without `shared` types and quotes around annotations."""
    signature = inspect.signature(function)
    parameters = [
        parameter.replace(
            annotation=inspect.Parameter.empty
            if shared.get(parameter.name) == parameter.annotation
            else _Unquoted(parameter.annotation)
        )
        for parameter in signature.parameters.values()
        if parameter.name != "self"
    ]
    result = _Unquoted(signature.return_annotation)
    return str(signature.replace(parameters=parameters, return_annotation=result))


class _Unquoted(str):
    """A string whose repr has no quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def planner_passes() -> str:
    parts = [
        "# Planner passes",
        "",
        *paragraph(
            "For contributors: what happens to rules between their text and the engine, in this order. The first "
            "five run when rules are written, so that a refused rule changes nothing; the others "
            "when a goal is first asked with a new binding pattern. Examples show rules with a "
            "goal, and the clauses after the pass. `b` marks a bound argument, `f` a"
        ),
        "free one.",
    ]
    for name in PASS_ORDER:
        module = importlib.import_module(
            f"kbplanner.passes.{name}" if name != "build" else "kbplanner.compile.build"
        )
        parts += ["", f"## {name}", "", inspect.cleandoc(module.__doc__ or "")]
        if name == "build":
            plans = ROOT.parent / "tests" / "planner" / "golden" / "passes" / "plan.kb"
            first = plans.read_text(encoding="utf-8").split("\n\n")[0]
            parts += ["", "```text", first, "```"]
    return "\n".join(parts)


PASS_ORDER = (
    "check",
    "lower",
    "aggregate",
    "linearise",
    "wellfounded",
    "restrict",
    "slice",
    "adorn",
    "order",
    "linear_recursion",
    "magic",
    "project",
    "stratify",
    "build",
    "differentiate",
    "instances",
    "first",
    "parts",
)
"""Modules of `kbplanner.passes` in the order they run; `order` is used by other passes,
`differentiate` for goals that are kept, `instances`, `first` and `parts` by proofs.
"""


def tools() -> str:
    """Return the page about the tools, resources and prompts of the MCP server."""
    routes = {
        tool.name: f"`{declared.routes[0].replace('<', '{').replace('>', '}')}`"
        for declared in operations()
        for tool in declared.tools
        if declared.routes
    }
    also = sorted(name for name in PUBLISHED if all_tools()[name].declared.profile != "default")
    lines = [
        "# Tools, resources and prompts",
        "",
        *paragraph(
            "For builders of agents: look up the tools, resources and prompts of "
            "the MCP server at `/mcp`; [connect "
            "a client](../how-to/connect-an-mcp-client.md). Arguments have the same form as the "
            "bodies of the HTTP routes; required arguments are in bold. Every list in an answer "
            "has a limited length, and `truncated` is true if "
            "there are more entries."
        ),
        "",
        "## Tools",
        "",
        *paragraph(
            "`MCP_TOOLS=memory` offers the tools of the second table instead of those of the first, "
            "`MCP_TOOLS=all` the tools of all three; `extract` and `synthesize` need a language "
            "model. Role: the role that the caller needs. Changes: whether a call can "
            "add or remove data. Route: the request that does the same. Calls may use older names, which are not listed: "
            f"{', '.join(f'`{old}` is `{name}`' for old, name in OLD_NAMES.items())}. Of the third "
            f"table, published clients may call {', '.join(f'`{name}`' for name in also)} always. An "
            'argument that is sent as a JSON text (`"5"`, `"true"`) is read as the type in the '
            "schema says; one whose type is a text stays as it is."
        ),
    ]
    for profile in ("default", "memory", "all"):
        rows = []
        for tool in (each for each in all_tools().values() if each.declared.profile == profile):
            schema = tool.shown["inputSchema"]
            arguments = _emphasised(schema["properties"], schema.get("required", []))
            changes = "" if not tool.writes else "removes" if tool.declared.destroys else "adds"
            answer = ", ".join(tool.shown["outputSchema"]["properties"])
            rows.append(
                (
                    f"`{tool.name}`",
                    arguments,
                    answer,
                    tool.needs,
                    changes,
                    routes.get(tool.name, ""),
                    tool.declared.description,
                )
            )
        lines += ["", *table("tool, arguments, answer, role, changes, route, purpose", rows)]
    rows = [(f"`{each['uri']}`", each["description"]) for each in resources.LISTED]
    rows += [(f"`{each['uriTemplate']}`", each["description"]) for each in resources.TEMPLATES]
    lines += ["", "## Resources", "", "A client can subscribe to each resource.", ""]
    lines += table("address, content", rows)
    rows = []
    for prompt in PROMPTS.values():
        required = [name for name, _, is_required in prompt.arguments if is_required]
        names = [name for name, _, _ in prompt.arguments]
        rows.append((f"`{prompt.name}`", _emphasised(names, required), prompt.description))
    lines += ["", "## Prompts", "", *table("prompt, arguments, purpose", rows)]
    return "\n".join(lines)


def _emphasised(names: Iterable[str], required: Collection[str]) -> str:
    return ", ".join(f"**{name}**" if name in required else name for name in names)


def command_line() -> str:
    parts = [
        "# Command line",
        "",
        *paragraph(
            "For users of the command line: look up a command and its options. "
            "`kbcore COMMAND -h` shows the help of a command, `kbcore -h` all commands, and "
            "`kbcore --version` the version. [Complete commands "
            "in your shell](../how-to/use-the-shell.md#complete-commands-in-your-shell)."
        ),
        *("", "## Exit statuses", ""),
        *table("status, meaning", ((str(code), text) for code, text in EXIT_STATUSES.items())),
        *("", "## Errors and warnings", ""),
        *paragraph(
            "Results go to standard output, everything else to standard error. A syntax error is "
            "`file:line:col: error[K001]: message`, then the line, a mark and a "
            "hint, and after the last one their number; a warning is `file:line:col: warning: "
            "message`. The [codes](diagnostics.md) are those of `kbcore check`. Instead of a file, an error "
            "names the argument: `goal`, `pattern`, `fact`, `statements` or `rules`. Messages are in colour on "
            "a terminal, unless `--no-color` comes before the command or `NO_COLOR` is set."
        ),
        *("", "## Knowledge base", ""),
        *paragraph(
            "Options of all commands but those marked *Without a knowledge base*: they read or write one of a "
            "running server, or of a storage that no server has open. They connect directly, without a proxy. A storage is "
            "opened with the [settings](configuration.md) of the environment, without keys and rate "
            "limits."
        ),
    ]
    root = click.Context(cli.cli, info_name="kbcore", **cli.cli.context_settings)
    ask = cli.cli.get_command(root, "ask")
    parts += ["", *options_of(ask, TargetOption.section)]
    parts += ["", "## Output", ""]
    parts += paragraph(
        "Options of commands that list rows. A table is cut to the width of the terminal; the "
        "other formats are complete. Columns of `ask` are the variables of the goal, or `answer` if it "
        "has none; those of `query` the arguments, and attributes that any row has. `--json` prints "
        "rows as the HTTP interface does; rows of `ask` have `bindings` as well, and for a goal of "
        "several literals `bindings` only."
    )
    parts += ["", *options_of(ask, OutputOption.section)]
    every = [
        (title, entry)
        for title, entries in cli.SECTIONS.items()
        for name in entries
        for entry in _commands(cli.cli.get_command(root, name), root, name)
    ]
    rows = Counter(
        row
        for _, (_, command, _) in every
        for section in (GENERAL, OutputOption.section)
        if section == GENERAL or not _lists_rows(command)
        for row in options_of(command, section)
    )
    common = {row for row, number in rows.items() if number > 2 and "`--scope " not in row}
    parts += ["", "## Common options", "", "Commands that have these name them after *Also*."]
    parts += ["", *sorted(common)]
    serve = set(options_of(cli.cli.get_command(root, "serve"), GENERAL))
    title = ""
    for section, (path, command, context) in every:
        if section != title:
            title = section
            parts += ["", f"## {title}"]
        parts += _command(path, command, context, common, serve)
    return "\n".join(parts)


def _lists_rows(command: click.Command) -> bool:
    """Return True for a command that has all options of the section Output."""
    return len(options_of(command, OutputOption.section)) == OUTPUT_OPTIONS


def _commands(
    command: click.Command, parent: click.Context, name: str
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and, of a group, its commands."""
    context = click.Context(command, parent, info_name=name)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            yield from _commands(command.get_command(context, below), context, below)


def _command(
    path: str, command: click.Command, context: click.Context, common: set[str], serve: set[str]
) -> list[str]:
    """Return the entry of a command; options that are `common`, or those of `serve`, by name.

    A command of a group has no heading.
    """
    arguments = [each for each in command.collect_usage_pieces(context) if each != "[OPTIONS]"]
    usage = " ".join([path, *arguments])
    first, *more = inspect.cleandoc(command.help or "").split("\n\n")
    if path.count(" ") > 1:
        lines = ["", *paragraph(" ".join(f"**`{usage}`**: {first}".split())), ""]
    else:
        lines = ["", f"### {path}", ""]
        if arguments and not isinstance(command, click.Group):
            lines += [f"    {usage}", ""]
        lines += [*paragraph(" ".join(first.split())), ""]
    for text in more:
        lines += [*paragraph(" ".join(text.split())), ""]
    rows = options_of(command, GENERAL)
    if not _lists_rows(command):
        rows += options_of(command, OutputOption.section)
    also = [row.partition(":")[0][2:].partition(" ")[0].strip("`") for row in rows if row in common]
    also = [f"`{name.rstrip(',')}`" for name in also]
    rows = [row for row in rows if row not in common]
    if path != "kbcore serve" and len(serve & set(rows)) > 3:
        rows = [row for row in rows if row not in serve]
        also.append("all options of [serve](#kbcore-serve)")
    if path == "kbcore serve":
        names = ", ".join(f"`{row.split('`')[1]}`" for row in rows)
        lines += [*paragraph(f"The [settings](configuration.md) say what they mean: {names}."), ""]
    elif rows:
        lines += [*rows, ""]
    sections = {getattr(param, "section", GENERAL) for param in command.params}
    if _lists_rows(command):
        also.append("[output](#output)")
    if also:
        lines += [f"*Also* {', '.join(also)}.", ""]
    if TargetOption.section not in sections and not isinstance(command, click.Group):
        lines += ["*Without a knowledge base.*", ""]
    lines += [f"    {example}" for example in getattr(command, "examples", ())]
    return lines if lines[-1] else lines[:-1]


OUTPUT_OPTIONS = 6
"""Options of a command that lists rows."""


def options_of(command: click.Command, section: str) -> list[str]:
    """Return a list of the options of a command in a section; empty if there are none."""
    rows = []
    for param in command.params:
        if isinstance(param, click.Option) and getattr(param, "section", GENERAL) == section:
            name = ", ".join(reversed(param.opts)) + _value_name(param)
            meaning = [param.help] if param.help else []
            if isinstance(param.show_default, str) or param.show_default:
                meaning.append(f"default: `{param.default}`")
            if isinstance(param.envvar, str):
                meaning.append(f"environment: `{param.envvar}`")
            if not param.hidden:
                rows.append(f"- `{name}`: {'; '.join(meaning)}")
    return rows


def _value_name(option: click.Option) -> str:
    """Return the name of the value of an option, after a blank; empty for a flag."""
    if option.is_flag:
        return ""
    if isinstance(option.type, click.Choice):
        return f" {' or '.join(map(str, option.type.choices))}"
    return f" {option.metavar or option.type.name.partition(' ')[0].upper()}"


def diagnostics() -> str:
    """Write the page of the codes of errors and warnings."""
    lines = ["# Errors and warnings of texts", ""]
    lines += paragraph(
        "For rule authors: look up the code of an error or warning about facts, rules and queries. `kbcore check`, "
        "`kb.check()` and [`POST /check`](http.md#post-check) report codes; `kbcore check --explain "
        "K012` prints an explanation. Errors refuse a text, warnings do not. `details.errors` of a "
        "refused request has the name as `code`. Each entry has a text with the mistake, then the "
        "same text corrected."
    )
    for severity in ("error", "warning"):
        own = [code for code in CODES if code.severity == severity]
        lines += ["", f"## {severity.capitalize()}s"]
        for code in own:
            lines += ["", f"### {code.code}: {code.title} {{ #{code.code.lower()} }}", ""]
            lines += paragraph(f"`{code.name}`. {code.explanation}")
            lines += ["", "```text", _wrapped(code.examples.bad), "```"]
            lines += ["", "```text", _wrapped(code.examples.good), "```"]
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    """Return an example with lines of at most 100 columns."""
    return "\n".join(part for line in text.split("\n") for part in paragraph(line))


GENERATED = {
    PAGES / "diagnostics.md": diagnostics,
    PAGES / "cli.md": command_line,
    PAGES / "configuration.md": configuration,
    PAGES / "errors.md": errors,
    PAGES / "metrics.md": metrics,
    PAGES / "python-api.md": python_api,
    PAGES / "plugin-protocols.md": plugins,
    PAGES / "tools.md": tools,
    ROOT.parent / "planner" / "BYTECODE.md": bytecode,
    ROOT.parent / "planner" / "PASSES.md": planner_passes,
}


EXAMPLES = Path(document.__file__).with_name("examples.json")


def examples() -> bool:
    """Return True if the examples of the OpenAPI document are out of date; write them unless
    --check.
    """
    text = json.dumps(scenario.record(), indent=1, ensure_ascii=False) + "\n"
    if EXAMPLES.exists() and EXAMPLES.read_text(encoding="utf-8") == text:
        return False
    if "--check" not in sys.argv:
        EXAMPLES.write_text(text, encoding="utf-8")
    return True


GRAMMAR = ROOT.parent / "clients" / "vscode" / "syntaxes" / "kb.tmLanguage.json"


def grammar() -> bool:
    """Return True if the grammar for TextMate is out of date; write it unless --check."""
    text = json.dumps(textmate.grammar(), indent=2, ensure_ascii=False) + "\n"
    if GRAMMAR.exists() and GRAMMAR.read_text(encoding="utf-8") == text:
        return False
    if "--check" not in sys.argv:
        GRAMMAR.write_text(text, encoding="utf-8")
    return True


CLIENT_TOOLS = ROOT.parent / "clients" / "python" / "kbcore_client" / "tools.json"


def client_tools() -> bool:
    """Return True if the tools that the client knows are out of date; write them unless --check.

    They are the tools of MCP but those of MCP_TOOLS=all alone.
    """
    names = ("name", "description", "inputSchema", "annotations")
    chosen = [
        {name: tool.shown[name] for name in names}
        for tool in all_tools().values()
        if tool.declared.profile != "all"
    ]
    text = json.dumps(chosen, indent=1, ensure_ascii=False) + "\n"
    if CLIENT_TOOLS.exists() and CLIENT_TOOLS.read_text(encoding="utf-8") == text:
        return False
    if "--check" not in sys.argv:
        CLIENT_TOOLS.write_text(text, encoding="utf-8")
    return True


def methods_of_clients() -> list[str]:
    """Return the modules of the clients that are out of date; write them unless --check."""
    stale = []
    for path, make in client_methods.MODULES.items():
        text = make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    return stale


LLMS = ROOT / "llms.txt"


def llms() -> bool:
    """Return True if a text for language models is out of date; write it unless --check.

    Its form is that of llmstxt.org: the pages of the navigation with their first sentence.
    """
    import tomllib  # not at the top: Python 3.10, where this module is imported too, does not have it

    project = tomllib.loads((ROOT.parent / "zensical.toml").read_text("utf-8"))["project"]
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    lines += paragraph(
        "A server and library that stores facts and rules, answers goals by backward chaining with "
        "proofs, drops what no longer holds, and selects the facts for a model's prompt. Agents use "
        "it by MCP at /mcp, by HTTP (the description is at /openapi.json), or by a client."
    )
    for entry in project["nav"]:
        for title, target in entry.items():
            if not isinstance(target, str):
                lines += ["", f"## {title}", "", *page_lines(target)]
    texts = {LLMS: "\n".join(lines) + "\n", SERVED_LLMS: served_llms(project)}
    stale = {
        path: text
        for path, text in texts.items()
        if not path.exists() or path.read_text("utf-8") != text
    }
    if "--check" not in sys.argv:
        for path, text in stale.items():
            path.write_text(text, "utf-8")
    return bool(stale)


SERVED_LLMS = ROOT.parent / "server" / "kbserver" / "static" / "llms.txt"


def served_llms(project: dict[str, Any]) -> str:
    """Return what a server answers to GET /llms.txt: its own paths, and the titles of pages.

    The pages are not on the server, so that there are no links to them.
    """
    paths = {
        "/mcp": "tools, resources and prompts by MCP (streamable HTTP)",
        "/openapi.json": "the HTTP interface as an OpenAPI document",
        "/.well-known/agent-card.json": "the agent card, for messages to /a2a",
        "/.well-known/oauth-protected-resource": "where access tokens come from, if OAuth is on",
        "/health/ready": "whether the server accepts requests",
    }
    lines = [f"# {project['site_name']}", "", f"> {project['site_description']}", ""]
    lines += paragraph(
        "A server that stores facts and rules and answers goals with proofs. Requests name a tenant "
        "in the header X-Tenant-ID. Start with the MCP tools predicates, ask and tell, or with "
        "POST /ask and POST /tell. A server with keys wants Authorization: Bearer KEY."
    )
    lines += ["", "## Paths", "", *(f"- [{path}]({path}): {text}" for path, text in paths.items())]
    lines += ["", "## Documentation", ""]
    for entry in project["nav"]:
        for title, target in entry.items():
            if title in SERVED_PARTS:
                lines += paragraph(f"{title}: {', '.join(titles(target))}.")
    return "\n".join(lines) + "\n"


SERVED_PARTS = ("Build an agent's memory", "Write rules", "Look up")
"""Parts of the navigation whose titles a server shows."""


def titles(entries: list[dict[str, object]]) -> Iterator[str]:
    """Yield the titles of the pages of a part of the navigation."""
    for entry in entries:
        for title, target in entry.items():
            if isinstance(target, list):
                yield from titles(target)
            else:
                yield title


def page_lines(entries: list[dict[str, object]]) -> Iterator[str]:
    """Yield a line for each page of a part of the navigation."""
    for entry in entries:
        for title, target in entry.items():
            if isinstance(target, list):
                yield from page_lines(target)
            else:
                page = str(target)
                address = page.removesuffix(".md").removesuffix("/index")
                yield f"- [{title}]({address}/): {first_sentence(page)}"


def first_sentence(page: str) -> str:
    """Return the first sentence of a page, without links."""
    text = (ROOT / page).read_text("utf-8").replace(NOTE, "")
    paragraphs = re.split(r"\n\s*\n", text.split("\n# ", 1)[-1] if "\n# " in text else text)
    prose = next(part for part in paragraphs if re.match(r"(?!```)[A-Z`\[]", part.strip()))
    flat = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose.split()))
    return re.split(r"(?<=\.)\s", flat)[0].rstrip(":")


def openapi() -> str:
    """Return the OpenAPI document as JSON text."""
    with kbcore.open_runtime(kbcore.Config(storage_backend="memory")) as runtime:
        return kbserver.create_app(runtime).test_client().get("/openapi.json").text


def main() -> int:
    if "--openapi" in sys.argv:
        print(openapi())
        return 0
    stale = ["examples.json"] if examples() else []
    stale += [GRAMMAR.name] if grammar() else []
    stale += [LLMS.name] if llms() else []
    stale += [CLIENT_TOOLS.name] if client_tools() else []
    stale += methods_of_clients()
    stale += comparison.update(ROOT, write="--check" not in sys.argv)
    for path, make in GENERATED.items():
        text = f"{NOTE}\n\n{with_related(path, make())}\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run python docs/generate.py")
        return 1
    print(f"{len(GENERATED)} pages, {len(stale)} written")
    return 0


if __name__ == "__main__":
    # The example scenarios fill a disk and promote a follower on purpose; what a server logs about
    # that would look like a failure of this program.
    logging.getLogger().addHandler(logging.NullHandler())
    sys.exit(main())
