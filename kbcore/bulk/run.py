"""The driver loop of a bulk run: strata in order, each recursion until a round adds nothing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kbcore.bulk.files import PARQUET, TableName
from kbcore.bulk.job import BulkJob
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.plug.ports import BulkDatabase, BulkEngine, BulkOptions
from kbplanner.compile.bulkplan import BulkAtom, BulkPlan, BulkStratum, ClauseVersion


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result of a bulk run: the file, and counts of answers, facts read, derived rows and rounds."""

    path: Path
    answers: int
    facts: int
    rows: int
    rounds: int


Progress = Callable[[str, int, int], None]
"""Called after each round with the title of a relation, the round, and the rows it added."""


def run_job(
    job: BulkJob,
    database: BulkDatabase,
    out: Path,
    *,
    memory_limit: str | None = None,
    max_rows: int = 0,
    progress: Progress = lambda title, round_, rows: None,
) -> BulkResult:
    """Evaluate a job and write its answers to a new Parquet file in the folder `out`.

    `max_rows` limits the derived rows, demand included; 0 is no limit. Temporary files are in a
    folder inside `out`, which is removed. Raises InvalidInput if the file of the answers exists,
    BudgetExceeded, ConfigError.
    """
    goal = job.plan.goal
    path = out / f"{TableName(goal.predicate, goal.positive)}{PARQUET}"
    if path.exists():
        raise InvalidInput(f"{path} exists; remove it, or choose another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".bulk-", dir=out) as folder:
        engine = database.open(BulkOptions(folder, memory_limit))
        try:
            driver = _Driver(job, engine, max_rows, progress)
            driver.evaluate()
            unfinished = Path(folder) / path.name
            answers = engine.answers(job.plan, str(unfinished))
            unfinished.rename(path)
        finally:
            engine.close()
    return BulkResult(path, answers, driver.facts, driver.rows, driver.rounds)


class _Driver:
    def __init__(self, job: BulkJob, engine: BulkEngine, max_rows: int, progress: Progress) -> None:
        self._job = job
        self._plan = job.plan
        self._engine = engine
        self._max_rows = max_rows
        self._progress = progress
        self.facts = self.rows = self.rounds = 0

    def evaluate(self) -> None:
        plan, engine = self._plan, self._engine
        self.facts = engine.bind(plan, self._job.facts)
        heads = {name for stratum in plan.strata for name in stratum.relations}
        if plan.seed is not None and plan.seed not in heads:
            engine.make(plan.seed, plan.arities[plan.seed], [plan.seed_row])
        last_uses = _last_uses(plan)
        for index, stratum in enumerate(plan.strata):
            self._stratum(stratum)
            for name, use in last_uses.items():
                if use == index and name != plan.answer:
                    engine.drop(name)

    def _stratum(self, stratum: BulkStratum) -> None:
        plan = self._plan
        for name in stratum.relations:
            rows = [plan.seed_row] if name == plan.seed else []
            self._engine.make(name, plan.arities[name], rows)
        added = sum(self._extend(name, stratum.start, 0) for name in stratum.relations) + (
            plan.seed in stratum.relations
        )
        round_ = 0
        while stratum.rounds and added:
            round_ += 1
            added = sum(self._extend(name, stratum.rounds, round_) for name in stratum.relations)
        self.rounds += round_

    def _extend(self, name: str, versions: tuple[ClauseVersion, ...], round_: int) -> int:
        own = [version for version in versions if version.head == name]
        if not own:
            return 0
        rows = self._engine.extend(name, own, round_)
        self.rows += rows
        self._progress(self._plan.titles[name], round_, rows)
        if self._max_rows and self.rows > self._max_rows:
            raise BudgetExceeded.of_run("derivedRows", self._max_rows, str(own[0].rule))
        return rows


def _last_uses(plan: BulkPlan) -> Mapping[str, int]:
    """Return the index of the last stratum that reads or makes each relation."""
    uses: dict[str, int] = {}
    for index, stratum in enumerate(plan.strata):
        for name in stratum.relations:
            uses[name] = index
        for version in (*stratum.start, *stratum.rounds):
            for item in version.items:
                if isinstance(item, BulkAtom):
                    uses[item.relation] = index
    return uses
