"""The driver loop of a bulk run: strata in order, each recursion until a round adds nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kbcore.bulk.files import PARQUET, TableName
from kbcore.bulk.job import BulkJob
from kbcore.bulk.work_folder import WorkFolder, WorkProgress
from kbcore.clock import Clock, SystemClock
from kbcore.errors import BudgetExceeded, InvalidInput
from kbcore.plug.ports import BulkDatabase, BulkEngine, BulkOptions
from kbplanner.compile.bulkplan import BulkAtom, BulkPlan, BulkStratum, ClauseVersion
from kbplanner.ir.values.instants import instant_text


@dataclass(frozen=True, slots=True)
class BulkResult:
    """Result of a bulk run: the file or folder of the answers, and counts of answers, facts read,
    derived rows and rounds.
    """

    path: Path
    answers: int
    facts: int
    rows: int
    rounds: int

    @property
    def files(self) -> list[Path]:
        """The Parquet files of the answers."""
        return sorted(self.path.glob(f"*{PARQUET}")) if self.path.is_dir() else [self.path]


Report = Callable[[str, int, int], None]
"""Called after each round with the title of a relation, the round, and the rows it added."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of a run.

    `memory_limit` is that of the database, such as 300MB, and `settings` are others of its own.
    `max_rows` limits the derived rows, demand included; 0 is no limit. `resume` continues a run
    that was stopped. `report` is called after each round. `clock` gives the instant of a run that
    reads `now()`; a resumed run keeps its instant.
    """

    memory_limit: str | None = None
    max_rows: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    resume: bool = False
    report: Report = lambda title, round_, rows: None
    clock: Clock = field(default_factory=SystemClock)


def run_job(
    job: BulkJob, database: BulkDatabase, out: Path, options: RunOptions | None = None
) -> BulkResult:
    """Evaluate a job and write its answers to a new Parquet file, or folder of them, in `out`.

    Temporary files are in a hidden folder inside `out`. A run that is stopped after it has read the
    facts leaves it, so that another run with `resume` can continue. Raises InvalidInput if the
    answers exist or the run to resume had other inputs, BudgetExceeded, ConfigError.
    """
    options = options or RunOptions()
    goal = job.plan.goal
    table = str(TableName(goal.predicate, goal.positive))
    file, folder = out / f"{table}{PARQUET}", out / table
    for path in (file, folder):
        if path.exists():
            raise InvalidInput(f"{path} exists; remove it, or choose another folder with --out")
    out.mkdir(parents=True, exist_ok=True)
    name = type(database).__name__
    with WorkFolder(out / f".bulk-{table}", job, name, options.resume) as work:
        engine = database.open(
            BulkOptions(str(work.data), options.memory_limit, dict(options.settings))
        )
        try:
            driver = _RunDriver(job, engine, work, options)
            driver.evaluate()
            unfinished = work.data / "answers"
            answers = engine.answers(driver.plan, str(unfinished))
            path = folder if unfinished.is_dir() else file
            unfinished.rename(path)
            work.finished = True
        finally:
            engine.close()
    return BulkResult(path, answers, driver.done.facts, driver.done.rows, driver.done.rounds)


class _RunDriver:
    def __init__(
        self, job: BulkJob, engine: BulkEngine, work: WorkFolder, options: RunOptions
    ) -> None:
        self._job = job
        self.done = work.progress or WorkProgress()
        if job.plan.dated and self.done.now is None:
            self.done.now = options.clock.now_ms()
        self.plan = job.plan if self.done.now is None else job.plan.at(instant_text(self.done.now))
        self._engine = engine
        self._work = work
        self._max_rows = options.max_rows
        self._report = options.report
        self._last_uses = _last_uses(job.plan)

    def evaluate(self) -> None:
        plan, engine = self.plan, self._engine
        if self._work.progress is None:
            self.done.facts = engine.bind(plan, self._job.facts)
            heads = {name for stratum in plan.strata for name in stratum.relations}
            if plan.seed is not None and plan.seed not in heads:
                engine.make(plan.seed, plan.arities[plan.seed], [plan.seed_row])
            self._work.save(self.done)
        else:
            engine.restore(plan, self._rounds())
        for index in range(self.done.stratum, len(plan.strata)):
            self._stratum(plan.strata[index])
            self.done.stratum, self.done.round_ = index + 1, None
            self._work.save(self.done)  # before relations go that the stratum needed
            for name, use in self._last_uses.items():
                if use == index and name != plan.answer:
                    engine.drop(name)

    def _rounds(self) -> dict[str, int | None]:
        """Return the relations that exist at this point, each with its last round (None: any)."""
        plan, done = self.plan, self.done
        rounds: dict[str, int | None] = dict.fromkeys(plan.stored)
        if plan.seed is not None:
            rounds[plan.seed] = None
        for stratum in plan.strata:
            for name in stratum.relations:
                rounds.pop(name, None)
        for index, stratum in enumerate(plan.strata[: done.stratum + 1]):
            if index < done.stratum or done.round_ is not None:
                last = None if index < done.stratum else done.round_
                rounds.update(dict.fromkeys(stratum.relations, last))
        return {
            name: last
            for name, last in rounds.items()
            if name == plan.answer or self._last_uses.get(name, -1) >= done.stratum
        }

    def _stratum(self, stratum: BulkStratum) -> None:
        plan, done = self.plan, self.done
        if done.round_ is None:
            for name in stratum.relations:
                rows = [plan.seed_row] if name == plan.seed else []
                self._engine.make(name, plan.arities[name], rows)
            done.added = sum(self._extend(name, stratum.start, 0) for name in stratum.relations)
            done.added += plan.seed in stratum.relations
            done.round_ = 0
            self._work.save(done)
        while stratum.rounds and done.added:
            round_ = done.round_ + 1
            done.added = sum(
                self._extend(name, stratum.rounds, round_) for name in stratum.relations
            )
            done.round_, done.rounds = round_, done.rounds + 1
            self._work.save(done)

    def _extend(self, name: str, versions: tuple[ClauseVersion, ...], round_: int) -> int:
        own = [version for version in versions if version.head == name]
        if not own:
            return 0
        rows = self._engine.extend(name, own, round_)
        self.done.rows += rows
        self._report(self.plan.titles[name], round_, rows)
        if self._max_rows and self.done.rows > self._max_rows:
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
