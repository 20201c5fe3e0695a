import { expect, test } from "vitest";

import { changed, labelsText, viewOf } from "./view";

test("a view is read from the address and changed one dimension at a time", () => {
  expect(viewOf(null)).toEqual({});
  expect(viewOf("{")).toEqual({});
  expect(viewOf("[1]")).toEqual({});
  const view = viewOf('{"trust":"user"}');
  expect(changed(view, "team", ["eng"])).toBe('{"trust":"user","team":["eng"]}');
  expect(changed(view, "trust", "tool")).toBe('{"trust":"tool"}');
  expect(changed(view, "trust", undefined)).toBeNull();
});

test("labels are read as levels and groups", () => {
  expect(labelsText(undefined)).toBe("");
  expect(labelsText({ trust: "web", team: ["eng", "hr"] })).toBe("trust: web, team: eng or hr");
});
