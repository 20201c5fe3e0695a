"""`kbcore check`: check files of facts, rules and queries without storing them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from kbcore.language.rule_review import check_programs
from kbplanner.check.code import Code
from kbplanner.check.codes import code_of
from kbplanner.check.texts import StoredProgram
from kbplanner.ir.schema import RelationSchema
from kbserver.cli.knowledge.check_formats import FORMATS, TEXT, CheckedFile
from kbserver.cli.shared.exits import reports_errors
from kbserver.cli.shared.external import external_options, provided
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.rule_files import STDIN, STDIN_NAME, read_text
from kbtypes.results import Finding


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
@external_options
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
    and rules: name them with --external, or load the plugins with --plugins. Exit status: 0 if
    nothing is reported, 1 if errors or warnings are, 2 if the check could not run.
    """
    texts = [read_text(file) for file in files]
    stored = StoredProgram(external=provided(external, plugins))
    names = [STDIN_NAME if file == STDIN else file for file in files]
    findings_of = check_programs(texts, stored, names=names)
    checked = [
        CheckedFile(
            name,
            text.split("\n"),
            [each for each in findings if _is_reported(each, select, ignore)],
        )
        for name, text, findings in zip(names, texts, findings_of, strict=True)
    ]
    for line in FORMATS[format](checked):
        click.echo(line)
    if any(each.findings for each in checked):
        sys.exit(1)


def _is_reported(
    finding: Finding, select: frozenset[str] | None, ignore: frozenset[str] | None
) -> bool:
    if finding.severity == "error":
        return True
    return (select is None or finding.code in select) and finding.code not in (ignore or ())
