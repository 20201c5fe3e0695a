"""Previews, which readers may ask for, and transactions that are rolled back leave no relation.

A relation of the tenant takes some KiB until the server ends: one body with new predicates could
make 50,000 of them, which every later preview then looked at.
"""

from __future__ import annotations

from support.http import Served, serve_in_memory


def relations(served: Served) -> int:
    partition = served.runtime.read_tenant("default", "t").partition(None)
    return 0 if partition is None else len(partition.relations())


def test_a_preview_of_new_predicates_leaves_no_relations() -> None:
    with serve_in_memory() as served:
        served.client.post("/tell", {"predicate": "p", "args": ["a"]})
        before = relations(served)
        facts = [{"predicate": f"new{index}", "args": ["a", "b"]} for index in range(50)]
        answer = served.client.post("/preview", {"tell": facts, "limit": 1000})
        assert answer.get_json()["counts"]["becomesTrue"] == 50
        assert relations(served) == before


def test_a_preview_beside_stored_facts_is_complete() -> None:
    with serve_in_memory() as served:
        served.client.post("/teach", {"text": "p(a). q(?x) :- p(?x). q(?x) :- new(?x)."})
        body = {"tell": ["new(b)", "p(c)"], "forget": "p(a)"}
        changes = served.client.post("/preview", body).get_json()
        true = sorted(row["text"] for row in changes["becomesTrue"])
        assert true == ["new(b)", "p(c)", "q(b)", "q(c)"]
        assert sorted(row["text"] for row in changes["becomesFalse"]) == ["p(a)", "q(a)"]


def test_a_transaction_that_is_rolled_back_leaves_no_relations() -> None:
    with serve_in_memory() as served:
        served.client.post("/tell", {"predicate": "p", "args": ["a"]})
        before = relations(served)
        for end in ("rollback", "commit"):
            id = served.client.post("/tx/begin", {}).text
            headers = {"X-Transaction-ID": id}
            fact = {"predicate": "new", "args": ["a"]}
            assert served.client.post("/tell", fact, headers=headers).status_code == 200
            assert served.client.post(f"/tx/{end}/{id}", {}).status_code == 200
            assert relations(served) == before + (end == "commit")
        rows = served.client.post("/query", {"predicate": "new", "args": ["?x"]}).get_json()
        assert [row["args"] for row in rows] == [["a"]]
