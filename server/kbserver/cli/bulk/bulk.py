"""`kbcore bulk`: run rules over Parquet files that do not fit in memory."""

from __future__ import annotations

import functools
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from kbcore.bulk.files import TableName
from kbcore.bulk.job import BulkJob, plan_job, read_goal, read_rules
from kbcore.bulk.run import RunOptions, run_job
from kbcore.config.settings import Config
from kbcore.errors import KBError
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import BulkDatabase
from kbplanner.syntax.diagnostics import counted
from kbserver.cli.bulk.tables import store_table
from kbserver.cli.shared.exits import Failed, errors_in, reports_errors
from kbserver.cli.shared.groups import CommandGroup
from kbserver.cli.shared.target import TARGET_NAMES, note, opened, selects_target

_SIZE = re.compile(r"[1-9][0-9]*(\.[0-9]+)? ?([KMGT]i?)?B", re.IGNORECASE)

_RULES = click.argument(
    "rules", metavar="RULES.kb", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
_GOAL = click.option(
    "--goal", required=True, metavar="ATOM", help="Atom to derive, such as 'reach(?x, ?y)'"
)
_ENGINE = click.option(
    "--engine", default="duckdb", show_default=True, metavar="NAME", help="Database to run on"
)


@click.group("bulk", cls=CommandGroup)
def bulk() -> None:
    """Run rules over Parquet files that do not fit in memory.

    The rules run as SQL on a database that spills to disk. No server is needed. A knowledge base
    that fits in memory answers much faster with `kbcore ask`.
    """


@dataclass(frozen=True, slots=True)
class BulkDestination:
    """Destination of the answers: a folder, a tenant of the knowledge base that `target` selects,
    or both.
    """

    out: Path | None
    tenant: str | None
    scope: str | None
    target: dict[str, Any]


def _destination_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of where the answers go, as the argument `destination`."""

    @click.option(
        "--out",
        metavar="FOLDER",
        type=click.Path(file_okay=False, path_type=Path),
        help="Folder for the Parquet file with the answers; created if it does not exist",
    )
    @click.option(
        "--into-tenant",
        "tenant",
        metavar="TENANT",
        help="Store the answers as facts of this tenant",
    )
    @click.option("--scope", help="Scope of the stored answers; default: the base")
    @functools.wraps(function)
    def command(out: Path | None, tenant: str | None, scope: str | None, **rest: Any) -> None:
        target = {name: rest.pop(name) for name in TARGET_NAMES if name != "tenant"}
        if out is None and tenant is None:
            raise Failed("where should the answers go? use --out or --into-tenant", 2)
        if scope is not None and tenant is None:
            raise Failed("--scope is for the answers in a tenant; add --into-tenant", 2)
        function(destination=BulkDestination(out, tenant, scope, target), **rest)

    return selects_target(command, tenant=False)


def _run_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options of the run, as the argument `options`."""

    @click.option("--memory-limit", metavar="SIZE", help="Memory for the database, such as 300MB")
    @click.option(
        "--max-rows",
        default=0,
        type=click.IntRange(min=0),
        metavar="N",
        help="Stop after this many derived rows; 0 is no limit",
    )
    @click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        help="Setting of the database, such as threads=2 or spark.master=local[2]; repeatable",
    )
    @click.option(
        "--resume", is_flag=True, help="Continue a run that was stopped, after its last round"
    )
    @functools.wraps(function)
    def command(
        memory_limit: str | None, max_rows: int, settings: Sequence[str], resume: bool, **rest: Any
    ) -> None:
        if memory_limit is not None and not _SIZE.fullmatch(memory_limit):
            raise Failed(
                f"--memory-limit {memory_limit!r} is not a size; write it as 300MB or 4GB", 2
            )
        pairs = {}
        for text in settings:
            name, equals, value = text.partition("=")
            if not (name and equals):
                raise Failed(f"--set {text!r} is not NAME=VALUE", 2)
            pairs[name] = value
        function(options=RunOptions(memory_limit, max_rows, pairs, resume), **rest)

    return command


@contextmanager
def _mentions_resume(out: Path, stays: bool) -> Iterator[None]:
    """Print how to continue a run that fails or is stopped after its first rounds."""
    try:
        yield
    except (KBError, KeyboardInterrupt):
        if stays and any(out.glob(".bulk-*/progress.json")):
            note("the completed rounds are kept; the same command with --resume continues")
        raise


@bulk.command("run")
@_RULES
@click.option(
    "--facts",
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with a Parquet file, or a folder of them, for each predicate",
)
@_GOAL
@_ENGINE
@_destination_options
@_run_options
def run(
    rules: Path,
    facts: Path | None,
    goal: str,
    engine: str,
    options: RunOptions,
    destination: BulkDestination,
) -> None:
    """Derive all answers of a goal and write them to a Parquet file, or into a tenant.

    Facts are read from Parquet files named by their predicate, with the arguments as columns in
    order, as text or integers. With --into-tenant the answers become facts of a knowledge base,
    which a server or a storage folder has.
    """
    if options.resume and destination.out is None:
        raise Failed("--resume needs the --out of the run that was stopped", 2)
    database = _database(engine)
    job = _job(rules, goal, facts)
    for text in job.notes:
        note(f"warning: {text}")
    with ExitStack() as stack:
        tenant, out = destination.tenant, destination.out
        if out is None:
            out = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kbcore-bulk-")))
        target = None
        if tenant is not None:  # before the run, so that a wrong address is known at once
            target = stack.enter_context(opened(**destination.target, tenant=tenant))
            target.send("GET", "/predicates?limit=1")
        start = time.monotonic()
        with _mentions_resume(out, destination.out is not None):
            result = run_job(job, database, out, options)
        seconds = time.monotonic() - start
        click.echo(
            f"{result.path if destination.out else goal}: {counted(result.answers, 'answer')} from "
            f"{counted(result.facts, 'fact')} in {counted(result.rounds, 'round')}, {seconds:.1f} s"
        )
        if target is not None:
            formats = Plugins(Config.from_env()).table_formats()
            table = TableName(job.plan.goal.predicate, job.plan.goal.positive)
            line = store_table(target, formats, table, result.files, destination.scope)
            click.echo(f"tenant {tenant}: {line}")


@bulk.command("explain")
@_RULES
@_GOAL
@_ENGINE
@reports_errors
def explain(rules: Path, goal: str, engine: str) -> None:
    """Print the SQL of a goal.

    Relations and constants appear by the names and numbers that the comments state.
    """
    database = _database(engine)
    plan = _job(rules, goal, None).plan
    for name, title in plan.titles.items():
        click.echo(f"-- {name}: {title}")
    for number, text in enumerate(plan.constants, 1):
        click.echo(f"-- {number}: {text!r}")
    for index, stratum in enumerate(plan.strata, 1):
        kind = ", recursive" if stratum.rounds else ""
        click.echo(f"\n-- stratum {index}{kind}: {', '.join(stratum.relations)}")
        for phase, versions in (("once", stratum.start), ("each round", stratum.rounds)):
            for version in versions:
                click.echo(f"\n-- {phase}: {version}")
                for statement in database.statements(version, plan):
                    click.echo(f"{statement};")


def _job(rules: Path, goal: str, facts: Path | None) -> BulkJob:
    with errors_in(str(rules)):
        read = read_rules(rules.read_text(encoding="utf-8"), str(rules))
    with errors_in("--goal"):
        atom = read_goal(goal)
    return plan_job(read, atom, *([] if facts is None else [facts]))


def _database(name: str) -> BulkDatabase:
    offers = Plugins(Config.from_env()).bulk_databases()
    if name not in offers:
        raise Failed(
            f"--engine {name!r}: no plugin offers it; choose from: {', '.join(sorted(offers))}", 2
        )
    return offers[name]
