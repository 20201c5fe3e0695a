"""The C engine behind the protocols of `backend`.

One mutex admits one call at a time; long work runs in slices. `close()` frees a handle; a handle
that is garbage-collected without it is freed before the next call.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import accumulate, pairwise
from typing import Any, NoReturn, cast

from kbplanner.engine import backend
from kbplanner.engine.backend import (
    SLICE,
    Offload,
    RuleCounts,
    RunLimits,
    RunState,
    RunStats,
    SmallGoalResult,
)
from kbplanner.engine.binding import (
    BUDGETS,
    check,
    encode,
    ffi,
    lib,
    limits_struct,
    new_array,
    opcodes,
)
from kbplanner.engine.ground import Ground
from kbplanner.engine.lexical import Matching
from kbplanner.engine.model import Model
from kbplanner.engine.relation import Relation, handle_of
from kbplanner.engine.vectors import NearestSearch, SignSearch, StoredVectors, sign_words
from kbplanner.errors import BudgetExceeded, EngineFault

__all__ = ["CompiledPlan", "Engine", "Relation", "Run", "opcodes"]

MAX_CACHED_TEXTS = 1 << 18
"""Texts cached as Python strings beside the engine's own: at most about 20 MB."""

OFFLOADED_SORT_ROWS = 20_000
"""Number of rows whose sorting takes some milliseconds."""

SCRATCH_SYMBOLS = 1 << 14
"""Number of symbols in the buffer for answers of small goals."""

_DONE = RunState.DONE
_PLAN_HEAD = 8
_NO_SLOT = 0xFFFFFFFF


class Engine:
    """Symbols and relations of one tenant; see `backend.Engine`. `max_bytes` 0 = no budget.

    `threads`, at most 64, evaluate a large recursion together; they exist during a call only.
    """

    def __init__(self, max_bytes: int = 0, *, fail_after: int = 0, threads: int = 1) -> None:
        self._handle: Any = None
        self._lock = threading.Lock()
        self._pending_closes: deque[tuple[Any, Any]] = deque()
        self._free_instants: list[int] = []
        self._text_cache: dict[int, str] = {}
        self._symbol_cache: dict[str, int] = {}
        self._scratch = _Scratch()
        self.max_bytes = max_bytes
        out = ffi.new("kb_engine **")
        budget = {"max_bytes": max_bytes, "fail_after": fail_after, "threads": threads}
        options = ffi.new("kb_options *", budget)
        check(lib.kb_engine_open(options, out), max_bytes)
        self._handle = out[0]

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self._close_pending()
            lib.kb_engine_close(self._handle)

    def _close_pending(self) -> None:
        """Close runs and models that were garbage-collected during a call."""
        while self._pending_closes:
            close, handle = self._pending_closes.popleft()
            close(handle)

    def close_later(self, close: Any, handle: Any) -> None:
        """Close a run or model now or before the next call; never block, since garbage collection
        may call this.
        """
        self._pending_closes.append((close, handle))
        if self._lock.acquire(blocking=False):
            try:
                self._close_pending()
            finally:
                self._lock.release()

    def _locked_handle(self) -> Any:
        """Return the handle to a caller that holds the lock."""
        if self._handle is None:
            raise EngineFault("engine: the engine is closed")
        if self._pending_closes:
            self._close_pending()
        return self._handle

    def call(self, function: Any, *arguments: Any) -> int:
        """Take the mutex and call a function whose first argument is the engine."""
        with self._lock:
            handle = self._handle
            if handle is None or self._pending_closes:
                handle = self._locked_handle()
            status: int = function(handle, *arguments)
            return status if status >= 0 else check(status, self.max_bytes)

    def intern(self, text: str) -> int:
        """Return the symbol of a text; create it if it is new."""
        encoded = encode(text)
        out = ffi.new("kb_sym *")
        self.call(lib.kb_intern, encoded, len(encoded), out)
        return int(out[0])

    def intern_many(self, texts: Sequence[str]) -> array[int]:
        """Return the symbols of many texts in one call."""
        return self._symbols_of(lib.kb_intern_many, texts)

    def find_many(self, texts: Sequence[str]) -> array[int]:
        """Return the symbols of many texts in one call, 0 for one that was never interned."""
        return self._symbols_of(lib.kb_find_many, texts)

    def _symbols_of(self, function: Any, texts: Sequence[str]) -> array[int]:
        joined = "".join(texts)
        if joined.isascii():
            encoded = joined.encode()
            ends = array("Q", accumulate(map(len, texts)))
        else:
            parts = [encode(text) for text in texts]
            encoded = b"".join(parts)
            ends = array("Q", accumulate(map(len, parts)))
        out = new_array(len(ends))
        ends_view, out_view = ffi.from_buffer("uint64_t[]", ends), ffi.from_buffer("kb_sym[]", out)
        self.call(function, encoded, ends_view, len(ends), out_view)
        return out

    def find(self, text: str) -> int:
        """Return the symbol of a text, 0 if it was never interned."""
        known = self._symbol_cache.get(text)
        if known is not None:
            return known
        encoded = encode(text)
        with self._lock:
            out = self._scratch.symbol
            check(lib.kb_find(self._locked_handle(), encoded, len(encoded), out))
            symbol: int = out[0]
        if symbol:  # a symbol never changes
            if len(self._symbol_cache) >= MAX_CACHED_TEXTS:
                self._symbol_cache = {}
            self._symbol_cache[text] = symbol
        return symbol

    def text(self, symbol: int) -> str:
        """Return the text of a symbol."""
        out, length = ffi.new("char **"), ffi.new("size_t *")
        with self._lock:  # until the text, which is borrowed, is copied
            check(lib.kb_symbol(self._locked_handle(), symbol, out, length))
            return bytes(ffi.buffer(out[0], length[0])).decode()

    def texts_once(self, symbols: array[int]) -> list[str]:
        """Return the texts of many symbols without caching them."""
        return self._decoded(symbols)

    def texts(self, symbols: array[int]) -> list[str]:
        """Return the texts of many symbols; recently used ones are cached as Python strings."""
        names = self._text_cache
        try:
            return [names[symbol] for symbol in symbols]
        except KeyError:
            new = array("I", set(symbols).difference(names))
        if len(names) + len(new) > MAX_CACHED_TEXTS:
            names = {}  # a new dict: another thread may be reading the old one
            new = array("I", set(symbols))
            if len(new) <= MAX_CACHED_TEXTS:
                self._text_cache = names
        names.update(zip(new, self._decoded(new), strict=True))
        return [names[symbol] for symbol in symbols]

    def _decoded(self, symbols: array[int]) -> list[str]:
        result: list[str] = []
        view = ffi.from_buffer("kb_sym[]", symbols)
        ends = ffi.new("uint64_t[]", max(len(view), 1))
        filled = ffi.new("size_t *")
        size = 16 * len(view) + 64
        while len(result) < len(view):
            left = len(view) - len(result)
            buffer = ffi.new("char[]", size)
            self.call(lib.kb_symbols_text, view + len(result), left, buffer, size, ends, filled)
            stops = ffi.unpack(ends, filled[0]) if filled[0] else []
            encoded = ffi.buffer(buffer, stops[-1])[:] if stops else b""
            spans = pairwise([0, *stops])
            if encoded.isascii():
                whole = encoded.decode()
                result.extend([whole[start:stop] for start, stop in spans])
            else:
                result.extend([encoded[start:stop].decode() for start, stop in spans])
            size *= 4
        return result

    def number(self, symbol: int) -> int | float | None:
        """Return the numeric value of a symbol: an int within 64 bits, a float, or None for
        text.
        """
        kind, integer, real = ffi.new("uint32_t *"), ffi.new("int64_t *"), ffi.new("double *")
        self.call(lib.kb_symbol_number, symbol, kind, integer, real)
        if kind[0] == 0:
            return None
        return int(integer[0]) if kind[0] == 1 else float(real[0])

    @property
    def symbols(self) -> int:
        """The number of symbols; they are 1 to this number."""
        with self._lock:
            return int(lib.kb_symbol_count(self._locked_handle()))

    def sort(
        self,
        rows: array[int],
        arity: int,
        offload: Offload | None = None,
        *,
        in_place: bool = False,
    ) -> array[int]:
        """Return the rows in answer order: numbers before text, numbers by value then text, text by
        code point.
        """
        result = rows if in_place else rows[:]
        count = len(rows) // arity if arity else 0
        view = ffi.from_buffer("kb_sym[]", result)
        if offload is None or count < OFFLOADED_SORT_ROWS:
            self.call(lib.kb_sort_rows, view, arity, count)
        else:
            self.call(
                lambda handle: offload(lambda: int(lib.kb_sort_rows(handle, view, arity, count)))
            )
        return result

    def relation(self, arity: int) -> Relation:
        """Return a new empty relation."""
        out = ffi.new("kb_rel *")
        self.call(lib.kb_relation_new, arity, out)
        return Relation(self, out[0], arity)

    def freeze(self, relations: Sequence[backend.Relation]) -> list[Relation]:
        """Return the relations as they are now, to be settled and read later."""
        handles = ffi.new("kb_rel[]", [handle_of(relation, self) for relation in relations])
        out = ffi.new("kb_rel[]", max(len(relations), 1))
        self.call(lib.kb_relation_snapshot, handles, len(relations), out)
        return [Relation(self, out[i], relation.arity) for i, relation in enumerate(relations)]

    def load(self, words: array[int]) -> CompiledPlan:
        """Verify bytecode; raises EngineFault naming the word at fault."""
        out, bad = ffi.new("kb_plan **"), ffi.new("size_t *")
        status = lib.kb_plan_load(ffi.from_buffer("kb_word[]", words), len(words), out, bad)
        if status == lib.KB_BADPLAN:
            raise EngineFault(
                f"engine: the bytecode was refused at word {bad[0]}", {"word": bad[0]}
            )
        check(status)
        return CompiledPlan(ffi.gc(out[0], lib.kb_plan_free), words)

    def open_run(
        self,
        plan: backend.CompiledPlan,
        base: Sequence[backend.Relation],
        params: Sequence[int] = (),
        limits: RunLimits | None = None,
        instant: tuple[int, str] | None = None,
    ) -> Run:
        """Start an evaluation of a plan over base relations, given in slot order.

        `instant` is the index and the text of a parameter that no row of the run has: its symbol is
        used again when the run is closed.
        """
        if not isinstance(plan, CompiledPlan) or plan.handle is None:
            raise EngineFault("engine: the plan is closed or of another engine")
        handles = [handle_of(relation, self) for relation in base]
        budget = limits or RunLimits()
        with self._lock:
            handle, scratch = self._locked_handle(), self._scratch
            options, out = scratch.options(budget), scratch.run
            symbol = None
            if instant is not None:
                symbol = self._locked_instant(handle, instant[1])
                params = (*params[: instant[0]], symbol, *params[instant[0] + 1 :])
            bound, parameters = scratch.relations(handles), scratch.parameters(params)
            status = lib.kb_run_open(
                handle, plan.handle, bound, len(handles), parameters, len(params), options, out
            )
            check(status, self.max_bytes)
            return Run(self, plan, out[0], budget, symbol)

    def _locked_instant(self, handle: Any, text: str) -> int:
        """Return a symbol for the text of an instant that no open run has; all have the same
        length.
        """
        encoded, out = encode(text), ffi.new("kb_sym *")
        known = self._free_instants.pop() if self._free_instants else 0
        check(lib.kb_symbol_reuse(handle, known, encoded, len(encoded), out), self.max_bytes)
        return int(out[0])

    def model(self, ground: Ground, limits: RunLimits) -> Model:
        """Return the well-founded model of a ground program, to be stepped until DONE; raises
        BudgetExceeded.
        """
        return Model(self, ground, limits)

    # The word search reads the caller's arrays only, so that it needs no mutex.

    def best_matches(self, search: Matching, k: int) -> tuple[array[int], array[float]]:
        """Return indexes and scores of the at most `k` facts that match the words best."""
        k = min(k, len(search.lengths))
        indexes, scores, filled = new_array(k), array("d", bytes(8 * k)), ffi.new("size_t *")
        with _PinnedSearch(search) as request:
            indexes_view = ffi.from_buffer("uint32_t[]", indexes)
            scores_view = ffi.from_buffer("double[]", scores)
            check(lib.kb_lexical_best(request, indexes_view, scores_view, k, filled))
            ffi.release(indexes_view)
            ffi.release(scores_view)
        del indexes[filled[0] :], scores[filled[0] :]
        return indexes, scores

    def having(self, search: Matching) -> list[int]:
        """Return, for each word, how many of the searchable facts have it."""
        counts = ffi.new("uint64_t[]", len(search.words) or 1)
        with _PinnedSearch(search) as request:
            check(lib.kb_lexical_counts(request, counts))
        return list(counts[0 : len(search.words)])

    def nearest(
        self, search: NearestSearch, positions: array[int], k: int
    ) -> tuple[array[int], array[float]]:
        """Return the vectors nearest to the query among those at `positions`, as indexes into
        `positions`.
        """
        if len(search.cells) < len(search.factors) * len(search.query.cells):
            raise EngineFault("there are fewer numbers than vectors")
        k = min(k, len(positions))
        indexes, scores, filled = new_array(k), array("d", bytes(8 * k)), ffi.new("size_t *")
        request = ffi.new("kb_vectors *")
        with ExitStack() as pinned:

            def view(kind: str, values: array[int] | array[float] | bytearray) -> Any:
                pointer = ffi.from_buffer(kind, values)
                pinned.callback(ffi.release, pointer)
                return pointer

            request.cells = view("int8_t[]", search.cells)
            request.factors = view("float[]", search.factors)
            request.place_count = len(search.factors)
            request.dimension = len(search.query.cells)
            request.query = view("int16_t[]", search.query.cells)
            request.query_factor, request.least = search.query.factor, search.least
            check(
                lib.kb_vectors_best(
                    request,
                    view("uint32_t[]", positions),
                    len(positions),
                    view("uint32_t[]", indexes),
                    view("double[]", scores),
                    k,
                    filled,
                )
            )
        del indexes[filled[0] :], scores[filled[0] :]
        return indexes, scores

    def add_vectors(
        self, vectors: StoredVectors, start: int, stop: int, sums: array[float]
    ) -> None:
        """Add the vectors at the positions from `start` to `stop` to `sums`, number by number."""
        with _PinnedVectors(vectors, start, stop, sums) as (cells, factors, numbers):
            check(lib.kb_vectors_sum(cells, factors, vectors.dimension, stop - start, numbers))

    def write_signs(
        self,
        vectors: StoredVectors,
        start: int,
        stop: int,
        centre: array[float],
        signs: array[int],
    ) -> None:
        """Write the signs of the vectors at the positions from `start` to `stop`."""
        words = sign_words(vectors.dimension)
        if len(signs) < stop * words:
            raise EngineFault("there are fewer signs than vectors")
        with (
            _PinnedVectors(vectors, start, stop, centre) as (cells, factors, numbers),
            ffi.from_buffer("uint64_t[]", signs, require_writable=True) as bits,
        ):
            first = bits + start * words
            check(lib.kb_signs_of(cells, factors, vectors.dimension, stop - start, numbers, first))

    def differing_signs(
        self,
        search: SignSearch,
        positions: memoryview,
        differing: memoryview,
        counts: array[int],
    ) -> None:
        """Write how many signs of the vectors at `positions` differ from the query."""
        words = len(search.query)
        if len(differing) < len(positions) or len(counts) <= 64 * words:
            raise EngineFault("an array does not fit the number of signs or vectors")
        with (
            ffi.from_buffer("uint64_t[]", search.signs) as signs,
            ffi.from_buffer("uint64_t[]", search.query) as query,
            ffi.from_buffer("uint32_t[]", positions) as places,
            ffi.from_buffer("uint16_t[]", differing, require_writable=True) as out,
            ffi.from_buffer("uint32_t[]", counts, require_writable=True) as totals,
        ):
            stored = len(search.signs) // (words or 1)
            count = len(positions)
            check(lib.kb_signs_differing(signs, stored, words, query, places, count, out, totals))

    def at_most(self, differing: array[int], most: int, count: int) -> array[int]:
        """Return the indexes of the first `count` numbers that are at most `most`."""
        count = min(count, len(differing))
        indexes, filled = new_array(count), ffi.new("size_t *")
        with (
            ffi.from_buffer("uint16_t[]", differing) as numbers,
            ffi.from_buffer("uint32_t[]", indexes, require_writable=True) as view,
        ):
            check(lib.kb_signs_within(numbers, len(differing), most, view, count, filled))
        del indexes[filled[0] :]
        return indexes

    @property
    def bytes(self) -> int:
        """Return all bytes held."""
        with self._lock:
            return int(lib.kb_engine_bytes(self._locked_handle()))

    def fail_after(self, allocations: int) -> None:
        """Make the n-th allocation from now fail (0 = none); for tests."""
        with self._lock:
            lib.kb_engine_fail_after(self._locked_handle(), allocations)

    def close(self) -> None:
        """Free everything; runs and models that are still open can only be closed afterwards."""
        with self._lock:
            if self._handle is not None:
                self._close_pending()
                lib.kb_engine_close(self._handle)  # an open run keeps the memory until it is closed
                self._handle = None


class _PinnedVectors:
    """Pointers to the vectors of a range of positions and to as many numbers as a vector has."""

    def __init__(
        self, vectors: StoredVectors, start: int, stop: int, numbers: array[float]
    ) -> None:
        fits = 0 <= start <= stop <= len(vectors.factors)
        if not fits or len(vectors.cells) < stop * vectors.dimension:
            raise EngineFault("there are fewer vectors than positions")
        if len(numbers) != vectors.dimension:
            raise EngineFault("the centre or the sums are of another dimension")
        self._vectors, self._start, self._numbers = vectors, start, numbers

    def __enter__(self) -> tuple[Any, Any, Any]:
        self._cells = ffi.from_buffer("int8_t[]", self._vectors.cells)
        self._factors = ffi.from_buffer("float[]", self._vectors.factors)
        self._doubles = ffi.from_buffer("double[]", self._numbers)
        first = self._cells + self._start * self._vectors.dimension
        return first, self._factors + self._start, self._doubles

    def __exit__(self, *exception: object) -> None:
        for pointer in (self._cells, self._factors, self._doubles):
            ffi.release(pointer)


class _PinnedSearch:
    """A `kb_lexical` over the arrays of a Matching, which stay pinned while it is open."""

    def __init__(self, search: Matching) -> None:
        self._search = search
        self._views: list[Any] = []

    def __enter__(self) -> Any:
        search = self._search
        words = ffi.new("kb_posting[]", len(search.words) or 1)
        for word, (indexes, weight) in zip(words, search.words, strict=False):
            word.facts = self._view("uint32_t[]", indexes)
            word.count, word.weight = len(indexes), weight
        request = ffi.new("kb_lexical *")
        request.words, request.word_count = words, len(search.words)
        request.scale, request.flat, request.slope = search.scale, search.flat, search.slope
        request.lengths = self._view("uint16_t[]", search.lengths)
        request.visible = self._view("uint8_t[]", search.visible)
        request.owners = self._view("uint32_t[]", search.owners)
        request.fact_count = len(search.owners)
        request.ranks = self._view("uint32_t[]", search.ranks)
        request.owner_count = len(search.ranks)
        request.min_length, request.max_times = search.shortest, search.most
        request.min_score = search.minimum
        self._views.append(words)
        return request

    def __exit__(self, *exception: object) -> None:
        words = self._views.pop()
        for view in self._views:
            ffi.release(view)
        del words

    def _view(self, kind: str, values: array[int] | bytearray) -> Any:
        view = ffi.from_buffer(kind, values)
        self._views.append(view)
        return view


class _Scratch:
    """Buffers for small goals, used while the engine's mutex is held."""

    def __init__(self) -> None:
        self.symbol = ffi.new("kb_sym *")
        self.seed = ffi.new("kb_sym[]", 64)
        self.pattern = ffi.new("kb_sym[]", 64)
        self.limits = ffi.new("kb_limits *")
        self._last_limits: RunLimits | None = None
        self.rows = ffi.new("kb_sym[]", SCRATCH_SYMBOLS)
        self.answer = ffi.new("kb_answer *")
        self.run = ffi.new("kb_run **")
        self._relations = ffi.new("kb_rel[]", 64)

    def options(self, limits: RunLimits) -> Any:
        """Return the limits as the engine takes them."""
        options = self.limits
        if limits is self._last_limits:
            return options
        options.max_rows, options.max_bytes, options.max_steps = (
            limits.rows,
            limits.bytes,
            limits.steps,
        )
        self._last_limits = limits
        return options

    def relations(self, handles: Sequence[int]) -> Any:
        """Return the handles of relations as an array."""
        if len(handles) > 64:
            return ffi.new("kb_rel[]", handles)
        self._relations[0 : len(handles)] = handles
        return self._relations

    def parameters(self, symbols: Sequence[int]) -> Any:
        """Return the parameters of a plan as an array."""
        if len(symbols) > 64:
            return ffi.new("kb_sym[]", symbols)
        self.seed[0 : len(symbols)] = symbols
        return self.seed


class CompiledPlan:
    """Verified bytecode; see `backend.CompiledPlan`. Open runs keep what they need of it."""

    def __init__(self, handle: Any, words: array[int]) -> None:
        self.handle = handle
        slots = words[2]
        self.arities = words[_PLAN_HEAD : _PLAN_HEAD + 2 * slots : 2]
        self.seed_arity = 0 if words[6] == _NO_SLOT else self.arities[words[6]]

    def close(self) -> None:
        """Free the plan; no new run of it may be opened."""
        self.handle = None


class Run:
    """One evaluation; see `backend.Run`."""

    def __init__(
        self,
        engine: Engine,
        plan: CompiledPlan,
        handle: Any,
        limits: RunLimits,
        instant: int | None = None,
    ) -> None:
        self._handle = handle
        self._engine = engine
        self._instant = instant
        self._plan = plan.handle
        self._arities = plan.arities
        self._seed_arity = plan.seed_arity
        self._limits = limits
        self._is_profiled = False
        self._close_mutex = threading.Lock()  # cancel and close may run at the same time

    def __del__(self) -> None:
        self.close()

    def _open_handle(self) -> Any:
        if self._handle is None:
            raise EngineFault("engine: the run is closed")
        return self._handle

    def _call(self, function: Any, *arguments: Any) -> int:
        engine = self._engine
        with engine._lock:
            handle = self._handle  # a concurrent close takes effect after this call
            if handle is None or engine._handle is None or engine._pending_closes:
                handle = self._locked_handle()
            status: int = function(handle, *arguments) or 0
            return status if status >= 0 else self._refused(status, handle)

    def _locked_handle(self) -> Any:
        """Return the handle to a caller that holds the lock of the engine."""
        self._engine._locked_handle()
        return self._open_handle()

    def _refused(self, status: int, handle: Any) -> NoReturn:
        """Raise the exception of a status that is an error."""
        if status != lib.KB_LIMIT:
            check(status, self._engine.max_bytes)
        stats = self._read(handle)
        name = stats.budget or "memoryBytes"
        value = {
            "derivedRows": self._limits.rows,
            "memoryBytes": self._limits.bytes,
            "steps": self._limits.steps,
        }[name]
        raise BudgetExceeded.of_run(name, value, str(stats.rule))

    def seed(self, rows: array[int], count: int) -> None:
        """Add demand: rows of the plan's seed slot."""
        view = ffi.from_buffer("kb_sym[]", rows)
        if count < 0 or len(view) < count * self._seed_arity:
            raise EngineFault("engine: the array has fewer rows than its count")
        self._call(lib.kb_run_seed, view, count)

    def ask(
        self,
        seed: Sequence[int] | None,
        slot: int,
        pattern: Sequence[int],
        limits: RunLimits,
        fuel: int,
    ) -> SmallGoalResult:
        """Run a small goal in one call: add demand (None: none), step, read the matches in a
        derived slot.
        """
        width = len(pattern)
        if width != self._arities[slot] or (seed is not None and len(seed) != self._seed_arity):
            raise EngineFault("engine: the pattern or the seed has another arity than its relation")
        self._limits = limits
        engine = self._engine
        with engine._lock:
            handle = self._handle
            if handle is None or engine._handle is None or engine._pending_closes:
                handle = self._locked_handle()
            scratch = engine._scratch
            answer, columns = scratch.answer, scratch.pattern
            columns[0:width] = pattern
            if seed is None:
                demand = ffi.NULL
            elif seed is pattern:
                demand = columns
            else:
                demand = scratch.seed
                demand[0 : len(seed)] = seed
            capacity = SCRATCH_SYMBOLS // (width or 1)
            budget, buffer = scratch.options(limits), scratch.rows
            status = lib.kb_run_ask(
                handle, demand, budget, fuel, slot, columns, buffer, capacity, answer
            )
            if status != _DONE:
                if status < 0:
                    self._refused(status, handle)
                return SmallGoalResult(RunState(status))
            count = answer.count
            rows = array("I") if count <= capacity else None
            if count and rows is not None:
                rows.frombytes(ffi.buffer(buffer, 4 * count * width))
            return SmallGoalResult(
                _DONE,
                rows,
                answer.bytes,
                bool(answer.evaluated),
                answer.warnings,
                answer.rows_made,
            )

    def step(self, fuel: int, offload: Offload | None = None) -> RunState:
        """Step for about `fuel` steps: DONE, PAUSED, or STALE before it starts again on changed
        relations.

        `offload`, if given, makes each call into the engine; the mutex is always taken in this
        thread. Raises BudgetExceeded, or Cancelled after cancel(); then the run can only be closed.
        """
        enter: Callable[[Any, int], int] = lib.kb_run_step
        if offload is not None:
            enter = lambda handle, amount: offload(lambda: int(lib.kb_run_step(handle, amount)))  # noqa: E731
        while True:
            status = self._call(enter, min(fuel, SLICE))
            fuel -= SLICE
            if status != lib.KB_PAUSED or fuel <= 0 or self._is_profiled:
                return RunState(status)

    def check(self) -> RunState:
        """Return DONE if nothing read has changed, READY if step can continue, STALE if a new run
        is needed.
        """
        return RunState(self._call(lib.kb_run_check))

    def relation(self, slot: int) -> Relation:
        """Return the relation bound to a slot of the plan; a derived one can be read until the run
        is closed.
        """
        out = ffi.new("kb_rel *")
        self._call(lib.kb_run_relation, slot, out)
        return Relation(self._engine, out[0], self._arities[slot], self)

    def _read(self, handle: Any) -> RunStats:
        out = ffi.new("kb_stats *")
        lib.kb_run_stats(handle, out)
        budget = BUDGETS.get(out.budget)
        counted = out.rows_made, out.rows_read, out.probes, out.steps, out.bytes, out.rounds
        return RunStats(*counted, budget, out.rule, out.warnings, out.component)

    def stats(self) -> RunStats:
        """Return the counters so far."""
        with self._engine._lock:
            return self._read(self._open_handle())

    def limit(self, limits: RunLimits) -> None:
        """Set new budgets, counted from now."""
        self._call(lib.kb_run_limits, limits_struct(limits))
        self._limits = limits

    def profile(self) -> None:
        """Enable counts by rule (before the first step), and end a step PAUSED where a stratum
        ends.
        """
        self._call(lib.kb_run_profile)
        self._is_profiled = True

    def counts(self) -> list[RuleCounts]:
        """Return the counts of a profiled run, one for each version of a rule, in the order of the
        plan.
        """
        sizes = ffi.new("size_t[2]")
        self._call(lib.kb_run_counts, ffi.NULL, 0, ffi.NULL, 0, sizes, sizes + 1)
        rules, steps = ffi.new("kb_rule_counts[]", sizes[0]), ffi.new("uint64_t[]", sizes[1])
        self._call(lib.kb_run_counts, rules, sizes[0], steps, sizes[1], sizes, sizes + 1)
        passed = iter(ffi.unpack(steps, sizes[1]) if sizes[1] else ())
        return [
            RuleCounts(
                rule.rows_made,
                rule.rows_read,
                rule.probes,
                tuple(next(passed) for _ in range(rule.steps)),
            )
            for rule in rules
        ]

    def cancel(self) -> None:
        """Stop the current step soon; may be called from another thread."""
        with self._close_mutex:
            if self._handle is not None:
                lib.kb_run_cancel(self._handle)

    def close(self) -> None:
        """Free the run's relations."""
        with self._close_mutex:
            handle, self._handle = self._handle, None
        if handle is not None:
            self._engine.close_later(self._closing(), handle)

    def _closing(self) -> Callable[[Any], None]:
        """Return the function that closes the run and gives back its instant; it holds the lock of
        the engine.
        """
        instant, free = self._instant, self._engine._free_instants
        if instant is None:
            return cast("Callable[[Any], None]", lib.kb_run_close)

        def close(handle: Any) -> None:
            lib.kb_run_close(handle)
            free.append(instant)

        return close
