import { expect, test } from "vitest";

import { instantText, placeOfTime, timeText } from "./time";

test("a request says the time where the server takes it", () => {
  const asOf = { kind: "asOf", at: "2026-05-01T00:00:00Z" } as const;
  const knownAt = { ...asOf, kind: "knownAt" } as const;
  expect(placeOfTime("POST", "/ask", asOf)).toBe("body");
  expect(placeOfTime("POST", "/memory/context", asOf)).toBeNull();
  expect(placeOfTime("POST", "/memory/context", knownAt)).toBe("body");
  expect(placeOfTime("GET", "/episodes", asOf)).toBeNull();
  expect(placeOfTime("GET", "/episodes/{id}", knownAt)).toBe("query");
  expect(placeOfTime("POST", "/tell", knownAt)).toBeNull();
});

test("instants are read as days, with the time of day where there is one", () => {
  expect(timeText({ kind: "asOf", at: "2026-05-01T00:00:00Z" })).toBe("as of 1 May 2026");
  expect(instantText("2026-11-13T09:04:00Z")).toBe("13 Nov 2026, 09:04 UTC");
  expect(instantText("yesterday")).toBe("yesterday");
});
