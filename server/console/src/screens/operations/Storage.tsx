// The log and its snapshots, and the log of decisions.
import { useMutation } from "@tanstack/react-query";

import { dataOf } from "../../api/client";
import { useWhoAmI } from "../../api/queries";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { buckets, quantile, total, type Sample } from "../../prometheus";
import { duration, short, size, type Reading } from "./readings";

export function LogAndSnapshots({ readings }: { readings: readonly Reading[] }) {
  const { connection, client } = useConnection();
  const isAdmin = useWhoAmI().data?.role === "admin";
  const snapshot = useMutation({ mutationFn: () => dataOf(client.POST("/admin/snapshot", { body: {} as never, params: {} as never })) });
  const samples = readings.at(-1)?.samples;
  if (samples === undefined) return null;
  const of = (name: string) => total(samples, name) ?? 0;
  const sync = quantile(0.99, new Map(), buckets(samples, "svc_log_sync_duration_seconds"));
  const rows: [string, string][] = [
    ["Last record", short(of("svc_log_head"))],
    ["Written since the start", `${short(of("svc_log_records_total"))} records in ${short(of("svc_log_batches_total"))} syncs, ${size(of("svc_log_bytes_total"))}`],
    ["Sync, 99th percentile", sync === null ? "–" : duration(sync)],
    ["Waiting for the disk", short(of("svc_log_queue_records"))],
    ["Newest snapshot", of("svc_snapshot_head") === 0 ? "none yet" : `up to record ${short(of("svc_snapshot_head"))}`],
    ["Since the last snapshot or the start", duration(of("svc_snapshot_age_seconds"))],
    ["Snapshots since the start", `${short(countOf(samples, "svc_snapshots_total", "ok"))} taken, ${short(countOf(samples, "svc_snapshots_total", "failed"))} failed`],
    ["Replayed at the start", `${short(of("svc_recovery_records"))} records in ${duration(of("svc_recovery_duration_seconds"))}`],
  ];
  return (
    <>
      <Figures label="Log and snapshots" rows={rows} />
      {isAdmin && connection.time === null && (
        <p className="toolbar">
          <button type="button" disabled={snapshot.isPending} onClick={() => snapshot.mutate()}>Take a snapshot</button>
          <span role="status" className="soft">{snapshot.isPending ? "Taking a snapshot …" : snapshot.isSuccess ? "The snapshot is taken." : ""}</span>
        </p>
      )}
      {snapshot.error !== null && <ErrorMessage error={snapshot.error} />}
    </>
  );
}

export function DecisionLog({ readings }: { readings: readonly Reading[] }) {
  const samples = readings.at(-1)?.samples;
  if (samples === undefined) return null;
  const [written, dropped, failed] = ["written", "dropped", "failed"].map((outcome) => countOf(samples, "svc_decision_log_lines_total", outcome));
  if ((written ?? 0) + (dropped ?? 0) + (failed ?? 0) === 0) {
    return <p className="soft">No decision has been logged since the start. The setting <code>DECISION_LOG</code> names where each answered goal is written, such as <code>file:decisions.jsonl</code>.</p>;
  }
  return (
    <>
      <Figures label="Decision log" rows={[["Written", short(written ?? 0)], ["Dropped, as the queue was full", short(dropped ?? 0)], ["Failed, because of the disk or the address", short(failed ?? 0)]]} />
      {(dropped ?? 0) + (failed ?? 0) > 0 && <p className="warning">Decisions are missing in the log.</p>}
    </>
  );
}

function Figures({ label, rows }: { label: string; rows: readonly [string, string][] }) {
  return (
    <dl className="figures card" aria-label={label}>
      {rows.map(([name, value]) => <div key={name}><dt className="soft">{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

function countOf(samples: readonly Sample[], name: string, outcome: string): number {
  return total(samples.filter(({ labels }) => labels["outcome"] === outcome), name) ?? 0;
}
