import { expect, test } from "vitest";

import { intervalsOf, spanOf } from "./history";
import type { HistoryEvent, Row } from "./requests";

function row(value: string, validFrom: number, validUntil: number | null = null): Row {
  return { predicate: "lives_in", args: ["mia", value], negated: false, scope: null, metadata: {}, createdAt: validFrom, validFrom, validUntil, ttl: null, confidence: null };
}

function event(at: number, before: Row | null, after: Row | null, cause = "assert"): HistoryEvent {
  const kind = before === null ? "asserted" : after === null ? "retracted" : "replaced";
  return { event: kind, cause, at, before, after, commitSeq: at, requestId: null, transaction: null, key: null, count: null, reason: null, undoes: null } as HistoryEvent;
}

test("a newer value ends the older one, and a removed fact says how", () => {
  const hamburg = row("Hamburg", 10);
  const events = [
    event(40, row("Kiel", 5), null, "retract"),
    event(30, hamburg, row("Hamburg", 10, 20), "supersede"),
    event(30, null, row("Berlin", 20)),
    event(12, null, row("Kiel", 5)),
    event(11, null, hamburg),
  ];
  const intervals = intervalsOf(events);
  expect(intervals.map(({ fact, from, until, removed }) => [fact, from, until, removed?.cause ?? null])).toEqual([
    ["lives_in(mia, Kiel)", 5, null, "retract"],
    ["lives_in(mia, Hamburg)", 10, 20, null],
    ["lives_in(mia, Berlin)", 20, null, null],
  ]);
  expect(spanOf(intervals, 50)).toEqual({ first: 5, last: 50 });
});

test("a fact that returns has an interval for each time", () => {
  const events = [event(3, null, row("Hamburg", 30)), event(2, row("Hamburg", 10), row("Hamburg", 10, 20), "supersede"), event(1, null, row("Hamburg", 10))];
  expect(intervalsOf(events).map(({ from, until }) => [from, until])).toEqual([[10, 20], [30, null]]);
});
