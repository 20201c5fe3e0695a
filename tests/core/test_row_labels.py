"""Labels of the rows of a relation follow the rows, also when others are removed."""

from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from kbcore.state.labels import NO_LABELS, Labels
from kbcore.state.partition import StoredRelation
from kbplanner.engine.engine import Engine
from kbplanner.ir.schema import RelationSchema

WEB: Labels = (("trust", "web"),)
HR: Labels = (("team", ("hr",)),)

steps = st.lists(
    st.tuples(
        st.sampled_from(("store", "store", "label", "remove", "copy")),
        st.integers(1, 30),
        st.sampled_from((NO_LABELS, WEB, HR)),
    ),
    max_size=60,
)


@examples(100)
@given(steps)
def test_labels_follow_their_rows(history: list[tuple[str, int, Labels]]) -> None:
    engine = Engine()
    stored = StoredRelation(RelationSchema("p", 1, True), None, engine.relation(1))
    symbols = [engine.intern(f"s{index}") for index in range(32)]
    model: dict[int, Labels] = {}
    for step, index, labels in history:
        number = symbols[index]
        row = array("I", [number])
        if step == "store":
            ids, _ = stored.insert(row, 1)
            stored.labels.put(ids, labels)
            model[number] = labels
        elif step == "label" and number in model:
            stored.labels.put_row(row, labels)
            model[number] = labels
        elif step == "remove":
            stored.remove(row, 1)
            model.pop(number, None)
        elif step == "copy":
            stored = stored.copy()
        assert {key: stored.labels.get((key,)) for key in model} == model
        assert stored.labels.get((symbols[31],)) == NO_LABELS
        assert stored.labels.used() == {each for each in model.values() if each}
        assert bool(stored.labels) == any(model.values())
    rows, ids = stored.relation.match([0], hidden=True)
    assert dict(zip(rows, stored.labels.of(ids), strict=True)) == model
