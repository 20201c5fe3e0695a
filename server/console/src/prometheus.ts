// The Prometheus text format, as far as GET /metrics uses it, and figures computed from two readings.
// https://prometheus.io/docs/instrumenting/exposition_formats/

export interface Sample {
  name: string;
  labels: Record<string, string>;
  value: number;
}

const LINE = /^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?$/;
const LABEL = /([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"/g;
const ESCAPES: Record<string, string> = { n: "\n", "\\": "\\", '"': '"' };

/** Return the samples of a text; lines that are none, such as comments, are skipped. */
export function parseMetrics(text: string): Sample[] {
  const samples: Sample[] = [];
  for (const line of text.split("\n")) {
    const match = line.startsWith("#") ? null : LINE.exec(line.trim());
    if (match === null) continue;
    const labels: Record<string, string> = {};
    for (const [, name = "", value = ""] of (match[2] ?? "").matchAll(LABEL)) {
      labels[name] = value.replace(/\\(.)/g, (whole, letter: string) => ESCAPES[letter] ?? whole);
    }
    samples.push({ name: match[1] ?? "", labels, value: numberOf(match[3] ?? "") });
  }
  return samples;
}

/** Return the sum of the samples with a name over all labels; null if there are none. */
export function total(samples: Sample[], name: string): number | null {
  const values = samples.filter((sample) => sample.name === name).map(({ value }) => value);
  return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0);
}

/** Return the cumulative counts of a histogram by upper bound, in ascending order, over all other labels. */
export function buckets(samples: Sample[], name: string): Map<number, number> {
  const counts = new Map<number, number>();
  for (const sample of samples) {
    if (sample.name !== `${name}_bucket`) continue;
    const bound = numberOf(sample.labels["le"] ?? "");
    counts.set(bound, (counts.get(bound) ?? 0) + sample.value);
  }
  return new Map([...counts].sort(([left], [right]) => left - right));
}

/**
 * Return the quantile of the observations between two readings of a histogram, interpolated within
 * its bucket as Prometheus does; null if there were none. Above the last finite bound: that bound.
 */
export function quantile(share: number, before: Map<number, number>, after: Map<number, number>): number | null {
  const bounds = [...after.keys()];
  const counts = bounds.map((bound) => (after.get(bound) ?? 0) - (before.get(bound) ?? 0));
  const observations = counts.at(-1) ?? 0;
  // A count below zero: the server has restarted between the readings.
  if (observations <= 0 || counts.some((count) => count < 0)) return null;
  const rank = share * observations;
  const index = counts.findIndex((count) => count >= rank);
  const upper = bounds[index] ?? Infinity;
  const lower = index === 0 ? 0 : (bounds[index - 1] ?? 0);
  if (upper === Infinity) return lower;
  const below = index === 0 ? 0 : (counts[index - 1] ?? 0);
  const inside = (counts[index] ?? 0) - below;
  return inside === 0 ? upper : lower + ((upper - lower) * (rank - below)) / inside;
}

/** Return the increase of a counter per second; null if it is missing or the server has restarted. */
export function rate(before: number | null, after: number | null, seconds: number): number | null {
  if (before === null || after === null || after < before || seconds <= 0) return null;
  return (after - before) / seconds;
}

function numberOf(text: string): number {
  if (text === "+Inf") return Infinity;
  return text === "-Inf" ? -Infinity : Number(text);
}
