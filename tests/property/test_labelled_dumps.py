"""A dump of a tenant with labels, loaded again, gives an equal tenant under every view."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.test_views import DECLARED, facts, perform, shown, some_labels, some_views, steps
from support.examples import examples

import kbcore

VIEWS: tuple[dict[str, Any], ...] = (
    {},
    *({"trust": level} for level in ("web", "tool", "user")),
    *({"team": team} for team in ([], ["hr"], ["eng"], ["hr", "ops"])),
    {"trust": "tool", "team": ["eng"]},
)

described = st.builds(
    '{} [confidence={}, metadata=\'{{"by": "{}"}}\']'.format,
    facts,
    st.sampled_from((0.25, 0.5, 1)),
    st.sampled_from("xyz"),
)
changes = st.one_of(steps, st.tuples(st.just("tell"), described, some_labels, st.just({})))


def details(kb: kbcore.KnowledgeBase) -> list[Any]:
    """Everything that the rows of stored facts show, but times."""
    return sorted(
        str(timeless(row))
        for each in kb.predicates("*")
        for row in kb.query(
            each.predicate, ["?_"] * each.arity if each.arity else [], scope="*"
        ).rows()
    )


def timeless(row: dict[str, Any]) -> dict[str, Any]:
    """A row, and its details with each of its labels, without times of storing."""
    rest = {name: value for name, value in row.items() if name not in ("createdAt", "validFrom")}
    if "byLabels" in rest:
        rest["byLabels"] = [timeless(each) for each in rest["byLabels"]]
    return rest


@pytest.mark.parametrize("form", ["kb", "jsonl"])
@examples(60)
@given(st.lists(changes, max_size=20), some_views)
def test_a_loaded_dump_is_an_equal_tenant(form: str, history: list[Any], view: Any) -> None:
    with kbcore.open_kb() as kb, kbcore.open_kb() as copy, kbcore.open_kb() as part:
        kb.teach(DECLARED)
        for step in history:
            perform(kb, step)
        load(copy, kb, form)
        for each in (*VIEWS, view):
            assert shown(copy.viewed(each)) == shown(kb.viewed(each))
            assert details(copy.viewed(each)) == details(kb.viewed(each))
        load(part, kb.viewed(view), form)
        assert shown(part) == shown(kb.viewed(view))
        assert details(part) == details(kb.viewed(view))


def load(target: kbcore.KnowledgeBase, source: kbcore.KnowledgeBase, form: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"dump.{form}"
        source.dump(path)
        target.load(path)
