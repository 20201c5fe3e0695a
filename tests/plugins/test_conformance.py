"""Conformance classes need a factory method, and their fault tests detect stores that lose data."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kbcore.plug import conformance
from kbcore.plug.conformance import LogStoreConformance

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/write-a-storage-plugin.md"
FACTORIES = {
    "BulkEngineConformance": "make_database",
    "CoordinatorConformance": "make_coordinator",
    "EmbedderConformance": "make_embedder",
    "LLMProviderConformance": "make_provider",
    "LogStoreConformance": "make_store",
    "LogStoreFaultConformance": "make_store",
    "MergeStrategyConformance": "make_strategy",
    "MetricsSinkConformance": "make_sink",
    "PredicateConformance": "make_predicate",
    "SalienceScorerConformance": "make_scorer",
    "TokenizerConformance": "make_tokenizer",
    "WebhookSenderConformance": "make_sender",
}


def test_every_conformance_class_is_covered_here():
    exported = [getattr(conformance, name) for name in conformance.__all__]
    classes = [
        one for one in exported if isinstance(one, type) and one is not conformance.Conformance
    ]
    assert all(issubclass(one, conformance.Conformance) for one in classes)
    assert sorted(one.__name__ for one in classes) == sorted(FACTORIES)


@pytest.mark.parametrize("name", FACTORIES)
def test_a_class_without_its_factory_method_is_refused(name):
    base, factory = getattr(conformance, name), FACTORIES[name]
    with pytest.raises(TypeError, match=f"TestMine must define the method {factory}"):
        type("TestMine", (base,), {})
    misnamed = factory + "s"
    with pytest.raises(TypeError, match=f"rename {misnamed} to {factory}"):
        type("TestMine", (base,), {misnamed: lambda self: None})
    with pytest.raises(TypeError, match=factory):
        type("TestMine", (base,), {factory: None})
    assert type("TestMine", (base,), {factory: lambda self: None}).factory == factory


def test_the_former_names_are_recognised():
    with pytest.raises(TypeError, match="rename open_store to make_store"):
        type("TestMine", (LogStoreConformance,), {"open_store": lambda self, config: None})


def test_a_class_for_others_to_derive_from_is_declared_as_abstract():
    class Shared(LogStoreConformance, abstract=True):
        pass

    with pytest.raises(TypeError, match="make_store"):
        type("TestMine", (Shared,), {})

    class Makes:
        def make_store(self, config):
            return None

    assert type("TestMine", (Makes, Shared), {}).factory == "make_store"


TESTS = (
    "test_a_kill_between_append_and_sync_loses_nothing_acknowledged",
    "test_a_power_cut_loses_nothing_acknowledged",
    "test_a_full_disk_loses_nothing_acknowledged",
    "test_a_failing_sync_is_never_acknowledged",
)
BROKEN = {
    "never syncs its folder": (
        [("                os.fsync(folder)", "                pass")],
        TESTS[1],
    ),
    "never syncs its files": (
        [("                os.fsync(file.fileno())", "                pass")],
        TESTS[1],
    ),
    "goes on after a failed sync": (
        [("            raise self.failed from error", "            self.failed = None")],
        TESTS[3],
    ),
    "forgets the head": (
        [
            (
                "            self._put_state(head=self.head)",
                "            self.state['head'] = self.head",
            )
        ],
        TESTS[0],
    ),
}


def run(tmp_path, changes):
    """Outcomes of the fault tests of a changed store, as pytest reports them: {test: passed}."""
    folder = tmp_path / "project"
    folder.mkdir()
    text = PAGE.read_text().split("```python\n")[1].split("```")[0]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "folder_store.py").write_text(text)
    (folder / "test_it.py").write_text(
        "from folder_store import FolderStore\n"
        "from kbcore.plug.conformance import LogStoreFaultConformance\n\n\n"
        "class TestIt(LogStoreFaultConformance):\n"
        "    def make_store(self, config):\n"
        "        return FolderStore(config)\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", "test_it.py"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    return {
        name: verdict == "PASSED"
        for verdict, name in re.findall(r"^(PASSED|FAILED) \S+::(\w+)", done.stdout, re.M)
    }


def test_the_store_of_the_how_to_page_passes(tmp_path):
    assert run(tmp_path, []) == dict.fromkeys(TESTS, True)


@pytest.mark.parametrize("defect", BROKEN)
def test_a_store_that_loses_data_fails(tmp_path, defect):
    changes, test = BROKEN[defect]
    found = run(tmp_path, changes)
    assert len(found) == len(TESTS)
    assert not found[test]
