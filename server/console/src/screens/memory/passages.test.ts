import { expect, test } from "vitest";

import { segmentsOf } from "./passages";

test("a message is cut at its passages", () => {
  const segments = segmentsOf("I live in Berlin.", [
    { fact: "lives", start: 2, end: 16 },
    { fact: "city", start: 10, end: 16 },
  ]);
  expect(segments).toEqual([
    { text: "I ", facts: [] },
    { text: "live in ", facts: ["lives"] },
    { text: "Berlin", facts: ["lives", "city"] },
    { text: ".", facts: [] },
  ]);
});

test("positions are characters, and passages outside the text are ignored", () => {
  expect(segmentsOf("🎉 hi", [{ fact: "greets", start: 2, end: 4 }])).toEqual([
    { text: "🎉 ", facts: [] },
    { text: "hi", facts: ["greets"] },
  ]);
  expect(segmentsOf("hi", [{ fact: "old", start: 5, end: 9 }])).toEqual([{ text: "hi", facts: [] }]);
});
