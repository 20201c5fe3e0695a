"""The folder of a run's temporary files: one run at a time, and what a stopped run has
completed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from kbcore.bulk.job import BulkJob
from kbcore.errors import InvalidInput
from kbcore.system_calls import sync_file

_VERSION = 1


@dataclass(slots=True)
class WorkProgress:
    """The last complete round: `round_` of stratum number `stratum` added `added` rows.

    `round_` is None before the stratum has begun. `facts`, `rows` and `rounds` count the facts
    read, the rows derived and the rounds of all strata. Rows of a later, incomplete round may be
    counted in memory, but never in the file. `now` is the instant of a run that reads `now()`, in
    epoch milliseconds.
    """

    stratum: int = 0
    round_: int | None = None
    added: int = 0
    facts: int = 0
    rows: int = 0
    rounds: int = 0
    now: int | None = None


class WorkFolder:
    """A folder for one run at a time; it is removed at the end of a run that is `finished`, and
    of one that failed while it read the facts.

    `progress` is that of a stopped run to continue, None for a new run, which removes what a
    stopped one left. Raises InvalidInput if another process has the folder, and, to resume, if
    there is nothing to resume or the inputs have changed.
    """

    def __init__(self, path: Path, job: BulkJob, engine: str, resume: bool) -> None:
        self._path = path
        self._state = path / "progress.json"
        self._inputs = _digests(job) | {"engine": engine}
        self._resume = resume
        self.data = path / "data"
        self.progress: WorkProgress | None = None
        self.finished = False

    def __enter__(self) -> WorkFolder:
        if self._resume and not self._state.is_file():
            raise InvalidInput(
                f"nothing to resume: {self._path} has no stopped run; run without --resume"
            )
        self._path.mkdir(exist_ok=True)
        self._lock = os.open(self._path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._resume:
                self.progress = self._stored()
            else:
                self._state.unlink(missing_ok=True)
                shutil.rmtree(self.data, ignore_errors=True)
                self.data.mkdir()
        except BlockingIOError as error:
            os.close(self._lock)
            raise InvalidInput(f"another run of this goal uses {self._path}") from error
        except InvalidInput:
            os.close(self._lock)
            raise
        return self

    def save(self, progress: WorkProgress) -> None:
        """Record the last complete round, durably."""
        text = json.dumps({"version": _VERSION, "inputs": self._inputs, **asdict(progress)})
        part = self._state.with_suffix(".part")
        with part.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            sync_file(file.fileno())
        part.replace(self._state)

    def _stored(self) -> WorkProgress:
        stored = json.loads(self._state.read_text(encoding="utf-8"))
        if stored.pop("version") != _VERSION:
            raise InvalidInput(f"{self._path} is of another version; run without --resume")
        inputs = stored.pop("inputs")
        for name, digest in self._inputs.items():
            if inputs.get(name) != digest:
                raise InvalidInput(
                    f"the run in {self._path} was started with a different input ({name}); run "
                    "without --resume to start from the beginning"
                )
        return WorkProgress(**stored)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.finished or not self._state.exists():
            shutil.rmtree(self._path)
        os.close(self._lock)


def _digests(job: BulkJob) -> dict[str, str]:
    """Return a digest of each input of a job: goal, rules, facts; files by size and time."""
    plan = job.plan
    facts = []
    for each in job.facts:
        files = [(path, os.stat(path)) for path in each.files]
        facts.append(
            (each.title, each.rows, [(path, s.st_size, s.st_mtime_ns) for path, s in files])
        )
    parts = {
        "goal": [str(plan.goal), plan.seed_row],
        "rules": [list(map(str, plan.versions())), plan.titles, plan.constants],
        "facts": facts,
    }
    return {
        name: hashlib.blake2b(repr(part).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        for name, part in parts.items()
    }
