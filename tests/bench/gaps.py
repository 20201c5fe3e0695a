"""Gaps between two turns of other requests while one request is served in process, by stack.

`python tests/bench/gaps.py PATH FIELD --rules N` sends N rules, `--facts N` facts; `--text FILE`
sends the content of a file. `--fork N`, `--merge N` and `--drop N` in place of a path and a field
fork, merge or drop a scope of N facts of each kind. Prints the CPU seconds, the longest gap, and
for each gap of more than `--over` milliseconds the stacks that a second thread found in it.

Calls that a server makes in its thread pool are made in place and are no part of a gap.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from kbcore.clock import ManualClock, SystemClock
from kbcore.config import Config
from kbcore.node.opening import open_runtime
from kbcore.scheduling import Scheduling
from kbplanner.syntax.parser import load_grammar
from kbserver import create_app
from kbserver.process.garbage_collection import (
    GENERATION_0_OBJECTS,
    GENERATION_1_RUNS,
    NO_GENERATION_2,
)

SAMPLE_SECONDS = 0.001
FRAMES = 6
"""Innermost functions of a stack that are shown."""

SHOWN_GAPS = 8
STACKS_OF_A_GAP = 4
"""Longest gaps that are shown, and the most frequent stacks of each."""


class Gaps:
    """The CPU times between two calls, which other processes do not lengthen; a thread samples the
    stacks of the long ones.
    """

    def __init__(self, over_seconds: float) -> None:
        self._over = over_seconds
        self._main = threading.get_ident()
        self._stacks: Counter[tuple[str, ...]] = Counter()
        self._number = 0
        self._collecting = 0.0
        self._collected = 0.0
        self._last = time.perf_counter()
        self._worked = time.thread_time()
        self._ended = threading.Event()
        self.longest = self.longest_collection = 0.0
        self.turns = 0
        self.long: list[tuple[float, float, Counter[tuple[str, ...]]]] = []
        """CPU seconds, those of them in garbage collections, and stacks of gaps."""

    def __call__(self) -> None:
        """Take a turn."""
        seconds = time.thread_time() - self._worked
        self.longest = max(self.longest, seconds)
        if seconds > self._over:
            self._stacks[("before", *_shown(sys._getframe(1)))] += 1
            self.long.append((seconds, self._collected, self._stacks))
        self.turns += 1
        self._restart()

    def offload(self, call: Callable[[], Any]) -> Any:
        """Make a call that a server makes in another thread."""
        self()
        try:
            return call()
        finally:
            self._restart()

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure the gaps in this block."""
        thread = threading.Thread(target=self._sample, daemon=True)
        gc.callbacks.append(self._collect)
        self._restart()
        thread.start()
        try:
            yield
        finally:
            self()
            gc.callbacks.remove(self._collect)
            self._ended.set()
            thread.join()

    def _restart(self) -> None:
        self._number += 1
        if self._stacks:
            self._stacks = Counter()
        self._collected = 0.0
        self._last = time.perf_counter()
        self._worked = time.thread_time()

    def _collect(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.thread_time()
            return
        seconds = time.thread_time() - self._collecting
        self._collected += seconds
        self.longest_collection = max(self.longest_collection, seconds)

    def _sample(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            number, stacks = self._number, self._stacks
            if time.perf_counter() - self._last > self._over / 4:
                shown = _shown(sys._current_frames()[self._main])
                if number == self._number:
                    stacks[shown] += 1


def _shown(frame: FrameType | None) -> tuple[str, ...]:
    names = []
    while frame is not None:
        code = frame.f_code
        if any(name in code.co_filename for name in ("kbplanner", "kbcore", "kbserver")):
            names.append(f"{Path(code.co_filename).stem}.{code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(names[:FRAMES])


class Hooks:
    """What a node calls to give way; nothing happens until `gaps` is set."""

    gaps: Gaps | None = None

    def yield_now(self) -> None:
        """Take a turn."""
        if self.gaps is not None:
            self.gaps()

    def offload(self, call: Callable[[], Any]) -> Any:
        """Make a call in place."""
        return call() if self.gaps is None else self.gaps.offload(call)


Request = tuple[str, str, Any]
"""Method, path and body."""


def gaps_of(
    request: Request,
    over_seconds: float,
    before: Iterable[Request] = (),
    timeout_ms: int | None = None,
) -> tuple[Gaps, float, int]:
    """Return the gaps of one request, its CPU seconds, and the status of the answer; `before` are
    requests that are sent first. `timeout_ms` is the deadline of the request, None for none.
    """
    hooks = Hooks()
    runtime = open_runtime(
        Config(storage_backend="memory", query_timeout_ms=timeout_ms or 3_600_000),
        clock=ManualClock(1_700_000_000_000) if timeout_ms is None else SystemClock(),
        scheduling=Scheduling(yield_now=hooks.yield_now, offload=hooks.offload),
    )
    try:
        client = create_app(runtime).test_client()
        for method, path, body in (*before, request):
            if path == request[1]:
                hooks.gaps = gaps = Gaps(over_seconds)
                data = json.dumps(body).encode()
                began = time.thread_time()
                with gaps.measured():
                    answer = _sent(client, method, path, data)
                hooks.gaps = None
                return gaps, time.thread_time() - began, answer.status_code
            answer = _sent(client, method, path, json.dumps(body).encode())
            if answer.status_code != 200:
                raise RuntimeError(f"{path} was answered with {answer.text}")
    finally:
        runtime.close()
    raise AssertionError


def _sent(client: FlaskClient, method: str, path: str, data: bytes) -> TestResponse:
    headers = {"X-Tenant-ID": "t"}
    return client.open(
        path, method=method, data=data, content_type="application/json", headers=headers
    )


def _facts(count: int, scope: str | None, **more: Any) -> Iterator[Request]:
    """Yield requests that store facts of each kind: plain, with a confidence, with metadata and
    with an end.
    """
    for name, extra in KINDS.items():
        for start in range(0, count, FACTS_OF_A_BODY):
            numbers = range(start, min(start + FACTS_OF_A_BODY, count))
            facts = [
                {"predicate": name, "args": [f"a{number}", "b"], **extra, **more, "scope": scope}
                for number in numbers
            ]
            yield "POST", "/assert/facts", {"facts": facts}


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sure": {"confidence": 0.5},
    "noted": {"metadata": {"note": "n"}},
    "ended": {"ttl": 1_000_000},
    "denied": {"negated": True},
}
"""Facts of a scope that is forked, merged or dropped."""

FACTS_OF_A_BODY = 20_000


def _scope_request(operation: str, count: int) -> tuple[Request, list[Request]]:
    """Return an operation on a scope of `count` facts of each kind, and what comes before it."""
    before = list(_facts(count, "s"))
    if operation == "drop":
        return ("DELETE", "/scope/s", {}), before
    body = {"sourceScope": "s", "targetScope": "u"}
    if operation == "fork":
        return ("POST", "/scope/fork", body), before
    before += _facts(count // 2, "u", confidence=0.25)
    return ("POST", f"/scope/{operation}", body), before


def main() -> None:
    """Measure one request."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?")
    parser.add_argument("field", nargs="?")
    for content in "rules", "facts", *OPERATIONS:
        parser.add_argument(f"--{content}", type=int, nargs="+", default=[], metavar="N")
    parser.add_argument("--text")
    parser.add_argument("--timeout-ms", type=int)
    parser.add_argument("--over", type=float, default=20.0)
    options = parser.parse_args()
    load_grammar()
    gc.freeze()
    gc.set_threshold(GENERATION_0_OBJECTS, GENERATION_1_RUNS, NO_GENERATION_2)
    texts = {
        f"{count} rules": "".join(f"h{i}(?x) :- q(?x, a{i}).\n" for i in range(count))
        for count in options.rules
    }
    texts |= {
        f"{count} facts": "".join(f"likes(ann{i}, bob).\n" for i in range(count))
        for count in options.facts
    }
    if options.text:
        texts[options.text] = Path(options.text).read_text()
    known: Request = ("POST", "/tell", {"predicate": "known", "args": ["a"]})
    measured: list[tuple[str, Request, list[Request]]] = [
        (f"{options.path} {name}", ("POST", options.path, {options.field: text}), [known])
        for name, text in texts.items()
    ]
    for operation in OPERATIONS:
        for count in getattr(options, operation):
            measured.append((f"{operation} of {count}", *_scope_request(operation, count)))
    for name, request, before in measured:
        gaps, seconds, status = gaps_of(request, options.over / 1000, before, options.timeout_ms)
        print(
            f"{name}: {status}, {seconds:.2f} s CPU, {gaps.turns} turns, longest gap"
            f" {gaps.longest * 1000:.0f} ms, longest collection {gaps.longest_collection * 1000:.0f} ms"
        )
        for gap, collecting, stacks in sorted(gaps.long, key=lambda each: -each[0])[:SHOWN_GAPS]:
            print(f"  {gap * 1000:.0f} ms, {collecting * 1000:.0f} ms of them in collections")
            for stack, count in stacks.most_common(STACKS_OF_A_GAP):
                print(f"    {count:5}  {' < '.join(stack)}")


OPERATIONS = ("fork", "diff", "merge", "drop")


if __name__ == "__main__":
    main()
