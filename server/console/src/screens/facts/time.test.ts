import { expect, test } from "vitest";

import { inputTime, timeOf } from "./time";

test("a time survives the field, to the second", () => {
  const ms = Date.UTC(2026, 6, 1, 12, 34, 56);
  expect(timeOf(inputTime(ms))).toBe(ms);
  expect(timeOf(inputTime(ms + 999))).toBe(ms);
});

test("an empty field is no time", () => {
  expect(inputTime(null)).toBe("");
  expect(timeOf("")).toBeNull();
});
