// The alerts of docs/operations/alerts.yml that a node can see itself, from its readings. Prometheus watches for hours;
// the console sees what has happened since its screen was opened, and what the gauges say now.
import { buckets, quantile, total } from "../../prometheus";
import type { Reading } from "./readings";

export interface Alert {
  name: string;
  severity: "page" | "warn";
  /** Return what is wrong, or null. */
  check: (window: Window) => string | null;
}

/** The first and the last reading, and what follows from both. */
interface Window {
  now: (name: string, labels?: Record<string, string>) => number;
  /** How much a counter has grown since the first reading. */
  grown: (name: string, labels?: Record<string, string>) => number;
  /** Seconds between both readings. */
  seconds: number;
  quantile: (share: number, name: string) => number | null;
}

const amount = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 0 });

export const ALERTS: readonly Alert[] = [
  { name: "KbcoreNotWritable", severity: "page", check: ({ now }) => (now("svc_storage_writable") === 0 ? "The server takes no writes: the disk is full or the log failed." : null) },
  {
    name: "KbcoreInternalErrors",
    severity: "page",
    check: ({ grown }) => (grown("svc_errors_total", { code: "INTERNAL_ERROR" }) > 0 ? "The server answers INTERNAL_ERROR, which is always a bug." : null),
  },
  {
    name: "KbcoreSlowSync",
    severity: "warn",
    check: (window) => ((window.quantile(0.99, "svc_log_sync_duration_seconds") ?? 0) > 0.25 ? "The disk is slow: one sync in a hundred takes over 250 ms." : null),
  },
  { name: "KbcoreWritesWait", severity: "warn", check: ({ now }) => (now("svc_log_queue_records") > 1000 ? `${amount(now("svc_log_queue_records"))} writes wait for the disk.` : null) },
  { name: "KbcoreGoalsWait", severity: "warn", check: ({ now }) => (now("svc_inferences_waiting") > 10 ? `${amount(now("svc_inferences_waiting"))} long goals wait for each other.` : null) },
  {
    name: "KbcoreBudgetsExceeded",
    severity: "warn",
    check: ({ grown, seconds }) => (seconds > 0 && grown("svc_budget_exceeded_total") / seconds > 0.1 ? "Goals meet their limits." : null),
  },
  { name: "KbcoreSnapshotsFail", severity: "warn", check: ({ grown }) => (grown("svc_snapshots_total", { outcome: "failed" }) > 0 ? "Snapshots fail: the log grows, and a start takes longer." : null) },
  { name: "KbcorePluginFails", severity: "warn", check: ({ grown }) => (grown("svc_plugin_failures_total") > 0 ? "A plugin raises." : null) },
  {
    name: "KbcoreFollowerLags",
    severity: "warn",
    check: ({ now }) => (now("svc_replication_lag_seconds") > 10 ? `What this follower answers is ${amount(now("svc_replication_lag_seconds"))} s old.` : null),
  },
  {
    name: "KbcoreFollowerDisconnected",
    severity: "page",
    check: ({ now }) => (now("svc_replication_last_contact_seconds") > 60 ? `This follower has not heard of its leader for ${amount(now("svc_replication_last_contact_seconds"))} s.` : null),
  },
  {
    name: "KbcoreFollowerFallsBack",
    severity: "warn",
    check: ({ now }) => (now("svc_replication_follower_lag_records") > 100_000 ? "A follower lacks over 100,000 records; it may have to fetch the whole state." : null),
  },
  { name: "KbcoreDiverged", severity: "page", check: ({ grown }) => (grown("svc_replication_divergences_total") > 0 ? "The log of this node is not that of its leader." : null) },
  {
    name: "KbcoreNoFollowerInSync",
    severity: "page",
    // The gauge counts for leaders that wait for followers only; a node without a lease has none.
    check: ({ now }) => (now("svc_replication_in_sync_followers") === 0 && now("svc_replication_is_leader") === 1 ? "No follower is in sync: writes are refused." : null),
  },
  { name: "KbcoreLeaderChanges", severity: "warn", check: ({ grown }) => (grown("svc_replication_role_changes_total") > 2 ? "This node changes its role again and again." : null) },
  {
    name: "KbcoreShardsWithoutNode",
    severity: "page",
    check: ({ now }) => (now("svc_cluster_unowned_shards") > 0 ? `${amount(now("svc_cluster_unowned_shards"))} shards have no node: their tenants get 503.` : null),
  },
  { name: "KbcoreShardsLost", severity: "warn", check: ({ grown }) => (grown("svc_cluster_shards_lost_total") > 0 ? "This node lost shards: it was paused, overloaded, or without PostgreSQL." : null) },
  {
    name: "KbcoreTornTail",
    severity: "warn",
    check: ({ now }) => (now("svc_wal_tail_bytes_dropped_total") > 0 ? `The node began after a crash and dropped ${amount(now("svc_wal_tail_bytes_dropped_total"))} bytes that were never acknowledged.` : null),
  },
  {
    name: "KbcoreSnapshotDamaged",
    severity: "warn",
    check: ({ now }) => (now("svc_snapshots_damaged_total") > 0 ? "A damaged snapshot was found at the start; an older one and the log replaced it." : null),
  },
  { name: "KbcoreClockStepsBack", severity: "warn", check: ({ grown }) => (grown("svc_clock_steps_back_total") > 0 ? "The clock of the machine went back." : null) },
];

/** Return the alerts that fire, those that call someone first. */
export function firing(readings: readonly Reading[]): { alert: Alert; text: string }[] {
  const [first, last] = [readings[0], readings.at(-1)];
  if (first === undefined || last === undefined) return [];
  const sum = ({ samples }: Reading, name: string, labels: Record<string, string> = {}) =>
    total(samples.filter((sample) => Object.entries(labels).every(([label, value]) => sample.labels[label] === value)), name);
  const window: Window = {
    // A metric without samples is of a feature that is not used.
    now: (name, labels) => sum(last, name, labels) ?? NaN,
    grown: (name, labels) => (sum(last, name, labels) ?? 0) - (sum(first, name, labels) ?? 0),
    seconds: last.seconds - first.seconds,
    quantile: (share, name) => quantile(share, buckets(first.samples, name), buckets(last.samples, name)),
  };
  return ALERTS.flatMap((alert) => {
    const text = alert.check(window);
    return text === null ? [] : [{ alert, text }];
  }).sort((left, right) => Number(left.alert.severity === "warn") - Number(right.alert.severity === "warn"));
}
