"""Answers as JSON: the engine, the reference engine and a JSON writer give the same text."""

from __future__ import annotations

import json
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.reference.engine import ReferenceEngine

from kbcore.reason.json_rows import row_shape
from kbplanner.engine.backend import EPOCH, Attribute
from kbplanner.engine.engine import Engine
from kbplanner.engine.json_rows import SLICE_BYTES, rows_json
from kbplanner.errors import EngineFault

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
CELLS = st.tuples(
    st.integers(0, 2**40),
    st.sampled_from([0, 5, -3, EPOCH]),
    st.sampled_from([2**63 - 1, 2**41, -7]),
    st.integers(0, 9),
)
ATTRIBUTES = (Attribute.CREATED_AT, Attribute.VALID_FROM, Attribute.VALID_UNTIL, Attribute.TTL)


def facts_in(engine, rows, cells, hidden):
    relation = engine.relation(2)
    for number, (row, values) in enumerate(zip(rows, cells, strict=False)):
        symbols = engine.intern_many(row)
        ids, _ = relation.insert(symbols, 1)
        for attribute, value in zip(ATTRIBUTES, values, strict=True):
            relation.set_attribute(attribute, ids, [value])
        if number in hidden:
            relation.hide(symbols, 1, True)
    return relation


def shown(row, values, name, scope):
    """Return a row of the interface from the values of its stored fact, or None."""
    created, start, until, life = values or (None, 0, None, 0)
    if values:
        until = None if until == 2**63 - 1 else until
    return {
        "predicate": name,
        "args": list(row),
        "negated": False,
        "scope": scope,
        "metadata": {},
        "createdAt": created,
        "validFrom": (0 if start == EPOCH else start or created) if values else None,
        "validUntil": until,
        "ttl": life or None,
        "confidence": None,
        "truthVal": True,
    }


@given(
    st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=8, unique=True),
    st.lists(CELLS, min_size=8, max_size=8),
    st.sets(st.integers(0, 7)),
    st.integers(0, 8),
    TEXTS,
    st.one_of(st.none(), TEXTS),
)
def test_engine_reference_and_json_agree(rows, cells, hidden, stored, name, scope):
    expected = [
        shown(row, cells[i] if i < stored and i not in hidden else None, name, scope)
        for i, row in enumerate(rows)
    ]
    shape = row_shape(name, True, scope, ',"truthVal":true')
    for engine in (Engine(), ReferenceEngine()):
        relation = facts_in(engine, rows[:stored], cells, hidden)
        symbols = array("I", [symbol for row in rows for symbol in engine.intern_many(row)])
        text = b"".join(rows_json(engine, shape, relation, symbols, 2, len(rows)))
        assert text[:1] == b","
        assert json.loads(b"[" + text[1:] + b"]") == expected
        assert text[1:].decode() == ",".join(
            json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in expected
        )


def test_long_rows_and_many_rows_come_in_slices():
    engine = Engine()
    long, short = "\n" * SLICE_BYTES, "x"
    rows = engine.intern_many([short, long, *(str(i) for i in range(20_000))])
    parts = list(rows_json(engine, row_shape("p", True, None), None, rows, 1, len(rows)))
    assert len(parts) > 1
    rows_read = json.loads(b"[" + b"".join(parts)[1:] + b"]")
    assert [row["args"][0] for row in rows_read] == [short, long, *(str(i) for i in range(20_000))]


def test_rows_without_arguments():
    for engine in (Engine(), ReferenceEngine()):
        relation = engine.relation(0)
        relation.insert(array("I"), 1)
        relation.fill_attribute(Attribute.CREATED_AT, 0, 1, 7)
        (text,) = rows_json(engine, row_shape("on", False, None), relation, array("I"), 0, 1)
        assert json.loads(text[1:])["createdAt"] == 7
        assert json.loads(text[1:])["negated"] is True


def test_a_relation_with_confidences_is_refused():
    engine = Engine()
    relation = engine.relation(1)
    ids, _ = relation.insert(engine.intern_many(["a"]), 1)
    assert not relation.uses(Attribute.CONFIDENCE)
    relation.set_attribute(Attribute.CONFIDENCE, ids, [float("nan")])  # unknown is what it was
    assert not relation.uses(Attribute.CONFIDENCE)
    relation.set_attribute(Attribute.CONFIDENCE, ids, [0.5])
    assert relation.uses(Attribute.CONFIDENCE)
    with pytest.raises(EngineFault):
        list(
            rows_json(engine, row_shape("p", True, None), relation, engine.intern_many(["a"]), 1, 1)
        )
