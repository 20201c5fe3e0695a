"""The dashboard and the alert rules use families, labels and values that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from kbcore.metrics import FAMILIES, Kind

OPERATIONS = Path(__file__).resolve().parents[2] / "docs" / "operations"
KNOWN = {spec.name: spec for spec in FAMILIES if spec.kind is not Kind.HISTOGRAM}
KNOWN |= {
    spec.name + end: spec
    for spec in FAMILIES
    if spec.kind is Kind.HISTOGRAM
    for end in ("_bucket", "_sum", "_count")
}
OURS = {"le", "job", "instance"}


def expressions() -> list[str]:
    board = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    found += re.findall(r"^\s+expr: (.*)$", (OPERATIONS / "alerts.yml").read_text(), re.M)
    return found


@pytest.mark.parametrize("expression", expressions())
def test_expressions_use_existing_metrics(expression):
    names = set(re.findall(r"\bsvc_\w+", expression))
    assert names <= set(KNOWN)
    assert names or expression.startswith("up{")
    labels = OURS.union(*(KNOWN[name].labels for name in names))
    grouped = [
        label.strip()
        for group in re.findall(r"\bby \(([^)]*)\)", expression)
        for label in group.split(",")
    ]
    assert set(grouped) <= labels
    assert set(re.findall(r'(\w+)(?:=~|!=|=)"', expression)) <= labels
    for name in names:
        if KNOWN[name].kind is Kind.GAUGE:
            assert f"rate({name}" not in expression


def test_panels_have_unique_ids_and_alerts_unique_names():
    board = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids) >= 10
    alerts = re.findall(r"alert: (\w+)", (OPERATIONS / "alerts.yml").read_text())
    assert len(set(alerts)) == len(alerts) >= 8


def test_rules_are_whole_and_watch_what_replication_promises():
    yaml = pytest.importorskip("yaml")
    groups = yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]
    rules = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    for name, rule in rules.items():
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}, name
        assert rule["labels"]["severity"] in ("page", "warn"), name
        assert "$labels.instance" in rule["annotations"]["summary"] or " by (" in rule["expr"], name
        known = OURS | {"value"}.union(
            *(KNOWN[metric].labels for metric in re.findall(r"\bsvc_\w+", rule["expr"]))
        )
        assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= known, name
    watched = " ".join(rule["expr"] for rule in rules.values())
    for family in (
        "lag_seconds",
        "last_contact_seconds",
        "follower_lag_records",
        "divergences_total",
    ):
        assert f"svc_replication_{family}" in watched
