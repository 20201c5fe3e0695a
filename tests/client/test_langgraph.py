"""The LangGraph store gives the answers of LangGraph's own store in memory, and its items are
facts.
"""

import asyncio
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbcore_client import InvalidInput, connect

if find_spec("langgraph") is None:
    if os.environ.get("KB_TEST_EXTRAS") == "required":
        raise ModuleNotFoundError("these tests need langgraph-checkpoint")
    pytest.skip("langgraph-checkpoint is not installed", allow_module_level=True)

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from kbcore_client.adapters.langgraph import KBStore

LABELS = st.sampled_from(["users", "ann", "bob", "memories", "x y", '"', "?x", "ünïcode"])
NAMESPACES = st.lists(LABELS, min_size=1, max_size=3).map(tuple)
KEYS = st.sampled_from(["a", "b", "?k", "", "line\nbreak", 'q"uote', "\\", "_"])
SCALARS = st.one_of(
    st.integers(-3, 3), st.booleans(), st.none(), st.sampled_from(["tea", "", "?x", "é\t\x01"])
)
VALUES = st.dictionaries(
    st.sampled_from(["n", "name", "?f", "deep"]),
    st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.just("n"), SCALARS)),
    max_size=3,
)
NUMBERS = st.integers(-3, 3)
FILTERS = st.dictionaries(
    st.sampled_from(["n", "name", "deep"]),
    st.one_of(
        SCALARS,
        st.fixed_dictionaries({"n": SCALARS}),
        st.builds(lambda name, value: {name: value}, st.sampled_from(["$eq", "$ne"]), SCALARS),
    ),
    max_size=2,
)
CONDITIONS = st.tuples(
    st.sampled_from(["prefix", "suffix"]),
    st.lists(st.one_of(LABELS, st.just("*")), min_size=1, max_size=2).map(tuple),
).map(lambda args: MatchCondition(*args))
OPERATIONS = st.one_of(
    st.tuples(NAMESPACES, KEYS, VALUES).map(lambda args: PutOp(*args)),
    st.tuples(NAMESPACES, KEYS, VALUES).map(lambda args: PutOp(*args)),
    st.tuples(NAMESPACES, KEYS).map(lambda args: PutOp(*args, None)),
    st.tuples(NAMESPACES, KEYS).map(lambda args: GetOp(*args)),
    st.tuples(st.lists(LABELS, max_size=2).map(tuple), st.one_of(st.none(), FILTERS)).map(
        lambda args: SearchOp(*args, limit=1000)
    ),
    st.tuples(
        st.one_of(st.none(), st.lists(CONDITIONS, max_size=2).map(tuple)),
        st.one_of(st.none(), st.integers(1, 3)),
    ).map(lambda args: ListNamespacesOp(*args, limit=1000)),
)


@pytest.fixture(scope="module")
def opened():
    with connect("memory:") as kb:
        yield kb


@pytest.fixture
def store():
    with connect("memory:") as kb:
        yield KBStore(kb)


def shown(result):
    """A result without times; items in a fixed order."""
    if isinstance(result, list):
        return sorted(map(shown, result), key=repr)
    if hasattr(result, "namespace"):
        return (result.namespace, result.key, result.value)
    return result


class Reference(InMemoryStore):
    """The store in memory without the namespaces that it has only because they were read or
    emptied.
    """

    def _handle_list_namespaces(self, op):
        for namespace in [each for each, items in self._data.items() if not items]:
            del self._data[namespace]
        return super()._handle_list_namespaces(op)


@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(OPERATIONS, min_size=1, max_size=5), max_size=5))
def test_random_operations_give_the_answers_of_the_store_in_memory(opened, batches):
    opened.retract("langgraph_item(?_, ?_, ?_)")
    opened.retract("langgraph_value(?_, ?_, ?_, ?_)")
    store, reference = KBStore(opened), Reference()
    for batch in batches:
        assert shown_each(store.batch(batch)) == shown_each(reference.batch(batch))


def shown_each(results):
    return [shown(result) for result in results]


@given(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), NUMBERS, NUMBERS)
@settings(max_examples=30, deadline=None)
def test_comparisons(opened, operator, value, other):
    store, reference = KBStore(opened), InMemoryStore()
    for each in (store, reference):
        each.put(("compared",), "k", {"n": value})
    filters = {"n": {operator: other}}
    assert shown(store.search(("compared",), filter=filters)) == shown(
        reference.search(("compared",), filter=filters)
    )


def test_whole_numbers_are_compared_exactly(store):
    large = 9007199254740993
    for number in (large - 1, large, str(large + 1)):
        store.put(("ids",), str(number), {"n": number})
    for operator, other, count in [("$gt", large, 1), ("$gte", large, 2), ("$lt", str(large), 1)]:
        assert len(store.search(("ids",), filter={"n": {operator: other}})) == count


def test_items_are_facts_for_rules(store):
    store.put(("users", "ann"), "prefs", {"drink": "tea", "sugar": 2, "vegan": True, "tags": ["x"]})
    kb = store._kb
    kb.teach("offer(?space, ?what) :- langgraph_value(?space, prefs, drink, ?what).")
    assert kb.ask("offer(?who, ?what)").one() == ("users.ann", "tea")
    assert sorted(kb.query("langgraph_value(?_, ?_, ?f, ?v)").dicts(), key=repr) == [
        {"f": "drink", "v": "tea"},
        {"f": "sugar", "v": "2"},
        {"f": "vegan", "v": "true"},
    ]
    store.put(("users", "ann"), "prefs", {"drink": "rum"})
    assert kb.ask("offer(?who, ?what)").one() == ("users.ann", "rum")
    store.delete(("users", "ann"), "prefs")
    assert list(kb.ask("offer(?who, ?what)")) == []


def test_times(store):
    store.put(("a",), "k", {"n": 1})
    first = store.get(("a",), "k")
    store.put(("a",), "k", {"n": 2})
    second = store.get(("a",), "k")
    assert first.created_at == first.updated_at == second.created_at < second.updated_at


def test_pages_have_every_item_once(store):
    for number in range(7):
        store.put(("a",), str(number), {"n": number})
    pages = [store.search(("a",), limit=3, offset=offset) for offset in (0, 3, 6)]
    assert [item.key for page in pages for item in page] == [str(n) for n in range(7)]
    with pytest.raises(InvalidInput, match="negative"):
        store.search(("a",), limit=-1)


def test_a_query_orders_by_words(store):
    store.put(("a",), "tea", {"text": "Ann drinks green tea"})
    store.put(("a",), "rum", {"text": "Bob drinks rum"})
    store.put(("a",), "none", {"text": "nothing"})
    found = store.search(("a",), query="who drinks TEA?")
    assert [(item.key, item.score) for item in found] == [
        ("tea", pytest.approx(2 / 3)),
        ("rum", pytest.approx(1 / 3)),
        ("none", None),
    ]


def test_items_expire(store):
    store.put(("a",), "k", {"n": 1}, ttl=10)
    store.put(("a",), "forever", {"n": 1})
    kb = store._kb
    (row,) = kb.query('langgraph_item("a", "k", ?_)').rows()
    assert row["validUntil"] - row["createdAt"] == 600_000
    ends = row["validUntil"]
    assert kb.query('langgraph_item("a", "k", ?_)', as_of=ends + 1).rows() == []
    assert kb.query('langgraph_value("a", "k", ?_, ?_)', as_of=ends + 1).rows() == []
    assert len(kb.query('langgraph_item("a", ?_, ?_)', as_of=ends + 1).rows()) == 1
    store.get(("a",), "k", refresh_ttl=False)
    (same,) = kb.query('langgraph_item("a", "k", ?_)').rows()
    assert same["validUntil"] == ends
    created = store.get(("a",), "k").created_at
    (fresh,) = kb.query('langgraph_item("a", "k", ?_)').rows()
    assert fresh["validUntil"] > ends
    assert store.get(("a",), "k").created_at == created


def test_a_default_time_to_live():
    with connect("memory:") as kb:
        store = KBStore(kb, ttl={"default_ttl": 1, "refresh_on_read": False}, scope="agents")
        store.put(("a",), "k", {"n": 1})
        assert store.get(("a",), "k").value == {"n": 1}
        (row,) = kb.query("langgraph_item(?_, ?_, ?_)", scope="agents").rows()
        assert row["ttl"] == 60_000
        assert kb.query("langgraph_item(?_, ?_, ?_)").rows() == []


def test_coroutines(store):
    async def run():
        await store.aput(("a",), "k", {"n": 1})
        item, found = await asyncio.gather(store.aget(("a",), "k"), store.asearch(("a",)))
        await store.adelete(("a",), "k")
        return item.value, [each.key for each in found], await store.aget(("a",), "k")

    assert asyncio.run(run()) == ({"n": 1}, ["k"], None)


def test_what_cannot_be_stored_changes_nothing(store):
    for namespace in ((), ("a.b",), ("",)):
        with pytest.raises(InvalidNamespaceError):
            store.put(namespace, "k", {"n": 1})
    for minutes in (0, -1, float("nan"), float("inf")):
        with pytest.raises(InvalidInput, match="ttl: must be a positive number of minutes"):
            store.put(("a",), "k", {"n": 1}, ttl=minutes)
    for value in ({"n": float("nan")}, {"n": object()}):
        with pytest.raises(InvalidInput, match="must be JSON"):
            store.batch([PutOp(("a",), "j", {"n": 1}), PutOp(("a",), "k", value)])
    store.put(("a",), "k", {"n": 1})
    with pytest.raises(InvalidInput, match=r"unknown operator \$in"):
        store.search(("a",), filter={"n": {"$in": [1]}})
    assert store.get(("a",), "j") is None


def test_the_program_of_the_page_runs():
    page = Path(__file__).parents[2] / "docs/how-to/use-agent-frameworks.md"
    (program,) = re.findall(r"```langgraph\n(.*?)```", page.read_text("utf-8"), re.DOTALL)
    exec(program, {})


def test_long_items_come_back_whole():
    value = {"text": "Gr\u00fc\u00dfe. " * 12_000, "short": "tea"}
    with connect("memory:") as kb:
        store = KBStore(kb, ttl={"refresh_on_read": True})
        store.put(("users", "ann"), "mail", value, ttl=5)
        store.put(("users", "bob"), "mail", {"text": "short"})
        assert store.get(("users", "ann"), "mail").value == value
        assert [item.value for item in store.search(("users", "ann"))] == [value]
        assert store.search((), query="gr\u00fc\u00dfe")[0].key == "mail"
        assert kb.query("langgraph_value(?_, ?_, ?field, ?_)").dicts() == [
            {"field": "short"},
            {"field": "text"},
        ]
        store.put(("users", "ann"), "mail", {"text": "short"})
        assert store.get(("users", "ann"), "mail").value == {"text": "short"}
        assert kb.count("langgraph_part") == 0
