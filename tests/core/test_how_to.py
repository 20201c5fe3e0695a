"""`KnowledgeBase.how_to`: what random programs do not reach."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbcore import KnowledgeBase, open_kb
from kbcore.errors import InvalidInput

RELEASES = """
    approvals(?v, count(?by)) :- approved(?by, ?v).
    release(?v) :- built(?v, ?host), host_name(?host), approvals(?v, ?n), ?n >= 2, not blocked(?v).
    host_name(?host) :- host(?host, ?name), matches(?name, "^build").
    nearest(?x, min ?d) :- distance(?x, ?d).
    near(?x) :- nearest(?x, ?d), ?d < 5.
    approved(ann, v1). approved(bob, v2). host(h1, build7). built(v1, h1). distance(a, 9).
"""


@pytest.fixture
def kb() -> Iterator[KnowledgeBase]:
    with open_kb() as kb:
        kb.teach(RELEASES)
        yield kb


def changes(result) -> list[tuple[tuple[str, ...], tuple[str, ...]]]:
    return [(each.add, each.remove) for each in result.proposals]


def test_an_aggregate_needs_one_more_row(kb):
    assert (("approved(bob, v1)",), ()) in changes(kb.how_to("release(v1)", limit=20))


def test_three_missing_premises(kb):
    kb.tell("blocked(v3). approved(ann, v3).")
    result = kb.how_to("release(v3)", limit=100)
    assert (("approved(bob, v3)", "built(v3, h1)"), ("blocked(v3)",)) in changes(result)


def test_a_better_value_takes_the_place_of_another(kb):
    kb.tell("distance(b, 3).")
    assert changes(kb.how_to("near(a)", limit=1)) == [(("distance(a, 2)",), ())]
    assert changes(kb.how_to("near(b)", make="false", limit=1)) == [((), ("distance(b, 3)",))]


def test_a_pattern_is_tested(kb):
    kb.tell("label(build8). label(other).")
    texts = {add for add, _ in changes(kb.how_to("host_name(h2)", limit=100))}
    assert texts == {("host(h2, build7)",), ("host(h2, build8)",)}


def test_a_goal_of_several_literals(kb):
    result = kb.how_to("blocked(v1), host_name(?host), not built(v2, ?host)")
    assert changes(result)[0] == (("blocked(v1)",), ())


def test_no_change_of_at_most_three_facts(kb):
    kb.teach("never(?x) :- built(?x, ?y), 1 > 2.")
    result = kb.how_to("never(v1)")
    assert (result.proposals, result.truncated) == ((), False)
    assert result.text == "No change of at most 3 facts makes never(v1) true."


def test_a_search_that_meets_a_limit_is_truncated_and_right(kb):
    kb.tell_many("e", [(str(i), str(j)) for i in range(40) for j in range(40)])
    kb.teach("path(?x, ?y) :- e(?x, ?y). path(?x, ?z) :- e(?x, ?y), path(?y, ?z).")
    result = kb.how_to("path(a, zoe)", limit=3)
    assert result.truncated
    assert all(add == ("e(a, zoe)",) for add, _ in changes(result))
    assert "stopped by its limits" in result.text


def test_nothing_is_changed(kb):
    before = list(kb.query("approved(?who, ?what)"))
    kb.how_to("release(v1)", limit=50)
    kb.how_to("approvals(v1, 1)", make="false")
    assert list(kb.query("approved(?who, ?what)")) == before


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"make": "maybe"}, "make"),
        ({"changing": ["approvd"]}, "changing"),
        ({"limit": 101}, "limit"),
        ({"scope": "*"}, "scope"),
    ],
)
def test_bad_arguments(kb, options, field):
    with pytest.raises(InvalidInput) as raised:
        kb.how_to("release(v1)", **options)
    assert field in raised.value.details["fields"]
