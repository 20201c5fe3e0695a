// Health, replication, databases, keys, events and metrics of the server.
import type { ReactNode } from "react";

import { Databases } from "./operations/Databases";
import { Events } from "./operations/Events";
import { Health } from "./operations/Health";
import { Keys } from "./operations/Keys";
import { Metrics } from "./operations/Metrics";
import { SlowGoals } from "./operations/SlowGoals";
import "./operations.css";

export default function Operations() {
  return (
    <>
      <h1>Operations</h1>
      <Section title="Metrics"><Metrics /></Section>
      <Section title="Health"><Health /></Section>
      <Section title="Slow goals"><SlowGoals /></Section>
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
