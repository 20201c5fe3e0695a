// The state of the server: alerts, figures, slow goals, log, cluster, events, tenants and keys.
import type { ReactNode } from "react";

import { ApiError } from "../api/client";
import { ErrorMessage } from "../components/ErrorMessage";
import { Alerts } from "./operations/Alerts";
import { Cluster } from "./operations/Cluster";
import { Databases } from "./operations/Databases";
import { Events } from "./operations/Events";
import { Health } from "./operations/Health";
import { Keys } from "./operations/Keys";
import { Metrics } from "./operations/Metrics";
import { useReadings } from "./operations/readings";
import { SlowGoals } from "./operations/SlowGoals";
import { DecisionLog, LogAndSnapshots } from "./operations/Storage";
import "./operations.css";

export default function Operations() {
  const { readings, error } = useReadings();
  const isUnpublished = error instanceof ApiError && error.status === 404;
  const figures = (shown: ReactNode) => {
    if (isUnpublished) return <p className="soft">This server publishes no metrics: the setting <code>METRICS_SINKS</code> names no sink with the Prometheus format.</p>;
    return error === null ? shown : <ErrorMessage error={error} />;
  };
  return (
    <>
      <h1>Operations</h1>
      <Section title="Alerts">{figures(<Alerts readings={readings} />)}</Section>
      {error === null && <Section title="Metrics"><Metrics readings={readings} /></Section>}
      <Section title="Slow goals"><SlowGoals /></Section>
      <Section title="Health"><Health /></Section>
      {error === null && <Section title="Cluster"><Cluster readings={readings} /></Section>}
      {error === null && <Section title="Log and snapshots"><LogAndSnapshots readings={readings} /></Section>}
      {error === null && <Section title="Decision log"><DecisionLog readings={readings} /></Section>}
      <Section title="Live events"><Events /></Section>
      <Section title="Databases and tenants"><Databases /></Section>
      <Section title="Keys"><Keys /></Section>
    </>
  );
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section aria-label={title}>
      <h2>{title}</h2>
      {children}
    </section>
  );
}
