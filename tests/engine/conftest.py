"""An engine per test; at its end the engine is closed and must have freed every byte."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

import pytest

from kbplanner.engine.engine import Engine, Relation

Rows = Callable[[Iterable[Sequence[str]]], array]


@pytest.fixture
def engine() -> Iterator[Engine]:
    one = Engine()
    yield one
    one.close()


@pytest.fixture
def rows(engine: Engine) -> Rows:
    """Texts to rows of symbols."""

    def make(texts: Iterable[Sequence[str]]) -> array:
        return engine.intern_many([text for row in texts for text in row])

    return make


@pytest.fixture
def facts(engine: Engine, rows: Rows) -> Callable[..., Relation]:
    """A relation holding the given rows of texts."""

    def make(texts: Iterable[Sequence[str]], arity: int = 2) -> Relation:
        listed = list(texts)
        relation = engine.relation(arity)
        relation.insert(rows(listed), len(listed))
        return relation

    return make


@pytest.fixture
def read(engine: Engine) -> Callable[..., list[tuple[str, ...]]]:
    """The visible rows of a relation as sorted tuples of texts."""

    def make(relation: Relation) -> list[tuple[str, ...]]:
        found, ids = relation.match([0] * relation.arity)
        texts = engine.texts(found)
        arity = relation.arity
        return sorted(tuple(texts[i * arity : (i + 1) * arity]) for i in range(len(ids)))

    return make
