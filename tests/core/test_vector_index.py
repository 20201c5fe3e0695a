"""The index of the vectors of facts: large bases, restarts, purges, limits and the thread."""

from __future__ import annotations

import gc
import logging
import threading
from dataclasses import replace

import pytest
from support.embedders import Hashing, Plugin
from support.runtimes import BASE

from kbcore.clock import ManualClock
from kbcore.context.request import WindowRequest
from kbcore.node.opening import open_runtime
from kbcore.operations.context_windows import NEWEST_EMBEDDED
from kbcore.search.embedder import BATCH_SIZE
from kbcore.search.vectors.store import digest_of
from kbcore.state.facts import Fact
from kbcore.upkeep.purge import PurgeTarget

MANY = 1000


class Wide(Hashing):
    """Few words turn the same number up."""

    dimension = 1024


def opened(folder=None, embedder=None, *, thread=False, plugin="hashing", **settings):
    embedder = embedder or Wide()
    storage = {"storage_backend": "memory"} if folder is None else {"storage_dir": str(folder)}
    config = replace(BASE, min_free_mb=0, **{"embedder": plugin, **storage, **settings})
    node = open_runtime(config, plugins=[Plugin(embedder)], clock=ManualClock())
    if not thread and node.vectors is not None:
        node.vectors.close()
    return node


def work(node):
    while node.vectors.work():
        pass


def tell_many(kb, count=MANY):
    kb.assert_facts([Fact("is", ("zoe", "physician"))])
    kb.assert_facts([Fact("owns", (f"p{n}", f"thing{n}")) for n in range(count)])


def found(kb, query, **more):
    request = WindowRequest(3, query=query, fill="none", **more)
    return [entry.text for entry in kb.context(request).entries]


def embedded(embedder):
    return sum(map(len, embedder.seen))


def files(folder):
    return list(folder.rglob("*.kbv"))


def test_a_fact_without_a_common_word_is_found_in_a_large_base():
    embedder = Wide()
    with opened(embedder=embedder) as node:
        kb = node.knowledge_base()
        tell_many(kb)
        assert found(kb, "doctor zoe")[0] == "is(zoe, physician)"  # by a word
        assert embedded(embedder) == 1 + NEWEST_EMBEDDED
        assert found(kb, "doctor") == []
        work(node)
        assert found(kb, "doctor")[0] == "is(zoe, physician)"
        figures = node.vectors.figures()
        assert (figures.vectors, figures.backlog) == (MANY + 1, 0)
        assert max(map(len, embedder.seen)) == BATCH_SIZE


def test_the_thread_gives_new_facts_their_vectors():
    embedder = Wide()
    seen = threading.Event()
    with opened(embedder=embedder, thread=True) as node:
        embedder.watch = lambda: seen.set() if node.vectors.figures().backlog < BATCH_SIZE else None
        kb = node.knowledge_base()
        tell_many(kb, 3 * BATCH_SIZE)
        assert seen.wait(30)
        node.vectors.close()
        work(node)
        assert found(kb, "doctor") == ["is(zoe, physician)"]


def test_a_restart_embeds_nothing_again(tmp_path):
    with opened(tmp_path) as node:
        tell_many(node.knowledge_base(), 100)
        work(node)
    embedder = Wide()
    with opened(tmp_path, embedder) as node:
        kb = node.knowledge_base()
        work(node)
        assert embedded(embedder) == 0
        assert found(kb, "doctor") == ["is(zoe, physician)"]
        assert embedder.seen == [["doctor"]]


def test_vectors_that_a_window_made_are_saved_at_the_stop(tmp_path):
    with opened(tmp_path) as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("is", ("zoe", "physician"))])
        assert found(kb, "doctor") == ["is(zoe, physician)"]
    embedder = Wide()
    with opened(tmp_path, embedder) as node:
        work(node)
        assert embedded(embedder) == 0


@pytest.mark.parametrize("change", ["name", "revision", "dimension"])
def test_another_model_makes_all_vectors_again(tmp_path, change):
    with opened(tmp_path) as node:
        tell_many(node.knowledge_base(), 10)
        work(node)
    embedder = Wide()
    setattr(embedder, change, 2048 if change == "dimension" else "other")
    with opened(tmp_path, embedder) as node:
        work(node)
        assert embedded(embedder) == 11
        assert found(node.knowledge_base(), "doctor") == ["is(zoe, physician)"]


def test_facts_of_other_scopes_and_tenants_are_never_found():
    with opened() as node:
        kb, other = node.knowledge_base(), node.knowledge_base(tenant="other")
        kb.assert_facts([Fact("is", ("zoe", "physician"), scope="draft")])
        other.assert_facts([Fact("is", ("eve", "physician"))])
        work(node)
        assert found(kb, "doctor", scope=None) == []
        assert found(kb, "doctor", scope="draft") == ["is(zoe, physician)"]
        assert found(other, "doctor") == ["is(eve, physician)"]
        kb.drop_scope("draft")
        assert found(kb, "doctor", scope="*") == []


def test_the_memory_of_a_tenant_is_limited(caplog):
    with opened(vector_index_mb=1) as node:
        kb = node.knowledge_base()
        limit = (1 << 20) // (1024 + 1024 // 8 + 160)
        tell_many(kb, limit + 100)
        with caplog.at_level(logging.WARNING, "kbcore.vectors"):
            work(node)
        assert "101 facts" in caplog.text
        figures = node.vectors.figures()
        assert (figures.vectors, figures.backlog) == (limit, 101)
        assert figures.bytes <= 1 << 20
        assert found(kb, f"thing{limit + 99}")[0] == f"owns(p{limit + 99}, thing{limit + 99})"
        kb.retract_fact("owns", ("p0", "thing0"))
        work(node)
        assert node.vectors.figures().backlog == 100


def test_a_purge_removes_the_vectors_of_its_text(tmp_path):
    with opened(tmp_path) as node:
        kb = node.knowledge_base()
        tell_many(kb, 50)
        work(node)
        secret = digest_of("zoe is physician")
        assert any(secret in path.read_bytes() for path in files(tmp_path))
        outcome = kb.purge(PurgeTarget(subject="zoe"))
        assert outcome.erased
        assert files(tmp_path)
        assert not any(secret in path.read_bytes() for path in files(tmp_path))
        assert found(kb, "doctor") == []
        work(node)
        assert all(state.erased for state in kb.purges())
    embedder = Wide()
    with opened(tmp_path, embedder) as node:
        work(node)
        assert embedded(embedder) == 0  # those of other facts are still there


def test_a_copy_in_a_transaction_keeps_no_purged_vector(tmp_path):
    with opened(tmp_path) as node:
        kb = node.knowledge_base()
        tell_many(kb, 5)
        id = node.begin("default", "default")
        with node.in_transaction("default", "default", id) as inside:
            inside.assert_facts([Fact("is", ("tom", "physician"))])
            assert set(found(inside, "doctor")) == {"is(zoe, physician)", "is(tom, physician)"}
        work(node)
        assert kb.purge(PurgeTarget(subject="zoe")).erased
        (path,) = files(tmp_path)
        assert digest_of("zoe is physician") not in path.read_bytes()
        assert digest_of("tom is physician") not in path.read_bytes()


@pytest.mark.parametrize("embedder", ["hashing", "none"])
def test_a_purge_that_left_vectors_is_not_said_to_be_done(tmp_path, embedder):
    with opened(tmp_path) as node:
        tell_many(node.knowledge_base(), 50)
        work(node)
        (path,) = files(tmp_path)
        before = path.read_bytes()
    with opened(tmp_path) as node:
        node.knowledge_base().purge(PurgeTarget(subject="zoe"))
    path.write_bytes(before)  # as if a kill had come between the purge and the file
    with opened(tmp_path, plugin=embedder) as node:
        kb = node.knowledge_base()
        assert kb.purge(PurgeTarget(subject="eve")).erased
        assert all(state.erased for state in kb.purges())
        secret = digest_of("zoe is physician")
        assert not any(secret in each.read_bytes() for each in files(tmp_path))


def test_the_files_of_tenants_that_are_gone_are_deleted(tmp_path):
    with opened(tmp_path) as node:
        for tenant in ("a", "b"):
            node.knowledge_base(tenant=tenant).assert_facts([Fact("is", ("zoe", tenant))])
        work(node)
        assert len(files(tmp_path)) == 2
        node.admin().drop_tenant("default", "a")
        work(node)
        assert len(files(tmp_path)) == 1


@pytest.mark.parametrize("embedder", ["hashing", "none"])
@pytest.mark.parametrize("action", ["nuke_tenant", "drop_tenant", "nuke_database", "drop_database"])
@pytest.mark.parametrize("restart", [False, True])
def test_the_file_of_a_tenant_has_no_vectors_from_before_it_was_emptied(
    tmp_path, action, restart, embedder
):
    old, other = digest_of("zoe is old"), digest_of("zoe is other")
    with opened(tmp_path) as node:
        node.admin().create_database("d")
        node.knowledge_base("d", "t").assert_facts([Fact("is", ("zoe", "old"))])
        node.knowledge_base().assert_facts([Fact("is", ("zoe", "other"))])
        work(node)
        if embedder == "hashing":
            remove(node, action)
            if not restart:
                node.knowledge_base("d", "t").assert_facts([Fact("is", ("zoe", "new"))])
                work(node)
                assert not any(old in each.read_bytes() for each in files(tmp_path))
    with opened(tmp_path, plugin=embedder) as node:
        if embedder == "none":
            remove(node, action)
        else:
            work(node)
        assert not any(old in each.read_bytes() for each in files(tmp_path))
        assert any(other in each.read_bytes() for each in files(tmp_path))


def remove(node, action):
    getattr(node.admin(), action)(*("d", "t")[: 1 + action.endswith("tenant")])
    if action == "drop_database":
        node.admin().create_database("d")
    if action != "nuke_database":
        node.knowledge_base("d", "t").assert_facts([Fact("is", ("zoe", "next"))])


def test_a_dropped_scope_is_not_kept_in_memory():
    with opened() as node:
        kb = node.knowledge_base()
        kb.assert_facts([Fact("is", ("zoe", "physician"), scope="draft")])
        work(node)
        kb.drop_scope("draft")
        kb.assert_facts([Fact("is", ("bob", "baker"))])
        gc.collect()
        work(node)
        assert node.vectors.figures().vectors == 1


def test_a_disk_that_refuses_the_file_costs_no_request(tmp_path, caplog):
    (tmp_path / "file").write_text("in the way")
    with opened(tmp_path / "data", vector_dir=str(tmp_path / "file" / "vectors")) as node:
        kb = node.knowledge_base()
        tell_many(kb, 10)
        with caplog.at_level(logging.WARNING, "kbcore.vectors"):
            work(node)
        assert "were not saved" in caplog.text
        assert found(kb, "doctor") == ["is(zoe, physician)"]
