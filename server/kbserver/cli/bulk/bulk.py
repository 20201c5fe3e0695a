"""`kbcore bulk`: run rules over Parquet files that do not fit in memory."""

from __future__ import annotations

import re
import time
from pathlib import Path

import click

from kbcore.bulk.job import BulkJob, plan_job, read_goal, read_rules
from kbcore.bulk.run import run_job
from kbcore.config.settings import Config
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import BulkDatabase
from kbserver.cli.shared.exits import Failed, errors_in, reports_errors
from kbserver.cli.shared.groups import Group

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


@click.group("bulk", cls=Group)
def bulk() -> None:
    """Run rules over Parquet files that do not fit in memory.

    The rules run as SQL on a database that spills to disk. No server is needed. A knowledge base
    that fits in memory answers much faster with `kbcore ask`.
    """


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
@click.option(
    "--out",
    required=True,
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the Parquet file with the answers; created if it does not exist",
)
@click.option("--memory-limit", metavar="SIZE", help="Memory for the database, such as 300MB")
@click.option(
    "--max-rows",
    default=0,
    type=click.IntRange(min=0),
    metavar="N",
    help="Stop after this many derived rows; 0 is no limit",
)
@reports_errors
def run(
    rules: Path,
    facts: Path | None,
    goal: str,
    engine: str,
    out: Path,
    memory_limit: str | None,
    max_rows: int,
) -> None:
    """Derive all answers of a goal and write them to a Parquet file.

    Facts are read from Parquet files named by their predicate, with the arguments as columns in
    order, as text or integers.
    """
    if memory_limit is not None and not _SIZE.fullmatch(memory_limit):
        raise Failed(f"--memory-limit {memory_limit!r} is not a size; write it as 300MB or 4GB", 2)
    database = _database(engine)
    job = _job(rules, goal, facts)
    for note in job.notes:
        click.echo(f"kbcore: warning: {note}", err=True)
    start = time.monotonic()
    result = run_job(job, database, out, memory_limit=memory_limit, max_rows=max_rows)
    seconds = time.monotonic() - start
    click.echo(
        f"{result.path}: {_counted(result.answers, 'answer')} from "
        f"{_counted(result.facts, 'fact')} in {_counted(result.rounds, 'round')}, {seconds:.1f} s"
    )


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
    return plan_job(read, atom, facts)


def _database(name: str) -> BulkDatabase:
    offers = Plugins(Config.from_env()).bulk_databases()
    if name not in offers:
        raise Failed(
            f"--engine {name!r}: no plugin offers it; choose from: {', '.join(sorted(offers))}", 2
        )
    return offers[name]


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
