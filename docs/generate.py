"""Write the reference pages that follow from the code; `--check` only says which are out of date.

python docs/generate.py [--check]
"""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import kbcore
import kbplanner
import kbserver
from kbcore.config import SETTINGS
from kbcore.metrics import DOCUMENTED, FAMILIES
from kbcore.plug import hookspecs
from kbplanner.errors import KBError
from kbserver import hookspecs as http_hookspecs
from kbserver.errors import STATUS
from kbserver.example_scenarios import single_node as story
from kbserver.mcp.prompts import PROMPTS
from kbserver.mcp.resources import listing as resources
from kbserver.mcp.tools import TOOLS
from kbserver.openapi import document

ROOT = Path(__file__).resolve().parent
PAGES = ROOT / "reference"
NOTE = "<!-- Written by docs/generate.py from the code; change it there. -->"


SETTING_SECTIONS = {
    "HOST": "Address and storage",
    "REPLICATION_MODE": "Replication",
    "LOG_LEVEL": "Logs",
    "QUERY_MAX_ROWS": "Limits of one request",
    "API_KEY": "Access and rate limits",
    "TENANT_MAX_FACTS": "Limits of a tenant",
    "SALIENCE_SCORER": "Salience, search and eviction",
    "LLM_PROVIDER": "Language model",
    "CONTEXT_OPTIMIZE_ENABLED": "Interfaces",
    "MAX_BODY_BYTES": "Bodies, writes and transactions",
    "MAX_CONNECTIONS": "Connections and event streams",
    "ENGINE": "Engine and plugins",
}
"""The first setting of each section of the settings page, with the title of the section."""


def configuration() -> str:
    lines = [
        "# Settings",
        "",
        "Settings are read from the environment at the start. Flags of `kbcore serve` take precedence. If",
        "a setting is not valid, the server exits with status 78 and a line that names the setting. A",
        "secret can also be read from a file, whose path is the value of "
        + ", ".join(f"`{setting.name}_FILE`" for setting in SETTINGS if setting.secret)
        + ".",
    ]
    for setting in SETTINGS:
        if title := SETTING_SECTIONS.get(setting.name):
            lines += ["", f"## {title}", ""]
            lines += ["| setting | default | value | meaning |", "|---|---|---|---|"]
        default = setting.parser.format(setting.default)
        shown = f"`{default}`" if default else "none"
        lines.append(
            f"| `{setting.name}` | {shown} | {setting.parser.permitted} | {setting.help} |"
        )
    return "\n".join(lines)


def error_classes(kind: type[KBError] = KBError) -> Iterator[type[KBError]]:
    """KBError and everything below it in our packages, in order of status, code and name."""
    for package in (kbplanner, kbcore, kbserver):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.endswith("__main__") and "conformance" not in module.name:
                importlib.import_module(module.name)
    found = {kind}
    todo = [kind]
    while todo:
        for below in todo.pop().__subclasses__():
            ours = below.__module__.startswith(("kbplanner", "kbcore", "kbserver"))
            if ours and below not in found and not below.__name__.startswith("_"):
                found.add(below)
                todo.append(below)
    return iter(sorted(found, key=lambda error: (STATUS[error.code], error.code, error.__name__)))


def errors() -> str:
    rows = ["| status | code | class | module | meaning |", "|---|---|---|---|---|"]
    for error in error_classes():
        meaning = (
            inspect.cleandoc(error.__doc__ or "")
            .split("\n\n")[0]
            .replace("\n", " ")
            .replace("|", "\\|")
        )
        status = getattr(error, "status", STATUS[error.code])
        rows.append(
            f"| {status} | `{error.code}` | `{error.__name__}` | `{error.__module__}` | {meaning} |"
        )
    return "\n".join(
        [
            "# Errors",
            "",
            "Every error is `{code, message, details}` as JSON, with `X-Request-ID`. `details` is an object or null.",
            "A wrong method is 405 and a wrong media type 415, both with code `VALIDATION_ERROR`.",
            "",
            *rows,
        ]
    )


KINDS = {
    "Collecting": "They return a mapping from names to what is offered. Two plugins that give one name refuse the start.",
    "Deciding": "The first answer that is not None counts; the plugin that was loaded last is asked first.",
    "Telling": "They return nothing. An exception is logged and counted (`svc_plugin_failures_total`), and reaches nobody.",
}


def hooks() -> str:
    parts = [
        "# Hooks",
        "",
        "A plugin is a module with functions marked `kbcore.hookimpl`, named by an entry point in group `kbcore`. Built-ins",
        "enter by the same door. A function takes only the arguments it wants. `KB_API_VERSION = 1` in a plugin says which",
        "major version of the protocols it is made for; another one refuses it at the start. `kbcore plugins` lists what is",
        "installed, `PLUGINS_DISABLED` leaves plugins out by name, `PLUGINS_TRACE` logs every call of a hook. What offers ",
        "must be able to do is in `kbcore.plug.ports`.",
    ]
    found: dict[str, list[tuple[str, Callable[..., object]]]] = {kind: [] for kind in KINDS}
    for module in (hookspecs, http_hookspecs):
        for name, function in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("kb_"):
                returns = str(inspect.signature(function).return_annotation)
                decides = getattr(function, "kbcore_spec", {}).get("firstresult")
                kind = "Deciding" if decides else "Telling" if returns == "None" else "Collecting"
                found[kind].append((name, function))
    for kind, text in KINDS.items():
        parts += ["", f"## {kind} hooks", "", text]
        for name, function in sorted(found[kind]):
            parts += ["", f"### {name}", "", f"    {name}{_signature(function)}"]
            parts += ["", inspect.cleandoc(function.__doc__ or "")]
    return "\n".join(parts)


def metrics() -> str:
    parts = [
        "# Metrics",
        "",
        "`GET /metrics` gives them in the Prometheus text format while `METRICS_SINKS` (by default `prometheus`) has a sink",
        "that can; otherwise it is 404. They count what is done, whichever way it was asked for: HTTP, the command line on",
        "a folder, or an embedding program, where `runtime.metrics.expose()` gives the same text. Durations are in seconds,",
        "sizes in bytes. Gauges are worked out when somebody asks. A dashboard and alert rules are in `docs/operations/`.",
        "Names in bold are those the HTTP interface documents. What is not in use (no language model, no tool calls) has no",
        "samples.",
    ]
    areas = dict.fromkeys(spec.area for spec in FAMILIES)
    for area in areas:
        parts += ["", f"## {area}", "", "| name | kind | labels | meaning |", "|---|---|---|---|"]
        for spec in FAMILIES:
            if spec.area == area:
                shown = f"**`{spec.name}`**" if spec.name in DOCUMENTED else f"`{spec.name}`"
                labels = ", ".join(f"`{label}`" for label in spec.labels)
                parts.append(f"| {shown} | {spec.kind.value} | {labels} | {spec.help} |")
    return "\n".join(parts)


def bytecode() -> str:
    rows = ["| instruction | effect |", "|---|---|"]
    for path in sorted((ROOT.parent / "csrc").glob("*.c")):
        for head, effect in re.findall(
            r"/\* Opcode: ([^\n]*?)\s*\n(.*?)\*/", path.read_text(encoding="utf-8"), re.S
        ):
            words = " ".join(line.strip(" *") for line in effect.splitlines()).strip()
            rows.append(f"| `{head.strip()}` | {words} |")
    return "\n".join(
        [
            "# Bytecode",
            "",
            "What a plan becomes. The layout of the words and the rules of a run: `csrc/README.md`.",
            "",
            *rows,
        ]
    )


def python_api() -> str:
    parts = ["# Python", "", "What `import kbcore` offers."]
    for name in sorted(kbcore.__all__):
        thing = getattr(kbcore, name)
        if not (inspect.isclass(thing) or inspect.isfunction(thing)):
            continue
        parts += ["", f"## {name}", "", inspect.cleandoc(thing.__doc__ or "")]
        if inspect.isfunction(thing):
            parts += ["", f"    {name}{_signature(thing)}"]
        elif name in ("EmbeddedKB", "AnswerSet", "Runtime"):
            # Only what the class adds: what it inherits from Sequence is Python's to document.
            for method, function in sorted(vars(thing).items()):
                if inspect.isfunction(function) and not method.startswith("_"):
                    parts += ["", f"### {name}.{method}", "", f"    {method}{_signature(function)}"]
                    parts += ["", inspect.cleandoc(function.__doc__ or "")]
    return "\n".join(parts)


def _signature(function: Callable[..., object]) -> str:
    """As in the source: annotations are strings there, which inspect would show in quotes; defaults keep theirs."""
    signature = inspect.signature(function)
    plain = [
        p.replace(annotation=_Bare(p.annotation))
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    return str(
        signature.replace(parameters=plain, return_annotation=_Bare(signature.return_annotation))
    )


class _Bare(str):
    """A text whose repr is itself."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def planner_passes() -> str:
    parts = [
        "# Planner passes",
        "",
        "What happens to rules between their text and the engine, in this order. The first five run when rules are",
        "written, so that a refused rule changes nothing; the others when a goal is first asked with a new binding",
        "pattern. Examples show rules with a goal, and the clauses after the pass. `b` marks a bound argument, `f` a",
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
    "stratify",
    "verify",
    "build",
    "instances",
    "parts",
)
"""Modules of `kbplanner.passes` as a rule meets them; `order` and `verify` serve the others, `instances` and
`parts` are for proofs."""


def tools() -> str:
    """The tool protocol: tools, resources, prompts."""
    lines = [
        "# Tools, resources and prompts",
        "",
        "What clients of the tool protocol (MCP) find at `/mcp`; [how to connect one](../how-to/connect-an-mcp-client.md).",
        "Arguments are read as the bodies of the HTTP routes are; those in bold are needed. Every list in an answer has an",
        "end, and `truncated` says that there is more.",
        "",
        "## Tools",
        "",
        "`MCP_TOOLS=all` shows those of the second table too, `extract` and `synthesize` where there is a language model.",
        "Role: what a caller needs. Changes: what a call may do.",
        "Tools that write take `transactionId` where it is listed.",
    ]
    for usual in (True, False):
        lines += [
            "",
            "| tool | arguments | answer | role | changes | |",
            "|---|---|---|---|---|---|",
        ]
        for tool in TOOLS.values():
            if tool.usual == usual:
                shown = tool.shown["inputSchema"]
                needed = shown.get("required", [])
                takes = ", ".join(
                    f"**{name}**" if name in needed else name for name in shown["properties"]
                )
                gives = ", ".join(tool.answer["properties"])
                changes = "" if not tool.writes else "takes away" if tool.destroys else "adds"
                cells = (f"`{tool.name}`", takes, gives, tool.needs, changes, tool.description)
                lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Resources",
        "",
        "All of them can be followed.",
        "",
        "| address | what it is |",
        "|---|---|",
    ]
    lines += [f"| `{each['uri']}` | {each['description']} |" for each in resources.LISTED]
    lines += [
        f"| `{each['uriTemplate']}` | {each['description']} |" for each in resources.TEMPLATES
    ]
    lines += ["", "## Prompts", "", "| prompt | arguments | what it is for |", "|---|---|---|"]
    for prompt in PROMPTS.values():
        takes = ", ".join(f"**{name}**" if needed else name for name, _, needed in prompt.arguments)
        lines.append(f"| `{prompt.name}` | {takes} | {prompt.description} |")
    return "\n".join(lines)


GENERATED = {
    "configuration.md": configuration,
    "errors.md": errors,
    "hooks.md": hooks,
    "metrics.md": metrics,
    "bytecode.md": bytecode,
    "python-api.md": python_api,
    "planner-passes.md": planner_passes,
    "tools.md": tools,
}


EXAMPLES = Path(document.__file__).with_name("examples.json")


def examples() -> bool:
    """Whether the examples of the OpenAPI document are other than kept; they are written unless only that is asked."""
    text = json.dumps(story.record(), indent=1, ensure_ascii=False) + "\n"
    if EXAMPLES.exists() and EXAMPLES.read_text(encoding="utf-8") == text:
        return False
    if "--check" not in sys.argv:
        EXAMPLES.write_text(text, encoding="utf-8")
    return True


def main() -> int:
    stale = ["examples.json"] if examples() else []
    for name, make in GENERATED.items():
        path = PAGES / name
        text = f"{NOTE}\n\n{make()}\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run python docs/generate.py")
        return 1
    print(f"{len(GENERATED)} pages, {len(stale)} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())
