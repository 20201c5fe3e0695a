"""Every hook of the core is called at the right time, and a failing plugin is named."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from kbcore import Config, hookimpl, open_kb
from kbcore.errors import ConfigError, Conflict, InvalidInput, PluginFailed
from kbcore.node.opening import open_runtime
from kbcore.plug.manager import Plugins
from kbcore.plug.ports import API_VERSION, Keep, Resolution
from kbcore.state.facts import Fact

MEMORY = Config(storage_backend="memory")
RULES = "grown(?x) :- age(?x, ?n), ?n >= 18."


class Start:
    def __init__(self, *texts):
        self.texts, self.asked = texts, []

    @hookimpl
    def kb_rule_texts(self, database, tenant):
        self.asked.append((database, tenant))
        return self.texts


def test_a_new_tenant_starts_with_rules_which_are_logged(tmp_path):
    config, plugin = Config(storage_dir=str(tmp_path), min_free_mb=0), Start(RULES)
    with open_runtime(config, plugins=[plugin]) as runtime:
        kb = runtime.knowledge_base(tenant="a")
        assert kb.rules() == []
        kb.assert_facts([Fact("age", ("ann", "30"))])
        assert [rule.text for rule in kb.rules()] == [RULES]
        runtime.admin().create_tenant("default", "b")
        assert len(runtime.knowledge_base(tenant="b").rules()) == 1
        runtime.begin("default", "c")
        assert len(runtime.knowledge_base(tenant="c").rules()) == 1
        kb.retract_rule(id=kb.rules()[0].id)
        kb.assert_facts([Fact("age", ("bob", "3"))])
        assert kb.rules() == []
    assert set(plugin.asked) == {("default", "a"), ("default", "b"), ("default", "c")}
    with open_runtime(config) as runtime:
        assert [len(runtime.knowledge_base(tenant=name).rules()) for name in "abc"] == [0, 1, 1]


@pytest.mark.parametrize("text", ["p(?x) :-", "p(?x) :- q(?y).", "fact(a).", 7])
def test_invalid_initial_rules_name_the_plugin_and_nothing_is_stored(text):
    with open_runtime(MEMORY, plugins=[Start(text)]) as runtime:
        with pytest.raises(PluginFailed, match="kb_rule_texts"):
            runtime.knowledge_base().assert_facts([Fact("p", ("a",))])
        assert runtime.admin().tenants("default") == []


class Listener:
    def __init__(self):
        self.heard = []

    @hookimpl
    def kb_runtime_started(self, runtime):
        self.heard.append(("started", runtime.admin().databases()[0].name))

    @hookimpl
    def kb_runtime_stopping(self, runtime):
        runtime.knowledge_base().assert_facts([Fact("stopped", ())])
        self.heard.append(("stopping",))

    @hookimpl
    def kb_goal_answered(self, tenant, goal, stats):
        self.heard.append(
            (
                tenant,
                [str(literal.atom.predicate) for literal in goal],
                stats.error,
                stats.rows_made > 0,
            )
        )


class Failing:
    @hookimpl
    def kb_runtime_started(self):
        raise ValueError("no")

    @hookimpl
    def kb_goal_answered(self):
        raise ValueError("no")


def test_listeners_are_called_and_failures_counted(caplog):
    listener = Listener()
    with open_kb(plugins=[listener, Failing()]) as kb:
        kb.tell("age", ["ann", 30])
        kb.teach(RULES)
        assert kb.ask("grown(?x)") == [("ann",)]
        with pytest.raises(InvalidInput):
            kb.ask("grown(?x), ?n > 3")
        text = (kb.kb._services.metrics.expose() or b"").decode()
    assert listener.heard[:2] == [("started", "default"), ("default", ["grown"], None, True)]
    assert listener.heard[-1] == ("stopping",)
    assert 'svc_plugin_failures_total{hook="kb_runtime_started"} 1.0' in text
    assert 'svc_plugin_failures_total{hook="kb_goal_answered"}' in text
    assert any(
        "Failing" in str(record.args) or "kb_goal_answered" in record.getMessage()
        for record in caplog.records
    )


class Longest:
    always = None

    def resolve(self, conflict):
        notes = [len(str(fact.metadata)) for fact in (*conflict.source, *conflict.target)]
        if notes[0] == notes[1]:
            return Resolution(Keep.REFUSE)
        return Resolution(Keep.SOURCE if notes[0] > notes[1] else Keep.TARGET)


class Conflicts:
    @hookimpl
    def kb_conflict_strategies(self):
        return {"LONGEST": Longest()}


def test_a_plugin_decides_conflicts_of_opposite_facts():
    with open_kb(plugins=[Conflicts()]) as kb:

        def tell(positive, **metadata):
            kb.kb.assert_facts([Fact("p", ("a",), positive, metadata=metadata)], conflict="LONGEST")
            return sorted(row["negated"] for row in kb.kb.query_rows("p", ["a"]))

        assert tell(True, note="much") == [False]
        assert tell(False) == [False]
        assert tell(False, note="very much") == [True]
        with pytest.raises(Conflict, match="opposite"):
            tell(True, note="very much")
        with pytest.raises(InvalidInput, match="LONGEST"):
            kb.kb.assert_facts([Fact("p", ("a",))], conflict="NOBODY")


class Twice:
    @hookimpl
    def kb_metrics_sinks(self):
        return {"prometheus": lambda specs: None}


def test_two_plugins_with_one_name_refuse_the_start():
    with pytest.raises(
        ConfigError, match=r"plugins metrics-prometheus and .* both offer 'prometheus'"
    ):
        open_runtime(MEMORY, plugins=[Twice()])


def test_an_unknown_hook_a_wrapper_or_a_wrong_argument_refuses_the_start():
    class Unknown:
        @hookimpl
        def kb_something(self):
            return None

    class Wrapper:
        @hookimpl(wrapper=True)
        def kb_merge_strategies(self):
            return (yield)

    class Wrong:
        @hookimpl
        def kb_merge_strategies(self, whatever):
            return {}

    for plugin, said in (
        (Unknown(), "hook kb_something does not exist"),
        (Wrapper(), "wrapper"),
        (Wrong(), "whatever"),
    ):
        with pytest.raises(ConfigError, match=said):
            Plugins(MEMORY, [plugin])


@pytest.mark.parametrize("stated", [API_VERSION + 1, "0.9", "2.0", "x"])
def test_a_plugin_of_another_major_version_is_refused(stated):
    plugin = type("ThirdParty", (), {"KB_API_VERSION": stated})()
    with pytest.raises(
        ConfigError,
        match=f"plugin ThirdParty is made for version {stated} of the plugin protocols, not 1",
    ):
        Plugins(MEMORY, [plugin])
    same = type("ThirdParty", (), {"KB_API_VERSION": f"{API_VERSION}.7"})()
    assert len(Plugins(MEMORY, [same]).names()) == len(Plugins(MEMORY).names()) + 1


def test_plugins_are_disabled_by_name():
    config = replace(MEMORY, plugins_disabled=("metrics-prometheus",), metrics_sinks=("none",))
    assert "metrics-prometheus" not in Plugins(config).names()
    with pytest.raises(
        ConfigError, match=r"METRICS_SINKS='prometheus'.*choose from: none, otlp, statsd"
    ):
        Plugins(replace(config, metrics_sinks=("prometheus",))).metrics_sinks()


def test_calls_of_hooks_are_logged_when_asked(caplog):
    caplog.set_level(logging.INFO, "kbcore.plugins")
    with open_kb(config=replace(MEMORY, plugins_trace=True), plugins=[Failing()]):
        pass
    said = [record.getMessage() for record in caplog.records]
    assert "kb_salience_scorers: plugin salience-default returned ['default']" in said
    assert any(
        line.startswith("kb_runtime_started: plugin") and line.endswith("raised ValueError")
        for line in said
    )
