// The main metrics over the last minutes, computed from GET /metrics.
import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";

import { ApiError, send } from "../../api/client";
import { ErrorMessage } from "../../components/ErrorMessage";
import { useConnection } from "../../connection";
import { buckets, parseMetrics, quantile, rate, total } from "../../prometheus";

const Sparkline = lazy(() => import("../../components/Sparkline"));

const POLL_MS = 5000;
const MAX_POINTS = 120;
const GOALS = "svc_inference_duration_seconds";

interface Reading {
  seconds: number;
  requests: number | null;
  goals: number | null;
  durations: Map<number, number>;
  facts: number | null;
  bytes: number | null;
}

const METRICS: { title: string; value: (after: Reading, before: Reading | undefined) => number | null; format: (value: number) => string }[] = [
  { title: "Requests per second", value: (after, before) => rate(before?.requests ?? null, after.requests, elapsed(after, before)), format: short },
  { title: "Goals per second", value: (after, before) => rate(before?.goals ?? null, after.goals, elapsed(after, before)), format: short },
  { title: "Goal time, 99th percentile", value: (after, before) => (before === undefined ? null : quantile(0.99, before.durations, after.durations)), format: duration },
  { title: "Facts", value: (after) => after.facts, format: (value) => value.toLocaleString("en") },
  { title: "Memory of the engines", value: (after) => after.bytes, format: size },
];

export function Metrics() {
  const { connection } = useConnection();
  const [readings, setReadings] = useState<Reading[]>([]);
  const metrics = useQuery({
    queryKey: ["metrics", connection.key],
    queryFn: async ({ signal }) => readingOf(await (await send(connection, "/metrics", { signal })).text()),
    // Polling stops while the page is hidden.
    refetchInterval: (query) => (query.state.error === null ? POLL_MS : false),
    structuralSharing: false,
    gcTime: 0,
  });
  const reading = metrics.data;
  useEffect(() => {
    if (reading !== undefined) setReadings((previous) => (previous.at(-1) === reading ? previous : [...previous, reading].slice(-MAX_POINTS)));
  }, [reading]);
  if (metrics.error instanceof ApiError && metrics.error.status === 404) {
    return <p className="soft">This server publishes no metrics: the setting <code>METRICS_SINKS</code> names no sink with the Prometheus format.</p>;
  }
  if (metrics.error !== null) return <ErrorMessage error={metrics.error} />;
  const times = readings.map(({ seconds }) => seconds);
  return (
    <>
      <ul className="sparklines">
        {METRICS.map(({ title, value, format }) => {
          const values = readings.map((after, index) => value(after, readings[index - 1]));
          const latest = values.at(-1) ?? null;
          return (
            <li key={title} className="card">
              <span className="soft">{title}</span>
              <strong>{latest === null ? "–" : format(latest)}</strong>
              <Suspense fallback={<div className="sparkline" />}>
                <Sparkline label={title} times={times} values={values} format={format} />
              </Suspense>
            </li>
          );
        })}
      </ul>
      <p className="soft">
        Figures of the whole server, read every {POLL_MS / 1000} s while this page is visible. Goals that take longer than the setting{" "}
        <code>SLOW_QUERY_MS</code> are in the log of the server.
      </p>
    </>
  );
}

function readingOf(text: string): Reading {
  const samples = parseMetrics(text);
  return {
    seconds: Date.now() / 1000,
    requests: total(samples, "svc_http_requests_total"),
    goals: total(samples, `${GOALS}_count`),
    durations: buckets(samples, GOALS),
    facts: total(samples, "svc_memory_facts_total"),
    bytes: total(samples, "svc_engine_bytes"),
  };
}

function elapsed(after: Reading, before: Reading | undefined): number {
  return before === undefined ? 0 : after.seconds - before.seconds;
}

function short(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

function duration(seconds: number): string {
  return seconds < 1 ? `${Number((seconds * 1000).toPrecision(2))} ms` : `${Number(seconds.toPrecision(3))} s`;
}

function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  return `${(bytes / 1024 ** power).toLocaleString("en", { maximumFractionDigits: 1 })} ${units[power] ?? ""}`;
}
