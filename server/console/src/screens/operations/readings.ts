// What GET /metrics says now, and what it has said since the screen was opened.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useState } from "react";

import { send } from "../../api/client";
import { useConnection } from "../../connection";
import { parseMetrics, type Sample } from "../../prometheus";

export const POLL_MS = 5000;
const MAX_READINGS = 120;

/** The samples of one time, in seconds since the epoch. */
export interface Reading {
  seconds: number;
  samples: Sample[];
}

/** Return the readings since the screen was opened, the oldest first; none before the first. Polling stops while the page is hidden. */
export function useReadings(): { readings: readonly Reading[]; error: unknown } {
  const { connection } = useConnection();
  const [readings, setReadings] = useState<Reading[]>([]);
  const metrics = useQuery({
    queryKey: ["metrics", connection.key],
    queryFn: async ({ signal }): Promise<Reading> => ({ samples: parseMetrics(await (await send(connection, "/metrics", { signal })).text()), seconds: Date.now() / 1000 }),
    refetchInterval: (query) => (query.state.error === null ? POLL_MS : false),
    structuralSharing: false,
    gcTime: 0,
  });
  const reading = metrics.data;
  useEffect(() => {
    if (reading !== undefined) setReadings((previous) => (previous.at(-1) === reading ? previous : [...previous, reading].slice(-MAX_READINGS)));
  }, [reading]);
  return { readings, error: metrics.error };
}

/** Return a number as it is shown in a table: at most one digit after the point. */
export function short(value: number): string {
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
}

export function duration(seconds: number): string {
  if (seconds < 1) return `${Number((seconds * 1000).toPrecision(2))} ms`;
  if (seconds < 120) return `${Number(seconds.toPrecision(3))} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

export function size(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log2(Math.max(1, bytes)) / 10)));
  return `${(bytes / 1024 ** power).toLocaleString("en", { maximumFractionDigits: 1 })} ${units[power] ?? ""}`;
}
