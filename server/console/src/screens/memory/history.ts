// The changes of facts as intervals in which they were valid.
import { atomText } from "../../language/atom";
import type { HistoryEvent, Row } from "./requests";

export interface Interval {
  id: string;
  fact: string;
  row: Row;
  /** Epoch milliseconds; null for an interval without an end. */
  from: number;
  until: number | null;
  /** How the fact was removed, if it is stored no more. */
  removed: { cause: string; at: number; reason: string | null } | null;
}

/** Return the intervals of a history, the newest event first, in order of their beginning. */
export function intervalsOf(events: readonly HistoryEvent[]): Interval[] {
  const intervals = new Map<string, Interval>();
  for (const { before, after, cause, at, reason } of [...events].reverse()) {
    if (before !== null && (after === null || idOf(before) !== idOf(after))) {
      const known = intervals.get(idOf(before)) ?? intervalOf(before);
      if (after === null) intervals.set(known.id, { ...known, removed: { cause, at, reason } });
      else intervals.delete(known.id);
    }
    if (after !== null) intervals.set(idOf(after), intervalOf(after));
  }
  return [...intervals.values()].sort((first, second) => first.from - second.from || first.fact.localeCompare(second.fact));
}

/** Return the first instant and the last of intervals, the present included. */
export function spanOf(intervals: readonly Interval[], now: number): { first: number; last: number } {
  const first = Math.min(now, ...intervals.map(({ from }) => from));
  const ends = intervals.flatMap(({ until, from }) => [from, ...(until === null ? [] : [until])]);
  const last = Math.max(now, ...ends);
  return { first, last: last > first ? last : first + 1 };
}

function intervalOf(row: Row): Interval {
  return { id: idOf(row), fact: atomText(row), row, from: row.validFrom ?? row.createdAt ?? 0, until: row.validUntil, removed: null };
}

function idOf(row: Row): string {
  return `${atomText(row)} ${row.scope ?? ""} ${row.validFrom ?? row.createdAt ?? 0}`;
}
