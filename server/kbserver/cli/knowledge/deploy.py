"""`kbcore deploy`: replace a rule set by files, or roll it back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from kbcore.language.rule_review import check_programs
from kbcore.language.rule_set_files import RuleSetFile, imported_texts, name_of, rule_files
from kbplanner.check.texts import ReadText, StoredProgram
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.knowledge.check_formats import CheckedFile, as_text
from kbserver.cli.knowledge.differences import (
    NOTHING_IMPORTED,
    difference_lines,
    impact_lines,
)
from kbserver.cli.knowledge.review import stored_predicates
from kbserver.cli.shared.exits import Failed, as_failure
from kbserver.cli.shared.groups import command
from kbserver.cli.shared.output import print_json
from kbserver.cli.shared.target import (
    CommandTarget,
    note,
    query_string,
    target_options,
)
from kbtypes.errors import KBError

CHANGES = 2
"""Exit status of --dry-run if the deployment would change something."""

STORED_NOTHING = "; nothing was deployed"


@command(
    "deploy",
    "kbcore deploy access/ --dry-run",
    "kbcore deploy access/ --dry-run --impact-goal 'may_enter(?who)'",
    "kbcore deploy access.kb --as access --message 'a lower threshold'",
    "kbcore deploy --rollback access 3",
    "kbcore deploy --rollback access --dry-run",
)
@click.argument("files", nargs=-1, metavar="[FILE...|FOLDER]")
@click.option(
    "--as", "name", metavar="NAME", help="Name of the rule set; default: @module, or the folder"
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Store nothing; exit status 0 without a change, 2 with changes, 1 with errors",
)
@click.option(
    "--impact",
    is_flag=True,
    help="With --dry-run: print how many facts and conclusions would become true and false",
)
@click.option(
    "--impact-goal",
    "impact_goals",
    multiple=True,
    metavar="GOAL",
    help="With --dry-run: the impact, and the answers of a goal that would change; repeatable",
)
@click.option(
    "--expect-version",
    "expected_version",
    type=click.IntRange(0),
    metavar="N",
    help="Deploy only if version N is in force; 0: none yet",
)
@click.option("--scope", help="Scope of the rule set; default: the base, whose rules hold anywhere")
@click.option("--message", help="Message that is kept with the version")
@click.option("--revision", help="Revision in version control that is kept with the version")
@click.option(
    "--rollback",
    "rolled_back",
    metavar="NAME",
    help="Deploy an earlier version of this rule set again: the one before, or the number given",
)
@click.option(
    "--verbose", is_flag=True, help="Also list the statements that imported rule sets add"
)
@click.option("--json", "as_json", is_flag=True, help="Print what changes as JSON")
@target_options
def deploy(  # noqa: PLR0913  one parameter for each option of the command
    target: CommandTarget,
    files: tuple[str, ...],
    name: str | None,
    dry_run: bool,
    impact: bool,
    impact_goals: tuple[str, ...],
    expected_version: int | None,
    scope: str | None,
    message: str | None,
    revision: str | None,
    rolled_back: str | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Replace a rule set by files.

    FILEs, or the .kb files of one FOLDER, are checked, their tests are run, and they take the place
    of what the rule set had, as one change. Rules, declarations and facts that the files no longer
    have are removed, unless another rule set contains them or they were also stored one by one.
    Prints what is added (+), changed (~) and removed (-), of what an imported rule set adds only
    the number. Without a difference no version is made.
    """
    options = {"scope": scope, "expectedVersion": expected_version, "message": message}
    options = {key: value for key, value in options.items() if value is not None}
    if rolled_back is not None:
        if name is not None or revision is not None or impact or impact_goals:
            raise Failed("--rollback takes no --as, --revision, --impact or --impact-goal")
        version = _version_of(files)
        if not dry_run:
            _show(_rolled_back(target, rolled_back, version, options), "version", as_json)
            return
        plan = _rollback_plan(target, rolled_back, version, scope, expected_version)
        _show(plan, "would be version", as_json)
        if _has_changes(plan):
            sys.exit(CHANGES)
        return
    if (impact or impact_goals) and not dry_run:
        raise Failed("--impact and --impact-goal are for --dry-run")
    if not files:
        raise Failed("name files or a folder, or use --rollback NAME")
    try:
        texts, folder_name = rule_files([_existing(Path(file)) for file in files])
        set_name = name_of(texts, name, folder_name)
    except KBError as error:
        raise as_failure(error) from error
    body = {**options, "files": [{"path": each.path, "text": each.text} for each in texts]}
    if revision is not None:
        body["revision"] = revision
    path = f"/rulesets/{quote(set_name, safe='')}"
    asked = {"dryRun": True, "impact": impact, "impactGoals": list(impact_goals)}
    try:
        plan = target.send("PUT", path, {**body, **asked}).json()
    except (Failed, KBError):
        _check(target, texts, _read(texts))  # it names the files of syntax errors
        raise
    if not _has_changes(plan):
        _show(plan, "version", as_json)
        return
    read = _read(texts)
    _check(target, texts, read)
    _run_tests(texts, read, Path() if folder_name is None else Path(files[0]))
    sources = [each.source.parsed for each in read]
    imported = NOTHING_IMPORTED if verbose or as_json else imported_texts(sources, scope)
    if dry_run:
        _show(plan, "would be version", as_json, imported)
        sys.exit(CHANGES)
    _show(target.send("PUT", path, body).json(), "version", as_json, imported)


def _existing(path: Path) -> Path:
    if not path.exists():
        raise Failed(f"{path}: no such file or folder")
    return path


def _version_of(numbers: Sequence[str]) -> int | None:
    """Return the version that follows the name of a rule set, None without one."""
    if len(numbers) > 1 or not all(number.isdecimal() for number in numbers):
        raise Failed("--rollback takes the number of one version")
    return int(numbers[0]) if numbers else None


def _rolled_back(
    target: CommandTarget, name: str, version: int | None, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Deploy an earlier version again, and return what changed."""
    chosen = {} if version is None else {"version": version}
    path = f"/rulesets/{quote(name, safe='')}/rollback"
    outcome: dict[str, Any] = target.send("POST", path, {**options, **chosen}).json()
    return outcome


def _rollback_plan(
    target: CommandTarget,
    name: str,
    version: int | None,
    scope: str | None,
    expected_version: int | None,
) -> dict[str, Any]:
    """Return what a rollback would change, in the form of its outcome; nothing is stored."""
    path = f"/rulesets/{quote(name, safe='')}"
    listed = target.send("GET", f"{path}/versions{query_string(scope=scope)}").json()["versions"]
    numbers = [each["version"] for each in listed]
    last = numbers[0]
    if expected_version not in (None, last):
        raise Failed(f"the rule set '{name}' has version {last}, not {expected_version}")
    earlier = last - 1 if version is None else version
    if earlier not in numbers:
        raise Failed(
            f"the rule set '{name}' has no version {earlier}; kept are {numbers[-1]} to {last}"
        )
    query = query_string(**{"from": last, "to": earlier, "scope": scope})
    diff = target.send("GET", f"{path}/diff{query}").json()
    would_be = last + 1 if _has_changes(diff) else last
    return {**diff, "version": would_be, "commit": None, "warnings": []}


def _read(files: Sequence[RuleSetFile]) -> list[ReadText]:
    """Read files for their check and their tests."""
    return [ReadText.of(each.text) for each in files]


def _check(target: CommandTarget, files: Sequence[RuleSetFile], texts: Sequence[ReadText]) -> None:
    """Print the errors and warnings of files; raise Failed if there is an error."""
    stored = StoredProgram(
        {name: frozenset(arities) for name, arities in stored_predicates(target).items()}
    )
    names = [each.path for each in files]
    findings_of = check_programs(texts, stored, names=names)
    checked = [
        CheckedFile(each.path, each.text.split("\n"), findings)
        for each, findings in zip(files, findings_of, strict=True)
    ]
    if any(each.findings for each in checked):
        for line in as_text(checked):
            click.echo(line, err=True)
    errors = sum(each.severity == "error" for findings in findings_of for each in findings)
    if errors:
        raise Failed(f"{counted(errors, 'error')}{STORED_NOTHING}")


def _run_tests(files: Sequence[RuleSetFile], texts: Sequence[ReadText], folder: Path) -> None:
    """Run the tests of files, whose paths are in a folder; raise Failed if one fails."""
    if not any("test" in each.text for each in files):
        return
    # Only files with tests need the engine in this process.
    rule_tests = import_module("kbserver.cli.knowledge.rule_tests")
    reports = import_module("kbserver.cli.knowledge.rule_test_reports")
    read = [(file.path, text) for file, text in zip(files, texts, strict=True)]
    run = rule_tests.run_of(read, folder_of=lambda name: (folder / name).parent)
    results = list(run.results(run.tests()))
    failed = [result for result in results if not result.has_passed]
    for result in failed:
        for line in reports.failure_lines(result):
            click.echo(line, err=True)
    if results:
        note(click.unstyle(reports.summary(results)))
    if failed:
        raise Failed(f"{counted(len(failed), 'test')} failed{STORED_NOTHING}")


def _has_changes(outcome: Mapping[str, Any]) -> bool:
    facts = outcome["facts"]
    counts = (facts[f"{kind}Count"] for kind in ("added", "changed", "removed"))
    return any(outcome[kind] for kind in ("added", "changed", "removed")) or any(counts)


def _show(
    outcome: Mapping[str, Any],
    is_version: str,
    as_json: bool,
    imported: Mapping[str, str] = NOTHING_IMPORTED,
) -> None:
    """Print what a deployment has changed or would change, and its version; statements that were
    imported are counted.
    """
    if as_json:
        print_json(outcome)
        return
    if not _has_changes(outcome):
        click.echo(f"{outcome['name']}: no change, version {outcome['version']}")
        return
    for line in difference_lines(outcome, imported):
        click.echo(line)
    if "impact" in outcome:
        for line in impact_lines(outcome["impact"]):
            click.echo(line)
    click.echo(f"{outcome['name']}: {is_version} {outcome['version']}, {_counts(outcome)}")


def _counts(outcome: Mapping[str, Any]) -> str:
    facts = outcome["facts"]
    return ", ".join(
        f"{len(outcome[kind]) + facts[f'{kind}Count']} {kind}"
        for kind in ("added", "changed", "removed")
    )
