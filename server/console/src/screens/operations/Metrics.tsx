// Traffic, latency, errors and size over the last minutes, as small charts of one time axis.
import { lazy, Suspense } from "react";

import { buckets, quantile, rate, total, type Sample } from "../../prometheus";
import { duration, POLL_MS, short, size, type Reading } from "./readings";

const Sparkline = lazy(() => import("../../components/Sparkline"));

interface Metric {
  title: string;
  /** Return the value of a reading; null without one. */
  value: (after: Reading, before: Reading | undefined) => number | null;
  format: (value: number) => string;
}

const GROUPS: { title: string; metrics: readonly Metric[] }[] = [
  {
    title: "Traffic",
    metrics: [
      { title: "Requests per second", value: rateOf("svc_http_requests_total"), format: short },
      { title: "Goals per second", value: rateOf("svc_inference_duration_seconds_count"), format: short },
      { title: "Writes per second", value: rateOf("svc_log_records_total"), format: short },
    ],
  },
  {
    title: "Latency",
    metrics: [
      { title: "Request time, median", value: quantileOf(0.5, "svc_http_request_duration_seconds"), format: duration },
      { title: "Request time, 99th percentile", value: quantileOf(0.99, "svc_http_request_duration_seconds"), format: duration },
      { title: "Goal time, 99th percentile", value: quantileOf(0.99, "svc_inference_duration_seconds"), format: duration },
    ],
  },
  {
    title: "Errors",
    metrics: [
      { title: "Errors per second", value: rateOf("svc_errors_total"), format: short },
      { title: "Goals at a limit per second", value: rateOf("svc_budget_exceeded_total"), format: short },
      { title: "Goals that wait", value: ({ samples }) => total(samples, "svc_inferences_waiting"), format: short },
    ],
  },
  {
    title: "Size",
    metrics: [
      { title: "Facts", value: ({ samples }) => total(samples, "svc_memory_facts_total"), format: (value) => value.toLocaleString("en") },
      { title: "Memory of the engines", value: ({ samples }) => total(samples, "svc_engine_bytes"), format: size },
      { title: "Log queue", value: ({ samples }) => total(samples, "svc_log_queue_records"), format: short },
    ],
  },
];

export function Metrics({ readings }: { readings: readonly Reading[] }) {
  const times = readings.map(({ seconds }) => seconds);
  return (
    <>
      {GROUPS.map((group) => (
        <section key={group.title} aria-label={group.title} className="multiples">
          <h3>{group.title}</h3>
          <ul className="sparklines">
            {group.metrics.map(({ title, value, format }) => {
              const values = readings.map((after, index) => value(after, readings[index - 1]));
              const known = values.filter((each) => each !== null);
              const latest = values.at(-1) ?? null;
              return (
                <li key={title} className="card">
                  <span className="soft">{title}</span>
                  <strong>{latest === null ? "–" : format(latest)}</strong>
                  <Suspense fallback={<div className="sparkline" />}>
                    <Sparkline label={title} times={times} values={values} format={format} />
                  </Suspense>
                  <span className="soft range">{known.length === 0 ? "no values yet" : `highest ${format(Math.max(...known))}`}</span>
                </li>
              );
            })}
          </ul>
        </section>
      ))}
      <p className="soft">Figures of the whole server, read every {POLL_MS / 1000} s while this page is visible, from {times[0] === undefined ? "now" : new Date(times[0] * 1000).toLocaleTimeString("en-GB")} on.</p>
    </>
  );
}

/** Streams end when a client leaves: their time says nothing about the server. */
const isStream = ({ labels }: Sample) => labels["route"]?.endsWith("/events") === true;

function rateOf(name: string): Metric["value"] {
  return (after, before) => (before === undefined ? null : rate(total(before.samples, name), total(after.samples, name), after.seconds - before.seconds));
}

function quantileOf(share: number, name: string): Metric["value"] {
  const of = ({ samples }: Reading) => buckets(samples.filter((sample) => !isStream(sample)), name);
  return (after, before) => (before === undefined ? null : quantile(share, of(before), of(after)));
}
