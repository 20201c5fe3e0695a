import { expect, test } from "vitest";

import RULES from "../../../../../docs/operations/alerts.yml?raw";
import { parseMetrics } from "../../prometheus";
import { ALERTS, firing } from "./alerts";
import { entryOf } from "./runbook";

/** Alerts that need the figures of hours, of several nodes, or of a node that does not answer. */
const ELSEWHERE = ["KbcoreDown", "KbcoreModelFails", "KbcoreFollowersBeginAnew", "KbcoreClusterNodeMissing"];

const reading = (seconds: number, text: string) => ({ seconds, samples: parseMetrics(text) });

test("every alert rule is here or needs more than one node sees, with its severity and its part of the runbook", () => {
  const rules = [...RULES.matchAll(/alert: (\w+)[\s\S]*?severity: (\w+)/g)].map(([, name, severity]) => ({ name, severity }));
  expect(rules.filter(({ name }) => !ELSEWHERE.includes(name ?? ""))).toEqual(ALERTS.map(({ name, severity }) => ({ name, severity })));
  for (const { name = "" } of rules) {
    expect(entryOf(name)?.meaning, name).toBeTruthy();
    expect(entryOf(name)?.steps.length, name).toBeGreaterThan(0);
    expect(RULES).toContain(`runbook.md#${name.toLowerCase()}`);
  }
});

test("alerts of gauges and of counters that grow", () => {
  const before = 'svc_storage_writable 1\nsvc_errors_total{code="INTERNAL_ERROR"} 3\nsvc_errors_total{code="NOT_FOUND"} 1\n';
  expect(firing([])).toEqual([]);
  expect(firing([reading(0, before)])).toEqual([]);
  const after = 'svc_storage_writable 0\nsvc_errors_total{code="INTERNAL_ERROR"} 4\nsvc_errors_total{code="NOT_FOUND"} 9\nsvc_log_queue_records 1500\n';
  expect(firing([reading(0, before), reading(5, after)]).map(({ alert }) => alert.name)).toEqual(["KbcoreNotWritable", "KbcoreInternalErrors", "KbcoreWritesWait"]);
});

test("a node that works alone is no leader without followers", () => {
  expect(firing([reading(0, "svc_replication_in_sync_followers 0\nsvc_replication_is_leader 0\n")])).toEqual([]);
});

test("an entry has its meaning and its steps without links", () => {
  expect(entryOf("A", "# x\n\n## A\n\nIt is\nfull.\n\n- See [the page](a.md#b).\n- Free `space`.\n\n## B\n\nNo.\n")).toEqual({ meaning: "It is full.", steps: ["See the page.", "Free `space`."] });
  expect(entryOf("C", "## A\n")).toBeNull();
});
