"""`kbcore check`: check files of facts, rules and queries without storing them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence

import click

from kbcore.language.rule_review import check_programs
from kbplanner.check.code import Code
from kbplanner.check.codes import code_of
from kbplanner.check.findings import Finding
from kbplanner.check.texts import Stored
from kbplanner.ir.modes import Modes
from kbplanner.ir.schema import RelationSchema
from kbserver.cli.knowledge.check_formats import FORMATS, TEXT, CheckedFile
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.rule_files import read_text


class CodeList(click.ParamType[frozenset[str]]):
    """Codes separated by commas, each by its code or its name."""

    name = "CODES"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> frozenset[str]:
        """Return the codes; fails for an unknown one."""
        if isinstance(value, frozenset):
            return value
        return frozenset(
            self._code(part.strip(), param, ctx).code for part in str(value).split(",")
        )

    def _code(self, text: str, param: click.Parameter | None, ctx: click.Context | None) -> Code:
        code = code_of(text)
        if code is None:
            self.fail(f"no code {text!r}; see docs/reference/diagnostics.md", param, ctx)
        return code


class ProvidedPredicate(click.ParamType[tuple[RelationSchema, str]]):
    """A predicate of a plugin: `price/2`, or with a mode, `price(in, out)`."""

    name = "PREDICATE"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[RelationSchema, str]:
        """Return the predicate and a mode of it; fails for anything else."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        signature = re.fullmatch(r"([^()]+)/(\d+)", text)
        if signature:
            arity = int(signature[2])
            return RelationSchema(signature[1], arity), "f" * arity
        call = re.fullmatch(r"([^()]+)\(((?:in|out)(?:\s*,\s*(?:in|out))*)\)", text)
        if not call:
            self.fail(f"{text!r} is not like price/2 or 'price(in, out)'", param, ctx)
        uses = [use.strip() for use in call[2].split(",")]
        mode = "".join("b" if use == "in" else "f" for use in uses)
        return RelationSchema(call[1].strip(), len(uses)), mode


def _explain(ctx: click.Context, param: click.Parameter, value: frozenset[str] | None) -> None:
    if value is None:
        return
    pages = (code_of(code) for code in sorted(value))
    click.echo("\n\n".join(code.page for code in pages if code is not None))
    ctx.exit(0)


@command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--select",
    type=CodeList(),
    metavar="CODES",
    help="Report only these codes; errors are always reported",
)
@click.option("--ignore", type=CodeList(), metavar="CODES", help="Do not report these warnings")
@click.option(
    "--format",
    "format",
    type=click.Choice(list(FORMATS)),
    default=TEXT,
    show_default=True,
    help="Format of the output",
)
@click.option(
    "--external",
    type=ProvidedPredicate(),
    multiple=True,
    help="A predicate that a plugin provides, such as price/2 or 'price(in, out)'; repeatable",
)
@click.option(
    "--plugins", is_flag=True, help="Load the installed plugins, with the settings of the server"
)
@click.option(
    "--explain",
    type=CodeList(),
    metavar="CODES",
    is_eager=True,
    expose_value=False,
    callback=_explain,
    help="Explain codes, with examples, and exit",
)
@reports_errors
def check(
    files: tuple[str, ...],
    select: frozenset[str] | None,
    ignore: frozenset[str] | None,
    format: str,
    external: Sequence[tuple[RelationSchema, str]],
    plugins: bool,
) -> None:
    """Check files of facts, rules and queries.

    Prints every error and warning of all files; nothing is stored. The files belong together: a
    predicate of one file may be used in the others. The file - is standard input. Codes are
    separated by commas, such as K104,cross-product. Predicates that plugins provide have no facts
    and rules: name them with --external, or load the plugins with --plugins. Exit status: 0 if nothing is reported, 1 if
    errors or warnings are, 2 if the check could not run.
    """
    texts = [read_text(file) for file in files]
    stored = Stored(external=_provided(external, plugins))
    checked = [
        CheckedFile(
            "<stdin>" if file == "-" else file,
            text.split("\n"),
            [each for each in findings if _is_reported(each, select, ignore)],
        )
        for file, text, findings in zip(files, texts, check_programs(texts, stored), strict=True)
    ]
    for line in FORMATS[format](checked):
        click.echo(line)
    if any(each.findings for each in checked):
        sys.exit(1)


def _provided(external: Sequence[tuple[RelationSchema, str]], plugins: bool) -> Modes:
    """Return the modes of the predicates that are named, and of those of installed plugins."""
    modes: dict[RelationSchema, tuple[str, ...]] = {}
    if plugins:
        from kbcore.config.settings import Config
        from kbcore.plug.manager import Plugins
        from kbcore.reason.external.predicates import modes_of

        loaded = Plugins(Config.from_env()).predicates().values()
        modes.update({RelationSchema(each.name, each.arity): modes_of(each) for each in loaded})
    for schema, mode in external:
        modes[schema] = (*modes.get(schema, ()), mode)
    return modes


def _is_reported(
    finding: Finding, select: frozenset[str] | None, ignore: frozenset[str] | None
) -> bool:
    if finding.severity == "error":
        return True
    return (select is None or finding.code in select) and finding.code not in (ignore or ())
