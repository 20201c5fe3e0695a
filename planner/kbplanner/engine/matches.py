"""Word search in the C engine; see `backend.Engine`."""

from __future__ import annotations

from array import array
from typing import Any

from kbplanner.engine.binding import check, ffi, lib, room
from kbplanner.engine.lexical import Matching


class Matches:
    """The word search of an engine. It reads the caller's arrays only, so that it needs no mutex."""

    def best_matches(self, how: Matching, k: int) -> tuple[array[int], array[float]]:
        """Return indexes and scores of the at most `k` facts that match best."""
        k = min(k, len(how.lengths))
        places, scores, filled = room(k), array("d", bytes(8 * k)), ffi.new("size_t *")
        with _Given(how) as request:
            places_view, scores_view = (
                ffi.from_buffer("uint32_t[]", places),
                ffi.from_buffer("double[]", scores),
            )
            check(lib.kb_lexical_best(request, places_view, scores_view, k, filled))
            ffi.release(places_view)
            ffi.release(scores_view)
        del places[filled[0] :], scores[filled[0] :]
        return places, scores

    def having(self, how: Matching) -> list[int]:
        """Return, for each word, how many of the searchable facts have it."""
        counts = ffi.new("uint64_t[]", len(how.words) or 1)
        with _Given(how) as request:
            check(lib.kb_lexical_having(request, counts))
        return list(counts[0 : len(how.words)])


class _Given:
    """A `kb_lexical` over the arrays of a Matching, which stay pinned while it is open."""

    def __init__(self, how: Matching) -> None:
        self._how = how
        self._views: list[Any] = []

    def __enter__(self) -> Any:
        how = self._how
        words = ffi.new("kb_posting[]", len(how.words) or 1)
        for word, (places, weight) in zip(words, how.words, strict=False):
            word.facts, word.count, word.weight = (
                self._view("uint32_t[]", places),
                len(places),
                weight,
            )
        request = ffi.new("kb_lexical *")
        request.words, request.word_count = words, len(how.words)
        request.scale, request.flat, request.slope = how.scale, how.flat, how.slope
        request.lengths = self._view("uint16_t[]", how.lengths)
        request.shown = self._view("uint8_t[]", how.shown)
        request.owners, request.fact_count = self._view("uint32_t[]", how.owners), len(how.owners)
        request.ranks, request.owner_count = self._view("uint32_t[]", how.ranks), len(how.ranks)
        request.shortest, request.most = how.shortest, how.most
        self._views.append(words)
        return request

    def __exit__(self, *exception: object) -> None:
        words = self._views.pop()
        for view in self._views:
            ffi.release(view)
        del words

    def _view(self, kind: str, held: array[int] | bytearray) -> Any:
        view = ffi.from_buffer(kind, held)
        self._views.append(view)
        return view
