import { expect, test } from "vitest";

import type { Schemas } from "./api/client";
import { matchedWords, reasonsOf } from "./reasons";

const NOV_13 = Date.UTC(2026, 10, 13);

function entry(part: Omit<Partial<Schemas["Entry"]>, "why" | "metadata"> & { why?: object; metadata?: object }): Schemas["Entry"] {
  return { predicate: "lives_in", args: ["mia", "Berlin"], negated: false, salience: 1, category: "recent", charCount: 9, createdAt: 1, metadata: {}, contradicted: false, ...part } as Schemas["Entry"];
}

test("words match in any form, and common words do not", () => {
  expect(matchedWords("Where does Mia live in Berlin?", ["lives_in", "mia", "Berlin"])).toEqual(["Mia", "live", "Berlin"]);
  expect(matchedWords("who is it", ["is_a", "it"])).toEqual([]);
});

test("an entry of a question says what matches, since when, and who said it", () => {
  const source = { episode: "e", start: 0, end: 1, text: "I moved", speaker: "Mia", at: NOV_13, number: 1 };
  expect(reasonsOf(entry({ why: { reason: "query" }, validFrom: NOV_13, citations: [1] }), "Where does Mia live?", [source])).toEqual([
    "matches “Mia” and “live”",
    "current value since 13 Nov 2026",
    "said by Mia",
  ]);
});

test("other entries say what they are for", () => {
  expect(reasonsOf(entry({ why: { reason: "answer of p(?x)" } }), "", [])).toEqual(["answer of p(?x)"]);
  expect(reasonsOf(entry({ why: { reason: "rank", accesses: 3, confidence: 0.5 }, contradicted: true, metadata: { source: "crm" } }), "", [])).toEqual([
    "in use: read 3 times",
    "the opposite is known too",
    "from crm",
    "confidence 0.5",
  ]);
  expect(reasonsOf(entry({ predicate: "said", args: ["Mia", "Hi"], why: { reason: "query" }, validFrom: NOV_13 }), "hello", [])).toEqual([
    "close in meaning, or said near a match",
    "said by Mia on 13 Nov 2026",
  ]);
});
